// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tessera::inline v0::detail {

/// Which rows are in which slots of a cache, and which slot is to be given up next. Holds no rows
/// and moves none. A slot is pinned while a batch in flight reads or updates it; the rows of the
/// batch before the one that is asked for stay, too, pinned or not, so that what is given up does not
/// depend on how far that batch has come. Victims are those whose batch is oldest.
class RowDirectory {
 public:
  using Slot = std::int32_t;
  static constexpr Slot none = -1;

  explicit RowDirectory(std::int64_t slots) {
    require(slots > 0 && slots <= std::numeric_limits<Slot>::max() / 4,
            "a cache of {} rows; give 1 .. 2^29", slots);
    slots_.resize(static_cast<std::size_t>(slots));
    index_.assign(std::bit_ceil(static_cast<std::size_t>(slots) * 2), none);
    clear();
  }

  std::int64_t slots() const { return std::ssize(slots_); }
  std::int64_t row(Slot slot) const { return slots_[at(slot)].row; }
  bool dirty(Slot slot) const { return slots_[at(slot)].dirty; }
  std::int32_t pins(Slot slot) const { return slots_[at(slot)].pins; }

  /// The slot of a row, or none.
  Slot find(std::int64_t row) const {
    for (std::size_t i = home(row);; i = next(i)) {
      if (index_[i] == none) return none;
      if (slots_[at(index_[i])].row == row) return index_[i];
    }
  }

  /// A batch is about to ask for its rows.
  void begin_batch() { ++batch_; }
  /// Takes note that the batch uses a slot: it becomes the youngest. True for the first time.
  bool use(Slot slot) {
    if (slots_[at(slot)].batch == batch_) return false;
    slots_[at(slot)].batch = batch_;
    unlink(slot);
    append(slot);
    return true;
  }
  void pin(Slot slot) { ++slots_[at(slot)].pins; }
  void unpin(Slot slot) { --slots_[at(slot)].pins; }
  /// The row in the slot is no longer what it is where it stays, or it is again.
  void mark_dirty(Slot slot) { slots_[at(slot)].dirty = true; }
  void mark_clean(Slot slot) { slots_[at(slot)].dirty = false; }
  /// Between the choice of a victim and its end its row is on its way: nobody may begin to use it.
  void begin_leaving(Slot slot) { slots_[at(slot)].leaving = true; }
  void end_leaving(Slot slot) { slots_[at(slot)].leaving = false; }
  bool leaves(Slot slot) const { return slots_[at(slot)].leaving; }
  /// The batch that used a slot will not come back to it (it was for evaluation): it may be given
  /// up at once.
  void forget_batch(Slot slot) { slots_[at(slot)].batch = 0; }

  /// Whether a slot may be given to another row now.
  bool evictable(Slot slot) const {
    const Entry& entry = slots_[at(slot)];
    return entry.row == none_row || (entry.pins == 0 && entry.batch + 1 < batch_);
  }
  /// The `count` slots to give up, oldest first; fewer where there are not as many.
  std::vector<Slot> victims(std::int64_t count) const {
    std::vector<Slot> chosen;
    for (Slot slot = oldest_; slot != none && std::ssize(chosen) < count;
         slot = slots_[at(slot)].younger)
      if (evictable(slot)) chosen.push_back(slot);
    return chosen;
  }

  /// The row of a slot, if any, leaves it.
  void remove(Slot slot) {
    Entry& entry = slots_[at(slot)];
    if (entry.row == none_row) return;
    std::size_t hole = home(entry.row);
    while (index_[hole] != slot) hole = next(hole);
    // entries behind the hole move up where that brings them nearer to their home
    for (std::size_t i = next(hole); index_[i] != none; i = next(i)) {
      const std::size_t wanted = home(slots_[at(index_[i])].row), mask = index_.size() - 1;
      if (((i - wanted) & mask) >= ((i - hole) & mask)) {
        index_[hole] = index_[i];
        hole = i;
      }
    }
    index_[hole] = none;
    entry.row = none_row;
    entry.dirty = false;
    entry.batch = 0;
  }
  /// An empty slot takes a row.
  void insert(Slot slot, std::int64_t row) {
    slots_[at(slot)].row = row;
    slots_[at(slot)].dirty = false;
    std::size_t i = home(row);
    while (index_[i] != none) i = next(i);
    index_[i] = slot;
  }

  /// No row is in any slot, no slot pinned.
  void clear() {
    std::fill(index_.begin(), index_.end(), none);
    oldest_ = youngest_ = none;
    batch_ = 1;
    for (Slot slot = 0; slot < std::ssize(slots_); ++slot) {
      slots_[at(slot)] = {};
      append(slot);
    }
  }

  /// Bytes for one slot, whatever its row.
  static constexpr std::int64_t bytes_per_slot() { return sizeof(Entry) + 4 * sizeof(Slot); }

 private:
  static constexpr std::int64_t none_row = -1;
  struct Entry {
    std::int64_t row = none_row;
    std::uint64_t batch : 62 = 0;  // that used it last
    std::uint64_t dirty : 1 = 0;
    std::uint64_t leaving : 1 = 0;
    Slot older = none, younger = none;
    std::int32_t pins = 0;
  };

  static std::size_t at(Slot slot) { return static_cast<std::size_t>(slot); }
  std::size_t home(std::int64_t row) const {
    return static_cast<std::size_t>(mix64(static_cast<std::uint64_t>(row))) & (index_.size() - 1);
  }
  std::size_t next(std::size_t i) const { return (i + 1) & (index_.size() - 1); }

  void unlink(Slot slot) {
    const Entry& entry = slots_[at(slot)];
    (entry.older == none ? oldest_ : slots_[at(entry.older)].younger) = entry.younger;
    (entry.younger == none ? youngest_ : slots_[at(entry.younger)].older) = entry.older;
  }
  void append(Slot slot) {
    Entry& entry = slots_[at(slot)];
    entry.older = youngest_;
    entry.younger = none;
    (youngest_ == none ? oldest_ : slots_[at(youngest_)].younger) = slot;
    youngest_ = slot;
  }

  std::vector<Entry> slots_;
  std::vector<Slot> index_;  // by hash of the row
  Slot oldest_ = none, youngest_ = none;
  std::uint64_t batch_ = 1;
};

}  // namespace tessera::inline v0::detail
