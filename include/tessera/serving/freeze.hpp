// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/file.hpp>
#include <tessera/checkpoint/load.hpp>
#include <tessera/checkpoint/reader.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/crc32.hpp>
#include <tessera/io/safetensors_header.hpp>
#include <tessera/serving/row_format.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace tessera::inline v0 {

struct FreezeOptions {
  /// Which tables, by patterns of their names in which '*' stands for any text; empty: all. Dense
  /// layers have weights of two extents, too: name the tables where a checkpoint has such.
  std::vector<std::string> tables{};
  RowFormat format = RowFormat::fp32;
  /// Other formats for the tables of a pattern; the last that fits counts.
  std::vector<std::pair<std::string, RowFormat>> formats{};
};

namespace detail {

inline constexpr std::string_view kFrozenKey = "tessera_frozen", kFrozenVersion = "1",
                                  kFormatKey = "format:", kChecksums = "tessera_frozen.crc32";

/// One table on its way from a checkpoint to a frozen file.
struct TableToFreeze {
  std::string name;
  const StoredTensor* stored = nullptr;
  RowFormat format = RowFormat::fp32;
  TensorInfo info{};

  int width() const { return static_cast<int>(stored->columns()); }
};

/// Stored elements as floats.
inline void floats_of(TensorType type, std::span<const std::byte> bytes, std::vector<float>& to) {
  const auto convert = [&]<class T>(T) {
    to.resize(bytes.size() / sizeof(T));
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = to_float(read_as<T>(bytes.data() + i * sizeof(T)));
  };
  if (type == TensorType::f32) return convert(0.0f);
  type == TensorType::bf16 ? convert(BFloat16{}) : convert(Half{});
}

/// Some rows in a format; `first` is the number of the first, for messages.
inline void encode_rows(const TableToFreeze& table, std::string_view folder,
                        std::span<const float> rows, std::int64_t first, std::span<std::byte> to) {
  const int width = table.width();
  const auto quantize = [&]<QuantizedRow R>(R) {
    try {
      quantize_rows<R>(rows, width, to);
    } catch (const InvalidArgument& error) {
      throw DataError(fmt::format("checkpoint '{}', table '{}', rows from {} on: {}", folder,
                                  table.name, first, error.what()));
    }
  };
  const auto narrow = [&]<class T>(T) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const T value = from_float<T>(rows[i]);
      std::memcpy(to.data() + i * sizeof(T), &value, sizeof(T));
    }
  };
  switch (table.format) {
    case RowFormat::fp32:
      return narrow(0.0f);
    case RowFormat::bf16:
      return narrow(BFloat16{});
    case RowFormat::fp16:
      return narrow(Half{});
    case RowFormat::int8:
      return quantize(Int8Row{});
    case RowFormat::int8_half:
      return quantize(Int8HalfRow{});
    case RowFormat::int4:
      return quantize(Int4Row{});
  }
}

/// The tables that are wanted, with their formats, in the order of the file: wider elements first.
inline std::vector<TableToFreeze> tables_to_freeze(const CheckpointReader& reader,
                                                   const FreezeOptions& options) {
  constexpr std::string_view suffix = ".weight";
  const std::string folder = reader.folder().string();
  require<DataError>(reader.manifest().base.empty(),
                     "checkpoint '{}' holds changed rows alone, an increment; freeze a whole one",
                     folder);
  std::vector<bool> used(options.tables.size(), false);
  std::vector<TableToFreeze> tables;
  for (const StoredTensor& tensor : reader.manifest().tensors) {
    if (!std::string_view(tensor.name).ends_with(suffix) || tensor.shape.size() != 2) continue;
    TableToFreeze table{.name = tensor.name.substr(0, tensor.name.size() - suffix.size()),
                        .stored = &tensor,
                        .format = options.format};
    bool wanted = options.tables.empty();
    for (std::size_t i = 0; i < options.tables.size(); ++i)
      if (matches(options.tables[i], table.name)) wanted = used[i] = true;
    if (!wanted) continue;
    for (const auto& [pattern, format] : options.formats)
      if (matches(pattern, table.name)) table.format = format;
    require<DataError>(tensor.type == TensorType::f32 || tensor.type == TensorType::bf16 ||
                           tensor.type == TensorType::f16,
                       "checkpoint '{}', tensor '{}': {} is no element type of tables", folder,
                       tensor.name, tensor_type_name(tensor.type));
    require<DataError>(tensor.columns() >= 1 && tensor.columns() <= 1 << 20,
                       "checkpoint '{}', tensor '{}': rows of {} elements", folder, tensor.name,
                       tensor.columns());
    tables.push_back(std::move(table));
  }
  for (std::size_t i = 0; i < used.size(); ++i)
    require<DataError>(used[i], "checkpoint '{}' has no table '{}' (tensor '{}.weight')", folder,
                       options.tables[i], options.tables[i]);
  std::stable_sort(tables.begin(), tables.end(), [](const auto& a, const auto& b) {
    const auto size = [](const TableToFreeze& t) {
      return with_row_type(t.format,
                           [](auto row) { return tensor_type_size(decltype(row)::type); });
    };
    return size(a) > size(b);
  });
  std::uint64_t at = 0;
  for (TableToFreeze& table : tables) {
    const auto bytes = static_cast<std::int64_t>(row_bytes(table.format, table.width()));
    const TensorType type =
        with_row_type(table.format, [](auto row) { return decltype(row)::type; });
    table.info = {table.name,
                  type,
                  {table.stored->rows(), bytes / static_cast<std::int64_t>(tensor_type_size(type))},
                  at,
                  at + static_cast<std::uint64_t>(table.stored->rows() * bytes)};
    at = table.info.end;
  }
  return tables;
}

}  // namespace detail

