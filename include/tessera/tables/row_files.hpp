// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/pod_vector.hpp>
#include <tessera/io/direct_file.hpp>
#include <tessera/io/safetensors_header.hpp>
#include <tessera/io/transfer_queue.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// A row on disk: weights, padded to a multiple of 4 bytes, then optimizer states, those of
/// elements first.
struct RecordFormat {
  struct Field {
    std::int64_t offset = 0, bytes = 0;
  };
  std::vector<Field> fields;  ///< weights, then states
  std::int64_t bytes = 0;     ///< of a record

  void add(std::int64_t field_bytes);
};

/// The rows of an arena in files, one for each shard, as records one after another. A file is in
/// safetensors format: a tensor "records" of bytes [rows, bytes of a record], and "padding" behind
/// it; its metadata say where a row's weights and states are.
class RowFiles {
 public:
  explicit RowFiles(int queue_depth) : queue_(static_cast<unsigned>(std::max(queue_depth, 0))) {}

  /// Makes the file of a shard: rows from arena row `first` on. `metadata` says what they are.
  /// Throws DataError if there is no room on the disk.
  void add(const std::string& path, std::int64_t first, std::int64_t rows,
           const RecordFormat& format, const std::map<std::string, std::string>& metadata);

  /// A record on its way between memory and its file.
  struct Transfer {
    std::int64_t row = 0;  ///< of the arena
    std::byte* record = nullptr;
    bool write = false;
  };

  /// Carries out transfers of different rows, in ascending order. What is written is in the file
  /// when this returns. Where it throws (DataError), records to be written may be in the file or
  /// not.
  void exchange(std::span<const Transfer> transfers);

  /// Return the bytes that have gone from and to the disk, since the last `forget_bytes`.
  std::int64_t read_bytes() const { return read_bytes_; }
  std::int64_t written_bytes() const { return written_bytes_; }
  void forget_bytes() { read_bytes_ = written_bytes_ = 0; }

  /// Returns the records of the shard of an arena row, from that row on, as memory.
  std::byte* view(std::int64_t row);
  /// Returns the file of the shard of an arena row: see DirectFile.
  std::shared_ptr<const FileClone> clone(std::int64_t row) { return shard_of(row).file.clone(); }
  /// Lets exchanges see what was written to views.
  void write_views() {
    for (Shard& shard : shards_) shard.file.write_view();
  }

 private:
  struct Shard {
    DirectFile file;
    std::int64_t first, end;  // arena rows
    std::uint64_t data_offset;
  };
  /// Blocks of a file next to each other, and the transfers of records in them.
  struct Run {
    const DirectFile* file;
    std::uint64_t begin, end;  // bytes
    std::size_t transfers = 0;
    std::int64_t written = 0;  // bytes of records to be written
    std::byte* memory = nullptr;

    std::size_t bytes() const { return static_cast<std::size_t>(end - begin); }
  };
  static constexpr std::size_t most_bytes = std::size_t{16} << 20;  // of one round of transfers
  static constexpr std::size_t most_run = std::size_t{256} << 10;   // of blocks that only touch

  Shard& shard_of(std::int64_t row);
  std::uint64_t offset_of(const Shard& shard, std::int64_t row) const {
    return shard.data_offset + static_cast<std::uint64_t>((row - shard.first) * record_bytes_);
  }

  /// Collects the blocks of the transfers from `begin` on, until there are enough; returns where
  /// those end.
  std::size_t collect_runs(std::span<const Transfer> transfers, std::size_t begin);

  void carry_out(std::span<const Transfer> transfers);
  void add_move(const Run& run) {
    moves_.push_back({run.file, run.begin, run.memory, run.bytes()});
  }
  void count(std::int64_t& bytes) const {
    for (const FileTransfer& move : moves_) bytes += static_cast<std::int64_t>(move.bytes);
  }

  TransferQueue queue_;
  std::vector<Shard> shards_;  // ascending
  std::int64_t record_bytes_ = 0, read_bytes_ = 0, written_bytes_ = 0;
  BlockBuffer blocks_;
  PodVector<Run> runs_;
  PodVector<FileTransfer> moves_;
};

#ifdef TESSERA_INLINE
TESSERA_INLINE void RecordFormat::add(std::int64_t field_bytes) {
  fields.push_back({bytes, field_bytes});
  bytes += (field_bytes + 3) / 4 * 4;
}

