// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/random.hpp>

#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace v0 { namespace detail {

/// Returns what the random bits of one table in one step are drawn from.
TESSERA_HOST_DEVICE constexpr std::uint64_t rounding_table_word(std::uint64_t rounding_seed,
                                                                std::uint64_t table_key) {
  return random_word(rounding_seed, table_key);
}

/// Returns what those of one row of the table are drawn from: random_word(rounding_seed, table_key,
/// table_row).
TESSERA_HOST_DEVICE constexpr std::uint64_t rounding_key(std::uint64_t table_word,
                                                         std::int64_t table_row) {
  return mix64(table_word ^ static_cast<std::uint64_t>(table_row));
}
TESSERA_HOST_DEVICE constexpr std::uint64_t rounding_key(std::uint64_t rounding_seed,
                                                         std::uint64_t table_key,
                                                         std::int64_t table_row) {
  return rounding_key(rounding_table_word(rounding_seed, table_key), table_row);
}

/// Returns the same of a row's k-th state, from that of the row.
TESSERA_HOST_DEVICE constexpr std::uint64_t rounding_state_key(std::uint64_t row_key, int k) {
  return random_word(row_key, ~static_cast<std::uint64_t>(k));
}

/// Returns the random word that four columns share: columns 4q .. 4q+3 get its 16-bit
/// parts, the lowest first.
TESSERA_HOST_DEVICE constexpr std::uint64_t rounding_word(std::uint64_t row_key,
                                                          std::int64_t column) {
  return mix64(row_key ^ static_cast<std::uint64_t>(column >> 2));
}

/// Returns the 16 random bits of one element; `column` is the table's, whatever part of it a shard
/// holds.
TESSERA_HOST_DEVICE constexpr std::uint32_t rounding_bits(std::uint64_t row_key,
                                                          std::int64_t column) {
  return static_cast<std::uint32_t>(rounding_word(row_key, column) >> (16 * (column & 3))) &
         0xffffu;
}

/// Rounds up with the probability that makes the expected value exact (to 2^-16 of the distance,
/// 2^-13 for Half), so that updates smaller than half a unit in the last place are not lost.
/// `bits`: 16 uniform random bits. NaN and infinity stay; float does not change.
template <Element T>
TESSERA_HOST_DEVICE constexpr T round_stochastic(float x, std::uint32_t bits) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    const std::uint32_t word = __builtin_bit_cast(std::uint32_t, x);
    const std::uint32_t magnitude = word & 0x7fffffffu;
    // Without branches, so that loops over it vectorize: comparisons are masks, all ones where they
    // hold.
    const std::uint32_t nan = 0u - ((0x7f800000u - magnitude) >> 31);
    if constexpr (std::is_same_v<T, BFloat16>) {
      const std::uint32_t finite = 0u - ((magnitude - 0x7f800000u) >> 31);
      return T{static_cast<std::uint16_t>(((word + (bits & finite)) >> 16) | (nan & 0x0040u))};
    } else {
      // Below 2^-14 (`small`) the unit is 2^-24: a fixed-point number with 16 bits behind the
      // point. From 2^16 on (not `in_range`) there is only infinity.
      const std::uint32_t small = 0u - ((magnitude - 0x38800000u) >> 31),
                          in_range = 0u - ((magnitude - 0x47800000u) >> 31);
      const auto fixed =
          static_cast<std::int32_t>(__builtin_bit_cast(float, magnitude& small) * 0x1p40f);
      const std::uint32_t subnormal = (static_cast<std::uint32_t>(fixed) + bits) >> 16;
      const std::uint32_t normal = (magnitude - 0x38000000u + (bits >> 3)) >> 13;
      const std::uint32_t rounded = (subnormal & small) | (normal & ~small);
      return T{static_cast<std::uint16_t>(((word >> 16) & 0x8000u) | (rounded & in_range) |
                                          (0x7c00u & ~in_range) | (nan & 0x0200u))};
    }
  }
}

static_assert(round_stochastic<BFloat16>(1.0f, 0xffff) == from_float<BFloat16>(1.0f) &&
              round_stochastic<Half>(1.0f, 0xffff) == from_float<Half>(1.0f));

}}}  // namespace tessera::v0::detail
