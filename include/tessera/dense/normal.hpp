// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/random.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>

namespace tessera { inline namespace v0 {

/// Fills `values` with normally distributed numbers of mean 0 (Box-Muller). Element i depends on
/// (seed, stream, i) alone.
inline void fill_normal(std::span<float> values, float standard_deviation, std::uint64_t seed,
                        std::uint64_t stream) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint64_t word = random_word(seed, stream, i);
    const double u = (static_cast<double>(word >> 32) + 0.5) * 0x1p-32;
    const double v = static_cast<double>(word & 0xffffffffu) * 0x1p-32;
    values[i] = standard_deviation * static_cast<float>(std::sqrt(-2.0 * std::log(u)) *
                                                        std::cos(2.0 * std::numbers::pi * v));
  }
}

}}  // namespace tessera::v0
