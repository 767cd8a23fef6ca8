// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/file.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/pickle_reader.hpp>
#include <tessera/io/tensor_type.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// What PyTorch calls a type of tables, and the class of storages of it.
struct TorchType {
  std::string_view name, storage;
  TensorType type;
};
inline constexpr std::array<TorchType, 4> kTorchTypes = {
    {{"float32", "FloatStorage", TensorType::f32},
     {"float16", "HalfStorage", TensorType::f16},
     {"bfloat16", "BFloat16Storage", TensorType::bf16},
     {"float64", "DoubleStorage", TensorType::f64}}};

/// Returns the type that PyTorch calls so ("float32"); null if tables have none such.
inline const TorchType* torch_type(std::string_view name) {
  const auto found = std::find_if(kTorchTypes.begin(), kTorchTypes.end(),
                                  [&](const TorchType& type) { return type.name == name; });
  return found == kTorchTypes.end() ? nullptr : &*found;
}
/// Returns what PyTorch calls a type; null if tables in PyTorch have none such.
inline const TorchType* torch_type(TensorType own) {
  const auto found = std::find_if(kTorchTypes.begin(), kTorchTypes.end(),
                                  [&](const TorchType& type) { return type.type == own; });
  return found == kTorchTypes.end() ? nullptr : &*found;
}

/// Returns a tuple of whole numbers, none negative: a shape, strides, offsets.
inline std::vector<std::int64_t> pickled_counts(const Pickle& pickle, std::size_t value,
                                                std::string_view what) {
  std::vector<std::int64_t> counts;
  for (const std::size_t item : pickle.get(value, Pickle::Kind::tuple, what).items) {
    counts.push_back(pickle.get(item, Pickle::Kind::integer, what).integer);
    require<DataError>(counts.back() >= 0, "file '{}': {} is negative", pickle.file(), what);
  }
  return counts;
}

/// A zip archive that torch.save wrote, in the middle of a file: what is in it, and where.
class TorchArchive {
 public:
  TorchArchive(const File& file, std::uint64_t begin, std::uint64_t bytes)
      : file_(file), begin_(begin), bytes_(bytes) {
    require<DataError>(begin <= file.size() && bytes <= file.size() - begin,
                       "file '{}' has {} bytes, the metadata says that a tensor is in bytes "
                       "{}..{}: it was truncated or changed",
                       file.name(), file.size(), begin, begin + bytes);
    check(bytes >= kEndBytes, "is too short");
    const std::string end = read(bytes - kEndBytes, kEndBytes);
    check(end.starts_with("PK\5\6"), "has no end record: is it written by torch.save?");
    std::uint64_t count = get(end, 10, 2), size = get(end, 12, 4), at = get(end, 16, 4);
    if (bytes >= kEndBytes + 20) {
      const std::string locator = read(bytes - kEndBytes - 20, 20);
      if (locator.starts_with("PK\6\7")) {
        const std::string wide = read(get(locator, 8, 8), 56);
        check(wide.starts_with("PK\6\6"), "has a wrong end record");
        count = get(wide, 32, 8), size = get(wide, 40, 8), at = get(wide, 48, 8);
      }
    }
    check(size <= kMostDirectory, "lists too many files");
    read_directory(read(at, size), count);
  }

  /// Returns where, in the file, a matrix's or list's elements are that the archive holds alone,
  /// row-major without gaps. Throws DataError unless it has this type and shape.
  std::uint64_t place(std::string_view type_name, TensorType type,
                      const std::vector<std::int64_t>& shape) const {
    const auto data = std::find_if(entries_.begin(), entries_.end(), [](const auto& entry) {
      return entry.first.ends_with("/data.pkl");
    });
    check(data != entries_.end(), "holds no data.pkl");
    check(data->second.bytes <= kMostPickle, "holds more than a tensor");
    const std::string folder = data->first.substr(0, data->first.size() - 8);
    if (const auto order = entries_.find(folder + "byteorder"); order != entries_.end())
      check(order->second.bytes == 6 && read(data_of(order->second), 6) == "little",
            "is not little-endian");
    const std::string text = read(data_of(data->second), data->second.bytes);
    const Pickle pickle(
        text, formatted("{}, {}data.pkl of byte {} on", file_.name(), folder, begin_), known);
    const PickleValue& tensor = pickle[pickle.root()];
    check(tensor.kind == Pickle::Kind::object && tensor.text == "torch._utils._rebuild_tensor_v2",
          "holds no plain tensor");
    const std::vector<std::size_t>& parts =
        pickle.get(tensor.items[0], Pickle::Kind::tuple, "a tensor").items;
    check(parts.size() >= 4, "holds no whole tensor");
    const PickleValue& outside = pickle.get(parts[0], Pickle::Kind::outside, "a storage");
    const std::vector<std::size_t>& storage =
        pickle.get(outside.items[0], Pickle::Kind::tuple, "a storage").items;
    check(storage.size() >= 3, "holds no whole storage");
    const std::string& stored = pickle.get(storage[1], Pickle::Kind::name, "a storage's type").text;
    const std::string& key = pickle.get(storage[2], Pickle::Kind::text, "a storage's key").text;
    check(stored == formatted("torch.{}", torch_type(type)->storage),
          formatted("is {}, the metadata says torch.{}", stored, type_name));
    const std::int64_t first =
        pickle.get(parts[1], Pickle::Kind::integer, "a storage's offset").integer;
    check(pickled_counts(pickle, parts[2], "a shape") == shape,
          "has another shape than the metadata says");
    const std::vector<std::int64_t> strides = pickled_counts(pickle, parts[3], "strides");
    const std::int64_t columns = shape.size() == 1 ? 1 : shape[1];
    check(strides.size() == shape.size() && (columns <= 1 || strides[1] == 1) &&
              (shape[0] <= 1 || strides[0] == columns),
          "is not contiguous: save tensor.contiguous()");
    const auto values = entries_.find(folder + "data/" + key);
    check(values != entries_.end(), "lacks its data");
    const std::uint64_t size = tensor_type_size(type),
                        elements = static_cast<std::uint64_t>(shape[0]) *
                                   static_cast<std::uint64_t>(columns);
    check(first >= 0 && values->second.bytes / size >= elements &&
              static_cast<std::uint64_t>(first) <= values->second.bytes / size - elements,
          "has less data than its shape needs");
    return begin_ + data_of(values->second) + static_cast<std::uint64_t>(first) * size;
  }

