// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/chunk_sums.hpp>
#include <tessera/checkpoint/contents.hpp>
#include <tessera/checkpoint/file.hpp>
#include <tessera/checkpoint/file_plan.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Where a block of rows of one part is in memory.
struct RowBlock {
  const std::byte* data = nullptr;
  std::int64_t stride = 0;  ///< bytes
};

/// Copies rows into one dense block.
inline void copy_rows(const RowBlock& from, std::int64_t rows, std::int64_t row_bytes,
                      std::byte* to) {
  for (std::int64_t r = 0; r < rows; ++r)
    std::memcpy(to + r * row_bytes, from.data + r * from.stride,
                static_cast<std::size_t>(row_bytes));
}

/// Copies rows [first, first + count) of a part, wherever they are, into one dense block.
inline void fetch_rows(const CheckpointRows& rows, const CheckpointRows::Part& part,
                       std::int64_t first, std::int64_t count, std::int64_t row_bytes,
                       std::byte* to) {
  const std::byte* from = part.data + first * part.stride;
  if (rows.copy)
    rows.copy(to, from, static_cast<std::size_t>(count * row_bytes));
  else
    copy_rows({from, part.stride}, count, row_bytes, to);
}

/// The rows of a checkpoint, in memory.
class LiveRows {
 public:
  /// Returns rows [first, first + count) of every part, valid until the next call.
  std::vector<RowBlock>& operator()(const CheckpointRows& rows,
                                    std::span<const std::int64_t> row_bytes, std::int64_t first,
                                    std::int64_t count) {
    blocks_.clear();
    if (rows.chosen.empty() && !rows.copy) {
      for (const CheckpointRows::Part& part : rows.parts)
        blocks_.push_back({part.data + first * part.stride, part.stride});
      return blocks_;
    }
    std::int64_t bytes = 0;
    for (const std::int64_t n : row_bytes) bytes += n;
    memory_.resize(static_cast<std::size_t>(bytes * count));
    std::byte* to = memory_.data();
    for (std::size_t p = 0; p < rows.parts.size(); ++p) {
      blocks_.push_back({to, row_bytes[p]});
      if (rows.chosen.empty()) {
        fetch_rows(rows, rows.parts[p], first, count, row_bytes[p], to);
      } else {
        const auto chosen =
            std::span(rows.chosen)
                .subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
        if (rows.gather) {
          rows.gather(rows.parts[p].data, rows.parts[p].stride, chosen, row_bytes[p], to);
        } else {
          for (std::size_t i = 0; i < chosen.size(); ++i)
            fetch_rows(rows, rows.parts[p], chosen[i], 1, row_bytes[p],
                       to + static_cast<std::int64_t>(i) * row_bytes[p]);
        }
      }
      to += count * row_bytes[p];
    }
    return blocks_;
  }

 private:
  std::vector<RowBlock> blocks_;
  std::vector<std::byte> memory_;
};

/// Returns whether one of `count` elements is NaN or infinite.
inline bool any_nonfinite(const std::byte* data, TensorType type, std::int64_t count) {
  const auto any = [&]<std::unsigned_integral Bits>(Bits exponent) {
    bool found = false;
    for (std::int64_t i = 0; i < count; ++i) {
      Bits bits;
      std::memcpy(&bits, data + i * static_cast<std::int64_t>(sizeof(Bits)), sizeof(Bits));
      found |= (bits & exponent) == exponent;
    }
    return found;
  };
  switch (type) {
    case TensorType::f32:
      return any(std::uint32_t{0x7f800000});
    case TensorType::f16:
      return any(std::uint16_t{0x7c00});
    case TensorType::bf16:
      return any(std::uint16_t{0x7f80});
    case TensorType::f64:
      return any(std::uint64_t{0x7ff0000000000000});
    default:
      return false;
  }
}

/// Writes this rank's rows into the files of a checkpoint and sums them up. Extra memory: about two
/// blocks of 1 MiB, and 4 bytes for each MiB of the files that this rank writes to.
class RowWriter {
 public:
  /// Makes a writer. `finite`: a value that is not is an error.
  RowWriter(std::filesystem::path folder, const std::vector<TensorSpec>& tensors,
            const FilePlan& plan, bool finite = false)
      : folder_(std::move(folder)), tensors_(tensors), plan_(plan), finite_(finite) {}

  /// Writes rows: `source(rows, bytes per row of each part, first, count)` gives a RowBlock for
  /// each part. Rows that this process does not write are passed over.
  template <class Source>
  void write(const CheckpointRows& rows, Source&& source) {
    if (std::none_of(rows.parts.begin(), rows.parts.end(),
                     [](const CheckpointRows::Part& part) { return part.write; }))
      return;
    std::vector<std::int64_t> row_bytes;
    std::int64_t all_bytes = 0;
    for (const CheckpointRows::Part& part : rows.parts) {
      row_bytes.push_back(part.columns *
                          static_cast<std::int64_t>(tensor_type_size(
                              tensors_[static_cast<std::size_t>(part.tensor)].type)));
      all_bytes += row_bytes.back();
    }
    std::vector<Run> runs(rows.parts.size());
    const std::int64_t step =
        std::max<std::int64_t>(1, kBlockBytes / std::max<std::int64_t>(all_bytes, 1));
    for (std::int64_t first = 0; first < rows.rows; first += step) {
      const std::int64_t count = std::min(step, rows.rows - first);
      const std::vector<RowBlock>& blocks =
          source(rows, std::span<const std::int64_t>(row_bytes), first, count);
      for (std::size_t p = 0; p < rows.parts.size(); ++p)
        if (rows.parts[p].write)
          write_block(rows.parts[p], runs[p], rows.row_begin + first, count, row_bytes[p],
                      blocks[p]);
    }
  }

