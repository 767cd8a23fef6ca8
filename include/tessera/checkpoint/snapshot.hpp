// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/contents.hpp>
#include <tessera/checkpoint/row_writer.hpp>
#include <tessera/core/row_observer.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// The rows of a checkpoint as they were when the snapshot was made, while training goes on. A
/// writer takes the rows block by block; before an update changes a row that the writer has not
/// reached, the row is copied aside. Small tensors (all but tables), and a GPU's tables, whose
/// updates are not announced, are copied at once; those in files are cloned if the file system
/// can. Extra memory of the host: those, one bit for each row, and at most about `memory_bytes` of
/// rows: when they are full, updates wait for the writer. Updates come from one thread, the writer
/// is another.
class Snapshot {
 public:
  /// Watches until `stop` or the end. `contents` must outlive it.
  Snapshot(const CheckpointContents& contents, std::size_t memory_bytes)
      : contents_(contents), limit_(memory_bytes) {
    for (std::size_t s = 0; s < contents.sources().size(); ++s)
      watchers_.emplace_back(*this, static_cast<int>(s));
    for (std::size_t i = 0; i < contents.rows().size(); ++i) {
      const CheckpointRows& rows = contents.rows()[i];
      const bool written = std::any_of(rows.parts.begin(), rows.parts.end(),
                                       [](const CheckpointRows::Part& part) { return part.write; });
      if (at_once(rows)) {
        if (written && !clone_now(i)) copy_now(i);
        continue;
      }
      Arena& arena = arenas_[{rows.source, rows.arena}];
      arena.shards.push_back({rows.arena_row, i});
      arena.settled.resize(
          std::max(arena.settled.size(), static_cast<std::size_t>(rows.arena_row + rows.rows)));
      if (!written) std::fill_n(arena.settled.begin() + rows.arena_row, rows.rows, true);
    }
    for (auto& [key, arena] : arenas_) std::sort(arena.shards.begin(), arena.shards.end());
    watching_ = true;
    watch(true);
  }
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;
  ~Snapshot() { stop(); }

  /// Updates are no longer watched. Called by their thread.
  void stop() {
    if (std::exchange(watching_, false)) watch(false);
  }

