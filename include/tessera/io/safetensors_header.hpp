// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/io/json_reader.hpp>
#include <tessera/io/tensor_type.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// One tensor of a file: its bytes are [begin, end) of the data that follows the header.
struct TensorInfo {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape;  ///< row-major; empty: a scalar
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  std::int64_t elements() const {
    return static_cast<std::int64_t>((end - begin) / tensor_type_size(type));
  }
};

/// What a header says: texts, and tensors in the order of their data, which begins `data_offset`
/// bytes into the file.
struct SafetensorsHeader {
  std::map<std::string, std::string> metadata;
  std::vector<TensorInfo> tensors;
  std::uint64_t data_offset = 0;
};

/// Reads the one JSON shape that a safetensors header may have: an object of tensor objects and of
/// one object of texts.
class SafetensorsHeaderParser {
 public:
  /// Reads `text`, which begins `base` bytes into the file.
  SafetensorsHeaderParser(std::string_view text, std::string_view file, std::uint64_t base)
      : json_(text, file, base) {}

  SafetensorsHeader parse();

 private:
  TensorInfo tensor(std::string name, std::size_t begin_at);

  JsonReader json_;
};

std::string shape_text(std::span<const std::int64_t> shape);

/// Checks that the tensors' bytes fit their shapes and cover the data exactly once. Sorts them by
/// place.
void place_tensors(SafetensorsHeader& header, std::uint64_t data_bytes, std::string_view file);

/// Returns how many bytes a header has, with the 8 of its length, which `begin` starts with.
/// `file_bytes`: of the whole file.
std::uint64_t safetensors_header_bytes(std::span<const std::byte> begin, std::string_view file,
                                       std::uint64_t file_bytes);

/// Reads and checks a whole header. `begin`: what the file begins with, at least its header.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> begin, std::string_view file,
                                           std::uint64_t file_bytes);

/// Returns the first bytes of a file: length and JSON text, padded with blanks so that the data
/// begins on a multiple of 64.
std::string format_safetensors_header(const std::map<std::string, std::string>& metadata,
                                      std::span<const TensorInfo> tensors);

#ifdef TESSERA_INLINE
TESSERA_INLINE SafetensorsHeader SafetensorsHeaderParser::parse() {
  SafetensorsHeader header;
  std::set<std::string> names;
  json_.object([&](std::string name, std::size_t at) {
    json_.set_context(formatted("tensor {}", detail::quoted(name)));
    json_.check(names.insert(name).second, at, "the key appears twice");
    if (name == "__metadata__") {
      json_.object([&](std::string key, std::size_t key_at) {
        json_.check(header.metadata.emplace(key, json_.string()).second, key_at,
                    "the key appears twice");
      });
    } else {
      header.tensors.push_back(tensor(std::move(name), at));
    }
    json_.set_context("");
  });
  json_.end();
  return header;
}

TESSERA_INLINE TensorInfo SafetensorsHeaderParser::tensor(std::string name, std::size_t begin_at) {
  TensorInfo info;
  info.name = std::move(name);
  bool type = false, shape = false, offsets = false;
  json_.object([&](const std::string& key, std::size_t at) {
    if (key == "dtype") {
      json_.check(!std::exchange(type, true), at, "dtype appears twice");
      const std::size_t value_at = json_.next_position();
      const auto known = find_tensor_type(json_.string());
      json_.check(known.has_value(), value_at,
                  "dtype is none of F32, F16, BF16, F64, I64, I32, U8, BOOL");
      info.type = *known;
    } else if (key == "shape") {
      json_.check(!std::exchange(shape, true), at, "shape appears twice");
      json_.array(
          [&](std::size_t) { info.shape.push_back(json_.count("an extent is too large")); });
    } else {
      json_.check(key == "data_offsets", at,
                  "a tensor has the keys dtype, shape and data_offsets only");
      json_.check(!std::exchange(offsets, true), at, "data_offsets appear twice");
      int count = 0;
      json_.array([&](std::size_t value_at) {
        json_.check(count < 2, value_at, "data_offsets must be two numbers");
        (count++ == 0 ? info.begin : info.end) = json_.number();
      });
      json_.check(count == 2, at, "data_offsets must be two numbers");
    }
  });
  json_.check(type && shape && offsets, begin_at, "a tensor needs dtype, shape and data_offsets");
  return info;
}

