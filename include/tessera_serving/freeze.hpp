// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/file.hpp>
#include <tessera/checkpoint/load.hpp>
#include <tessera/checkpoint/manifest.hpp>
#include <tessera/checkpoint/reader.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera/io/crc32.hpp>
#include <tessera/io/safetensors_header.hpp>
#include <tessera/io/temporary_file.hpp>
#include <tessera_serving/key_table.hpp>
#include <tessera_serving/row_format.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// Which tables freeze_checkpoint takes, and in which formats.
struct FreezeOptions {
  /// Which tables, by patterns of their names in which '*' matches any text; empty: all. Dense
  /// layers have weights of two extents, too: name the tables if a checkpoint has such.
  std::vector<std::string> tables{};
  RowFormat format = RowFormat::fp32;
  /// Other formats for the tables of a pattern; the last that fits counts.
  std::vector<std::pair<std::string, RowFormat>> formats{};
  /// The names of a vocabulary's tables in its order: their keys come along. Empty: none do. A name
  /// that `tables` has no room for is passed over.
  std::vector<std::string> vocabulary{};
  std::string vocabulary_name = "vocabulary";  ///< of SavedVocabulary
};

namespace detail {

inline constexpr std::string_view kFrozenKey = "tessera_frozen", kFrozenVersion = "1",
                                  kCheckpointKey = "checkpoint", kFormatKey = "format:",
                                  kVocabularyKey = "vocabulary:", kOwnTensors = "tessera_frozen.",
                                  kChecksums = "tessera_frozen.crc32",
                                  kKeys = "tessera_frozen.keys:";

/// One table on its way from a checkpoint to a frozen file.
struct TableToFreeze {
  std::string name;
  const StoredTensor* stored = nullptr;
  RowFormat format = RowFormat::fp32;
  TensorInfo info{};