 private:
  static constexpr std::uint64_t kEndBytes = 22, kMostDirectory = 1 << 20, kMostPickle = 1 << 20;

  struct Entry {
    std::uint64_t header = 0, bytes = 0;
    std::string name{};
  };

  static bool known(std::string_view module, std::string_view name) {
    return (module == "torch._utils" && name == "_rebuild_tensor_v2") ||
           (module == "collections" && name == "OrderedDict") ||
           (module == "torch" && name.ends_with("Storage"));
  }

  void check(bool good, std::string_view fault) const {
    require<DataError>(good, "file '{}': the archive in bytes {}..{} {}", file_.name(), begin_,
                       begin_ + bytes_, fault);
  }
  std::string read(std::uint64_t at, std::uint64_t count) const {
    check(at <= bytes_ && count <= bytes_ - at, "points outside of itself: it is damaged");
    std::string bytes(static_cast<std::size_t>(count), '\0');
    file_.read_at(begin_ + at, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }
  static std::uint64_t get(std::string_view bytes, std::size_t at, std::size_t count) {
    std::uint64_t value = 0;
    std::memcpy(&value, bytes.data() + at, count);
    return value;
  }

  void read_directory(const std::string& directory, std::uint64_t count) {
    std::size_t at = 0;
    const auto has = [&](std::uint64_t bytes) {
      check(bytes <= directory.size() - at, "has a directory that ends too early");
    };
    for (std::uint64_t i = 0; i < count; ++i) {
      has(46);
      const std::string_view entry = std::string_view(directory).substr(at);
      check(entry.starts_with("PK\1\2"), "has a wrong directory");
      const std::size_t name = get(entry, 28, 2), extra = get(entry, 30, 2),
                        comment = get(entry, 32, 2);
      has(46 + name + extra + comment);
      std::uint64_t packed = get(entry, 20, 4), bytes = get(entry, 24, 4),
                    header = get(entry, 42, 4);
      // Sizes that do not fit 32 bits are in the field 1 of `extra`, in this order.
      for (std::size_t field = 46 + name; field + 4 <= 46 + name + extra;) {
        const std::size_t length = get(entry, field + 2, 2);
        std::size_t value = field + 4;
        const std::size_t end = value + length;
        check(end <= 46 + name + extra, "has a wrong directory");
        if (get(entry, field, 2) == 1)
          for (std::uint64_t* wide : {&bytes, &packed, &header})
            if (*wide == 0xffffffff && value + 8 <= end) {
              *wide = get(entry, value, 8);
              value += 8;
            }
        field = end;
      }
      check(get(entry, 10, 2) == 0 && packed == bytes, "is compressed");
      std::string own(entry.substr(46, name));
      entries_.emplace(own, Entry{header, bytes, own});
      at += 46 + name + extra + comment;
    }
  }

  /// Returns where an entry's bytes begin in the archive.
  std::uint64_t data_of(const Entry& entry) const {
    const std::string header = read(entry.header, 30);
    check(header.starts_with("PK\3\4") && read(entry.header + 30, get(header, 26, 2)) == entry.name,
          "has a wrong entry");
    const std::uint64_t at = entry.header + 30 + get(header, 26, 2) + get(header, 28, 2);
    check(at <= bytes_ && entry.bytes <= bytes_ - at, "points outside of itself: it is damaged");
    return at;
  }

  const File& file_;
  std::uint64_t begin_, bytes_;
  std::map<std::string, Entry> entries_;
};

}}}  // namespace tessera::v0::detail
