// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/codec.hpp>
#include <tessera/core/element.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tessera { inline namespace v0 {

namespace detail {

/// Every element as a 16-bit float, rounded to nearest even.
template <Element T>
struct ElementCodec {
  TESSERA_HOST_DEVICE static constexpr std::size_t bytes(int width) {
    return (2 * static_cast<std::size_t>(width) + 3) / 4 * 4;
  }

  TESSERA_HOST_DEVICE static void encode(const float* row, int width, std::byte* to) {
    T* const out = reinterpret_cast<T*>(to);
    for (int c = 0; c < width; ++c) out[c] = from_float<T>(row[c]);
    if (width % 2 != 0) out[width] = T{};
  }
  TESSERA_HOST_DEVICE static void decode(const std::byte* from, int width, float* row) {
    const T* const in = reinterpret_cast<const T*>(from);
    for (int c = 0; c < width; ++c) row[c] = to_float(in[c]);
  }

  // For lanes of a GPU (LaneCodec): no header, every element by itself.
  struct Range {};
  struct Header {};
  TESSERA_HOST_DEVICE static Range range(const float*, int) { return {}; }
  TESSERA_HOST_DEVICE static Range join(const Range&, const Range&) { return {}; }
  TESSERA_HOST_DEVICE static Header header(const Range&) { return {}; }
  TESSERA_HOST_DEVICE static void encode_four(const Header&, const float* four, int count,
                                              std::byte* to) {
    T* const out = reinterpret_cast<T*>(to);
    for (int c = 0; c < 4; ++c) out[c] = c < count ? from_float<T>(four[c]) : T{};
  }
  TESSERA_HOST_DEVICE static void decode_four(const Header&, const std::byte* from, float* four) {
    decode(from, 4, four);
  }
};

}  // namespace detail

/// bfloat16: half the bytes, relative error up to 2^-8, the range of float. NaN and infinity
/// arrive.
struct Bf16 : detail::ElementCodec<BFloat16> {
  static constexpr std::string_view name = "bf16";
};

/// IEEE half: half the bytes, relative error up to 2^-11 from 6e-5 to 65504, absolute error up to
/// 3e-8 below; larger values arrive as infinity.
struct Fp16 : detail::ElementCodec<Half> {
  static constexpr std::string_view name = "fp16";
};

/// One byte per element, and a scale and an offset (floats) per row: error up to 1/510 of the row's
/// range (largest - smallest element). A constant row arrives exactly; one whose range is below
/// 3e-35 as its smallest element. A row with a NaN or an infinity, or with a range above 3.3e38,
/// arrives as NaN throughout: eight bits have no room to say which element it was.
///
///     std::vector<std::byte> row(Int8::bytes(16));
///     Int8::encode(values.data(), 16, row.data());
struct Int8 {
  static constexpr std::string_view name = "int8";
  TESSERA_HOST_DEVICE static constexpr std::size_t bytes(int width) {
    return sizeof(Header) + (static_cast<std::size_t>(width) + 3) / 4 * 4;
  }

  // Every operation below is exact or rounded once whether or not the compiler fuses
  // multiplications and additions: the same bits on every backend. The scale has 16 significant
  // bits, so that code * scale is exact.

  TESSERA_HOST_DEVICE static void encode(const float* row, int width, std::byte* to) {
    const Header head = header(range(row, width));
    std::memcpy(to, &head, sizeof(head));
    std::uint8_t* const codes = reinterpret_cast<std::uint8_t*>(to) + sizeof(head);
    const float twice_inverse = half_codes_per_unit(head);
    if (twice_inverse > 0) {
      for (int c = 0; c < width; ++c) codes[c] = code(row[c], head, twice_inverse);
    } else {
      for (int c = 0; c < width; ++c) codes[c] = 0;
    }
    for (int c = width; c % 4 != 0; ++c) codes[c] = 0;
  }

