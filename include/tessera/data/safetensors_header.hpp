// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::inline v0 {

/// Element types of safetensors files that are read and written.
enum class TensorType : std::uint8_t { f32, f16, bf16, f64, i64, i32, u8, boolean };

namespace detail {

struct TensorTypeFacts {
  std::string_view name;
  std::uint64_t size;
};
inline constexpr std::array<TensorTypeFacts, 8> kTensorTypes = {
    {{"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F64", 8}, {"I64", 8}, {"I32", 4}, {"U8", 1}, {"BOOL", 1}}};

}  // namespace detail

/// The name that safetensors gives to a type: "F32", "BF16", ...
constexpr std::string_view tensor_type_name(TensorType type) { return detail::kTensorTypes[static_cast<std::size_t>(type)].name; }
/// Bytes per element.
constexpr std::uint64_t tensor_type_size(TensorType type) { return detail::kTensorTypes[static_cast<std::size_t>(type)].size; }

static_assert(tensor_type_name(TensorType::boolean) == "BOOL" && tensor_type_size(TensorType::f64) == 8);

/// One tensor of a file: its bytes are [begin, end) of the data that follows the header.
struct TensorInfo {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape;  ///< row-major; empty: a scalar
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  std::int64_t elements() const { return static_cast<std::int64_t>((end - begin) / tensor_type_size(type)); }
};

/// What a header says: texts, and tensors in the order of their data, which begins `data_offset` bytes into the file.
struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<TensorInfo> tensors;
  std::uint64_t data_offset = 0;
};

namespace detail {

/// Parses the one JSON shape that a safetensors header may have, with no recursion: an object of tensor objects and of one
/// object of texts. What that shape has no place for (numbers that are no counts, nested values, repeated keys) is an error.
class SafetensorsHeaderParser {
 public:
  /// `text` begins `base` bytes into the file.
  SafetensorsHeaderParser(std::string_view text, std::string_view file, std::uint64_t base) : text_(text), file_(file), base_(base) {}

  SafetensorsHeader parse() {
    SafetensorsHeader header;
    std::set<std::string> names;
    object([&](std::string name, std::size_t at) {
      tensor_ = name;
      check(names.insert(name).second, at, "the key appears twice");
      if (name == "__metadata__") {
        object([&](std::string key, std::size_t key_at) {
          check(header.metadata.emplace(key, string()).second, key_at, "the key appears twice");
        });
      } else {
        header.tensors.push_back(tensor(std::move(name), at));
      }
      tensor_.clear();
    });
    skip_space();
    check(at_ == text_.size(), at_, "text follows the header's last brace");
    return header;
  }

 private:
  TensorInfo tensor(std::string name, std::size_t begin_at) {
    TensorInfo info;
    info.name = std::move(name);
    bool type = false, shape = false, offsets = false;
    object([&](const std::string& key, std::size_t at) {
      if (key == "dtype") {
        check(!std::exchange(type, true), at, "dtype appears twice");
        skip_space();
        const std::size_t value_at = at_;
        const std::string value = string();
        const auto known =
            std::find_if(kTensorTypes.begin(), kTensorTypes.end(), [&](const TensorTypeFacts& t) { return t.name == value; });
        check(known != kTensorTypes.end(), value_at, "dtype is none of F32, F16, BF16, F64, I64, I32, U8, BOOL");
        info.type = static_cast<TensorType>(known - kTensorTypes.begin());
      } else if (key == "shape") {
        check(!std::exchange(shape, true), at, "shape appears twice");
        array([&](std::uint64_t extent, std::size_t extent_at) {
          check(extent <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()), extent_at, "an extent is too large");
          info.shape.push_back(static_cast<std::int64_t>(extent));
        });
      } else {
        check(key == "data_offsets", at, "a tensor has the keys dtype, shape and data_offsets only");
        check(!std::exchange(offsets, true), at, "data_offsets appear twice");
        int count = 0;
        array([&](std::uint64_t value, std::size_t value_at) {
          check(count < 2, value_at, "data_offsets must be two numbers");
          (count++ == 0 ? info.begin : info.end) = value;
        });
        check(count == 2, at, "data_offsets must be two numbers");
      }
    });
    check(type && shape && offsets, begin_at, "a tensor needs dtype, shape and data_offsets");
    return info;
  }

