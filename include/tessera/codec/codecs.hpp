// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/codec.hpp>
#include <tessera/core/element.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tessera::inline v0 {

/// Floats as they are: no codec.
struct Fp32 {
  static constexpr std::string_view name = "fp32";
  TESSERA_HOST_DEVICE static constexpr std::size_t bytes(int width) { return 4 * static_cast<std::size_t>(width); }
  TESSERA_HOST_DEVICE static void encode(const float* row, int width, std::byte* to) { std::memcpy(to, row, bytes(width)); }
  TESSERA_HOST_DEVICE static void decode(const std::byte* from, int width, float* row) { std::memcpy(row, from, bytes(width)); }
};

namespace detail {

/// Every element as a 16-bit float, rounded to nearest even.
template <Element T>
struct ElementCodec {
  TESSERA_HOST_DEVICE static constexpr std::size_t bytes(int width) { return (2 * static_cast<std::size_t>(width) + 3) / 4 * 4; }

  TESSERA_HOST_DEVICE static void encode(const float* row, int width, std::byte* to) {
    T* const out = reinterpret_cast<T*>(to);
    for (int c = 0; c < width; ++c) out[c] = from_float<T>(row[c]);
    if (width % 2 != 0) out[width] = T{};
  }
  TESSERA_HOST_DEVICE static void decode(const std::byte* from, int width, float* row) {
    const T* const in = reinterpret_cast<const T*>(from);
    for (int c = 0; c < width; ++c) row[c] = to_float(in[c]);
  }
};

}  // namespace detail

/// bfloat16: half the bytes, relative error up to 2^-8, the range of float. NaN and infinity arrive.
struct Bf16 : detail::ElementCodec<BFloat16> {
  static constexpr std::string_view name = "bf16";
};

/// IEEE half: half the bytes, relative error up to 2^-11 from 6e-5 to 65504, absolute error up to 3e-8 below; larger values arrive as
/// infinity.
struct Fp16 : detail::ElementCodec<Half> {
  static constexpr std::string_view name = "fp16";
};

/// One byte per element, and a scale and an offset (floats) per row: error up to 1/510 of the row's range (largest - smallest element).
/// A constant row arrives exactly; one whose range is below 3e-35 as its smallest element. A row with a NaN or an infinity, or with a
/// range above 3.3e38, arrives as NaN throughout: eight bits have no room to say which element it was.
struct Int8 {
  static constexpr std::string_view name = "int8";
  TESSERA_HOST_DEVICE static constexpr std::size_t bytes(int width) {
    return sizeof(Header) + (static_cast<std::size_t>(width) + 3) / 4 * 4;
  }

  // Every operation below is exact or rounded once whether or not the compiler fuses multiplications and additions: the same bits on
  // every backend. The scale has 16 significant bits, so that code * scale is exact.

  TESSERA_HOST_DEVICE static void encode(const float* row, int width, std::byte* to) {
    const Header header = header_of(row, width);
    std::memcpy(to, &header, sizeof(header));
    std::uint8_t* const codes = reinterpret_cast<std::uint8_t*>(to) + sizeof(header);
    const float twice_inverse = header.scale > 0 ? 2.0f / header.scale : 0.0f;  // NaN: every code is 0
    if (twice_inverse > 0) {
      for (int c = 0; c < width; ++c) {
        const std::int32_t code = (static_cast<std::int32_t>((row[c] - header.offset) * twice_inverse) + 1) >> 1;
        codes[c] = static_cast<std::uint8_t>(code < 255 ? code : 255);
      }
    } else {
      for (int c = 0; c < width; ++c) codes[c] = 0;
    }
    for (int c = width; c % 4 != 0; ++c) codes[c] = 0;
  }

  TESSERA_HOST_DEVICE static void decode(const std::byte* from, int width, float* row) {
    Header header;
    std::memcpy(&header, from, sizeof(header));
    const std::uint8_t* const codes = reinterpret_cast<const std::uint8_t*>(from) + sizeof(header);
    for (int c = 0; c < width; ++c) row[c] = header.offset + static_cast<float>(codes[c]) * header.scale;
  }

 private:
  struct Header {
    float scale = 0, offset = 0;
  };

  /// Bits of a float as an integer of the same order, and back: infinities and NaNs are outermost. Compilers make vectors of integer
  /// minima, not of float ones.
  TESSERA_HOST_DEVICE static std::int32_t ordered(std::int32_t bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }

  TESSERA_HOST_DEVICE static Header header_of(const float* row, int width) {
    std::int32_t least = 0x7fffffff, most = -0x7fffffff - 1;
    for (int c = 0; c < width; ++c) {
      const std::int32_t x = ordered(__builtin_bit_cast(std::int32_t, row[c]));
      least = x < least ? x : least;
      most = x > most ? x : most;
    }
    const float low = __builtin_bit_cast(float, ordered(least)), high = __builtin_bit_cast(float, ordered(most));
    const float scale = high / 255 - low / 255;                // high - low could overflow
    const float nan = __builtin_bit_cast(float, 0x7fc00000u);  // numeric_limits is not for device code
    constexpr std::int32_t infinity = 0x7f800000;
    if (most >= infinity || least <= ~infinity || scale > 1.3e36f) return {nan, nan};
    if (scale < 1e-37f) return {0, low};
    // Up to 16 significant bits: code 255 still reaches the largest element.
    return {__builtin_bit_cast(float, (__builtin_bit_cast(std::uint32_t, scale) + 0x1ffu) & ~0xffu), low};
  }
};

static_assert(Codec<Fp32> && Codec<Bf16> && Codec<Fp16> && Codec<Int8>);

}  // namespace tessera::inline v0
