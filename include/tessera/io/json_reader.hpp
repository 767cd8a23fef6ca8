// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/io/text.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Reads JSON by calls that say what must come next: an object, an array, a text, a number.
/// What was not asked for (other kinds of values, deeper nesting, a number that is no count) is an
/// error, so that no input recurses or surprises. Every fault is a DataError that names the file,
/// the part being read and the offset.
class JsonReader {
 public:
  /// Reads `text`, which begins `base` bytes into the file. Both texts must outlive the reader.
  JsonReader(std::string_view text, std::string_view file, std::uint64_t base = 0)
      : text_(text), file_(file), base_(base) {}

  /// Returns where the next text that is not blank begins.
  std::size_t next_position();
  /// Sets what messages name beside the file, as "tensor 'x'"; empty: nothing.
  void set_context(std::string context) { context_ = std::move(context); }

  /// Calls member(key, position of the key) with the reader placed at the member's value.
  template <class Member>
  void object(Member member) {
    expect('{', "an object is expected here");
    list('}', "a comma or a closing brace is expected here", [&] {
      const std::size_t key_at = at_;
      std::string name = string();
      expect(':', "a colon is expected after a key");
      member(std::move(name), key_at);
    });
  }

  /// Calls element(position of the element) with the reader placed at each element.
  template <class Element>
  void array(Element element) {
    expect('[', "an array is expected here");
    list(']', "a comma or a closing bracket is expected here", [&] { element(at_); });
  }

  /// Returns a whole number, not negative.
  std::uint64_t number();

  /// Returns a number with a sign, a fraction or an exponent; 0 for one that is too small for a
  /// double.
  double real();

  bool boolean();

  /// Returns whether the next value is null, which is then read.
  bool null() { return take("null"); }
  /// Reads NaN, Infinity or -Infinity, which are no JSON, but are what Python's json writes;
  /// nothing is read if the next value is none of them.
  std::optional<double> not_finite();
  /// Returns the first character of the next value: '"' of a string, '[' of an array, ...
  char next();

  /// Passes over a value of any kind, and returns its text. `not_finite_too`: also over NaN and
  /// Infinity. Throws if it is nested deeper than 64 times.
  std::string_view skip(bool not_finite_too = false);

  /// Does the same as `number` for a size or a place in memory or files.
  std::int64_t count(std::string_view what);

  std::string string();
  /// Returns a string as a view of the text, if it has no escapes; else it is appended to
  /// `unescaped`, which grows up to the size of the text, and is viewed there.
  std::string_view string(std::vector<char>& unescaped);

  /// Throws unless only blanks follow.
  void end();

  void check(bool good, std::size_t at, std::string_view fault) const;

 private:
  template <class Item>
  void list(char close, std::string_view fault, Item item) {
    skip_space();
    if (peek() == close) {
      ++at_;
      return;
    }
    for (;;) {
      skip_space();
      item();
      skip_space();
      if (peek() != ',') break;
      ++at_;
    }
    expect(close, fault);
  }

  void escape(std::vector<char>& value);

  std::uint32_t hex4(std::size_t begin);

  static void append_utf8(std::vector<char>& value, std::uint32_t code);

  void skip_space();

  void key();

  bool take(std::string_view word);

  char peek() const;

  void expect(char c, std::string_view fault);

  std::string_view text_;
  std::string_view file_;
  std::uint64_t base_;
  std::size_t at_ = 0;
  std::string context_;
};

/// Appends a text as JSON writes it.
void append_json_string(std::string& out, std::string_view text);

#ifdef TESSERA_INLINE
TESSERA_INLINE std::size_t JsonReader::next_position() {
  skip_space();
  return at_;
}

TESSERA_INLINE std::uint64_t JsonReader::number() {
  skip_space();
  const std::size_t begin = at_;
  std::uint64_t value = 0;
  while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
    const std::uint64_t digit = static_cast<std::uint64_t>(text_[at_++] - '0');
    check(!__builtin_mul_overflow(value, std::uint64_t{10}, &value) &&
              !__builtin_add_overflow(value, digit, &value),
          begin, "the number is too large");
  }
  check(at_ > begin, begin, "a whole number, not negative, is expected here");
  check(at_ - begin == 1 || text_[begin] != '0', begin, "a number begins with 0");
  return value;
}

TESSERA_INLINE double JsonReader::real() {
  skip_space();
  const std::size_t begin = at_;
  while (at_ < text_.size() &&
         std::string_view("+-.eE0123456789").find(text_[at_]) != std::string_view::npos)
    ++at_;
  double value = 0;
  std::string_view digits = text_.substr(begin, at_ - begin);
  const NumberText kind = parse_number(digits, value);
  check(kind != NumberText::too_large, begin, "the number is too large");
  digits.remove_prefix(digits.starts_with('-'));
  const auto digit = [&](std::size_t i) {
    return i < digits.size() && digits[i] >= '0' && digits[i] <= '9';
  };
  const std::size_t point = digits.find('.');
  check(kind == NumberText::number && digit(0) && (point == digits.npos || digit(point + 1)), begin,
        "a number is expected here");
  check(digits[0] != '0' || !digit(1), begin, "a number begins with 0");
  return value;
}

TESSERA_INLINE bool JsonReader::boolean() {
  if (take("true")) return true;
  check(take("false"), at_, "true or false is expected here");
  return false;
}

