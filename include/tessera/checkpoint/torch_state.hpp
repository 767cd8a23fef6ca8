// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/file.hpp>
#include <tessera/checkpoint/file_plan.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/json_reader.hpp>
#include <tessera/io/regular_file.hpp>
#include <tessera/io/safetensors_header.hpp>
#include <tessera/io/text.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// A rectangle of a matrix in a file: its elements row by row, without gaps; or, first, an archive
/// that holds them.
struct TorchPiece {
  std::int64_t row_begin = 0, row_end = 0, column_begin = 0, column_end = 0;
  std::string file;                 ///< in the state's folder
  std::uint64_t offset = 0;         ///< bytes into the file
  std::uint64_t archive_bytes = 0;  ///< of the archive at `offset`; 0: the elements are there
};

/// A tensor of a state dict, and where it is.
struct TorchTensor {
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape;
  std::string type_name;           ///< for messages
  bool known = true;               ///< false: the type is none of TensorType
  std::vector<TorchPiece> pieces;  ///< of a matrix, or a list, which is a column: they cover it
};

/// A state dict that PyTorch programs wrote: its tensors by name.
struct TorchState {
  std::filesystem::path folder;
  std::map<std::string, TorchTensor> tensors;
};

inline constexpr std::string_view kSafetensorsIndex = "model.safetensors.index.json";

/// Returns the header of a safetensors file.
inline SafetensorsHeader read_safetensors_header(const std::filesystem::path& path) {
  const File file(path, File::Mode::read);
  const std::uint64_t size = file.size();
  std::vector<std::byte> begin(std::min<std::uint64_t>(8, size));
  file.read_at(0, begin);
  begin.resize(safetensors_header_bytes(begin, file.name(), size));
  file.read_at(0, begin);
  return parse_safetensors_header(begin, file.name(), size);
}

/// Adds a tensor of a safetensors file, whose data begin at `data_offset`, to a state.
inline void add_safetensor(TorchState& state, const std::string& file, const TensorInfo& info,
                           std::uint64_t data_offset) {
  TorchTensor tensor{info.type, info.shape, std::string(tensor_type_name(info.type)), true, {}};
  if (info.shape.size() == 1 || info.shape.size() == 2)
    tensor.pieces.push_back({0, info.shape[0], 0, info.shape.size() == 2 ? info.shape[1] : 1, file,
                             data_offset + info.begin, 0});
  state.tensors.emplace(info.name, std::move(tensor));
}

/// Returns which file each tensor is in, as an index says.
inline std::map<std::string, std::string> read_safetensors_index(
    const std::filesystem::path& path) {
  const std::string text = RegularFile(path).text(), name = path.string();
  std::map<std::string, std::string> files;
  bool found = false;
  JsonReader json(text, name);
  json.object([&](const std::string& key, std::size_t at) {
    if (key != "weight_map") {
      json.skip();
      return;
    }
    json.check(!std::exchange(found, true), at, "weight_map appears twice");
    json.object([&](std::string tensor, std::size_t tensor_at) {
      std::string file = json.string();
      json.check(
          !file.empty() && file.find('/') == std::string::npos && file != "." && file != "..",
          tensor_at, "the file of a tensor is not one beside the index");
      json.check(files.emplace(std::move(tensor), std::move(file)).second, tensor_at,
                 "a tensor appears twice");
    });
  });
  json.end();
  json.check(found, 0, "an index of safetensors files needs weight_map: is it another file?");
  return files;
}

/// Reads the tensors' names, shapes and places of a safetensors file, or of a folder of such files.
inline TorchState read_safetensors_state(const std::filesystem::path& path) {
  TorchState state;
  if (!std::filesystem::is_directory(path)) {
    state.folder = path.parent_path();
    const SafetensorsHeader header = read_safetensors_header(path);
    for (const TensorInfo& info : header.tensors)
      add_safetensor(state, path.filename().string(), info, header.data_offset);
    return state;
  }
  state.folder = path;
  const std::filesystem::path index = path / kSafetensorsIndex;
  if (!std::filesystem::exists(index)) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(path))
      if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
    require<DataError>(
        files.size() == 1,
        "folder '{}' has {} safetensors files and no '{}', which says where tensors are{}",
        path.string(), files.size(), kSafetensorsIndex,
        files.empty() ? "" : ": add it, or give one of the files");
    return read_safetensors_state(files[0]);
  }
  const std::map<std::string, std::string> places = read_safetensors_index(index);
  std::map<std::string, std::size_t> found;  // tensors of each file
  for (const auto& [tensor, file] : places) found.emplace(file, 0);
  for (auto& [file, count] : found) {
    const SafetensorsHeader header = read_safetensors_header(path / file);
    for (const TensorInfo& info : header.tensors)
      if (const auto place = places.find(info.name); place != places.end() && place->second == file)
        add_safetensor(state, file, info, header.data_offset);
  }
  for (const auto& [tensor, file] : places)
    require<DataError>(state.tensors.contains(tensor),
                       "file '{}' has no tensor {}, which '{}' says it has", (path / file).string(),
                       detail::quoted(tensor), index.string());
  return state;
}

}}}  // namespace tessera::v0::detail
