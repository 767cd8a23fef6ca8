// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 { namespace gpu {

/// Where a piece of a matrix is.
struct RowPlace {
  std::int64_t row = 0;
  std::int64_t piece = 0;  ///< of the row
};

__extension__ using Product = unsigned __int128;

/// A matrix whose rows have `per_row` pieces each, fewer than 2^31. Finds the row of a piece by a
/// multiplication of 64 bits, which is exact and takes half the instructions of a division of 32
/// (Granlund and Montgomery, "Division by invariant integers using multiplication", 1994).
class RowPieces {
 public:
  RowPieces() = default;
  explicit constexpr RowPieces(std::int64_t per_row)
      : per_row_(per_row > 0 ? static_cast<std::uint32_t>(per_row) : 1) {
    while (std::uint64_t{1} << shift_ < per_row_) ++shift_;
    // 2^63 <= factor < 2^64, at most a `per_row`-th above 2^(63 + shift) / per_row
    factor_ = static_cast<std::uint64_t>(((Product{1} << (63 + shift_)) + per_row_ - 1) / per_row_);
  }

  /// Returns the place of the i-th piece, i >= 0.
  TESSERA_HOST_DEVICE constexpr RowPlace place(std::int64_t i) const {
    const std::uint64_t twice = 2 * static_cast<std::uint64_t>(i);
    const std::uint64_t row = static_cast<std::uint64_t>(Product{twice} * factor_ >> 64) >> shift_;
    const std::uint32_t piece =
        static_cast<std::uint32_t>(i) - static_cast<std::uint32_t>(row) * per_row_;
    return {static_cast<std::int64_t>(row), piece};
  }

 private:
  std::uint64_t factor_ = std::uint64_t{1} << 63;
  std::uint32_t per_row_ = 1, shift_ = 0;
};

}}}  // namespace tessera::v0::gpu
