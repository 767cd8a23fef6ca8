// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace onnx_export {

/// A message of the protocol buffers' wire format: what ONNX files are (onnx.proto).
class Message {
 public:
  Message& number(int field, std::int64_t value);
  Message& real(int field, float value);
  Message& text(int field, std::string_view value);
  Message& message(int field, const Message& value) { return text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(std::uint64_t value);
  std::string bytes_;
};

/// An ONNX model: MODEL.onnx with the graph, and MODEL.onnx.data beside it with the elements of the
/// large initializers, which are written as they are added. Operators of opset 17, or of a later one
/// that the graph requires. Both files appear under their names with `finish`; an exporter that ends
/// before leaves none.
class OnnxFile {
 public:
  explicit OnnxFile(std::filesystem::path path);
  OnnxFile(const OnnxFile&) = delete;
  OnnxFile& operator=(const OnnxFile&) = delete;
  ~OnnxFile();

  enum class Type : std::int64_t { float32 = 1, int64 = 7, boolean = 9, float64 = 11 };
  /// Extents; -1 is the batch, -2 any other number.
  void input(const std::string& name, Type type, const std::vector<std::int64_t>& shape);
  void output(const std::string& name, Type type, const std::vector<std::int64_t>& shape);

  /// A tensor of floats in the data file; `write` calls what it is given with its elements, in order.
  void tensor(const std::string& name, const std::vector<std::int64_t>& shape,
              const std::function<void(const std::function<void(std::span<const float>)>&)>& write);
  /// A small tensor in the graph.
  std::string constant(std::span<const float> values, const std::vector<std::int64_t>& shape);
  std::string constant(std::span<const double> values, const std::vector<std::int64_t>& shape);
  std::string constant(std::span<const std::int64_t> values);
  std::string constant(const std::vector<bool>& values, const std::vector<std::int64_t>& shape);

  struct Attribute {
    std::string name;
    std::int64_t number = 0;
    std::vector<std::int64_t> numbers{};
    std::string text{};
    std::optional<float> real{};
  };
  /// An operation; answers the name of its result: `name`, or one made up.
  std::string node(std::string_view operation, std::initializer_list<std::string> inputs,
                   const std::vector<Attribute>& attributes = {}, std::string name = {});
  std::string node(std::string_view operation, std::span<const std::string> inputs,
                   const std::vector<Attribute>& attributes = {}, std::string name = {});

  /// The graph has an operation that an opset before this one does not know. At most 18, the last
  /// that a file of this format may name.
  void require_opset(int version) { opset_ = std::max(opset_, version); }

  void finish(std::string_view description);

 private:
  std::string constant(Type type, const void* values, std::size_t bytes,
                       const std::vector<std::int64_t>& shape);
  static Message value_info(const std::string& name, Type type,
                            const std::vector<std::int64_t>& shape);

  std::filesystem::path path_, data_path_, partial_, partial_data_;
  std::ofstream data_;
  std::int64_t at_ = 0;  ///< bytes of the data file
  int names_ = 0, opset_ = 17;
  Message graph_;
};

}  // namespace onnx_export
