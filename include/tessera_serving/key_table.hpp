// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/jagged.hpp>
#include <tessera/core/random.hpp>
#include <tessera/host/bag_parts.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Which row each raw key of a frozen vocabulary has. Nothing changes it; any number of threads may
/// search. Open addressing with linear probing, two thirds full: 24 bytes for a key.
class KeyTable {
 public:
  static constexpr std::int64_t kSharedRow = 0;  ///< of keys that have none of their own

  struct Slot {
    std::int64_t key = 0;
    std::int64_t row = -1;  ///< negative: no key's
  };

  /// Makes a table: keys[i] has row rows[i]; negative rows are passed over. `seed`: of the hash
  /// that places keys. Throws DataError for a key that is there twice.
  KeyTable(std::span<const std::int64_t> keys, std::span<const std::int64_t> rows,
           std::uint64_t seed)
      : seed_(seed) {
    const auto count =
        std::count_if(rows.begin(), rows.end(), [](std::int64_t r) { return r >= 0; });
    own_.resize(static_cast<std::size_t>(count + count / 2 + 1));
    slots_ = own_;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (rows[i] < 0) continue;
      Slot& slot = own_[place(keys[i])];
      require<DataError>(slot.row < 0, "a vocabulary has key {} twice", keys[i]);
      slot = {keys[i], rows[i]};
    }
  }
  /// Makes a table of slots as another one has them, which the caller keeps in memory.
  KeyTable(std::span<const Slot> slots, std::uint64_t seed) : slots_(slots), seed_(seed) {
    require<DataError>(!slots.empty(), "a vocabulary has no slots");
  }
  KeyTable(const KeyTable&) = delete;
  KeyTable& operator=(const KeyTable&) = delete;

  std::span<const Slot> slots() const { return slots_; }
  std::uint64_t seed() const { return seed_; }

  /// Finds the keys' rows, that of unknown ones being the shared row. `count`: rows of the table;
  /// what a damaged file says beyond them is the shared row, too.
  template <IdType Id>
  void find(std::span<const std::int64_t> keys, std::int64_t count, Id* rows) const {
    constexpr std::size_t ahead = 16;
    for (std::size_t i = 0; i < std::min(ahead, keys.size()); ++i) foresee(keys[i]);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (i + ahead < keys.size()) foresee(keys[i + ahead]);
      const Slot& slot = slots_[place(keys[i])];
      rows[i] = static_cast<Id>(
          slot.key == keys[i] && slot.row >= 0 && slot.row < count ? slot.row : kSharedRow);
    }
  }

 private:
  std::size_t first(std::int64_t key) const {
    const std::uint64_t hash = mix64(static_cast<std::uint64_t>(key) ^ seed_);
    return static_cast<std::size_t>(((hash >> 32) * slots_.size()) >> 32);
  }
  void foresee(std::int64_t key) const { prefetch(&slots_[first(key)], sizeof(Slot)); }
  /// Returns the key's slot, or the free one where it would be. (Of a damaged file without a free
  /// one, any.)
  std::size_t place(std::int64_t key) const {
    std::size_t at = first(key);
    for (std::size_t looked = 0;
         looked < slots_.size() && slots_[at].row >= 0 && slots_[at].key != key; ++looked)
      at = at + 1 == slots_.size() ? 0 : at + 1;
    return at;
  }

  std::vector<Slot> own_;
  std::span<const Slot> slots_;
  std::uint64_t seed_;
};

}}}  // namespace tessera::v0::detail