  /// Tells that the writer has ended, well or not: no update waits for it.
  void release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    room_.notify_all();
  }

  /// Return the rows copied aside so far, and the bytes at most at once.
  std::int64_t rows_copied() const { return rows_copied_; }
  std::size_t most_bytes() const { return most_bytes_; }

  /// Gives RowWriter its rows. Each row is asked for once.
  const std::vector<RowBlock>& operator()(const CheckpointRows& rows,
                                          std::span<const std::int64_t> row_bytes,
                                          std::int64_t first, std::int64_t count) {
    blocks_.clear();
    if (at_once(rows)) {
      const auto index = static_cast<std::size_t>(&rows - contents_.rows().data());
      if (const auto clone = clones_.find(index); clone != clones_.end()) {
        for (const CheckpointRows::Part& part : rows.parts)
          blocks_.push_back({clone->second->at(part.data) + first * part.stride, part.stride});
        return blocks_;
      }
      const std::byte* copy = copies_.at(index).data();
      for (const std::int64_t n : row_bytes) {
        blocks_.push_back({copy + first * n, n});
        copy += rows.rows * n;
      }
      return blocks_;
    }
    std::int64_t bytes = 0;
    for (const std::int64_t n : row_bytes) {
      blocks_.push_back({nullptr, n});
      bytes += n;
    }
    memory_.resize(static_cast<std::size_t>(bytes * count));
    std::byte* to = memory_.data();
    for (RowBlock& block : blocks_) {
      block.data = to;
      to += block.stride * count;
    }
    take(arenas_.at({rows.source, rows.arena}), rows, first, count,
         static_cast<std::size_t>(bytes));
    return blocks_;
  }

 private:
  struct Shard {
    std::int64_t arena_row;
    std::size_t index;  ///< into contents.rows()
    bool operator<(const Shard& other) const { return arena_row < other.arena_row; }
  };
  struct Arena {
    std::vector<Shard> shards;  ///< ascending
    std::vector<bool> settled;  ///< by arena row: written, or copied aside
    std::unordered_map<std::int64_t, std::unique_ptr<std::byte[]>> aside;
  };
  struct Watcher final : RowObserver {
    Watcher(Snapshot& snapshot_, int source_) : snapshot(snapshot_), source(source_) {}
    void begin_update() override { snapshot.mutex_.lock(); }
    void end_update() noexcept override { snapshot.mutex_.unlock(); }
    void touch(int arena, std::span<const std::int64_t> rows) override {
      try {
        snapshot.keep(source, arena, rows);
      } catch (const std::bad_alloc&) {  // fails the save, not half of a step
        snapshot.lost_ = snapshot.released_ = true;
      }
    }
    Snapshot& snapshot;
    int source;
  };

  /// Returns whether updates change rows without an announcement.
  bool at_once(const CheckpointRows& rows) const {
    return rows.source < 0 || !contents_.sources()[static_cast<std::size_t>(rows.source)];
  }

  void watch(bool on) {
    for (std::size_t s = 0; s < watchers_.size(); ++s)
      if (const auto& source = contents_.sources()[s]) source(watchers_[s], on);
  }

  std::int64_t bytes_of(const CheckpointRows::Part& part) const {
    return part.columns * static_cast<std::int64_t>(tensor_type_size(
                              contents_.tensors()[static_cast<std::size_t>(part.tensor)].type));
  }

  bool clone_now(std::size_t index) {
    const CheckpointRows& rows = contents_.rows()[index];
    auto clone = rows.clone ? rows.clone() : nullptr;
    if (clone == nullptr) return false;
    clones_[index] = std::move(clone);
    return true;
  }
  void copy_now(std::size_t index) {
    const CheckpointRows& rows = contents_.rows()[index];
    std::int64_t bytes = 0;
    for (const CheckpointRows::Part& part : rows.parts) bytes += bytes_of(part) * rows.rows;
    std::vector<std::byte>& copy = copies_[index];
    copy.resize(static_cast<std::size_t>(bytes));
    std::byte* to = copy.data();
    for (const CheckpointRows::Part& part : rows.parts) {
      fetch_rows(rows, part, 0, rows.rows, bytes_of(part), to);
      to += bytes_of(part) * rows.rows;
    }
  }

  /// Takes rows, on the writer's side.
  void take(Arena& arena, const CheckpointRows& rows, std::int64_t first, std::int64_t count,
            std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    require<Error>(!lost_, "no memory for rows that steps change before they are saved");
    for (std::size_t p = 0; p < rows.parts.size(); ++p)
      copy_rows({rows.parts[p].data + first * rows.parts[p].stride, rows.parts[p].stride}, count,
                blocks_[p].stride, const_cast<std::byte*>(blocks_[p].data));
    for (std::int64_t r = 0; r < count; ++r) {
      const std::int64_t arena_row = rows.arena_row + first + r;
      if (!arena.settled[static_cast<std::size_t>(arena_row)]) {
        arena.settled[static_cast<std::size_t>(arena_row)] = true;
        continue;
      }
      const auto aside = arena.aside.find(arena_row);
      const std::byte* from = aside->second.get();
      for (RowBlock& block : blocks_) {
        std::memcpy(const_cast<std::byte*>(block.data) + r * block.stride, from,
                    static_cast<std::size_t>(block.stride));
        from += block.stride;
      }
      arena.aside.erase(aside);
      bytes_aside_ -= bytes;
    }
    room_.notify_all();
  }

  /// Keeps rows, on the updates' side; their thread holds the mutex.
  void keep(int source, int arena_index, std::span<const std::int64_t> touched) {
    const auto found = arenas_.find({source, arena_index});
    if (found == arenas_.end()) return;
    Arena& arena = found->second;
    for (const std::int64_t row : touched) {
      if (released_) return;
      if (arena.settled[static_cast<std::size_t>(row)]) continue;
      const auto shard =
          std::prev(std::upper_bound(arena.shards.begin(), arena.shards.end(), Shard{row, 0}));
      const CheckpointRows& rows = contents_.rows()[shard->index];
      std::size_t bytes = 0;
      for (const CheckpointRows::Part& part : rows.parts)
        bytes += static_cast<std::size_t>(bytes_of(part));
      std::unique_lock lock(mutex_, std::adopt_lock);
      room_.wait(lock,
                 [&] { return released_ || bytes_aside_ == 0 || bytes_aside_ + bytes <= limit_; });
      lock.release();
      // the writer came by meanwhile
      if (released_ || arena.settled[static_cast<std::size_t>(row)]) continue;
      auto copy = std::make_unique<std::byte[]>(bytes);
      std::byte* to = copy.get();
      for (const CheckpointRows::Part& part : rows.parts) {
        std::memcpy(to, part.data + (row - rows.arena_row) * part.stride,
                    static_cast<std::size_t>(bytes_of(part)));
        to += bytes_of(part);
      }
      arena.aside.emplace(row, std::move(copy));
      arena.settled[static_cast<std::size_t>(row)] = true;
      bytes_aside_ += bytes;
      most_bytes_ = std::max(most_bytes_, bytes_aside_);
      ++rows_copied_;
    }
  }

  const CheckpointContents& contents_;
  std::size_t limit_;
  std::deque<Watcher> watchers_;
  bool watching_ = false;
  std::map<std::size_t, std::vector<std::byte>> copies_;  ///< by index into contents.rows()
  std::map<std::size_t, std::shared_ptr<const FileClone>> clones_;

  std::mutex mutex_;  ///< of all below
  std::condition_variable room_;
  std::map<std::pair<int, int>, Arena> arenas_;
  std::size_t bytes_aside_ = 0, most_bytes_ = 0;
  std::int64_t rows_copied_ = 0;
  bool released_ = false, lost_ = false;  ///< no more are kept; some were not

  std::vector<RowBlock> blocks_;  ///< the writer's
  std::vector<std::byte> memory_;
};

}}}  // namespace tessera::v0::detail
