// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/manifest.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/npy_header.hpp>
#include <tessera/io/safetensors_header.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// A tensor to be written, and the files that it goes to: tensors of one group share files.
struct TensorSpec {
  std::string name;
  std::string group;
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape;
  std::string row_numbers{};  ///< of increments: see StoredTensor
};

/// Returns a name with all that file names may not hold everywhere replaced.
inline std::string plain_file_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    const bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '_' || c == '-' || c == '.';
    plain.push_back(good ? c : '_');
  }
  return plain;
}

/// Where every row of every tensor will be: safetensors files with their headers. All ranks work
/// out the same from the same tensors.
struct FilePlan {
  struct Piece {
    std::int64_t row_begin = 0;
    std::int64_t row_end = 0;
    std::size_t file = 0;
    std::uint64_t offset = 0;  ///< of row_begin in the file
  };
  struct File {
    std::string name;
    std::string header;
    std::uint64_t bytes = 0;
  };

  std::vector<File> files;
  std::vector<std::vector<Piece>> pieces;  ///< by tensor

  /// Cuts groups whose tensors have the same number of rows into files of at most about
  /// `max_file_bytes`.
  FilePlan(std::span<const TensorSpec> tensors, std::uint64_t max_file_bytes)
      : pieces(tensors.size()) {
    std::vector<std::string_view> groups;
    std::map<std::string_view, std::vector<std::size_t>> members;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      auto& of_group = members[tensors[t].group];
      if (of_group.empty()) groups.push_back(tensors[t].group);
      of_group.push_back(t);
    }
    for (std::size_t g = 0; g < groups.size(); ++g)
      add_group(tensors, g, groups[g], members[groups[g]], max_file_bytes);
  }

  /// Plans one .npy file for each tensor. Throws InvalidArgument if two names become one.
  static FilePlan npy(std::span<const TensorSpec> tensors) {
    FilePlan plan({}, 1);
    plan.pieces.resize(tensors.size());
    std::set<std::string> names;
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const StoredTensor tensor = stored(tensors[t]);
      File file{plain_file_name(tensor.name) + ".npy", format_npy_header(tensor.type, tensor.shape),
                0};
      require(names.insert(file.name).second, "export_npy: two tensors would go to the file '{}'",
              file.name);
      file.bytes =
          file.header.size() + static_cast<std::uint64_t>(tensor.rows() * tensor.row_bytes());
      plan.pieces[t].push_back({0, tensor.rows(), t, file.header.size()});
      plan.files.push_back(std::move(file));
    }
    return plan;
  }

 private:
  void add_group(std::span<const TensorSpec> tensors, std::size_t number, std::string_view group,
                 std::vector<std::size_t> members, std::uint64_t max_file_bytes) {
    // Wider elements first: every tensor is aligned.
    std::stable_sort(members.begin(), members.end(), [&](std::size_t a, std::size_t b) {
      return tensor_type_size(tensors[a].type) > tensor_type_size(tensors[b].type);
    });
    const std::int64_t rows = stored(tensors[members.front()]).rows();
    std::uint64_t row_bytes = 0;
    bool same_rows = true;
    for (const std::size_t t : members) {
      same_rows = same_rows && !tensors[t].shape.empty() && stored(tensors[t]).rows() == rows;
      row_bytes += static_cast<std::uint64_t>(stored(tensors[t]).row_bytes());
    }
    const std::int64_t rows_per_file =
        same_rows && row_bytes != 0
            ? static_cast<std::int64_t>(std::max<std::uint64_t>(1, max_file_bytes / row_bytes))
            : rows;
    const std::int64_t parts =
        same_rows ? std::max<std::int64_t>(
                        1, (rows + rows_per_file - 1) / std::max<std::int64_t>(1, rows_per_file))
                  : 1;
    for (std::int64_t part = 0; part < parts; ++part) {
      std::vector<TensorInfo> infos;
      std::uint64_t at = 0;
      const std::size_t file = files.size();
      std::int64_t begin = 0, end = 0;
      for (const std::size_t t : members) {
        const StoredTensor tensor = stored(tensors[t]);
        begin = same_rows ? part * rows_per_file : 0;
        end = same_rows ? std::min(rows, begin + rows_per_file) : tensor.rows();
        TensorInfo info{tensor.name, tensor.type, tensor.shape, at,
                        at + static_cast<std::uint64_t>((end - begin) * tensor.row_bytes())};
        if (!info.shape.empty()) info.shape.front() = end - begin;
        pieces[t].push_back({begin, end, file, at});
        at = info.end;
        infos.push_back(std::move(info));
      }
      std::map<std::string, std::string> metadata{{"format", "pt"}};
      if (parts > 1) metadata["rows"] = formatted("{}:{}", begin, end);
      files.push_back(
          {file_name(number, group, part, parts), format_safetensors_header(metadata, infos), 0});
      files.back().bytes = files.back().header.size() + at;
      for (const std::size_t t : members) pieces[t].back().offset += files.back().header.size();
    }
  }

  static StoredTensor stored(const TensorSpec& t) { return {t.name, t.type, t.shape}; }

  /// Names a group's file: the number keeps names apart that differ only in what file names do not
  /// allow.
  static std::string file_name(std::size_t number, std::string_view group, std::int64_t part,
                               std::int64_t parts) {
    std::string name = formatted("{:04}-{}", number, plain_file_name(group.substr(0, 64)));
    if (parts > 1) name += formatted("-{:05}-of-{:05}", part + 1, parts);
    return name + ".safetensors";
  }
};

}}}  // namespace tessera::v0::detail
