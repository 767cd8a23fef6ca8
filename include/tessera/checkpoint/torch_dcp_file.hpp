// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/contents.hpp>
#include <tessera/checkpoint/file.hpp>
#include <tessera/checkpoint/file_plan.hpp>
#include <tessera/checkpoint/row_writer.hpp>
#include <tessera/checkpoint/torch_archive.hpp>
#include <tessera/io/crc32.hpp>
#include <tessera/io/pickle_writer.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// A rectangle of a tensor in a folder of torch.distributed.checkpoint, and where its archive is.
struct DcpChunk {
  std::int32_t tensor = 0, rank = 0;
  std::array<std::int64_t, 2> begin{}, size{};  ///< rows, columns
  std::uint64_t offset = 0, bytes = 0;          ///< in the rank's file
};

/// Returns the name of a rank's file.
inline std::string dcp_file_name(int rank) { return formatted("__{}_0.distcp", rank); }

/// Writes a rank's file: archives of rectangles, one after another, each as torch.save makes one.
class DcpFile {
 public:
  /// Cuts rectangles by rows, into archives of about `max_bytes`: their sizes fit 32 bits.
  DcpFile(std::filesystem::path folder, int rank, std::uint64_t max_bytes)
      : path_(std::move(folder) / dcp_file_name(rank)),
        rank_(rank),
        max_bytes_(static_cast<std::int64_t>(std::min(max_bytes, std::uint64_t{1} << 31))) {}

  /// Writes those rows of a part that this rank is to write. `tensor`: number `t` of the state
  /// dict.
  void write(const CheckpointRows& rows, const CheckpointRows::Part& part, const TensorSpec& tensor,
             std::size_t t) {
    const std::int64_t row_bytes =
        part.columns * static_cast<std::int64_t>(tensor_type_size(tensor.type));
    if (!part.write || row_bytes == 0) return;
    const std::int64_t step = std::max<std::int64_t>(1, max_bytes_ / row_bytes);
    for (std::int64_t first = 0; first < rows.rows; first += step) {
      DcpChunk chunk{static_cast<std::int32_t>(t),
                     rank_,
                     {rows.row_begin + first, part.column_begin},
                     {std::min(step, rows.rows - first), part.columns},
                     at_,
                     0};
      if (!file_) file_.emplace(path_, File::Mode::create);
      write_archive(rows, part, tensor, first, chunk);
      chunk.bytes = at_ - chunk.offset;
      chunks_.push_back(chunk);
    }
  }

  /// Returns what was written, once it is on the disk.
  const std::vector<DcpChunk>& finish() {
    if (file_) file_->sync();
    return chunks_;
  }

 private:
  struct Entry {
    std::string name;
    std::string content;
    std::uint64_t bytes = content.size();
    std::uint32_t crc = crc32(content);

    /// Returns what is in both headers of a file that is stored as is.
    std::string fields() const {
      return std::string(10, '\0') + little_endian(crc, 4) + little_endian(bytes, 4) +
             little_endian(bytes, 4) + little_endian(name.size(), 2) + little_endian(0, 2);
    }
  };

  void append(std::string_view bytes) {
    file_->write_at(at_, std::as_bytes(std::span(bytes)));
    at_ += bytes.size();
  }

  void write_archive(const CheckpointRows& rows, const CheckpointRows::Part& part,
                     const TensorSpec& tensor, std::int64_t first, const DcpChunk& chunk) {
    std::vector<std::int64_t> shape(chunk.size.begin(), chunk.size.end()), strides{part.columns, 1};
    shape.resize(tensor.shape.size());
    if (shape.size() == 1) strides = {1};
    const std::int64_t count = chunk.size[0],
                       row_bytes =
                           part.columns * static_cast<std::int64_t>(tensor_type_size(tensor.type));
    std::vector<Entry> entries = {
        {"archive/data.pkl", pickled(tensor.type, count * part.columns, shape, strides)},
        {"archive/version", "3\n"},
        {"archive/byteorder", "little"},
        {"archive/data/0", "", static_cast<std::uint64_t>(count * row_bytes)}};
    // The numbers first, as their sum is before them.
    Entry& data = entries.back();
    std::uint64_t at = at_;
    for (const Entry& entry : entries)
      at += 4 + entry.fields().size() + entry.name.size() + entry.content.size();
    const std::int64_t step = std::max<std::int64_t>(1, (1 << 20) / row_bytes);
    for (std::int64_t r = 0; r < count; r += step) {
      const std::int64_t some = std::min(step, count - r);
      block_.resize(static_cast<std::size_t>(some * row_bytes));
      fetch_rows(rows, part, first + r, some, row_bytes, block_.data());
      data.crc = crc32(block_, data.crc);
      file_->write_at(at, block_);
      at += block_.size();
    }
    std::string directory;
    for (const Entry& entry : entries) {
      directory += "PK\1\2" + little_endian(0, 2) + entry.fields() + std::string(10, '\0') +
                   little_endian(at_ - chunk.offset, 4) + entry.name;
      append("PK\3\4" + entry.fields() + entry.name + entry.content);
    }
    at_ = at;
    const std::string numbers = little_endian(entries.size(), 2);
    append(directory + "PK\5\6" + little_endian(0, 4) + numbers + numbers +
           little_endian(directory.size(), 4) + little_endian(at - chunk.offset, 4) +
           little_endian(0, 2));
  }

