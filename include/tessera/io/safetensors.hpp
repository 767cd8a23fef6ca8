// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/mapped_file.hpp>
#include <tessera/io/safetensors_header.hpp>
#include <tessera/io/temporary_file.hpp>
#include <tessera/io/text.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// Reads a safetensors file: the header at once, tensors on demand from a memory map.
/// The header is checked wholly on opening: every fault is a DataError that names the file, the
/// tensor and the offset. Layout: github.com/huggingface/safetensors (8-byte little-endian header
/// length, JSON header, tensors without gaps).
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::filesystem::path& path)
      : name_(path.string()), file_(path), bytes_(file_.bytes()) {
    open();
  }

  /// Reads from memory that the caller keeps alive; `name` is the file's in messages.
  SafetensorsReader(std::span<const std::byte> bytes, std::string name)
      : name_(std::move(name)), bytes_(bytes) {
    open();
  }

  const std::string& name() const { return name_; }
  /// Returns the texts of `__metadata__`, unparsed.
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  /// Returns all tensors, in the order of their data.
  const std::vector<detail::TensorInfo>& tensors() const { return header_.tensors; }

  /// Returns bytes of the file before the tensors' data.
  std::uint64_t data_offset() const { return header_.data_offset; }

  bool contains(std::string_view tensor) const { return index_.find(tensor) != index_.end(); }

  /// Returns type, shape and place of a tensor. Throws DataError if there is none of that name.
  const detail::TensorInfo& info(std::string_view tensor) const {
    const auto found = index_.find(tensor);
    require<DataError>(found != index_.end(), "file '{}' has no tensor '{}'", name_, tensor);
    return header_.tensors[found->second];
  }

  /// Returns the tensor's bytes, little-endian, row-major, not necessarily aligned. Valid as long
  /// as the reader (and the caller's memory).
  std::span<const std::byte> bytes(std::string_view tensor) const {
    const detail::TensorInfo& t = info(tensor);
    return data_.subspan(t.begin, t.end - t.begin);
  }

  /// Returns a copy of the tensor's elements, row-major. `T` must be the stored type: nothing is
  /// converted. Throws DataError on another type, or on a BOOL that is neither 0 nor 1.
  template <class T>
  std::vector<T> read(std::string_view tensor) const {
    const detail::TensorInfo& t = info(tensor);
    require<DataError>(t.type == detail::tensor_type_of<T>(),
                       "file '{}', tensor '{}': holds {}, asked for {}", name_, tensor,
                       detail::tensor_type_name(t.type),
                       detail::tensor_type_name(detail::tensor_type_of<T>()));
    const std::span<const std::byte> raw = bytes(tensor);
    if constexpr (std::is_same_v<T, bool>) {
      std::vector<bool> values(raw.size());
      for (std::size_t i = 0; i < raw.size(); ++i) {
        if (std::to_integer<int>(raw[i]) > 1)
          throw DataError(detail::formatted(
              "file '{}', tensor '{}', offset {}: BOOL byte {} is neither 0 nor 1", name_, tensor,
              bytes_.size() - data_.size() + t.begin + i, std::to_integer<int>(raw[i])));
        values[i] = raw[i] != std::byte{0};
      }
      return values;
    } else {
      std::vector<T> values(raw.size() / sizeof(T));
      if (!raw.empty()) std::memcpy(values.data(), raw.data(), raw.size());
      return values;
    }
  }

 private:
  void open() {
    header_ = detail::parse_safetensors_header(bytes_, name_, bytes_.size());
    data_ = bytes_.subspan(header_.data_offset);
    for (std::size_t i = 0; i < header_.tensors.size(); ++i)
      index_.emplace(header_.tensors[i].name, i);
  }

  std::string name_;
  detail::MappedFile file_;
  std::span<const std::byte> bytes_;
  std::span<const std::byte> data_;
  detail::SafetensorsHeader header_;
  std::map<std::string, std::size_t, std::less<>> index_;
};

/// Collects tensors and writes them as one safetensors file. Tensors are views: the caller keeps
/// the data alive until `write`. The file appears under its name only when it is complete. Wider
/// element types come first, so that every tensor is aligned.
class SafetensorsWriter {
 public:
  /// Sets a text of `__metadata__`; a later one of the same key replaces it.
  void set_metadata(std::string key, std::string text) {
    metadata_[std::move(key)] = std::move(text);
  }

  /// Adds a row-major tensor. Throws InvalidArgument if the name is taken or reserved, or the shape
  /// doesn't fit the number of values.
  template <class T>
  void add(std::string name, std::vector<std::int64_t> shape, std::span<const T> values) {
    static_assert(sizeof(T) == 1 || !std::is_same_v<T, bool>, "BOOL is one byte");
    add_bytes(std::move(name), detail::tensor_type_of<T>(), std::move(shape),
              std::as_bytes(values));
  }

  void add_bytes(std::string name, detail::TensorType type, std::vector<std::int64_t> shape,
                 std::span<const std::byte> bytes) {
    require(name != "__metadata__",
            "safetensors: '__metadata__' is not a tensor name; use set_metadata");
    detail::check_name("name of a safetensors file's tensor", name);
    require(names_.emplace(name, 0).second, "safetensors: tensor '{}' was added before", name);
    std::uint64_t size = detail::tensor_type_size(type);
    for (const std::int64_t extent : shape)
      require(
          extent >= 0 && !__builtin_mul_overflow(size, static_cast<std::uint64_t>(extent), &size),
          "safetensors: tensor '{}': extents must not be negative nor their product overflow",
          name);
    require(size == bytes.size(), "safetensors: tensor '{}': its shape needs {} bytes, got {}",
            name, size, bytes.size());
    entries_.push_back({detail::TensorInfo{std::move(name), type, std::move(shape), 0, 0}, bytes});
  }

  /// Writes the file. Throws DataError, naming the file, if it can't be written.
  void write(const std::filesystem::path& path) {
    std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return detail::tensor_type_size(a.info.type) > detail::tensor_type_size(b.info.type);
    });
    const std::string header = detail::format_safetensors_header(metadata_, place());
    const std::filesystem::path partial = detail::partial_path(path);
    std::ofstream file(partial, std::ios::binary | std::ios::trunc);
    require<DataError>(file.is_open(), "cannot create '{}': {}", partial.string(),
                       std::strerror(errno));
    file.write(header.data(), static_cast<std::streamsize>(header.size()));
    for (const Entry& entry : entries_)
      if (!entry.bytes.empty())
        file.write(reinterpret_cast<const char*>(entry.bytes.data()),
                   static_cast<std::streamsize>(entry.bytes.size()));
    file.close();
    std::error_code error;
    if (file) std::filesystem::rename(partial, path, error);
    if (!file || error) {
      const std::string why = error ? error.message() : std::strerror(errno);
      std::filesystem::remove(partial, error);
      throw DataError(detail::formatted("cannot write '{}': {}", path.string(), why));
    }
  }

 private:
  struct Entry {
    detail::TensorInfo info;
    std::span<const std::byte> bytes;
  };

  std::vector<detail::TensorInfo> place() {
    std::vector<detail::TensorInfo> placed;
    std::uint64_t at = 0;
    for (Entry& entry : entries_) {
      entry.info.begin = at;
      entry.info.end = at += entry.bytes.size();
      placed.push_back(entry.info);
    }
    return placed;
  }

  std::map<std::string, std::string> metadata_;
  std::map<std::string, int> names_;
  std::vector<Entry> entries_;
};

}}  // namespace tessera::v0
