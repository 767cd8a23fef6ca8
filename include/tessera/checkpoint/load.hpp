// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/agreement.hpp>
#include <tessera/checkpoint/contents.hpp>
#include <tessera/checkpoint/reader.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::inline v0 {

struct LoadOptions {
  /// Names in the model -> names in the checkpoint, of tensors ("C1.weight") or of tables ("C1": all its tensors).
  std::map<std::string, std::string> rename{};
  bool allow_missing = false;  ///< tensors and numbers that the checkpoint lacks keep the values they have
  bool allow_extra = false;    ///< what the model lacks is passed over
  bool allow_shapes = false;   ///< of tensors with other extents, the rows and columns that both have are read
};

namespace detail {

/// Copies elements, from one storage precision to another where they differ (rounded to nearest, ties to even).
inline void convert_elements(const std::byte* from, TensorType from_type, std::byte* to, TensorType to_type, std::int64_t count) {
  if (from_type == to_type) {
    std::memcpy(to, from, static_cast<std::size_t>(count) * tensor_type_size(to_type));
    return;
  }
  const auto with = [](TensorType type, auto&& visit) {
    type == TensorType::f32 ? visit(float{}) : type == TensorType::f16 ? visit(Half{}) : visit(BFloat16{});
  };
  with(from_type, [&]<class From>(From) {
    with(to_type, [&]<class To>(To) {
      for (std::int64_t i = 0; i < count; ++i) {
        From value;
        std::memcpy(&value, from + i * static_cast<std::int64_t>(sizeof(From)), sizeof(From));
        const To converted = from_float<To>(to_float(value));
        std::memcpy(to + i * static_cast<std::int64_t>(sizeof(To)), &converted, sizeof(To));
      }
    });
  });
}

constexpr bool convertible(TensorType a, TensorType b) {
  const auto floating = [](TensorType t) { return t == TensorType::f32 || t == TensorType::f16 || t == TensorType::bf16; };
  return a == b || (floating(a) && floating(b));
}

/// Reads this rank's rows of one checkpoint: for each tensor of the model, from its tensor of the checkpoint (null: none).
class RowLoader {
 public:
  RowLoader(CheckpointReader& reader, const std::vector<TensorSpec>& tensors, std::vector<const StoredTensor*> sources)
      : reader_(reader), tensors_(tensors), sources_(std::move(sources)) {}

  void load(const CheckpointRows& rows) {
    for (const CheckpointRows::Part& part : rows.parts)
      if (const StoredTensor* source = sources_[static_cast<std::size_t>(part.tensor)]; source != nullptr) load(rows, part, *source);
  }

 private:
  static constexpr std::int64_t kBlockBytes = 1 << 20;

  void load(const CheckpointRows& rows, const CheckpointRows::Part& part, const StoredTensor& source) {
    const std::int64_t end = std::min(rows.row_begin + rows.rows, source.rows());
    const std::int64_t columns = std::min(part.column_begin + part.columns, source.columns()) - part.column_begin;
    if (columns <= 0) return;
    const TensorType type = tensors_[static_cast<std::size_t>(part.tensor)].type;
    const std::int64_t row_bytes = source.row_bytes(), step = std::max<std::int64_t>(1, kBlockBytes / row_bytes);
    const bool direct = source.type == type && columns == source.columns() && part.stride == row_bytes;
    for (std::int64_t first = rows.row_begin; first < end; first += step) {
      const std::int64_t count = std::min(step, end - first);
      std::byte* to = part.data + (first - rows.row_begin) * part.stride;
      if (direct) {
        reader_.read_rows(source, first, count, to);
        continue;
      }
      block_.resize(static_cast<std::size_t>(count * row_bytes));
      reader_.read_rows(source, first, count, block_.data());
      const std::int64_t skipped = part.column_begin * static_cast<std::int64_t>(tensor_type_size(source.type));
      for (std::int64_t r = 0; r < count; ++r)
        convert_elements(block_.data() + r * row_bytes + skipped, source.type, to + r * part.stride, type, columns);
    }
  }