  /// Calls member(key, position of the key) with the reader placed at the member's value.
  template <class Member>
  void object(Member member) {
    expect('{', "an object is expected here");
    skip_space();
    if (peek() == '}') {
      ++at_;
      return;
    }
    for (;;) {
      skip_space();
      const std::size_t key_at = at_;
      std::string key = string();
      expect(':', "a colon is expected after a key");
      member(std::move(key), key_at);
      skip_space();
      if (peek() != ',') break;
      ++at_;
    }
    expect('}', "a comma or a closing brace is expected here");
  }

  template <class Element>
  void array(Element element) {
    expect('[', "an array of numbers is expected here");
    skip_space();
    if (peek() == ']') {
      ++at_;
      return;
    }
    for (;;) {
      skip_space();
      const std::size_t number_at = at_;
      element(number(), number_at);
      skip_space();
      if (peek() != ',') break;
      ++at_;
    }
    expect(']', "a comma or a closing bracket is expected here");
  }

  std::uint64_t number() {
    const std::size_t begin = at_;
    std::uint64_t value = 0;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') {
      const std::uint64_t digit = static_cast<std::uint64_t>(text_[at_++] - '0');
      check(!__builtin_mul_overflow(value, std::uint64_t{10}, &value) && !__builtin_add_overflow(value, digit, &value), begin,
            "the number is too large");
    }
    check(at_ > begin, begin, "a whole number, not negative, is expected here");
    check(at_ - begin == 1 || text_[begin] != '0', begin, "a number begins with 0");
    return value;
  }

  std::string string() {
    expect('"', "a string is expected here");
    std::string value;
    for (;;) {
      const std::size_t begin = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' && static_cast<unsigned char>(text_[at_]) >= 0x20) ++at_;
      value.append(text_, begin, at_ - begin);
      check(at_ < text_.size(), at_, "the header ends inside a string");
      const char c = text_[at_++];
      if (c == '"') return value;
      check(c == '\\', at_ - 1, "a control character stands in a string");
      escape(value);
    }
  }

  void escape(std::string& value) {
    static constexpr std::string_view kShort = "\"\\/bfnrt";
    static constexpr std::string_view kMeaning = "\"\\/\b\f\n\r\t";
    const std::size_t begin = at_ - 1;
    const char c = peek();
    ++at_;
    if (const std::size_t i = kShort.find(c); i != std::string_view::npos) {
      value.push_back(kMeaning[i]);
      return;
    }
    check(c == 'u', begin, "an unknown escape stands in a string");
    std::uint32_t code = hex4(begin);
    if (code >= 0xd800 && code < 0xdc00) {
      check(text_.substr(at_, 2) == "\\u", begin, "half of a surrogate pair stands in a string");
      at_ += 2;
      const std::uint32_t low = hex4(begin);
      check(low >= 0xdc00 && low < 0xe000, begin, "half of a surrogate pair stands in a string");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    } else {
      check(code < 0xdc00 || code >= 0xe000, begin, "half of a surrogate pair stands in a string");
    }
    append_utf8(value, code);
  }

  std::uint32_t hex4(std::size_t begin) {
    std::uint32_t code = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = peek();
      ++at_;
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
      check(digit >= 0, begin, "an escape needs four hexadecimal digits");
      code = code << 4 | static_cast<std::uint32_t>(digit);
    }
    return code;
  }

  static void append_utf8(std::string& value, std::uint32_t code) {
    const auto push = [&](std::uint32_t byte) { value.push_back(static_cast<char>(byte)); };
    if (code < 0x80) {
      push(code);
    } else if (code < 0x800) {
      push(0xc0 | code >> 6), push(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
      push(0xe0 | code >> 12), push(0x80 | (code >> 6 & 0x3f)), push(0x80 | (code & 0x3f));
    } else {
      push(0xf0 | code >> 18), push(0x80 | (code >> 12 & 0x3f)), push(0x80 | (code >> 6 & 0x3f)), push(0x80 | (code & 0x3f));
    }
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) ++at_;
  }

  char peek() const {
    check(at_ < text_.size(), at_, "the header ends too early");
    return text_[at_];
  }

  void expect(char c, std::string_view fault) {
    skip_space();
    check(peek() == c, at_, fault);
    ++at_;
  }

  void check(bool good, std::size_t at, std::string_view fault) const {
    if (good) return;
    throw DataError(tensor_.empty() ? fmt::format("file '{}', offset {}: {}", file_, base_ + at, fault)
                                    : fmt::format("file '{}', tensor '{}', offset {}: {}", file_, tensor_, base_ + at, fault));
  }

  std::string_view text_;
  std::string_view file_;
  std::uint64_t base_;
  std::size_t at_ = 0;
  std::string tensor_;  // the key being read, for messages
};