  /// Writes bytes at the beginning of a file.
  void write_header(std::size_t file) {
    const std::span<const std::byte> header = std::as_bytes(std::span(plan_.files[file].header));
    open(file).write_at(0, header);
    ChunkSums::Cursor(files_.at(file).sums).add(0, header);
  }

  /// Returns when all that this rank wrote is on the disk.
  void sync() {
    for (auto& [index, written] : files_) {
      open(index).sync();
      written.file.reset();
    }
  }

  struct Sum {
    std::uint32_t file = 0, sum = 0;
    std::uint64_t chunk = 0;
  };
  /// Returns what this rank knows of the chunks' checksums; ends the writing.
  std::vector<Sum> take_sums() {
    std::vector<Sum> sums;
    for (auto& [index, written] : files_)
      for (std::uint64_t chunk = 0; chunk < chunks_of(written.sums.file_bytes()); ++chunk)
        if (written.sums.sum(chunk) != 0)
          sums.push_back({static_cast<std::uint32_t>(index), written.sums.sum(chunk), chunk});
    files_.clear();
    return sums;
  }

 private:
  static constexpr std::int64_t kBlockBytes = 1 << 20;

  static constexpr int kOpenFiles = 64;

  struct Written {
    explicit Written(std::uint64_t bytes) : sums(bytes) {}
    std::optional<File> file{};
    ChunkSums sums;
  };
  /// The piece being written, and its sums.
  struct Run {
    const FilePlan::Piece* piece = nullptr;
    std::optional<ChunkSums::Cursor> cursor{};
  };

  /// Opens a file unless it is open: a model may have more tables than a process may have open
  /// files.
  File& open(std::size_t index) {
    Written& written = files_.try_emplace(index, plan_.files[index].bytes).first->second;
    if (written.file) return *written.file;
    if (std::count_if(files_.begin(), files_.end(), [](const auto& entry) {
          return entry.second.file.has_value();
        }) >= kOpenFiles)
      for (auto& [other, entry] : files_) entry.file.reset();
    return written.file.emplace(folder_ / plan_.files[index].name, File::Mode::write);
  }

  void write_block(const CheckpointRows::Part& part, Run& run, std::int64_t row, std::int64_t count,
                   std::int64_t bytes, RowBlock block) {
    const TensorSpec& tensor = tensors_[static_cast<std::size_t>(part.tensor)];
    const StoredTensor stored{tensor.name, tensor.type, tensor.shape};
    if (bytes == 0) return;
    for (std::int64_t r = 0; finite_ && r < count; ++r)
      require<DataError>(!any_nonfinite(block.data + r * block.stride, tensor.type, part.columns),
                         "checkpoint: '{}' holds values that are NaN or infinite: it is not saved",
                         tensor.name);
    for (const FilePlan::Piece& piece : plan_.pieces[static_cast<std::size_t>(part.tensor)]) {
      const std::int64_t begin = std::max(row, piece.row_begin),
                         end = std::min(row + count, piece.row_end);
      if (begin >= end) continue;
      if (run.piece != &piece) {
        run.cursor.reset();
        run.piece = &piece;
        open(piece.file);
        run.cursor.emplace(files_.at(piece.file).sums);
      }
      const std::uint64_t offset =
          piece.offset +
          static_cast<std::uint64_t>((begin - piece.row_begin) * stored.row_bytes() +
                                     part.column_begin *
                                         static_cast<std::int64_t>(tensor_type_size(tensor.type)));
      const RowBlock rows{block.data + (begin - row) * block.stride, block.stride};
      if (bytes == stored.row_bytes())
        write_whole_rows(run, offset, rows, end - begin, bytes);
      else
        write_columns(run, offset, static_cast<std::uint64_t>(stored.row_bytes()), rows,
                      end - begin, bytes);
    }
  }

  void write_whole_rows(Run& run, std::uint64_t offset, RowBlock rows, std::int64_t count,
                        std::int64_t bytes) {
    const std::size_t size = static_cast<std::size_t>(count * bytes);
    if (rows.stride != bytes) {
      dense_.resize(size);
      copy_rows(rows, count, bytes, dense_.data());
      rows.data = dense_.data();
    }
    run.cursor->add(offset, {rows.data, size});
    open(run.piece->file).write_at(offset, {rows.data, size});
  }

  /// Writes some columns of rows. Those of other ranks are between: a call of the system for each
  /// would cost more than its bytes.
  void write_columns(Run& run, std::uint64_t offset, std::uint64_t file_stride, RowBlock rows,
                     std::int64_t count, std::int64_t bytes) {
    const File::Window window(
        open(run.piece->file), offset,
        static_cast<std::uint64_t>(count - 1) * file_stride + static_cast<std::uint64_t>(bytes));
    for (std::int64_t r = 0; r < count; ++r) {
      const std::span<const std::byte> row(rows.data + r * rows.stride,
                                           static_cast<std::size_t>(bytes));
      std::memcpy(window.data() + static_cast<std::uint64_t>(r) * file_stride, row.data(),
                  row.size());
      run.cursor->add(offset + static_cast<std::uint64_t>(r) * file_stride, row);
    }
  }

  std::filesystem::path folder_;
  const std::vector<TensorSpec>& tensors_;
  const FilePlan& plan_;
  bool finite_;
  std::map<std::size_t, Written> files_;
  std::vector<std::byte> dense_;
};

}}}  // namespace tessera::v0::detail