  CheckpointReader& reader_;
  const std::vector<TensorSpec>& tensors_;
  std::vector<const StoredTensor*> sources_;
  std::vector<std::byte> block_;
};

/// What stands where: model against checkpoint.
class Comparison {
 public:
  Comparison(const CheckpointContents& contents, const Manifest& manifest, const LoadOptions& options) {
    std::set<std::string> used;
    for (std::size_t t = 0; t < contents.tensors().size(); ++t) {
      const TensorSpec& tensor = contents.tensors()[t];
      const std::string name = renamed(options, tensor.name);
      const StoredTensor* source = manifest.find(name);
      sources.push_back(nullptr);
      used.insert(name);
      if (source == nullptr) {
        if (!options.allow_missing) add("the checkpoint has no '{}'", name);
      } else if (!contents.ragged(t)) {
        if (!convertible(source->type, tensor.type))
          add("'{}' is {} in the checkpoint, {} in the model", name, tensor_type_name(source->type), tensor_type_name(tensor.type));
        else if (source->shape != tensor.shape && !(options.allow_shapes && source->shape.size() == 2 && tensor.shape.size() == 2))
          add("'{}' is {} in the checkpoint, {} in the model", name, shape_text(source->shape), shape_text(tensor.shape));
        else
          sources.back() = source;
      }
    }
    for (const auto& [name, number] : contents.numbers())
      if (!manifest.numbers.contains(name) && !options.allow_missing) add("the checkpoint has no number '{}'", name);
    if (!options.allow_extra) {
      for (const StoredTensor& tensor : manifest.tensors)
        if (!used.contains(tensor.name)) add("the model has no '{}'", tensor.name);
      for (const auto& [name, value] : manifest.numbers)
        if (!contents.numbers().contains(name)) add("the model has no number '{}'", name);
    }
  }

  std::vector<const StoredTensor*> sources;  ///< by tensor of the model; null: none is read
  std::string differences;

 private:
  static std::string renamed(const LoadOptions& options, const std::string& name) {
    if (const auto found = options.rename.find(name); found != options.rename.end()) return found->second;
    const std::size_t dot = name.rfind('.');
    if (dot != std::string::npos)
      if (const auto found = options.rename.find(name.substr(0, dot)); found != options.rename.end())
        return found->second + name.substr(dot);
    return name;
  }

  template <class... Args>
  void add(fmt::format_string<Args...> text, Args&&... args) {
    differences += "\n  ";
    fmt::format_to(std::back_inserter(differences), text, std::forward<Args>(args)...);
  }
};

}  // namespace detail

/// Reads a checkpoint's folder into the model under any layout, number of ranks and storage precision. Collective. Everything is compared
/// and every checksum verified, each rank reading its share of all bytes, before the model is touched; then each rank reads its rows.
/// Throws DataError on all ranks, the model as it was: for differences (it lists all of them), a missing, truncated or damaged file.
template <Communicator<kCheckpointCollectives> Comm>
Manifest load_checkpoint(Comm& communicator, const std::filesystem::path& folder, const CheckpointContents& contents,
                         const LoadOptions& options = {}) {
  std::unique_ptr<CheckpointReader> reader;
  std::vector<const StoredTensor*> sources;
  on_all_ranks(communicator, [&] {
    reader = std::make_unique<CheckpointReader>(folder);
    detail::Comparison comparison(contents, reader->manifest(), options);
    require<DataError>(comparison.differences.empty(), "checkpoint '{}' and the model differ:{}", folder.string(), comparison.differences);
    sources = std::move(comparison.sources);
  });
  const std::vector<std::uint32_t> crcs = gather_one(communicator, reader->crc());
  on_all_ranks(communicator, [&] {
    for (const std::uint32_t crc : crcs)
      require<DataError>(crc == crcs[0], "checkpoint '{}': the ranks do not read the same manifest", folder.string());
    const std::uint64_t ranks = static_cast<std::uint64_t>(communicator.size()), rank = static_cast<std::uint64_t>(communicator.rank());
    reader->verify(reader->chunks() * rank / ranks, reader->chunks() * (rank + 1) / ranks);
  });
  on_all_ranks(communicator, [&] {
    detail::RowLoader loader(*reader, contents.tensors(), std::move(sources));
    for (const CheckpointRows& rows : contents.rows()) loader.load(rows);
    for (const auto& [name, number] : contents.numbers())
      if (const auto found = reader->manifest().numbers.find(name); found != reader->manifest().numbers.end()) number.set(found->second);
  });
  return reader->manifest();
}

}  // namespace tessera::inline v0
