// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>
#include <tessera/op/bags.hpp>
#include <tessera/op/kernel.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>

namespace tessera { inline namespace v0 { namespace op {

/// Exact sums of squares of floats, so that neither the order of the values nor their way over
/// ranks changes a bit: digit k counts 2^(32 k - 352). The last place counts values that are NaN or
/// infinite.
inline constexpr int square_digits = 20;
using SquareDigits = std::array<std::int64_t, square_digits + 1>;

/// Calls add(place, amount), on its own side, for what x^2 adds. Amounts are below 2^33: 2^29
/// values overflow nothing.
TESSERA_SIDE_OF_ARGUMENTS
template <class Add>
TESSERA_HOST_DEVICE void add_square(float x, const Add& add) {
  const double square = static_cast<double>(x) * x;  // exact
  std::uint64_t bits = 0;
  memcpy(&bits, &square, sizeof(bits));
  if (bits == 0) return;
  const int exponent = static_cast<int>(bits >> 52);
  if (exponent == 0x7ff) return add(square_digits, std::int64_t{1});
  const std::uint64_t mantissa = (bits & ((std::uint64_t{1} << 52) - 1)) | std::uint64_t{1} << 52;
  const int place = exponent - 1075 + 352;  // at least 2: the least square is 2^-298
  const std::uint64_t low = (mantissa & 0xffffffffu) << (place & 31), high = (mantissa >> 32)
                                                                             << (place & 31);
  add(place >> 5, static_cast<std::int64_t>(low & 0xffffffffu));
  add((place >> 5) + 1, static_cast<std::int64_t>((low >> 32) + (high & 0xffffffffu)));
  add((place >> 5) + 2, static_cast<std::int64_t>(high >> 32));
}

/// Carries, so that every digit is below 2^32: as many values may be added again.
inline void carry(SquareDigits& digits) {
  for (int k = 0; k + 1 < square_digits; ++k) {
    digits[k + 1] += digits[k] >> 32;
    digits[k] &= 0xffffffff;
  }
}

/// Returns the square root of a sum; NaN where a value was none. Carries.
inline double norm_of(SquareDigits& digits) {
  carry(digits);
  double sum = 0;
  for (int k = square_digits; k-- > 0;)
    sum += std::ldexp(static_cast<double>(digits[k]), 32 * k - 352);
  return digits[square_digits] == 0 ? std::sqrt(sum) : std::nan("");
}

/// Adds the squares of `count` values, at most 2^29 of them.
struct AddSquares {
  struct Parameters {
    const float* values = nullptr;
    std::int64_t count = 0;
    std::int64_t* digits = nullptr;  ///< SquareDigits, in the backend's memory
  };
};

/// Each value becomes value * factor, and then no more than `limit` away from 0. NaN stays.
struct ClipValues {
  struct Parameters {
    float* values = nullptr;
    std::int64_t count = 0;
    float factor = 1;
    float limit = HUGE_VALF;
    /// null, or in the backend's memory: the number of values that `limit` held back is added to it
    std::int64_t* clipped = nullptr;
  };

  TESSERA_HOST_DEVICE static bool held_back(float x, float limit) {
    return x > limit || x < -limit;
  }

  TESSERA_HOST_DEVICE static float clipped(float x, float factor, float limit) {
    x *= factor;
    return x > limit ? limit : x < -limit ? -limit : x;
  }
};

/// Merged gradients are scaled down where the Euclidean norm of a whole table row's is above
/// `limit`.
struct ClipRows {
  /// Arena rows from row_begin to the next segment's are of a table of this width.
  struct Segment {
    std::int64_t row_begin = 0;
    std::int32_t table_width = 0;
  };
  struct Parameters {
    const std::int64_t* rows = nullptr;
    float* gradients = nullptr;  ///< [count, width]
    std::int64_t count = 0;
    int width = 0;
    const float* mean_squares = nullptr;  ///< by row: over the whole table row
    float limit = HUGE_VALF;
    std::span<const Segment> segments{};  ///< ascending, of the host
    std::int64_t* clipped = nullptr;      ///< as above, of rows
  };

  TESSERA_HOST_DEVICE static float factor(std::int64_t row, float mean_square, float limit,
                                          const Segment* segments, int count) {
    int low = 0;
    for (int high = count - 1; low < high;) {
      const int middle = (low + high + 1) / 2;
      if (segments[middle].row_begin <= row)
        low = middle;
      else
        high = middle - 1;
    }
    const float norm = sqrtf(mean_square * static_cast<float>(segments[low].table_width));
    return norm > limit ? limit / norm : 1.0f;
  }
};

/// to[i] += values[i].
struct AddValues {
  struct Parameters {
    float* to = nullptr;
    const float* values = nullptr;
    std::int64_t count = 0;
  };
};

}}}  // namespace tessera::v0::op
