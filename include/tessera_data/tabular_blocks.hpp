// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera_data/compressed_file.hpp>
#include <tessera_data/csv_reader.hpp>
#include <tessera_data/schema.hpp>
#include <tessera_data/tabular.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// The blocks of a CSV or TSV file of any length, which may be read again in any order: each must
/// then hold what it held when the constructor passed over the file. `schema` must outlive it.
/// Reading is thread-safe; of a compressed file, and of one that `open` knows, it goes from the
/// beginning to the end, by one thread at a time. Throws DataError for a bad line and for a file
/// that changes.
class TabularBlocks {
 public:
  /// Passes over the file. `block`: samples of each. `visit(block)` sees each block of the first
  /// pass, in the file's order.
  template <class Visit>
  TabularBlocks(std::filesystem::path path, const Schema& schema, BadLines bad_lines,
                std::int64_t block, Visit visit, OpenRecords open = {})
      : path_(std::move(path)),
        schema_(&schema),
        bad_lines_are_(bad_lines),
        block_(block),
        open_(std::move(open)) {
    TabularReader reader(path_, schema, bad_lines, open_);
    rows_ = reader.rows();
    in_order_ = rows_ || !detail::compression_of(path_).empty();
    TabularBlock read;
    while (const std::int64_t count = reader.read(block, read)) {
      places_.push_back({reader.offset(), reader.line(), checksum(read)});
      samples_ += count;
      visit(std::as_const(read));
    }
    columns_.emplace(reader.places());
    bad_lines_ = reader.bad_lines();
    first_bad_line_ = reader.first_bad_line();
    require<DataError>(samples_ > 0, "file '{}' holds no samples", path_.string());
  }

  std::size_t count() const { return places_.size(); }
  std::int64_t samples() const { return samples_; }
  /// Returns whether blocks are read one after another, as of a compressed file.
  bool in_order() const { return in_order_; }
  const std::filesystem::path& path() const { return path_; }
  /// Returns where a block's first record is, and that in words.
  std::int64_t line(std::size_t b) const { return places_[b].line; }
  std::string where(std::size_t b) const {
    return detail::formatted("{} {}", rows_ ? "row" : "line", line(b));
  }
  std::int64_t first_sample(std::size_t b) const { return static_cast<std::int64_t>(b) * block_; }
  /// Returns how many blocks the first `samples` samples take.
  std::size_t blocks_of(std::int64_t samples) const {
    return static_cast<std::size_t>((samples + block_ - 1) / block_);
  }
  /// Return the bad lines that were skipped, and what was wrong with the first.
  std::int64_t bad_lines() const { return bad_lines_; }
  const std::string& first_bad_line() const { return first_bad_line_; }

  void read(std::size_t b, TabularBlock& block) const {
    if (!in_order_) {
      TabularReader reader(open_at(places_[b].offset), path_.string(), *schema_,
                           separator_of(*schema_, path_), bad_lines_are_, *columns_,
                           places_[b].line);
      reader.read(block_, block);
    } else {
      const std::lock_guard lock(sequence_mutex_);
      // a row is found by its number, a line of compressed text by all that is before it
      if (!sequence_ || b < next_block_ || (rows_ && b != next_block_)) {
        next_block_ = rows_ ? b : 0;
        sequence_.emplace(path_, *schema_, bad_lines_are_, open_, rows_ ? places_[b].line - 1 : 0);
      }
      for (; next_block_ <= b; ++next_block_) sequence_->read(block_, block);
    }
    require<DataError>(checksum(block) == places_[b].checksum,
                       "file '{}' changed while it was read, near {}; read a copy that no "
                       "program writes to",
                       path_.string(), where(b));
  }

  /// Reads blocks [0, count) by `threads` threads, which also call work(b, block); then
  /// visit(b, block) in the file's order, on the caller's thread. At most 2 * threads blocks are in
  /// memory.
  template <class Work, class Visit>
  void for_each(std::size_t count, int threads, Work work, Visit visit) const {
    const auto load = [&](std::size_t b) {
      TabularBlock block;
      read(b, block);
      work(b, block);
      return block;
    };
    std::deque<std::future<TabularBlock>> ahead;
    const std::size_t depth =
        threads <= 1 || in_order_ ? 0 : 2 * static_cast<std::size_t>(threads) - 1;
    std::size_t next = 0;
    for (std::size_t b = 0; b < count; ++b) {
      while (next < count && next <= b + depth) {
        ahead.push_back(depth == 0 ? std::async(std::launch::deferred, load, next)
                                   : std::async(std::launch::async, load, next));
        ++next;
      }
      TabularBlock block = ahead.front().get();
      ahead.pop_front();
      visit(b, block);
    }
  }

 private:
  struct Place {
    std::int64_t offset, line;
    std::uint64_t checksum;
  };

  ByteSource open_at(std::int64_t offset) const {
    return [file = std::make_shared<detail::WatchedFile>(path_, offset)](std::span<char> chunk) {
      return file->read(chunk);
    };
  }

  std::filesystem::path path_;
  const Schema* schema_;
  BadLines bad_lines_are_;
  std::int64_t block_;
  OpenRecords open_;
  bool rows_ = false, in_order_ = false;
  std::optional<ColumnPlaces> columns_;
  std::vector<Place> places_;
  std::int64_t samples_ = 0, bad_lines_ = 0;
  std::string first_bad_line_;
  mutable std::mutex sequence_mutex_;
  mutable std::optional<TabularReader> sequence_;
  mutable std::size_t next_block_ = 0;
};

}}  // namespace tessera::v0