/// Writes a checkpoint's tables into one file that FrozenTables maps: without optimizer state, in a
/// format of choice, with a checksum per table. The checkpoint may be of any plan and number of
/// ranks; what is read of it is verified. The file is a safetensors file (docs/concepts/serving.md);
/// it appears under its name when it is complete. Memory: a few MiB. Throws DataError, naming file,
/// table and row, for what cannot be read, encoded or written.
inline void freeze_checkpoint(const std::filesystem::path& checkpoint,
                              const std::filesystem::path& file,
                              const FreezeOptions& options = {}) {
  CheckpointReader reader(checkpoint);
  const std::vector<detail::TableToFreeze> tables = detail::tables_to_freeze(reader, options);
  reader.verify(0, reader.chunks());
  std::map<std::string, std::string> metadata{
      {std::string(detail::kFrozenKey), std::string(detail::kFrozenVersion)}};
  std::vector<TensorInfo> infos;
  for (const detail::TableToFreeze& table : tables) {
    metadata[std::string(detail::kFormatKey) + table.name] =
        fmt::format("{} {}", to_string(table.format), table.width());
    infos.push_back(table.info);
  }
  const std::uint64_t end = infos.empty() ? 0 : infos.back().end;
  const auto count = static_cast<std::int64_t>(tables.size());
  infos.push_back({std::string(detail::kChecksums),
                   TensorType::u8,
                   {count, 4},
                   end,
                   end + static_cast<std::uint64_t>(4 * count)});
  const std::string header = detail::format_safetensors_header(metadata, infos);
  std::filesystem::path partial = file;
  partial += ".partial";
  std::error_code error;
  std::filesystem::remove(partial, error);
  try {
    File to(partial, File::Mode::create);
    to.reserve(header.size() + infos.back().end);
    to.write_at(0, std::as_bytes(std::span(header)));
    std::vector<std::byte> stored, encoded;
    std::vector<float> rows;
    std::vector<std::uint32_t> checksums;
    for (const detail::TableToFreeze& table : tables) {
      const std::int64_t stored_bytes = table.stored->row_bytes(), total = table.stored->rows(),
                         at_once = std::max<std::int64_t>(1, (4 << 20) / stored_bytes);
      const std::size_t bytes = row_bytes(table.format, table.width());
      std::uint32_t sum = 0;
      for (std::int64_t first = 0; first < total; first += at_once) {
        const std::int64_t n = std::min(at_once, total - first);
        stored.resize(static_cast<std::size_t>(n * stored_bytes));
        encoded.resize(static_cast<std::size_t>(n) * bytes);
        reader.read_rows(*table.stored, first, n, stored.data());
        detail::floats_of(table.stored->type, stored, rows);
        detail::encode_rows(table, checkpoint.string(), rows, first, encoded);
        to.write_at(header.size() + table.info.begin + static_cast<std::uint64_t>(first) * bytes,
                    encoded);
        sum = crc32(encoded, sum);
      }
      checksums.push_back(sum);
    }
    to.write_at(header.size() + end, std::as_bytes(std::span(checksums)));
    to.sync();
    std::filesystem::rename(partial, file, error);
    require<DataError>(!error, "cannot write '{}': {}", file.string(), error.message());
  } catch (...) {
    std::filesystem::remove(partial, error);
    throw;
  }
}

}  // namespace tessera::inline v0
