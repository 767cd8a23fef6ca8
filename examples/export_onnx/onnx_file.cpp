// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "onnx_file.hpp"

#include <tessera/core/error.hpp>
#include <tessera/version.hpp>

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace onnx_export {

using tessera::DataError;
using tessera::require;

void Message::varint(std::uint64_t value) {
  for (; value >= 128; value >>= 7) bytes_.push_back(static_cast<char>(value | 128));
  bytes_.push_back(static_cast<char>(value));
}
Message& Message::number(int field, std::int64_t value) {
  varint(static_cast<std::uint64_t>(field) << 3);
  varint(static_cast<std::uint64_t>(value));
  return *this;
}
Message& Message::real(int field, float value) {
  varint(static_cast<std::uint64_t>(field) << 3 | 5);
  bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  return *this;
}
Message& Message::text(int field, std::string_view value) {
  varint(static_cast<std::uint64_t>(field) << 3 | 2);
  varint(value.size());
  bytes_ += value;
  return *this;
}

OnnxFile::OnnxFile(std::filesystem::path path)
    : path_(std::move(path)),
      data_path_(path_.string() + ".data"),
      partial_(path_.string() + ".partial"),
      partial_data_(data_path_.string() + ".partial"),
      data_(partial_data_, std::ios::binary | std::ios::trunc) {
  require<DataError>(data_.is_open(), "cannot create '{}': {}", partial_data_.string(),
                     std::strerror(errno));
}
OnnxFile::~OnnxFile() {
  std::error_code ignored;
  std::filesystem::remove(partial_, ignored);
  std::filesystem::remove(partial_data_, ignored);
}

Message OnnxFile::value_info(const std::string& name, Type type,
                             const std::vector<std::int64_t>& shape) {
  Message dimensions;
  for (const std::int64_t extent : shape) {
    Message dimension;
    extent >= 0 ? dimension.number(1, extent)
                : dimension.text(2, extent == -1 ? std::string("batch") : name + "_values");
    dimensions.message(1, dimension);
  }
  Message tensor;
  tensor.number(1, static_cast<std::int64_t>(type)).message(2, dimensions);
  Message info;
  return info.text(1, name).message(2, Message().message(1, tensor));
}
void OnnxFile::input(const std::string& name, Type type, const std::vector<std::int64_t>& shape) {
  graph_.message(11, value_info(name, type, shape));
}
void OnnxFile::output(const std::string& name, Type type, const std::vector<std::int64_t>& shape) {
  graph_.message(12, value_info(name, type, shape));
}

void OnnxFile::tensor(
    const std::string& name, const std::vector<std::int64_t>& shape,
    const std::function<void(const std::function<void(std::span<const float>)>&)>& write) {
  // Where a page begins, so that a run time may map it.
  at_ = (at_ + 4095) / 4096 * 4096;
  data_.seekp(at_);
  std::int64_t bytes = 0, expected = sizeof(float);
  for (const std::int64_t extent : shape) expected *= extent;
  write([&](std::span<const float> values) {
    data_.write(reinterpret_cast<const char*>(values.data()),
                static_cast<std::streamsize>(values.size_bytes()));
    bytes += static_cast<std::int64_t>(values.size_bytes());
  });
  require(bytes == expected, "tensor '{}': {} bytes, its shape has {}", name, bytes, expected);
  Message t;
  for (const std::int64_t extent : shape) t.number(1, extent);
  t.number(2, static_cast<std::int64_t>(Type::float32)).text(8, name);
  for (const auto& [key, value] :
       {std::pair<std::string, std::string>("location", data_path_.filename().string()),
        {"offset", std::to_string(at_)},
        {"length", std::to_string(bytes)}})
    t.message(13, Message().text(1, key).text(2, value));
  t.number(14, 1);
  graph_.message(5, t);
  at_ += bytes;
}

std::string OnnxFile::constant(Type type, const void* values, std::size_t bytes,
                               const std::vector<std::int64_t>& shape) {
  std::string name = fmt::format("constant_{}", names_++);
  Message t;
  for (const std::int64_t extent : shape) t.number(1, extent);
  t.number(2, static_cast<std::int64_t>(type)).text(8, name);
  t.text(9, std::string_view(static_cast<const char*>(values), bytes));
  graph_.message(5, t);
  return name;
}
std::string OnnxFile::constant(std::span<const double> values,
                               const std::vector<std::int64_t>& shape) {
  return constant(Type::float64, values.data(), values.size_bytes(), shape);
}
std::string OnnxFile::constant(std::span<const float> values,
                               const std::vector<std::int64_t>& shape) {
  return constant(Type::float32, values.data(), values.size_bytes(), shape);
}
std::string OnnxFile::constant(std::span<const std::int64_t> values) {
  return constant(Type::int64, values.data(), values.size_bytes(), {std::ssize(values)});
}
std::string OnnxFile::constant(const std::vector<bool>& values,
                               const std::vector<std::int64_t>& shape) {
  const std::string bytes(values.begin(), values.end());
  return constant(Type::boolean, bytes.data(), bytes.size(), shape);
}

std::string OnnxFile::node(std::string_view operation, std::initializer_list<std::string> inputs,
                           const std::vector<Attribute>& attributes, std::string name) {
  return node(operation, std::span(inputs.begin(), inputs.size()), attributes, std::move(name));
}
std::string OnnxFile::node(std::string_view operation, std::span<const std::string> inputs,
                           const std::vector<Attribute>& attributes, std::string name) {
  if (name.empty()) name = fmt::format("{}_{}", operation, names_++);
  Message made;
  for (const std::string& input : inputs) made.text(1, input);
  made.text(2, name).text(3, name + "_node").text(4, operation);
  for (const Attribute& attribute : attributes) {
    Message a;
    a.text(1, attribute.name);
    if (attribute.real) {
      a.real(2, *attribute.real).number(20, 1);
    } else if (!attribute.text.empty()) {
      a.text(4, attribute.text).number(20, 3);
    } else if (!attribute.numbers.empty()) {
      for (const std::int64_t n : attribute.numbers) a.number(8, n);
      a.number(20, 7);
    } else {
      a.number(3, attribute.number).number(20, 2);
    }
    made.message(5, a);
  }
  graph_.message(1, made);
  return name;
}

void OnnxFile::finish(std::string_view description) {
  graph_.text(2, "model").text(10, description);
  Message model;
  model.number(1, 8)
      .text(2, "tessera")
      .text(3, fmt::format("{}.{}.{}", TESSERA_VERSION_MAJOR, TESSERA_VERSION_MINOR,
                           TESSERA_VERSION_PATCH));
  model.message(7, graph_).message(8, Message().text(1, "").number(2, opset_));
  std::ofstream file(partial_, std::ios::binary | std::ios::trunc);
  file.write(model.bytes().data(), static_cast<std::streamsize>(model.bytes().size()));
  file.close();
  data_.close();
  require<DataError>(file.good() && data_.good(), "cannot write '{}' and '{}': {}", path_.string(),
                     data_path_.string(), std::strerror(errno));
  std::filesystem::rename(partial_data_, data_path_);
  std::filesystem::rename(partial_, path_);
}

}  // namespace onnx_export