TESSERA_INLINE std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const std::int64_t extent : shape)
    text += formatted("{}{}", text.size() == 1 ? "" : ",", extent);
  return text + "]";
}

TESSERA_INLINE void place_tensors(SafetensorsHeader& header, std::uint64_t data_bytes,
                                  std::string_view file) {
  for (const TensorInfo& t : header.tensors) {
    std::uint64_t bytes = tensor_type_size(t.type);
    bool overflow = false;
    for (const std::int64_t extent : t.shape)
      overflow |= __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes);
    require<DataError>(t.begin <= t.end && t.end <= data_bytes,
                       "file '{}', tensor '{}', offset {}: its bytes [{}, {}) are outside the {} "
                       "bytes of data; is the file truncated?",
                       file, t.name, header.data_offset, t.begin, t.end, data_bytes);
    // A product that overflows on the way to a later extent of 0 is refused too: no writer makes
    // such a shape.
    require<DataError>(!overflow && bytes == t.end - t.begin,
                       "file '{}', tensor '{}', offset {}: {} of shape {} does not fill {} bytes",
                       file, t.name, header.data_offset + t.begin, tensor_type_name(t.type),
                       shape_text(t.shape), t.end - t.begin);
  }
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  std::uint64_t at = 0;
  for (const TensorInfo& t : header.tensors) {
    require<DataError>(t.begin == at,
                       "file '{}', tensor '{}', offset {}: its bytes begin at {} of the data, but "
                       "the tensor before ends at {}",
                       file, t.name, header.data_offset + t.begin, t.begin, at);
    at = t.end;
  }
  require<DataError>(at == data_bytes, "file '{}', offset {}: {} bytes follow the last tensor",
                     file, header.data_offset + at, data_bytes - at);
}

TESSERA_INLINE std::uint64_t safetensors_header_bytes(std::span<const std::byte> begin,
                                                      std::string_view file,
                                                      std::uint64_t file_bytes) {
  static_assert(std::endian::native == std::endian::little,
                "safetensors files are little-endian and are read unchanged");
  // The format's own bound: a longer header is an attack or not a safetensors file.
  constexpr std::uint64_t kMaxHeader = 100'000'000;
  require<DataError>(file_bytes >= 8 && begin.size() >= 8,
                     "file '{}', offset 0: {} bytes are too few for a safetensors file (8 of "
                     "header length come first)",
                     file, file_bytes);
  std::uint64_t length = 0;
  std::memcpy(&length, begin.data(), 8);
  require<DataError>(length <= kMaxHeader && length <= file_bytes - 8,
                     "file '{}', offset 0: a header of {} bytes does not fit the file of {} bytes; "
                     "truncated, or not a safetensors file?",
                     file, length, file_bytes);
  return 8 + length;
}

TESSERA_INLINE SafetensorsHeader parse_safetensors_header(std::span<const std::byte> begin,
                                                          std::string_view file,
                                                          std::uint64_t file_bytes) {
  const std::uint64_t bytes = safetensors_header_bytes(begin, file, file_bytes);
  require<DataError>(bytes <= begin.size(), "file '{}' changed while its header was read", file);
  const std::string_view text(reinterpret_cast<const char*>(begin.data()) + 8, bytes - 8);
  require<DataError>(text.starts_with('{'),
                     "file '{}', offset 8: the header must begin with an opening brace", file);
  SafetensorsHeader header = SafetensorsHeaderParser(text, file, 8).parse();
  header.data_offset = bytes;
  place_tensors(header, file_bytes - bytes, file);
  return header;
}

TESSERA_INLINE std::string format_safetensors_header(
    const std::map<std::string, std::string>& metadata, std::span<const TensorInfo> tensors) {
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
    text += formatted(R"({{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})",
                      tensor_type_name(t.type), shape_text(t.shape), t.begin, t.end);
  }
  text.push_back('}');
  text.resize((text.size() + 8 + 63) / 64 * 64 - 8, ' ');
  const std::uint64_t length = text.size();
  std::string header(8, '\0');
  std::memcpy(header.data(), &length, 8);
  return header + text;
}
#endif

}}}  // namespace tessera::v0::detail
