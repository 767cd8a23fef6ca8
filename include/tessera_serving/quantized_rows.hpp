// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>

namespace tessera { inline namespace v0 {

/// How a frozen table stores a row: `encode` and `decode` of one row of `width` floats,
/// `bytes(width)` bytes. Rows are one after another without padding, so nothing in them is aligned.
template <class R>
concept QuantizedRow =
    requires(const float* row, std::byte* to, const std::byte* from, float* out) {
      { R::name } -> std::convertible_to<std::string_view>;
      { R::bytes(1) } -> std::same_as<std::size_t>;
      R::encode(row, 1, to);
      R::decode(from, 1, out);
    };

namespace detail {

struct RowRange {
  float least, most;
};
inline RowRange row_range(const float* row, int width) {
  const auto [least, most] = std::minmax_element(row, row + width);
  return {*least, *most};
}

template <class T>
T read_as(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

/// Returns a code, rounded half to even; 0 for NaN.
inline unsigned code_of(float x, float most) {
  return x > 0 ? static_cast<unsigned>(std::min(std::nearbyint(x), most)) : 0;
}

/// Codes of `Bits` bits and then scale and offset in half precision: FBGEMM's
/// FusedNBitRowwiseQuantizedSBHalf. The scale is worked out from the rounded offset, so the codes
/// reach the largest element up to the rounding of the scale.
template <int Bits>
struct HalfScaledRow {
  static constexpr float most_code = static_cast<float>((1 << Bits) - 1);
  static constexpr std::size_t code_bytes(int width) {
    return (static_cast<std::size_t>(width) * Bits + 7) / 8;
  }
  static constexpr std::size_t bytes(int width) { return code_bytes(width) + 2 * sizeof(Half); }

  static void encode(const float* row, int width, std::byte* to) {
    const auto [least, most] = row_range(row, width);
    const Half offset = from_float<Half>(least);
    const float low = to_float(offset), span = most - low;
    Half scale = from_float<Half>(span == 0 ? 1.0f : span / most_code);
    float inverse = 1.0f / to_float(scale);
    if (to_float(scale) == 0 || std::isinf(inverse)) {
      scale = from_float<Half>(1.0f);
      inverse = 1.0f;
    }
    std::fill(to, to + code_bytes(width), std::byte{});
    for (int c = 0; c < width; ++c) {
      to[c * Bits / 8] |=
          static_cast<std::byte>(code_of((row[c] - low) * inverse, most_code) << (c * Bits % 8));
    }
    std::memcpy(to + code_bytes(width), &scale, sizeof(scale));
    std::memcpy(to + code_bytes(width) + sizeof(scale), &offset, sizeof(offset));
  }

  static void decode(const std::byte* from, int width, float* row) {
    const float scale = to_float(read_as<Half>(from + code_bytes(width)));
    const float offset = to_float(read_as<Half>(from + code_bytes(width) + sizeof(Half)));
    for (int c = 0; c < width; ++c) {
      const auto code =
          (static_cast<unsigned>(from[c * Bits / 8]) >> (c * Bits % 8)) & ((1u << Bits) - 1);
      row[c] = std::fma(static_cast<float>(code), scale, offset);
    }
  }
};

}  // namespace detail

/// Codes of eight bits, then scale and offset as floats: width + 8 bytes, an error of up to 1/510
/// of the row's range (largest - smallest element). Byte for byte FBGEMM's
/// FloatToFused8BitRowwiseQuantized.
struct Int8Row {
  static constexpr std::string_view name = "int8";
  static constexpr std::size_t bytes(int width) {
    return static_cast<std::size_t>(width) + 2 * sizeof(float);
  }

  static void encode(const float* row, int width, std::byte* to) {
    const auto [offset, most] = detail::row_range(row, width);
    const float span = most - offset, scale = span / 255.0f, inverse = 255.0f / (span + 1e-8f);
    for (int c = 0; c < width; ++c)
      to[c] = static_cast<std::byte>(detail::code_of((row[c] - offset) * inverse, 255.0f));
    std::memcpy(to + width, &scale, sizeof(scale));
    std::memcpy(to + width + sizeof(scale), &offset, sizeof(offset));
  }

  static void decode(const std::byte* from, int width, float* row) {
    const float scale = detail::read_as<float>(from + width),
                offset = detail::read_as<float>(from + width + sizeof(float));
    for (int c = 0; c < width; ++c) row[c] = std::fma(static_cast<float>(from[c]), scale, offset);
  }
};

/// Codes of eight bits, then scale and offset in half precision: width + 4 bytes. FBGEMM's
/// FloatToFusedNBitRowwiseQuantizedSBHalf of 8 bits. Elements must fit half precision, up to
/// 65,504.
struct Int8HalfRow : detail::HalfScaledRow<8> {
  static constexpr std::string_view name = "int8-half";
};

/// Two codes per byte, the even column in the low four bits, then scale and offset in half
/// precision: (width + 1) / 2 + 4 bytes, an error of up to 1/30 of the row's range. FBGEMM's
/// FloatToFusedNBitRowwiseQuantizedSBHalf of 4 bits. Elements must fit half precision.
struct Int4Row : detail::HalfScaledRow<4> {
  static constexpr std::string_view name = "int4";
};

static_assert(QuantizedRow<Int8Row> && QuantizedRow<Int8HalfRow> && QuantizedRow<Int4Row>);

/// Encodes rows of `width` floats, one after another. Throws InvalidArgument if sizes do not match,
/// or if a row cannot be encoded: an element that is not finite, or a scale or offset beyond the
/// format's floats. Then `to` has the rows before that one.
template <QuantizedRow R>
void quantize_rows(std::span<const float> rows, int width, std::span<std::byte> to) {
  require(width >= 1 && rows.size() % static_cast<std::size_t>(width) == 0,
          "quantize_rows: {} floats in rows of {}", rows.size(), width);
  const std::size_t n = rows.size() / static_cast<std::size_t>(width);
  require(to.size() == n * R::bytes(width),
          "quantize_rows: room for {} bytes, {} rows of {} need {}", to.size(), n, width,
          n * R::bytes(width));
  for (std::size_t r = 0; r < n; ++r) {
    const std::span<const float> row =
        rows.subspan(r * static_cast<std::size_t>(width), static_cast<std::size_t>(width));
    for (const float x : row) require(std::isfinite(x), "quantize_rows: row {} holds {}", r, x);
    const auto [least, most] = detail::row_range(row.data(), width);
    std::byte ends[R::bytes(2)];
    float decoded[2];
    const float extremes[2] = {least, most};
    R::encode(extremes, 2, ends);  // with the row's own scale and offset
    R::decode(ends, 2, decoded);
    require(std::isfinite(decoded[0]) && std::isfinite(decoded[1]),
            "quantize_rows: row {} with elements from {} to {} does not fit {}", r, least, most,
            R::name);
    R::encode(row.data(), width, to.data() + r * R::bytes(width));
  }
}

}}  // namespace tessera::v0