inline std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape) fmt::format_to(std::back_inserter(text), "{}{}", text.size() == 1 ? "" : ",", extent);
  return text + "]";
}

/// Checks that the tensors' bytes fit their shapes and cover the data exactly once. Sorts them by place.
inline void place_tensors(SafetensorsHeader& header, std::uint64_t data_bytes, std::string_view file) {
  for (const TensorInfo& t : header.tensors) {
    std::uint64_t bytes = tensor_type_size(t.type);
    bool overflow = false;
    for (const std::int64_t extent : t.shape) overflow |= __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes);
    require<DataError>(t.begin <= t.end && t.end <= data_bytes,
                       "file '{}', tensor '{}', offset {}: its bytes [{}, {}) lie outside the {} bytes of data; is the file truncated?",
                       file, t.name, header.data_offset, t.begin, t.end, data_bytes);
    // A product that overflows on the way to a later extent of 0 is refused too: no writer makes such a shape.
    require<DataError>(!overflow && bytes == t.end - t.begin, "file '{}', tensor '{}', offset {}: {} of shape {} does not fill {} bytes",
                       file, t.name, header.data_offset + t.begin, tensor_type_name(t.type), shape_text(t.shape), t.end - t.begin);
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  std::uint64_t at = 0;
  for (const TensorInfo& t : header.tensors) {
    require<DataError>(t.begin == at,
                       "file '{}', tensor '{}', offset {}: its bytes begin at {} of the data, but the tensor before ends at {}", file,
                       t.name, header.data_offset + t.begin, t.begin, at);
    at = t.end;
  }
  require<DataError>(at == data_bytes, "file '{}', offset {}: {} bytes follow the last tensor", file, header.data_offset + at,
                     data_bytes - at);
}

/// Reads and checks a whole header. `bytes` is the file.
inline SafetensorsHeader parse_safetensors_header(std::span<const std::byte> bytes, std::string_view file) {
  static_assert(std::endian::native == std::endian::little, "safetensors files are little-endian and are read as they are");
  // The format's own bound: a longer header is an attack or not a safetensors file.
  constexpr std::uint64_t kMaxHeader = 100'000'000;
  require<DataError>(bytes.size() >= 8, "file '{}', offset 0: {} bytes are too few for a safetensors file (8 of header length come first)",
                     file, bytes.size());
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  require<DataError>(length <= kMaxHeader && length <= bytes.size() - 8,
                     "file '{}', offset 0: a header of {} bytes does not fit the file of {} bytes; truncated, or not a safetensors file?",
                     file, length, bytes.size());
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  require<DataError>(text.starts_with('{'), "file '{}', offset 8: the header must begin with an opening brace", file);
  SafetensorsHeader header = SafetensorsHeaderParser(text, file, 8).parse();
  header.data_offset = 8 + length;
  place_tensors(header, bytes.size() - header.data_offset, file);
  return header;
}

inline void append_json_string(std::string& out, std::string_view text) {
  out.push_back('"');
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
}

/// The first bytes of a file: length and JSON text, padded with blanks so that the data begins on a multiple of 8.
inline std::string format_safetensors_header(const std::map<std::string, std::string>& metadata, std::span<const TensorInfo> tensors) {
  std::string text = "{";
  const auto key = [&](std::string_view name) {
    if (text.back() != '{') text.push_back(',');
    append_json_string(text, name);
    text.push_back(':');
  };
  if (!metadata.empty()) {
    key("__metadata__");
    text.push_back('{');
    for (const auto& [name, value] : metadata) {
      key(name);
      append_json_string(text, value);
    }
    text.push_back('}');
  }
  for (const TensorInfo& t : tensors) {
    key(t.name);
    fmt::format_to(std::back_inserter(text), R"({{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", tensor_type_name(t.type),
                   shape_text(t.shape), t.begin, t.end);
  }
  text.push_back('}');
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  std::string header(8, '\0');
  std::memcpy(header.data(), &length, 8);
  return header + text;
}

}  // namespace detail

}  // namespace tessera::inline v0
