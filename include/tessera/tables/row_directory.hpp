// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/memory.hpp>
#include <tessera/core/random.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Which rows are in which slots of a cache, and which slot is to be given up next. Holds no rows
/// and moves none. A slot is pinned while a batch in flight reads or updates it; the rows of the
/// batch before the one that is asked for stay, too, pinned or not, so that what is given up does
/// not depend on how far that batch has come. Victims are those whose batch is oldest.
///
/// Nearly every look at it misses the processor's caches. So its lists of rows are worked through
/// with the memory of those that follow already on its way, and nothing is linked: what comes next
/// can be known without waiting for what is before it.
class RowDirectory {
 public:
  using Slot = std::int32_t;
  static constexpr Slot none = -1;

  explicit RowDirectory(std::int64_t slots) {
    require(slots > 0 && slots <= std::numeric_limits<Slot>::max() / 4,
            "a cache of {} rows; give 1 .. 2^29", slots);
    slots_.resize(static_cast<std::size_t>(slots));
    index_.resize((slots_.size() + 3) / 4);
    order_.resize(2 * slots_.size());
    clear();
  }

  std::int64_t slots() const { return std::ssize(slots_); }
  std::int64_t row(Slot slot) const { return slots_[at(slot)].row; }
  bool dirty(Slot slot) const { return slots_[at(slot)].dirty; }
  std::int32_t pins(Slot slot) const { return slots_[at(slot)].pins; }

  /// Returns the slot of a row, or none.
  Slot find(std::int64_t row) const {
    const std::uint32_t hash = hash_of(row);
    std::size_t i = home(hash);
    for (std::size_t left = index_.size(); left != 0; --left, i = next(i)) {
      const Bucket& bucket = index_[i];
      for (unsigned found = places(bucket.hash, hash); found != 0; found &= found - 1)
        if (const Slot slot = bucket.slot[std::countr_zero(found)]; slots_[at(slot)].row == row)
          return slot;
      if (bucket.passed() == 0) break;
    }
    return none;
  }
  /// Calls visit(i, the slot of rows[i] or none) in order. It may use and pin slots, but neither
  /// insert nor remove rows. Negative rows are in no slot.
  template <class Visit>
  void find_each(std::span<const std::int64_t> rows, Visit visit) const {
    std::uint32_t hashes[2 * distance];
    Slot likely[distance];
    ahead(
        std::ssize(rows),
        [&](std::size_t i) {
          const std::uint32_t hash = hashes[i % (2 * distance)] = hash_of(rows[i]);
          prefetch(&index_[home(hash)]);
        },
        [&](std::size_t i) {
          const std::uint32_t hash = hashes[i % (2 * distance)];
          const Bucket& bucket = index_[home(hash)];
          const unsigned found = places(bucket.hash, hash);
          Slot& slot = likely[i % distance];
          if (found != 0)
            prefetch_slot(slot = bucket.slot[std::countr_zero(found)]);
          else
            slot = bucket.passed() == 0 ? none : unknown;
        },
        [&](std::size_t i) {
          Slot slot = rows[i] < 0 ? none : likely[i % distance];
          if (slot == unknown || (slot != none && row(slot) != rows[i])) slot = find(rows[i]);
          visit(i, slot);
        });
  }

  /// Notes that a batch is about to ask for its rows.
  void begin_batch() { ++batch_; }
  /// Takes note that the batch uses a slot: it becomes the youngest. True for the first time.
  bool use(Slot slot) {
    if (slots_[at(slot)].batch == batch_) return false;
    slots_[at(slot)].batch = batch_;
    append(slot);
    return true;
  }
  void pin(Slot slot) { ++slots_[at(slot)].pins; }
  void unpin(Slot slot) { --slots_[at(slot)].pins; }
  /// Note that the row in the slot is no longer what it is where it stays, or it is again.
  void mark_dirty(Slot slot) { slots_[at(slot)].dirty = true; }
  void mark_clean(Slot slot) { slots_[at(slot)].dirty = false; }
  /// Note that a row leaves: between the choice of a victim and its end it must not be used.
  void begin_leaving(Slot slot) { slots_[at(slot)].leaving = true; }
  void end_leaving(Slot slot) { slots_[at(slot)].leaving = false; }
  bool leaves(Slot slot) const { return slots_[at(slot)].leaving; }
  /// Forgets the batch that used a slot, which will not come back to it (it was for evaluation): it
  /// may be given up at once.
  void forget_batch(Slot slot) { slots_[at(slot)].batch = 0; }