  int width() const { return static_cast<int>(stored->columns()); }
};

/// Reads stored elements as floats.
inline void floats_of(TensorType type, std::span<const std::byte> bytes, std::vector<float>& to) {
  const auto convert = [&]<class T>(T) {
    to.resize(bytes.size() / sizeof(T));
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = to_float(read_as<T>(bytes.data() + i * sizeof(T)));
  };
  if (type == TensorType::f32) return convert(0.0f);
  type == TensorType::bf16 ? convert(BFloat16{}) : convert(Half{});
}

/// Writes rows from number `first` on in a format. Throws DataError, naming file, table and row,
/// for an element that is not finite, or is not in the format.
inline void encode_rows(const CheckpointReader& reader, const TableToFreeze& table,
                        std::span<const float> rows, std::int64_t first, std::span<std::byte> to) {
  const int width = table.width();
  const auto refuse = [&](std::size_t element, std::string_view what) {
    const std::int64_t row = first + static_cast<std::int64_t>(element) / width;
    throw DataError(formatted("file '{}', table '{}', row {}, column {}: {} {}",
                              reader.file_of(*table.stored, row), table.name, row,
                              static_cast<std::int64_t>(element) % width, rows[element], what));
  };
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (!std::isfinite(rows[i])) refuse(i, "is no weight to score with; take another checkpoint");
  const auto quantize = [&]<QuantizedRow R>(R) {
    try {
      quantize_rows<R>(rows, width, to);
    } catch (const InvalidArgument& error) {
      throw DataError(formatted("checkpoint '{}', table '{}', rows from {} on: {}",
                                reader.folder().string(), table.name, first, error.what()));
    }
  };
  const auto narrow = [&]<class T>(T) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const T value = from_float<T>(rows[i]);
      if (!std::isfinite(to_float(value)))
        refuse(i, formatted("does not fit {}; take fp32", to_string(table.format)));
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

/// Returns what names a checkpoint in the files that are made of it.
inline std::string checkpoint_mark(std::int64_t step, std::uint32_t crc) {
  return formatted("{} {}", step, crc);
}

/// Returns the keys of one table of a vocabulary, as a checkpoint or an increment holds them:
/// tensors NAME.keys and NAME.rows. `rows`: of the table.
inline std::shared_ptr<const KeyTable> read_keys(CheckpointReader& reader, std::string_view name,
                                                 std::string_view table, std::int64_t rows) {
  const auto of_keys = reader.read<std::int64_t>(formatted("{}.keys", name)),
             of_rows = reader.read<std::int64_t>(formatted("{}.rows", name));
  const auto fault = [&](std::string_view what) {
    return formatted("checkpoint '{}', keys of table '{}': {}", reader.folder().string(), table,
                     what);
  };
  if (of_keys.size() != of_rows.size())
    throw DataError(fault(formatted("{} keys, {} rows", of_keys.size(), of_rows.size())));
  for (const std::int64_t row : of_rows)
    if (row < -1 || row >= rows) throw DataError(fault(formatted("row {} of {}", row, rows)));
  try {
    return std::make_shared<const KeyTable>(of_keys, of_rows, mix64(reader.crc()));
  } catch (const DataError& error) {
    throw DataError(fault(error.what()));
  }
}

/// Returns the tables that are wanted, with their formats, in the order of the file: wider elements
/// first.
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
    require<DataError>(!tensor.name.starts_with(kOwnTensors),
                       "checkpoint '{}', tensor '{}': frozen files have tensors of such names of "
                       "their own",
                       folder, tensor.name);
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
  for (TableToFreeze& table : tables) {
    const auto bytes = static_cast<std::int64_t>(row_bytes(table.format, table.width()));
    table.info.name = table.name;
    table.info.type = with_row_type(table.format, [](auto row) { return decltype(row)::type; });
    table.info.shape = {table.stored->rows(),
                        bytes / static_cast<std::int64_t>(tensor_type_size(table.info.type))};
  }
  return tables;
}

struct KeysToFreeze {
  std::string table;
  std::string name;  ///< of the checkpoint's tensors, without .keys and .rows
  std::shared_ptr<const KeyTable> keys;
};
inline std::vector<KeysToFreeze> keys_to_freeze(CheckpointReader& reader,
                                                const std::vector<TableToFreeze>& tables,
                                                const FreezeOptions& options) {
  std::vector<KeysToFreeze> all;
  for (std::size_t t = 0; t < options.vocabulary.size(); ++t) {
    const std::string& table = options.vocabulary[t];
    static_cast<void>(reader.tensor(table + ".weight"));
    const auto found = std::find_if(tables.begin(), tables.end(),
                                    [&](const TableToFreeze& f) { return f.name == table; });
    if (found == tables.end()) continue;
    const std::string name = formatted("{}.{}", options.vocabulary_name, t);
    all.push_back({table, name, read_keys(reader, name, table, found->stored->rows())});
  }
  return all;
}

/// Writes a frozen file from its beginning to its end.
class FrozenFileWriter {
 public:
  /// Begins a file. `tensors`: with types and shapes, wider elements first; the checksums' follows
  /// them.
  FrozenFileWriter(const std::filesystem::path& file, std::map<std::string, std::string> metadata,
                   std::vector<TensorInfo> tensors)
      : file_(file, File::Mode::create) {
    const auto count = static_cast<std::int64_t>(tensors.size());
    tensors.push_back({std::string(kChecksums), TensorType::u8, {count, 4}});
    std::uint64_t at = 0;
    for (TensorInfo& tensor : tensors) {
      tensor.begin = at;
      tensor.end = at += static_cast<std::uint64_t>(tensor.shape[0] * tensor.shape[1]) *
                         tensor_type_size(tensor.type);
    }
    metadata[std::string(kFrozenKey)] = kFrozenVersion;
    const std::string header = format_safetensors_header(metadata, tensors);
    file_.reserve(header.size() + at);
    append(std::as_bytes(std::span(header)));
    sum_ = 0;
  }

  void append(std::span<const std::byte> bytes) {
    file_.write_at(at_, bytes);
    at_ += bytes.size();
    sum_ = crc32(bytes, sum_);
  }
  void end_tensor() { sums_.push_back(std::exchange(sum_, 0)); }
  void finish() {
    append(std::as_bytes(std::span(sums_)));
    file_.sync();
  }

