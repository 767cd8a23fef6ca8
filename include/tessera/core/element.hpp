// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>

#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace v0 {

/// bfloat16: the upper half of an IEEE float. Constructed from its bits; from_float makes one of a number.
struct BFloat16 {
  std::uint16_t bits = 0;

  constexpr BFloat16() = default;
  /// Takes 16 bits alone: a number would be converted to bits in silence.
  template <class Bits>
    requires std::is_same_v<Bits, std::uint16_t>
  TESSERA_HOST_DEVICE explicit constexpr BFloat16(Bits bits_) : bits(bits_) {}
  friend constexpr bool operator==(BFloat16, BFloat16) = default;
};

/// IEEE 754 binary16. Constructed from its bits; from_float makes one of a number.
struct Half {
  std::uint16_t bits = 0;

  constexpr Half() = default;
  /// Takes 16 bits alone: a number would be converted to bits in silence.
  template <class Bits>
    requires std::is_same_v<Bits, std::uint16_t>
  TESSERA_HOST_DEVICE explicit constexpr Half(Bits bits_) : bits(bits_) {}
  friend constexpr bool operator==(Half, Half) = default;
};

/// Storage types of tables and of dense activations. Arithmetic is always in float.
template <class T>
concept Element =
    std::is_same_v<T, float> || std::is_same_v<T, BFloat16> || std::is_same_v<T, Half>;

namespace detail {

template <Element T>
constexpr const char* element_name() {
  return std::is_same_v<T, float> ? "float" : std::is_same_v<T, Half> ? "Half" : "BFloat16";
}

}  // namespace detail

/// Converts to float, exactly.
TESSERA_HOST_DEVICE constexpr float to_float(float x) { return x; }

TESSERA_HOST_DEVICE constexpr float to_float(BFloat16 x) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(x.bits) << 16);
}

/// Returns the exact value. Branch-free, so that loops over it vectorize: subnormals are scaled by
/// a multiplication.
TESSERA_HOST_DEVICE constexpr float to_float(Half x) {
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = static_cast<std::uint32_t>(x.bits & 0x7fffu) << 13;
  // 2^112 moves the exponent from bias 15 to bias 127; infinity and NaN need the rest of the
  // exponent's bits.
  const float scaled = __builtin_bit_cast(float, magnitude) * 0x1p112f;
  const std::uint32_t special = (x.bits & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0u;
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, scaled) | special | sign);
}

/// Converts from float; the 16-bit types round to nearest even and keep NaN.
template <Element T>
TESSERA_HOST_DEVICE constexpr T from_float(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x);
    const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const std::uint32_t quiet_nan = (bits >> 16) | 0x0040u;
    return T{static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded)};
  } else {
    const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x);
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    // Without branches, so that loops over it vectorize. Below 2^-14 (`small`: all ones): adding
    // 0.5 leaves the subnormal's bits, rounded to nearest even by the adder, in the low mantissa.
    // What rounds to 2^16 or above becomes infinity.
    const std::uint32_t small = 0u - ((magnitude - 0x38800000u) >> 31),
                        nan = 0u - ((0x7f800000u - magnitude) >> 31);
    const std::uint32_t subnormal =
        __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, magnitude& small) + 0.5f) -
        0x3f000000u;
    const std::uint32_t normal =
        (magnitude + 0x0fffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
    const std::uint32_t rounded = (subnormal & small) | (normal & ~small);
    const std::uint32_t result = (rounded < 0x7c00u ? rounded : 0x7c00u) | (nan & 0x0200u);
    return T{static_cast<std::uint16_t>(sign | result)};
  }
}

static_assert(to_float(from_float<Half>(1.0f)) == 1.0f &&
              from_float<Half>(65504.0f).bits == 0x7bff);
static_assert(to_float(from_float<BFloat16>(-2.5f)) == -2.5f);

/// What hidden activations and the products' copies of weights are stored in. Parameters and their
/// gradients are always float, and every product is summed in float.
enum class DensePrecision { float32, bfloat16 };

}}  // namespace tessera::v0