  /// Returns whether a slot may be given to another row now.
  bool evictable(Slot slot) const {
    const Entry& entry = slots_[at(slot)];
    return entry.row == none_row || (entry.pins == 0 && entry.batch + 1 < batch_);
  }
  /// Returns the `count` slots to give up, oldest first; fewer if there are not as many.
  std::vector<Slot> victims(std::int64_t count) const {
    std::vector<Slot> chosen;
    chosen.reserve(static_cast<std::size_t>(std::min(count, slots())));
    std::size_t place = first_, soon = first_;
    for (std::size_t i = 0, fetched = 0; i < used_ && std::ssize(chosen) < count; ++i) {
      for (; fetched < std::min(used_, i + 2 * distance); ++fetched, soon = after(soon))
        if (order_[soon] != none) prefetch_slot(order_[soon]);
      if (order_[place] != none && evictable(order_[place])) chosen.push_back(order_[place]);
      place = after(place);
    }
    return chosen;
  }

  /// Removes the row of a slot, if any.
  void remove(Slot slot) {
    Entry& entry = slots_[at(slot)];
    if (entry.row == none_row) return;
    std::size_t i = home(hash_of(entry.row));
    unsigned found;
    for (; (found = places(index_[i].slot, slot)) == 0; i = next(i)) --index_[i].passed();
    index_[i].hash[std::countr_zero(found)] = 0;
    index_[i].slot[std::countr_zero(found)] = none;
    entry.row = none_row;
    entry.dirty = false;
    entry.batch = 0;
  }
  /// Inserts a row into an empty slot.
  void insert(Slot slot, std::int64_t row) {
    slots_[at(slot)].row = row;
    slots_[at(slot)].dirty = false;
    const std::uint32_t hash = hash_of(row);
    std::size_t i = home(hash);
    unsigned free;
    for (; (free = places(index_[i].hash, std::uint32_t{0})) == 0; i = next(i))
      ++index_[i].passed();
    index_[i].hash[std::countr_zero(free)] = hash;
    index_[i].slot[std::countr_zero(free)] = slot;
  }
  /// Replaces the rows of slots, if any, by rows[i], which have come: the batch uses and pins them.
  void replace(std::span<const Slot> slots, std::span<const std::int64_t> rows) {
    ahead(
        std::ssize(slots), [&](std::size_t i) { prefetch_slot(slots[i]); },
        [&](std::size_t i) {
          prefetch(&index_[home(hash_of(row(slots[i])))]);
          prefetch(&index_[home(hash_of(rows[i]))]);
        },
        [&](std::size_t i) {
          end_leaving(slots[i]);
          remove(slots[i]);
          insert(slots[i], rows[i]);
          use(slots[i]);
          pin(slots[i]);
        });
  }

  /// Clears all: no row is in any slot, no slot pinned.
  void clear() {
    std::fill(index_.begin(), index_.end(), Bucket{});
    batch_ = 1;
    first_ = 0;
    used_ = slots_.size();
    for (Slot slot = 0; slot < std::ssize(slots_); ++slot) {
      slots_[at(slot)] = Entry{.place = static_cast<std::uint32_t>(slot)};
      order_[at(slot)] = slot;
    }
  }

  /// Returns the bytes for one slot, whatever its row.
  static constexpr std::int64_t bytes_per_slot() {
    return sizeof(Entry) + sizeof(Bucket) / 4 + 2 * sizeof(Slot);
  }