  /// Returns data.pkl of an archive that holds one tensor, row-major.
  static std::string pickled(TensorType type, std::int64_t elements,
                             std::span<const std::int64_t> shape,
                             std::span<const std::int64_t> strides) {
    return PickleWriter()
        .name("torch._utils", "_rebuild_tensor_v2")
        .code("((")
        .text("storage")
        .name("torch", torch_type(type)->storage)
        .text("0")
        .text("cpu")
        .integer(elements)
        .code("tQ")
        .integer(0)
        .tuple(shape)
        .tuple(strides)
        .code("\x89")
        .name("collections", "OrderedDict")
        .code(")RtR")
        .take();
  }

  std::filesystem::path path_;
  int rank_;
  std::int64_t max_bytes_;
  std::optional<File> file_;
  std::uint64_t at_ = 0;
  std::vector<DcpChunk> chunks_;
  std::vector<std::byte> block_;
};

/// Returns the text of a folder's .metadata, for the tensors of a state dict and the ranks' chunks.
inline std::string dcp_metadata(const std::vector<TensorSpec>& tensors,
                                const std::vector<DcpChunk>& chunks) {
  constexpr std::string_view kModule = "torch.distributed.checkpoint.metadata",
                             kFiles = "torch.distributed.checkpoint.filesystem";
  PickleWriter pickle;
  const auto size = [&](std::string_view what, const TensorSpec& tensor,
                        std::span<const std::int64_t> numbers) {
    pickle.text(what).name("torch", "Size").tuple(numbers.first(tensor.shape.size())).code("\x85R");
  };
  pickle.object(kModule, "Metadata").text("state_dict_metadata").code("}(");
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const TensorSpec& tensor = tensors[t];
    pickle.text(tensor.name).object(kModule, "TensorStorageMetadata").text("properties");
    // A call with the type alone: how many attributes follow depends on PyTorch's version.
    pickle.name(kModule, "TensorProperties")
        .name("torch", torch_type(tensor.type)->name)
        .code("\x85R");
    size("size", tensor, tensor.shape);
    pickle.text("chunks").code("](");
    for (const DcpChunk& chunk : chunks)
      if (static_cast<std::size_t>(chunk.tensor) == t) {
        pickle.object(kModule, "ChunkStorageMetadata");
        size("offsets", tensor, chunk.begin);
        size("sizes", tensor, chunk.size);
        pickle.code(PickleWriter::kEnd);
      }
    pickle.code("e").code(PickleWriter::kEnd);
  }
  pickle.code("u").text("storage_data").code("}(");
  for (const DcpChunk& chunk : chunks) {
    const TensorSpec& tensor = tensors[static_cast<std::size_t>(chunk.tensor)];
    pickle.object(kModule, "MetadataIndex").text("fqn").text(tensor.name);
    size("offset", tensor, chunk.begin);
    pickle.code(PickleWriter::kEnd).object(kFiles, "_StorageInfo");
    pickle.text("relative_path").text(dcp_file_name(chunk.rank));
    pickle.text("offset").integer(static_cast<std::int64_t>(chunk.offset));
    pickle.text("length").integer(static_cast<std::int64_t>(chunk.bytes));
    pickle.code(PickleWriter::kEnd);
  }
  return pickle.code("u").code(PickleWriter::kEnd).take();
}

}}}  // namespace tessera::v0::detail
