// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>

namespace tessera { inline namespace v0 {

/// What a text is to `parse_number`: a number; no number, or one that is not finite; or one that is
/// too large for the type.
enum class NumberText : std::uint8_t { number, no_number, too_large };

namespace detail {

/// Returns whether a well-formed number that a floating-point type cannot hold is too small for it,
/// not too large.
inline bool is_below_range(std::string_view text) {
  const std::size_t e = std::min(text.find_first_of("eE"), text.size());
  const std::string_view digits = text.substr(0, e);
  const auto point = static_cast<std::int64_t>(std::min(digits.find('.'), digits.size())),
             first = static_cast<std::int64_t>(digits.find_first_of("123456789"));
  std::string_view power = text.substr(std::min(e + 1, text.size()));
  if (power.starts_with('+')) power.remove_prefix(1);
  std::int64_t exponent = 0;
  const auto read = std::from_chars(power.data(), power.data() + power.size(), exponent);
  if (read.ec == std::errc::result_out_of_range) return power.starts_with('-');
  return exponent < first - point;
}

/// Returns how many bytes the character takes at the beginning of a text; 0: the bytes there are
/// not UTF-8.
constexpr std::size_t utf8_bytes(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (text.empty()) return 0;
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  for (std::size_t i = 1; i < bytes; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  // longer than need be, half of a pair, or beyond the last character
  if ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) >= 0xa0) ||
      (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) >= 0x90))
    return 0;
  return bytes;
}

/// Returns where a text stops being UTF-8; its size: nowhere.
constexpr std::size_t utf8_end(std::string_view text) {
  std::size_t at = 0;
  while (const std::size_t bytes = utf8_bytes(text.substr(at))) at += bytes;
  return at;
}

constexpr bool is_utf8(std::string_view text) { return utf8_end(text) == text.size(); }

/// Returns text from outside for a message: at most so many bytes of it, with control characters
/// and what is not UTF-8 as \xNN.
inline std::string printable(std::string_view text, std::size_t most) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t bytes = utf8_bytes(text.substr(at));
    if (at + std::max<std::size_t>(bytes, 1) > most) return out + "...";
    const auto first = static_cast<unsigned char>(text[at]);
    if (bytes == 0 || first < 0x20 || first == 0x7f) {
      out += formatted("\\x{:02x}", static_cast<unsigned>(first));
      bytes = 1;
    } else {
      out += text.substr(at, bytes);
    }
    at += bytes;
  }
  return out;
}

/// Returns the same in quotes, at most 80 bytes.
inline std::string quoted(std::string_view text) { return '\'' + printable(text, 80) + '\''; }

/// Throws InvalidArgument for a name that a file holds and that is not UTF-8: no other program would
/// read the file. `what` has the name.
inline void check_name(std::string_view what, std::string_view name) {
  require(is_utf8(name), "the {} {} is not UTF-8; rename it", what, quoted(name));
}

}  // namespace detail

/// Reads the whole text as a number, with spaces around it or a plus before it. What is smaller
/// than the smallest float or double is 0. Unless it returns `number`, `value` does not change.
template <class T>
NumberText parse_number(std::string_view text, T& value) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  T read{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), read);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument)
    return NumberText::no_number;
  if constexpr (std::floating_point<T>) {
    if (error == std::errc::result_out_of_range)
      read = detail::is_below_range(text) ? T{0} : std::numeric_limits<T>::infinity();
    else if (!std::isfinite(read))
      return NumberText::no_number;
    if (std::isinf(read)) return NumberText::too_large;
  } else if (error != std::errc()) {
    return NumberText::too_large;
  }
  value = read;
  return NumberText::number;
}

namespace detail {

/// Reads a number of a size that floats have, with a double's digits. Returns what is wrong with the
/// text, or null.
inline const char* parse_float_range(std::string_view text, double& value) {
  const NumberText kind = parse_number(text, value);
  if (kind == NumberText::no_number) return "is not a finite number; mend or empty it";
  const auto as_float = static_cast<float>(value);
  if (kind == NumberText::too_large || std::isinf(as_float))
    return "is too large for a float, whose largest number is 3.4e38; mend or empty it";
  if (as_float == 0) value = 0;
  return nullptr;
}

}  // namespace detail

}}  // namespace tessera::v0