 private:
  static constexpr std::int64_t none_row = -1;
  static constexpr std::size_t distance = 16;  // of what is fetched ahead
  struct Entry {
    std::int64_t row = none_row;
    std::uint64_t batch : 62 = 0;  // that used it last
    std::uint64_t dirty : 1 = 0;
    std::uint64_t leaving : 1 = 0;
    std::uint32_t place = 0;  // in order_
    std::int32_t pins = 0;
  };
  static constexpr Slot unknown = none - 1;
  /// Seven rows in a cache line: those whose home it is, or a bucket before it that was full.
  struct Bucket {
    static constexpr int rows = 7;
    std::uint32_t hash[rows + 1] = {};  // 0: nothing there
    Slot slot[rows + 1] = {none, none, none, none, none, none, none, none};

    /// Returns how many rows found it full: a search for them goes on behind it.
    std::uint32_t& passed() { return hash[rows]; }
    std::uint32_t passed() const { return hash[rows]; }
  };
  static_assert(sizeof(Bucket) == 64);

  static std::size_t at(Slot slot) { return static_cast<std::size_t>(slot); }
  static std::uint32_t hash_of(std::int64_t row) {
    return static_cast<std::uint32_t>(mix64(static_cast<std::uint64_t>(row)) >> 32) | 1;
  }
  std::size_t home(std::uint32_t hash) const {
    return static_cast<std::size_t>((std::uint64_t{hash} * index_.size()) >> 32);
  }
  std::size_t next(std::size_t i) const { return i + 1 == index_.size() ? 0 : i + 1; }
  /// Returns the places of a bucket, a bit each, where a value is. Without branches: no one could
  /// guess them.
  template <class T>
  static unsigned places(const T (&values)[Bucket::rows + 1], T value) {
    unsigned found = 0;
    for (int i = 0; i < Bucket::rows; ++i) found |= static_cast<unsigned>(values[i] == value) << i;
    return found;
  }

  static void prefetch(const void* memory) {
    __builtin_prefetch(memory, 1);
    asm volatile("");  // else g++ drops calls of functions that do nothing but prefetch
  }
  /// Prefetches an entry, which may be on two cache lines.
  void prefetch_slot(Slot slot) const {
    const auto* const bytes = reinterpret_cast<const std::byte*>(&slots_[at(slot)]);
    prefetch(bytes);
    prefetch(bytes + sizeof(Entry) - 1);
  }
  /// Calls last(i) for i < count, after first(i) and second(i), each some while before the next.
  template <class First, class Second, class Last>
  static void ahead(std::ptrdiff_t count, First first, Second second, Last last) {
    constexpr auto far = static_cast<std::ptrdiff_t>(2 * distance),
                   near = static_cast<std::ptrdiff_t>(distance);
    for (std::ptrdiff_t i = -far; i < count; ++i) {
      if (i >= 0) last(static_cast<std::size_t>(i));
      if (i + near >= 0 && i + near < count) second(static_cast<std::size_t>(i + near));
      if (i + far < count) first(static_cast<std::size_t>(i + far));
    }
  }

  std::size_t after(std::size_t place) const { return place + 1 == order_.size() ? 0 : place + 1; }
  /// Makes the slot the youngest.
  void append(Slot slot) {
    if (used_ == order_.size()) close_gaps();
    Entry& entry = slots_[at(slot)];
    order_[entry.place] = none;
    for (; order_[first_] == none; first_ = after(first_))
      if (--used_ == 0) break;
    const std::size_t place = first_ + used_++;
    entry.place = static_cast<std::uint32_t>(place < order_.size() ? place : place - order_.size());
    order_[entry.place] = slot;
  }
  void close_gaps() {
    std::size_t to = first_, kept = 0;
    for (std::size_t i = 0, from = first_; i < used_; ++i, from = after(from)) {
      const Slot slot = order_[from];
      if (slot == none) continue;
      order_[to] = slot;
      slots_[at(slot)].place = static_cast<std::uint32_t>(to);
      to = after(to);
      ++kept;
    }
    used_ = kept;
  }

  template <class T>
  using Array = std::vector<T, LargeAllocator<T>>;
  Array<Entry> slots_;
  Array<Bucket> index_;               // by hash of the row
  Array<Slot> order_;                 // a ring, oldest first, with gaps: `none`
  std::size_t first_ = 0, used_ = 0;  // of order_
  std::uint64_t batch_ = 1;
};

}}}  // namespace tessera::v0::detail
