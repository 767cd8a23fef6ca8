// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/chunk_sums.hpp>
#include <tessera/checkpoint/file.hpp>
#include <tessera/checkpoint/folder.hpp>
#include <tessera/checkpoint/manifest.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/safetensors.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// Reads the tensors of one checkpoint folder, whole or by rows. The manifest is read and checked
/// at once, a file's header when the file is first needed. Every fault is a DataError that names
/// the file.
///
///     CheckpointReader reader(*latest_checkpoint("run7"));
///     const auto weights = reader.read<float>("mlp.0.weight");
class CheckpointReader {
 public:
  explicit CheckpointReader(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::tie(manifest_, crc_) = detail::read_manifest(folder_);
    for (const detail::StoredFile& file : manifest_.files)
      chunks_.push_back(chunks() + detail::chunks_of(file.bytes));
  }

  const std::filesystem::path& folder() const { return folder_; }
  const detail::Manifest& manifest() const { return manifest_; }
  /// Returns the checksum of the manifest's text: it covers the whole checkpoint, as the manifest
  /// holds the checksums of all files.
  std::uint32_t crc() const { return crc_; }

  /// Returns the tensor of that name. Throws DataError if there is none.
  const detail::StoredTensor& tensor(std::string_view name) const {
    const detail::StoredTensor* found = manifest_.find(name);
    require<DataError>(found != nullptr, "checkpoint '{}' has no tensor '{}'", folder_.string(),
                       name);
    return *found;
  }

  /// Returns the number of chunks of all files.
  std::uint64_t chunks() const { return chunks_.empty() ? 0 : chunks_.back(); }

  /// Reads chunks [begin, end) of all files, and the places of tensors in the files that these
  /// belong to. Throws DataError unless they are what was written.
  void verify(std::uint64_t begin, std::uint64_t end) {
    std::vector<std::byte> chunk(detail::kChunkBytes);
    for (std::size_t f = 0; f < chunks_.size(); ++f) {
      const std::uint64_t first = f == 0 ? 0 : chunks_[f - 1];
      if (chunks_[f] <= begin || first >= end) continue;
      const detail::StoredFile& stored = manifest_.files[f];
      const detail::File& file = open(f);
      for (std::uint64_t c = std::max(begin, first); c < std::min(end, chunks_[f]); ++c) {
        const std::uint64_t at = c - first;
        const std::span<std::byte> bytes(chunk.data(), detail::chunk_size(stored.bytes, at));
        file.read_at(at * detail::kChunkBytes, bytes);
        check_chunk(f, at, bytes);
      }
    }
    for (std::size_t t = 0; t < manifest_.tensors.size(); ++t)
      for (const detail::TensorPiece& piece : manifest_.tensors[t].pieces)
        if (const std::size_t f = static_cast<std::size_t>(piece.file);
            chunks_[f] > begin && (f == 0 ? 0 : chunks_[f - 1]) < end)
          place(manifest_.tensors[t], piece);
  }

  /// Reads rows [begin, begin + count) as they are stored. Their chunks are not verified; `verify`
  /// does that.
  void read_rows(const detail::StoredTensor& tensor, std::int64_t begin, std::int64_t count,
                 std::byte* to) {
    const std::uint64_t row_bytes = static_cast<std::uint64_t>(tensor.row_bytes());
    for (const detail::TensorPiece& piece : tensor.pieces) {
      const std::int64_t first = std::max(begin, piece.row_begin),
                         last = std::min(begin + count, piece.row_end);
      if (first >= last || row_bytes == 0) continue;
      const std::uint64_t offset =
          place(tensor, piece) + static_cast<std::uint64_t>(first - piece.row_begin) * row_bytes;
      open(static_cast<std::size_t>(piece.file))
          .read_at(offset, {to + static_cast<std::uint64_t>(first - begin) * row_bytes,
                            static_cast<std::uint64_t>(last - first) * row_bytes});
    }
  }

  /// Returns the file that holds a row, for messages.
  std::string file_of(const detail::StoredTensor& tensor, std::int64_t row) const {
    for (const detail::TensorPiece& piece : tensor.pieces)
      if (piece.row_begin <= row && row < piece.row_end)
        return (folder_ / manifest_.files[static_cast<std::size_t>(piece.file)].name).string();
    return folder_.string();
  }

  /// Returns a whole tensor, verified. `T` must be the stored type (bool is uint8).
  template <class T>
  std::vector<T> read(std::string_view name) {
    const detail::StoredTensor& t = tensor(name);
    require<DataError>(t.type == detail::tensor_type_of<T>(),
                       "checkpoint '{}', tensor '{}': holds {}, asked for {}", folder_.string(),
                       name, detail::tensor_type_name(t.type),
                       detail::tensor_type_name(detail::tensor_type_of<T>()));
    for (const detail::TensorPiece& piece : t.pieces) {
      const std::size_t f = static_cast<std::size_t>(piece.file);
      const std::uint64_t first = f == 0 ? 0 : chunks_[f - 1];
      if (piece.row_begin < piece.row_end && t.row_bytes() != 0) {
        const std::uint64_t offset = place(t, piece);
        const std::uint64_t end =
            offset + static_cast<std::uint64_t>((piece.row_end - piece.row_begin) * t.row_bytes());
        verify(first, first + 1);  // the header
        verify(first + offset / detail::kChunkBytes,
               first + (end + detail::kChunkBytes - 1) / detail::kChunkBytes);
      }
    }
    std::vector<T> values(static_cast<std::size_t>(t.rows() * t.columns()));
    read_rows(t, 0, t.rows(), reinterpret_cast<std::byte*>(values.data()));
    return values;
  }