 private:
  File file_;
  std::uint64_t at_ = 0;
  std::uint32_t sum_ = 0;
  std::vector<std::uint32_t> sums_;
};

/// Encodes rows of a checkpoint's tensor in the format of the table, some at a time.
template <class Take>
void encode_table(CheckpointReader& reader, const TableToFreeze& table, Take&& take) {
  const std::int64_t stored_bytes = table.stored->row_bytes(), total = table.stored->rows(),
                     at_once = std::max<std::int64_t>(1, (4 << 20) / stored_bytes);
  const std::size_t bytes = row_bytes(table.format, table.width());
  std::vector<std::byte> stored, encoded;
  std::vector<float> rows;
  for (std::int64_t first = 0; first < total; first += at_once) {
    const std::int64_t n = std::min(at_once, total - first);
    stored.resize(static_cast<std::size_t>(n * stored_bytes));
    encoded.resize(static_cast<std::size_t>(n) * bytes);
    reader.read_rows(*table.stored, first, n, stored.data());
    floats_of(table.stored->type, stored, rows);
    encode_rows(reader, table, rows, first, encoded);
    take(std::span<const std::byte>(encoded));
  }
}

}  // namespace detail

/// Writes a checkpoint's tables into one file that FrozenTables maps: without optimizer state, in a
/// format of choice, with a checksum per table. The checkpoint may be of any plan and number of
/// ranks; what is read of it is verified. The file is a safetensors file
/// (docs/concepts/serving.md); it appears under its name when it is complete. Memory: a few MiB,
/// and 40 bytes for each key of a vocabulary. Throws DataError, naming file, table and row, for
/// what cannot be read, encoded or written; so for a weight that is NaN or infinite.
inline void freeze_checkpoint(const std::filesystem::path& checkpoint,
                              const std::filesystem::path& file,
                              const FreezeOptions& options = {}) {
  require(!std::filesystem::exists(file.parent_path() / detail::Manifest::kFile),
          "freeze_checkpoint: '{}' is in a checkpoint's folder; write the tables beside it",
          file.string());
  CheckpointReader reader(checkpoint);
  const std::vector<detail::TableToFreeze> tables = detail::tables_to_freeze(reader, options);
  reader.verify(0, reader.chunks());
  const std::vector<detail::KeysToFreeze> keys = detail::keys_to_freeze(reader, tables, options);
  std::map<std::string, std::string> metadata{
      {std::string(detail::kCheckpointKey),
       detail::checkpoint_mark(reader.manifest().step, reader.crc())}};
  std::vector<detail::TensorInfo> infos;
  for (const detail::KeysToFreeze& k : keys) {
    metadata[std::string(detail::kVocabularyKey) + k.table] =
        detail::formatted("{} {}", k.keys->seed(), k.name);
    infos.push_back({std::string(detail::kKeys) + k.table,
                     detail::TensorType::i64,
                     {std::ssize(k.keys->slots()), 2}});
  }
  for (const detail::TableToFreeze& table : tables) {
    metadata[std::string(detail::kFormatKey) + table.name] =
        detail::formatted("{} {}", to_string(table.format), table.width());
    infos.push_back(table.info);
  }
  const std::filesystem::path partial = detail::partial_path(file);
  std::error_code error;
  try {
    detail::FrozenFileWriter to(partial, std::move(metadata), std::move(infos));
    for (const detail::KeysToFreeze& k : keys) {
      to.append(std::as_bytes(k.keys->slots()));
      to.end_tensor();
    }
    for (const detail::TableToFreeze& table : tables) {
      detail::encode_table(reader, table,
                           [&](std::span<const std::byte> rows) { to.append(rows); });
      to.end_tensor();
    }
    reader.check_unchanged();
    to.finish();
    std::filesystem::rename(partial, file, error);
    require<DataError>(!error, "cannot write '{}': {}", file.string(), error.message());
  } catch (...) {
    std::filesystem::remove(partial, error);
    throw;
  }
}

}}  // namespace tessera::v0
