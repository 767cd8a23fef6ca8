// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>
#include <tessera/core/random.hpp>

#include <concepts>
#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace v0 {

/// What a vocabulary knows of a key when it asks a policy. The same on every rank and backend.
struct SeenKey {
  std::int64_t key;
  std::uint32_t count;  ///< how often it was seen, this batch's occurrences among them
  std::uint32_t step;   ///< the batch in which it was last seen, counted from 1
  std::uint32_t now;    ///< this batch
  std::uint64_t seed;   ///< of the table

  /// Returns a number in [0, 1) that depends on the key, the table and this batch alone.
  TESSERA_HOST_DEVICE float chance() const { return unit_float(random_word(seed, key, now)); }
};

/// Says whether a key of this batch gets a row. Laws: docs/concepts/vocabulary.md.
template <class P>
concept AdmissionPolicy = std::is_trivially_copyable_v<P> && requires(const P& p, SeenKey seen) {
  { p.admits(seen) } -> std::same_as<bool>;
};

/// Says how much a key is worth its row: the least score loses it, and only to a higher one; a key
/// of score 0 loses it even if no other key needs it. Laws: docs/concepts/vocabulary.md.
template <class P>
concept EvictionPolicy = std::is_trivially_copyable_v<P> && requires(const P& p, SeenKey seen) {
  { p.score(seen) } -> std::same_as<std::uint32_t>;
};

}}  // namespace tessera::v0