TESSERA_INLINE std::optional<double> JsonReader::not_finite() {
  if (take("NaN")) return std::numeric_limits<double>::quiet_NaN();
  if (take("Infinity")) return std::numeric_limits<double>::infinity();
  if (take("-Infinity")) return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

TESSERA_INLINE char JsonReader::next() {
  skip_space();
  return peek();
}

TESSERA_INLINE std::string_view JsonReader::skip(bool not_finite_too) {
  skip_space();
  std::vector<char> ignored;
  const std::size_t begin = at_;
  std::string open;  // closing brackets that are due
  do {
    const char c = next();
    if (c == '{' || c == '[') {
      check(open.size() < 64, at_, "the values are nested too deep");
      ++at_;
      open.push_back(c == '{' ? '}' : ']');
      if (next() != open.back()) {
        if (c == '{') key();
        continue;
      }
      ++at_;
      open.pop_back();
    } else if (c == '"') {
      ignored.clear();
      static_cast<void>(string(ignored));
    } else if (!take("true") && !take("false") && !take("null") &&
               !(not_finite_too && not_finite())) {
      static_cast<void>(real());
    }
    while (!open.empty()) {  // behind a value
      const char close = next();
      check(close == ',' || close == open.back(), at_,
            "a comma or a closing bracket is expected here");
      ++at_;
      if (close == ',') {
        if (open.back() == '}') key();
        break;
      }
      open.pop_back();
    }
  } while (!open.empty());
  return text_.substr(begin, at_ - begin);
}

TESSERA_INLINE std::int64_t JsonReader::count(std::string_view what) {
  const std::size_t begin = at_;
  const std::uint64_t value = number();
  check(value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()), begin, what);
  return static_cast<std::int64_t>(value);
}

TESSERA_INLINE std::string JsonReader::string() {
  std::vector<char> unescaped;
  return std::string(string(unescaped));
}

TESSERA_INLINE std::string_view JsonReader::string(std::vector<char>& unescaped) {
  expect('"', "a string is expected here");
  std::size_t begin = at_;
  const std::size_t first = unescaped.size();
  for (bool plain = true;; plain = false) {
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
           static_cast<unsigned char>(text_[at_]) >= 0x20)
      ++at_;
    check(at_ < text_.size(), at_, "the text ends inside a string");
    const std::string_view part = text_.substr(begin, at_ - begin);
    const char c = text_[at_++];
    if (c == '"' && plain) return part;
    check(c == '"' || c == '\\', at_ - 1, "a control character in a string");
    unescaped.insert(unescaped.end(), part.begin(), part.end());
    if (c == '"') return {unescaped.data() + first, unescaped.size() - first};
    escape(unescaped);
    begin = at_;
  }
}

TESSERA_INLINE void JsonReader::end() {
  skip_space();
  check(at_ == text_.size(), at_, "text follows the last brace");
}

TESSERA_INLINE void JsonReader::check(bool good, std::size_t at, std::string_view fault) const {
  if (good) return;
  throw DataError(context_.empty() ? formatted("file '{}', offset {}: {}", file_, base_ + at, fault)
                                   : formatted("file '{}', {}, offset {}: {}", file_, context_,
                                               base_ + at, fault));
}

TESSERA_INLINE void JsonReader::escape(std::vector<char>& value) {
  static constexpr std::string_view kShort = "\"\\/bfnrt";
  static constexpr std::string_view kMeaning = "\"\\/\b\f\n\r\t";
  const std::size_t begin = at_ - 1;
  const char c = peek();
  ++at_;
  if (const std::size_t i = kShort.find(c); i != std::string_view::npos) {
    value.push_back(kMeaning[i]);
    return;
  }
  check(c == 'u', begin, "an unknown escape in a string");
  std::uint32_t code = hex4(begin);
  if (code >= 0xd800 && code < 0xdc00) {
    check(text_.substr(at_, 2) == "\\u", begin, "half of a surrogate pair in a string");
    at_ += 2;
    const std::uint32_t low = hex4(begin);
    check(low >= 0xdc00 && low < 0xe000, begin, "half of a surrogate pair in a string");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  } else {
    check(code < 0xdc00 || code >= 0xe000, begin, "half of a surrogate pair in a string");
  }
  append_utf8(value, code);
}

TESSERA_INLINE std::uint32_t JsonReader::hex4(std::size_t begin) {
  std::uint32_t code = 0;
  for (int i = 0; i < 4; ++i) {
    const char c = peek();
    ++at_;
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    check(digit >= 0, begin, "an escape needs four hexadecimal digits");
    code = code << 4 | static_cast<std::uint32_t>(digit);
  }
  return code;
}

TESSERA_INLINE void JsonReader::append_utf8(std::vector<char>& value, std::uint32_t code) {
  const auto push = [&](std::uint32_t byte) { value.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    push(code);
  } else if (code < 0x800) {
    push(0xc0 | code >> 6), push(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    push(0xe0 | code >> 12), push(0x80 | (code >> 6 & 0x3f)), push(0x80 | (code & 0x3f));
  } else {
    push(0xf0 | code >> 18), push(0x80 | (code >> 12 & 0x3f)), push(0x80 | (code >> 6 & 0x3f)),
        push(0x80 | (code & 0x3f));
  }
}

TESSERA_INLINE void JsonReader::skip_space() {
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
    ++at_;
}

TESSERA_INLINE void JsonReader::key() {
  std::vector<char> ignored;
  static_cast<void>(string(ignored));
  expect(':', "a colon is expected after a key");
}

TESSERA_INLINE bool JsonReader::take(std::string_view word) {
  skip_space();
  if (text_.substr(at_, word.size()) != word) return false;
  at_ += word.size();
  return true;
}

TESSERA_INLINE char JsonReader::peek() const {
  check(at_ < text_.size(), at_, "the text ends too early");
  return text_[at_];
}

TESSERA_INLINE void JsonReader::expect(char c, std::string_view fault) {
  skip_space();
  check(peek() == c, at_, fault);
  ++at_;
}

TESSERA_INLINE void append_json_string(std::string& out, std::string_view text) {
  out.push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += formatted("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
}
#endif

}}}  // namespace tessera::v0::detail
