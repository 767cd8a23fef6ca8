// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// 16-bit conversions against the compiler's own _Float16 and against exhaustive nearest-value
// search for bfloat16.
#include <tessera/core/element.hpp>

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

using namespace tessera;

namespace {

/// Whether T(x) compiles, and T{x}.
template <class T, class X>
constexpr bool made_of = requires(X x) { T(x); } || requires(X x) { T{x}; };
template <class T>
constexpr bool made_of_bits_alone =
    std::is_constructible_v<T, std::uint16_t> && !std::is_convertible_v<std::uint16_t, T> &&
    !made_of<T, float> && !made_of<T, double> && !made_of<T, int> && !made_of<T, bool> &&
    !made_of<T, std::int16_t>;
static_assert(made_of_bits_alone<BFloat16> && !made_of<BFloat16, Half>);
static_assert(made_of_bits_alone<Half> && !made_of<Half, BFloat16>);
static_assert(std::is_trivially_copyable_v<BFloat16> && std::is_trivially_copyable_v<Half>);

}  // namespace

TEST_CASE("every bfloat16 converts to float and back") {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const BFloat16 x{static_cast<std::uint16_t>(i)};
    const float f = to_float(x);
    CHECK(std::bit_cast<std::uint32_t>(f) == i << 16);
    if (!std::isnan(f)) {
      CHECK(from_float<BFloat16>(f) == x);
    } else {
      CHECK(std::isnan(to_float(from_float<BFloat16>(f))));
    }
  }
}

TEST_CASE("bfloat16 rounds to the nearest value, ties to even") {
  for (std::uint64_t u = 0; u < 0x7f800000u; u += 9973) {
    const float f = std::bit_cast<float>(static_cast<std::uint32_t>(u));
    const std::uint32_t below = static_cast<std::uint32_t>(u) >> 16;
    const double low = std::bit_cast<float>(below << 16);
    const double high = below + 1 == 0x7f80u
                            ? 0x1p128
                            : static_cast<double>(std::bit_cast<float>((below + 1) << 16));
    const double to_low = f - low, to_high = high - f;
    const std::uint32_t expected = to_low < to_high   ? below
                                   : to_high < to_low ? below + 1
                                                      : below + (below & 1);
    CHECK(from_float<BFloat16>(f).bits == expected);
  }
}

#ifdef __FLT16_MAX__
TEST_CASE("half agrees with the compiler's _Float16") {
  for (std::uint32_t i = 0; i < 65536; ++i) {
    const Half x{static_cast<std::uint16_t>(i)};
    const float expected = static_cast<float>(std::bit_cast<_Float16>(x.bits));
    const bool same = to_float(x) == expected || (std::isnan(to_float(x)) && std::isnan(expected));
    CHECK(same);
  }
  for (std::uint64_t u = 0; u < 0x100000000u; u += 99991) {
    const float f = std::bit_cast<float>(static_cast<std::uint32_t>(u));
    if (!std::isnan(f))
      CHECK(from_float<Half>(f).bits == std::bit_cast<std::uint16_t>(static_cast<_Float16>(f)));
  }
}
#endif
