// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/io/safetensors_header.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// What is before the values of a .npy file (NumPy Enhancement Proposal 1): element type,
/// shape, where the values begin.
struct NpyHeader {
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t data_offset = 0;
};

/// NumPy has no bfloat16: two bytes of anything take its place.
inline constexpr std::pair<TensorType, std::string_view> kNpyTypes[] = {
    {TensorType::f32, "<f4"}, {TensorType::f16, "<f2"},    {TensorType::bf16, "|V2"},
    {TensorType::f64, "<f8"}, {TensorType::i64, "<i8"},    {TensorType::i32, "<i4"},
    {TensorType::u8, "|u1"},  {TensorType::boolean, "|b1"}};

/// Reads the Python dictionary of a header: the three keys that there must be, in any order.
class NpyHeaderParser {
 public:
  NpyHeaderParser(std::string_view text, std::string_view file, std::uint64_t base)
      : text_(text), file_(file), base_(base) {}

  NpyHeader parse() {
    NpyHeader header;
    bool type = false, order = false, shape = false;
    expect('{');
    while (peek() != '}') {
      const std::string_view key = quoted();
      expect(':');
      if (key == "descr") {
        check(!std::exchange(type, true), "descr is there twice");
        header.type = type_of(quoted());
      } else if (key == "fortran_order") {
        check(!std::exchange(order, true), "fortran_order is there twice");
        check(word() == "False", "the values must be in C order (fortran_order False)");
      } else {
        check(key == "shape" && !std::exchange(shape, true),
              "the keys are descr, fortran_order and shape, each once");
        header.shape = tuple();
      }
      if (peek() == ',') ++at_;
    }
    ++at_;
    skip_space();
    check(at_ == text_.size(), "text follows the dictionary");
    check(type && order && shape, "the keys descr, fortran_order and shape must be there");
    return header;
  }

 private:
  TensorType type_of(std::string_view name) const {
    if (name == "<V2") name = "|V2";
    for (const auto& [type, text] : kNpyTypes)
      if (name == text) return type;
    fail("an element type that is not read (descr is none of <f4 <f2 <f8 <i8 <i4 |u1 |b1 |V2)");
  }

  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> extents;
    expect('(');
    while (peek() != ')') {
      std::int64_t extent = 0;
      const std::size_t begin = at_;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
        check(!__builtin_mul_overflow(extent, 10, &extent) &&
                  !__builtin_add_overflow(extent, text_[at_] - '0', &extent),
              "an extent is too large");
      check(at_ > begin, "a number is expected in the shape");
      extents.push_back(extent);
      if (peek() == ',') ++at_;
    }
    ++at_;
    return extents;
  }

  std::string_view quoted() {
    const char quote = peek();
    check(quote == '\'' || quote == '"', "a quoted text is expected");
    const std::size_t begin = ++at_, end = text_.find(quote, begin);
    check(end != std::string_view::npos, "the header ends inside a text");
    at_ = end + 1;
    return text_.substr(begin, end - begin);
  }

  std::string_view word() {
    peek();
    const std::size_t begin = at_;
    while (at_ < text_.size() &&
           ((text_[at_] >= 'a' && text_[at_] <= 'z') || (text_[at_] >= 'A' && text_[at_] <= 'Z')))
      ++at_;
    return text_.substr(begin, at_ - begin);
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  char peek() {
    skip_space();
    check(at_ < text_.size(), "the header ends too early");
    return text_[at_];
  }
  void expect(char c) {
    check(peek() == c, "the header is not a dictionary of the three keys");
    ++at_;
  }
  void check(bool good, std::string_view fault) const {
    if (!good) fail(fault);
  }
  [[noreturn]] void fail(std::string_view fault) const {
    throw DataError(formatted("file '{}', offset {}: {}", file_, base_ + at_, fault));
  }

  std::string_view text_, file_;
  std::uint64_t base_;
  std::size_t at_ = 0;
};

/// Reads the header of a .npy file, versions 1 to 3, from its first bytes; `file_bytes` is the size
/// of all of it. Throws DataError if it is none, or if the file does not hold exactly what it
/// says.
inline NpyHeader parse_npy_header(std::span<const std::byte> begin, std::uint64_t file_bytes,
                                  std::string_view file) {
  const std::string_view text(reinterpret_cast<const char*>(begin.data()), begin.size());
  require<DataError>(text.size() >= 10 && text.starts_with("\x93NUMPY"),
                     "file '{}', offset 0: this is no .npy file", file);
  const int version = static_cast<unsigned char>(text[6]);
  require<DataError>(version >= 1 && version <= 3,
                     "file '{}', offset 6: version {} of .npy is not known", file, version);
  const std::size_t before = version == 1 ? 10 : 12;
  std::uint32_t length = 0;
  require<DataError>(text.size() >= before, "file '{}', offset 8: the header ends too early", file);
  std::memcpy(&length, text.data() + 8, before - 8);
  require<DataError>(length <= text.size() - before,
                     "file '{}', offset 8: the header is longer than the file, or than 64 KiB",
                     file);
  NpyHeader header = NpyHeaderParser(text.substr(before, length), file, before).parse();
  header.data_offset = before + length;
  std::uint64_t bytes = tensor_type_size(header.type);
  bool overflow = false;
  for (const std::int64_t extent : header.shape)
    overflow |= __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes);
  require<DataError>(
      !overflow && file_bytes >= header.data_offset && bytes == file_bytes - header.data_offset,
      "file '{}', offset {}: {} of shape {} does not fill the rest of {} bytes; is the file "
      "truncated?",
      file, header.data_offset, tensor_type_name(header.type), shape_text(header.shape),
      file_bytes - std::min(file_bytes, header.data_offset));
  return header;
}

/// Returns the first bytes of a .npy file, a multiple of 64.
inline std::string format_npy_header(TensorType type, std::span<const std::int64_t> shape) {
  std::string_view descr;
  for (const auto& [known, text] : kNpyTypes)
    if (known == type) descr = text;
  std::string extents;
  for (const std::int64_t extent : shape) extents += formatted("{}, ", extent);
  if (shape.size() > 1) extents.resize(extents.size() - 2);
  std::string text = formatted("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", descr,
                               shape.size() == 1 ? extents.substr(0, extents.size() - 1) : extents);
  text.resize((10 + text.size() + 1 + 63) / 64 * 64 - 11, ' ');
  text += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(text.size() & 255);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

}}}  // namespace tessera::v0::detail