  /// Throws DataError if a file that was read has been written to since, as by a copy over it: what
  /// was verified may not be what was read then. A file that has been removed was read whole.
  void check_unchanged() const {
    for (const auto& [f, stamp] : stamps_) {
      const std::filesystem::path path = folder_ / manifest_.files[f].name;
      if (!std::filesystem::exists(path)) continue;
      const detail::File file(path, detail::File::Mode::read);
      require<DataError>(file.stamp() == stamp, "file '{}' was changed while it was read",
                         file.name());
    }
  }

  bool has_file(std::string_view name) const { return find_file(name) < manifest_.files.size(); }

  /// Returns the bytes of a file of CheckpointContents::set_file, verified. Throws DataError if
  /// there is none.
  std::string read_file(std::string_view name) {
    const std::size_t f = find_file(name);
    require<DataError>(f < manifest_.files.size(), "checkpoint '{}' has no file '{}'",
                       folder_.string(), name);
    const std::uint64_t first = f == 0 ? 0 : chunks_[f - 1];
    verify(first, chunks_[f]);
    std::string bytes(static_cast<std::size_t>(manifest_.files[f].bytes), '\0');
    open(f).read_at(0, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }

 private:
  static constexpr std::size_t kOpenFiles = 64;

  std::size_t find_file(std::string_view name) const {
    return static_cast<std::size_t>(
        std::find_if(manifest_.files.begin(), manifest_.files.end(),
                     [&](const detail::StoredFile& file) { return file.name == name; }) -
        manifest_.files.begin());
  }

  void check_chunk(std::size_t f, std::uint64_t chunk, std::span<const std::byte> bytes) const {
    const detail::StoredFile& stored = manifest_.files[f];
    require<DataError>(detail::crc32(bytes) == stored.crcs[chunk],
                       "file '{}': the checksum of bytes {}..{} is not the manifest's: the file "
                       "was changed or damaged",
                       (folder_ / stored.name).string(), chunk * detail::kChunkBytes,
                       chunk * detail::kChunkBytes + bytes.size());
  }

  const detail::File& open(std::size_t f) {
    if (const auto found = files_.find(f); found != files_.end()) return found->second;
    if (files_.size() >= kOpenFiles) files_.clear();
    const detail::StoredFile& stored = manifest_.files[f];
    const detail::File& file =
        files_.emplace(f, detail::File(folder_ / stored.name, detail::File::Mode::read))
            .first->second;
    const auto stamp = file.stamp();
    require<DataError>(stamps_.emplace(f, stamp).first->second == stamp,
                       "file '{}' was changed while it was read", file.name());
    const std::uint64_t size = file.size();
    require<DataError>(size == stored.bytes,
                       "file '{}' has {} bytes, the manifest says {}: it was truncated or changed",
                       file.name(), size, stored.bytes);
    return file;
  }

  /// Returns what file f begins with. Read, not mapped: a mapped file that another program cuts
  /// short ends the process.
  const detail::SafetensorsHeader& header_of(std::size_t f) {
    if (header_file_ == f) return header_;
    const detail::File& file = open(f);
    const std::uint64_t file_bytes = manifest_.files[f].bytes;
    std::vector<std::byte> begin(std::min<std::uint64_t>(8, file_bytes));
    file.read_at(0, begin);
    begin.resize(detail::safetensors_header_bytes(begin, file.name(), file_bytes));
    file.read_at(0, begin);
    header_file_.reset();
    header_ = detail::parse_safetensors_header(begin, file.name(), file_bytes);
    header_file_ = f;
    return header_;
  }

  /// Returns where a piece begins in its file. Throws DataError unless the file's header says the
  /// same of it as the manifest.
  std::uint64_t place(const detail::StoredTensor& tensor, const detail::TensorPiece& piece) {
    const auto known = places_.find(&piece);
    if (known != places_.end()) return known->second;
    const std::size_t f = static_cast<std::size_t>(piece.file);
    const detail::SafetensorsHeader& header = header_of(f);
    const std::string name = (folder_ / manifest_.files[f].name).string();
    const auto found =
        std::find_if(header.tensors.begin(), header.tensors.end(),
                     [&](const detail::TensorInfo& t) { return t.name == tensor.name; });
    require<DataError>(found != header.tensors.end(), "file '{}' has no tensor '{}'", name,
                       tensor.name);
    const detail::TensorInfo& info = *found;
    std::vector<std::int64_t> shape = tensor.shape;
    if (!shape.empty()) shape.front() = piece.row_end - piece.row_begin;
    require<DataError>(info.type == tensor.type && info.shape == shape,
                       "file '{}', tensor '{}': is {} {}, the manifest says {} {}", name,
                       tensor.name, detail::tensor_type_name(info.type),
                       detail::shape_text(info.shape), detail::tensor_type_name(tensor.type),
                       detail::shape_text(shape));
    const std::uint64_t begin = header.data_offset + info.begin;
    places_.emplace(&piece, begin);
    return begin;
  }

  std::filesystem::path folder_;
  detail::Manifest manifest_;
  std::uint32_t crc_ = 0;
  std::vector<std::uint64_t> chunks_;  ///< up to and including each file
  std::map<std::size_t, detail::File> files_;
  std::map<std::size_t, std::array<std::int64_t, 4>> stamps_;  ///< of files when first opened
  std::map<const detail::TensorPiece*, std::uint64_t> places_;
  std::optional<std::size_t> header_file_;  ///< whose `header_` is
  detail::SafetensorsHeader header_;
};

}}  // namespace tessera::v0
