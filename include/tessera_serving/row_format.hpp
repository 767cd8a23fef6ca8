// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/lanes.hpp>
#include <tessera/host/lanes.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera_serving/quantized_rows.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace tessera { inline namespace v0 {

/// How a frozen table stores its rows: elements, or codes with a scale and an offset per row
/// (quantized_rows.hpp).
enum class RowFormat : std::uint8_t { fp32, bf16, fp16, int8, int8_half, int4 };

/// The formats' names, in the order of RowFormat.
inline constexpr std::array<std::string_view, 6> row_format_names{"fp32", "bf16",      "fp16",
                                                                  "int8", "int8-half", "int4"};
constexpr std::string_view to_string(RowFormat format) {
  return row_format_names[static_cast<std::size_t>(format)];
}

/// Returns the format of that name. Throws InvalidArgument that lists the names there are.
inline RowFormat parse_row_format(std::string_view name) {
  for (std::size_t i = 0; i < row_format_names.size(); ++i)
    if (row_format_names[i] == name) return static_cast<RowFormat>(i);
  throw InvalidArgument(detail::formatted(
      "there is no row format '{}'; choose fp32, bf16, fp16, int8, int8-half or int4", name));
}

namespace detail {

/// Most columns of a row that are summed at once where their elements must become floats first:
/// registers for that, too, are needed beside those of the sums. Processors with vectors of 16
/// lanes have 32 registers, others 16.
inline constexpr int columns_of_codes = native_lanes >= 16 ? 128 : 64;

/// Rows of elements of 16 or 32 bits.
template <Element T>
struct ElementRow {
  static constexpr int most_columns = sizeof(T) == sizeof(float) ? 128 : columns_of_codes;
  static constexpr TensorType type = tensor_type_of<T>();
  static constexpr std::size_t bytes(int width) {
    return static_cast<std::size_t>(width) * sizeof(T);
  }
  /// Returns the codes from `column` on, as RowSum reads them.
  static const T* at(const std::byte* row, int, int column) {
    return reinterpret_cast<const T*>(row) + column;
  }
};

/// Codes of eight bits from some column on.
struct Int8Codes {
  const std::byte* codes;
  float scale, offset;
  friend Int8Codes operator+(Int8Codes c, int columns) {
    return {c.codes + columns, c.scale, c.offset};
  }
};
/// What the codes 0 to 15 of a row mean, in one register if the processor has such.
#if defined(__AVX512F__)
using Int4Values = Vector<float, 16>;
inline Int4Values int4_values(float scale, float offset) {
  constexpr Int4Values codes{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return multiply_add<16>(codes, broadcast<16>(scale), broadcast<16>(offset));
}
#else
struct Int4Values {};
inline Int4Values int4_values(float, float) { return {}; }
#endif

/// Codes of four bits from `column` on.
struct Int4Codes {
  const std::byte* codes;  // of that column
  int column;
  float scale, offset;
  Int4Values values;
  friend Int4Codes operator+(Int4Codes c, int columns) {
    return {c.codes + columns / 2 + (c.column & columns & 1), c.column + columns, c.scale, c.offset,
            c.values};
  }
};

/// Returns two neighbouring halves as floats: by one instruction if the processor has it.
inline std::array<float, 2> two_halves(const std::byte* at) {
#if defined(__F16C__)
  const Vector<std::int32_t, 4> halves{read_as<std::int32_t>(at)};
  Vector<float, 4> floats;
  asm("vcvtph2ps %1, %0" : "=x"(floats) : "x"(halves));
  return {floats[0], floats[1]};
#else
  return {to_float(read_as<Half>(at)), to_float(read_as<Half>(at + sizeof(Half)))};
#endif
}

/// Returns N bytes as floats. In two steps to 32 bits: of one, g++ 12 makes an instruction per
/// lane; of whole registers the instruction is named if the processor has it.
template <int N>
[[gnu::always_inline]] inline Vector<float, N> floats_of_bytes(const std::byte* at) {
  using Words = Vector<std::int32_t, N>;
#if defined(__AVX2__)
  if constexpr (N == native_lanes) {
    Words words;
    asm("vpmovzxbd %1, %0" : "=v"(words) : "m"(*reinterpret_cast<const std::byte(*)[N]>(at)));
    return __builtin_convertvector(words, Vector<float, N>);
  }
#endif
  Vector<std::uint8_t, N> bytes;
  std::memcpy(&bytes, at, sizeof(bytes));
  return __builtin_convertvector(
      __builtin_convertvector(__builtin_convertvector(bytes, Vector<std::uint16_t, N>), Words),
      Vector<float, N>);
}

template <int N>
[[gnu::always_inline]] inline void load(Int8Codes from, Vector<float, N>& to) {
  if constexpr (N == 1) {
    to = multiply_add<1>(static_cast<float>(*from.codes), from.scale, from.offset);
  } else {
    to = multiply_add_over<N>(floats_of_bytes<N>(from.codes), broadcast<N>(from.scale),
                              broadcast<N>(from.offset));
  }
}
/// Returns 0, 4, ..., 28, and from there again.
template <int N>
constexpr Vector<std::int32_t, N> nibble_shifts() {
  Vector<std::int32_t, N> shifts{};
  for (int lane = 0; lane < N; ++lane) shifts[lane] = lane % 8 * 4;
  return shifts;
}
/// Loads N codes; if N > 1, `column` is even.
template <int N>
[[gnu::always_inline]] inline void load(Int4Codes from, Vector<float, N>& to) {
  const std::byte* const at = from.codes;
  if constexpr (N == 1) {
    const auto code = static_cast<unsigned>(*at) >> (from.column % 2 * 4) & 15u;
    to = multiply_add<1>(static_cast<float>(code), from.scale, from.offset);
  } else {
#if defined(__AVX512F__)
    if constexpr (N == 16) {
      // The last four bits of a lane choose its value. A byte has the codes of two lanes.
#if defined(__AVX512VBMI__)
      constexpr Vector<std::uint64_t, 8> bits{0x04'0000'0000, 0x0c'0000'0008, 0x14'0000'0010,
                                              0x1c'0000'0018, 0x24'0000'0020, 0x2c'0000'0028,
                                              0x34'0000'0030, 0x3c'0000'0038};
      Vector<std::uint64_t, 8> codes;
      asm("vpmultishiftqb %1%{1to8%}, %2, %0"
          : "=v"(codes)
          : "m"(*reinterpret_cast<const std::byte(*)[8]>(at)), "v"(bits));
#else
      Vector<std::uint64_t, 8> pairs;
      asm("vpmovzxbq %1, %0" : "=v"(pairs) : "m"(*reinterpret_cast<const std::byte(*)[8]>(at)));
      const Vector<std::uint64_t, 8> codes = pairs | pairs << 28;
#endif
      asm("vpermps %2, %1, %0" : "=v"(to) : "v"(codes), "v"(from.values));
      return;
    }
#endif
    using Words = Vector<std::int32_t, N>;
    // Eight codes are in 32 bits: all lanes get these, and each shifts its own code down.
    const Words words =
        read_as<std::conditional_t<N == 8, std::int32_t, std::uint16_t>>(at) - Words{};
    const Words codes = (words >> nibble_shifts<N>()) & 15;
    to = multiply_add_over<N>(__builtin_convertvector(codes, Vector<float, N>),
                              broadcast<N>(from.scale), broadcast<N>(from.offset));
  }
}

/// Rows of codes. `Encoding` has the bytes of quantized_rows.hpp.
template <QuantizedRow Encoding>
struct CodeRow {
  static constexpr int most_columns = columns_of_codes;
  static constexpr TensorType type = TensorType::u8;
  static constexpr std::size_t bytes(int width) { return Encoding::bytes(width); }
  static auto at(const std::byte* row, int width, int column) {
    if constexpr (std::is_same_v<Encoding, Int8Row>) {
      return Int8Codes{row + column, read_as<float>(row + width),
                       read_as<float>(row + width + sizeof(float))};
    } else {
      const auto [scale, offset] = two_halves(row + Encoding::code_bytes(width));
      if constexpr (std::is_same_v<Encoding, Int4Row>)
        return Int4Codes{row + column / 2, column, scale, offset, int4_values(scale, offset)};
      else
        return Int8Codes{row + column, scale, offset};
    }
  }
};

/// Calls f with the type that reads rows of the format.
template <class F>
decltype(auto) with_row_type(RowFormat format, F&& f) {
  switch (format) {
    case RowFormat::fp32:
      return f(ElementRow<float>{});
    case RowFormat::bf16:
      return f(ElementRow<BFloat16>{});
    case RowFormat::fp16:
      return f(ElementRow<Half>{});
    case RowFormat::int8:
      return f(CodeRow<Int8Row>{});
    case RowFormat::int8_half:
      return f(CodeRow<Int8HalfRow>{});
    default:
      return f(CodeRow<Int4Row>{});
  }
}

}  // namespace detail

/// Returns bytes of one row. Rows are one after another.
inline std::size_t row_bytes(RowFormat format, int width) {
  return detail::with_row_type(format, [&](auto row) { return decltype(row)::bytes(width); });
}

}}  // namespace tessera::v0