TESSERA_INLINE void RowFiles::add(const std::string& path, std::int64_t first, std::int64_t rows,
                                  const RecordFormat& format,
                                  const std::map<std::string, std::string>& metadata) {
  record_bytes_ = format.bytes;
  const std::uint64_t bytes = static_cast<std::uint64_t>(rows * format.bytes);
  const std::uint64_t end = (bytes + DirectFile::block - 1) / DirectFile::block * DirectFile::block;
  const std::array<TensorInfo, 2> tensors{
      TensorInfo{"records", TensorType::u8, {rows, format.bytes}, 0, bytes},
      TensorInfo{"padding", TensorType::u8, {static_cast<std::int64_t>(end - bytes)}, bytes, end}};
  std::string header = format_safetensors_header(metadata, tensors);
  const std::uint64_t offset =
      (header.size() + DirectFile::block - 1) / DirectFile::block * DirectFile::block;
  header.resize(offset, ' ');
  const std::uint64_t length = offset - 8;
  std::memcpy(header.data(), &length, sizeof(length));
  DirectFile file(path, offset + bytes);
  std::byte* const memory = blocks_.resize(offset);
  std::memcpy(memory, header.data(), header.size());
  const FileTransfer transfer{&file, 0, memory, offset};
  queue_.write({&transfer, 1});
  shards_.push_back({std::move(file), first, first + rows, offset});
}

TESSERA_INLINE void RowFiles::exchange(std::span<const Transfer> transfers) {
  for (std::size_t begin = 0; begin != transfers.size();) {
    const std::size_t end = collect_runs(transfers, begin);
    carry_out(transfers.subspan(begin, end - begin));
    begin = end;
  }
}

TESSERA_INLINE std::byte* RowFiles::view(std::int64_t row) {
  Shard& shard = shard_of(row);
  return shard.file.view() + offset_of(shard, row);
}

TESSERA_INLINE RowFiles::Shard& RowFiles::shard_of(std::int64_t row) {
  return *std::upper_bound(shards_.begin(), shards_.end(), row,
                           [](std::int64_t r, const Shard& shard) { return r < shard.end; });
}

TESSERA_INLINE std::size_t RowFiles::collect_runs(std::span<const Transfer> transfers,
                                                  std::size_t begin) {
  runs_.clear();
  std::size_t bytes = 0, i = begin;
  for (; i != transfers.size(); ++i) {
    const Shard& shard = shard_of(transfers[i].row);
    const std::uint64_t at = offset_of(shard, transfers[i].row),
                        first = at / DirectFile::block * DirectFile::block,
                        end = (at + static_cast<std::uint64_t>(record_bytes_) + DirectFile::block -
                               1) /
                              DirectFile::block * DirectFile::block;
    const bool same_file = !runs_.empty() && runs_.back().file == &shard.file;
    const bool shares = same_file && first < runs_.back().end;
    if (!shares && bytes >= most_bytes) break;
    if (!shares && !(same_file && first == runs_.back().end && runs_.back().bytes() < most_run))
      runs_.push_back({&shard.file, first, first});
    Run& run = runs_.back();
    bytes += static_cast<std::size_t>(end - run.end);
    run.end = end;
    ++run.transfers;
    if (transfers[i].write) run.written += record_bytes_;
  }
  std::byte* memory = blocks_.resize(bytes);
  for (Run& run : runs_) {
    run.memory = memory;
    memory += run.bytes();
  }
  return i;
}

TESSERA_INLINE void RowFiles::carry_out(std::span<const Transfer> transfers) {
  moves_.clear();
  for (const Run& run : runs_)
    if (static_cast<std::size_t>(run.written) != run.bytes()) add_move(run);
  queue_.read(moves_);
  count(read_bytes_);
  moves_.clear();
  auto next = transfers.begin();
  for (const Run& run : runs_) {
    for (std::size_t i = 0; i < run.transfers; ++i, ++next) {
      std::byte* const at = run.memory + (offset_of(shard_of(next->row), next->row) - run.begin);
      const auto bytes = static_cast<std::size_t>(record_bytes_);
      next->write ? std::memcpy(at, next->record, bytes) : std::memcpy(next->record, at, bytes);
    }
    if (run.written != 0) add_move(run);
  }
  queue_.write(moves_);
  count(written_bytes_);
}
#endif

}}}  // namespace tessera::v0::detail
