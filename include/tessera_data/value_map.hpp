// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/random.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// A map from words to counts or rows: open addressing with linear probing, never more than half
/// full.
template <class Value>
class ValueMap {
 public:
  /// Returns the number kept for a value; 0 if it was never added.
  std::uint32_t find(Value value) const {
    for (std::size_t i = place(value);; i = (i + 1) & (slots_.size() - 1))
      if (slots_[i].number == 0 || slots_[i].value == value) return slots_[i].number;
  }

  /// Adds to a value's number (0 before). Returns the sum.
  std::uint32_t add(Value value, std::uint32_t amount) {
    if (2 * (used_ + 1) > slots_.size()) grow();
    std::size_t i = place(value);
    while (slots_[i].number != 0 && slots_[i].value != value) i = (i + 1) & (slots_.size() - 1);
    used_ += slots_[i].number == 0;
    slots_[i] = {value, slots_[i].number + amount};
    return slots_[i].number;
  }

  std::size_t size() const { return used_; }

  /// Calls visit(value, number) for each, in no useful order.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const Slot& slot : slots_)
      if (slot.number != 0) visit(slot.value, slot.number);
  }

 private:
  struct Slot {
    Value value = 0;
    std::uint32_t number = 0;  // 0: the slot is free
  };

  std::size_t place(Value value) const { return mix64(value) & (slots_.size() - 1); }

  void grow() {
    const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots_.size() * 2));
    for (const Slot& slot : old) {
      if (slot.number == 0) continue;
      std::size_t i = place(slot.value);
      while (slots_[i].number != 0) i = (i + 1) & (slots_.size() - 1);
      slots_[i] = slot;
    }
  }

  std::vector<Slot> slots_ = std::vector<Slot>(16);
  std::size_t used_ = 0;
};

/// Maps a hash to [0, n) evenly, by its upper half; n < 2^32.
constexpr std::int64_t scale_hash(std::uint64_t hash, std::int64_t n) {
  return static_cast<std::int64_t>(((hash >> 32) * static_cast<std::uint64_t>(n)) >> 32);
}
static_assert(scale_hash(~std::uint64_t{0}, 7) == 6 && scale_hash(0, 7) == 0);

}}}  // namespace tessera::v0::detail