  TESSERA_HOST_DEVICE static void decode(const std::byte* from, int width, float* row) {
    Header head;
    std::memcpy(&head, from, sizeof(head));
    const std::uint8_t* const codes = reinterpret_cast<const std::uint8_t*>(from) + sizeof(head);
    for (int c = 0; c < width; ++c)
      row[c] = head.offset + static_cast<float>(codes[c]) * head.scale;
  }

  // For lanes of a GPU (LaneCodec).

  /// The least and the largest element, as `ordered` integers.
  struct Range {
    std::int32_t least = 0x7fffffff, most = -0x7fffffff - 1;
  };
  struct Header {
    float scale = 0, offset = 0;
  };

  TESSERA_HOST_DEVICE static Range range(const float* row, int width) {
    std::int32_t least = 0x7fffffff, most = -0x7fffffff - 1;
    for (int c = 0; c < width; ++c) {
      const std::int32_t x = ordered(__builtin_bit_cast(std::int32_t, row[c]));
      least = x < least ? x : least;
      most = x > most ? x : most;
    }
    return {least, most};
  }
  TESSERA_HOST_DEVICE static Range join(const Range& a, const Range& b) {
    return {a.least < b.least ? a.least : b.least, a.most > b.most ? a.most : b.most};
  }
  TESSERA_HOST_DEVICE static Header header(const Range& r) {
    const float low = __builtin_bit_cast(float, ordered(r.least)),
                high = __builtin_bit_cast(float, ordered(r.most));
    const float scale = high / 255 - low / 255;  // high - low could overflow
    // numeric_limits is not for device code
    const float nan = __builtin_bit_cast(float, 0x7fc00000u);
    constexpr std::int32_t infinity = 0x7f800000;
    if (r.most >= infinity || r.least <= ~infinity || scale > 1.3e36f) return {nan, nan};
    if (scale < 1e-37f) return {0, low};
    // Up to 16 significant bits: code 255 still reaches the largest element.
    return {__builtin_bit_cast(float, (__builtin_bit_cast(std::uint32_t, scale) + 0x1ffu) & ~0xffu),
            low};
  }
  TESSERA_HOST_DEVICE static void encode_four(const Header& head, const float* four, int count,
                                              std::byte* to) {
    const float twice_inverse = half_codes_per_unit(head);
    for (int c = 0; c < 4; ++c) {
      const bool coded = c < count && twice_inverse > 0;
      to[c] = static_cast<std::byte>(coded ? code(four[c], head, twice_inverse) : std::uint8_t{0});
    }
  }
  TESSERA_HOST_DEVICE static void decode_four(const Header& head, const std::byte* from,
                                              float* four) {
    for (int c = 0; c < 4; ++c)
      four[c] = head.offset + static_cast<float>(static_cast<std::uint8_t>(from[c])) * head.scale;
  }

 private:
  /// Returns the bits of a float as an integer of the same order, and back: infinities and NaNs are
  /// outermost. Compilers make vectors of integer minima, not of float ones.
  TESSERA_HOST_DEVICE static std::int32_t ordered(std::int32_t bits) {
    return bits ^ ((bits >> 31) & 0x7fffffff);
  }

  /// Returns half the codes per unit; 0 if every code is 0: rows without a range, or with a NaN.
  TESSERA_HOST_DEVICE static float half_codes_per_unit(const Header& head) {
    return head.scale > 0 ? 2.0f / head.scale : 0.0f;
  }

  TESSERA_HOST_DEVICE static std::uint8_t code(float x, const Header& head, float twice_inverse) {
    const std::int32_t code =
        (static_cast<std::int32_t>((x - head.offset) * twice_inverse) + 1) >> 1;
    return static_cast<std::uint8_t>(code < 255 ? code : 255);
  }
};

static_assert(Codec<Fp32> && LaneCodec<Bf16> && LaneCodec<Fp16> && LaneCodec<Int8>);

}}  // namespace tessera::v0
