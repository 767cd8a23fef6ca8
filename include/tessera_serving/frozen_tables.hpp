// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/jagged.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/io/crc32.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera/op/inputs.hpp>
#include <tessera_serving/freeze.hpp>
#include <tessera_serving/key_table.hpp>
#include <tessera_serving/pool_rows.hpp>
#include <tessera_serving/row_format.hpp>
#include <tessera_serving/row_overlay.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// Whether FrozenTables compares checksums.
struct FrozenOptions {
  /// Reads every byte once and compares the checksums. Without it, damage shows as wrong vectors.
  bool verify = true;
};

/// Which checkpoint tables were made of.
struct CheckpointMark {
  std::int64_t step = -1;
  std::uint32_t crc = 0;  ///< of its manifest's text
  friend bool operator==(const CheckpointMark&, const CheckpointMark&) = default;
};

/// Tables of a trained model that nothing changes, mapped from a file of freeze_checkpoint:
/// processes that map one file share its memory. Lookups are const; any number of threads may look
/// up at one time. Copies share the file. Throws DataError, naming the file, for one that is
/// damaged or of another kind.
///
///     const FrozenTables tables("model.frozen");       // threads share it
///     FrozenLookup<std::int32_t> lookup(tables, features);  // one per thread
///     lookup.pool(batch, pooled_rows);  // [batch, lookup.columns()]
class FrozenTables {
 public:
  struct Table {
    std::string name;
    std::int64_t rows = 0;
    int width = 0;
    RowFormat format = RowFormat::fp32;
    const std::byte* data = nullptr;  ///< rows of row_bytes(format, width), without padding
    /// Rows in place of those in `data`; null: none. See with_increment.
    std::shared_ptr<const detail::RowOverlay> changed{};
    std::shared_ptr<const detail::KeyTable> keys{};  ///< of a vocabulary; null: ids are rows
    std::string keys_name{};  ///< of the checkpoint's tensors: "vocabulary.3"
  };

  explicit FrozenTables(const std::filesystem::path& file, FrozenOptions options = {})
      : FrozenTables(std::make_shared<const SafetensorsReader>(file), options) {}
  /// Reads tables in memory that the caller keeps; `name` is the file's in messages.
  FrozenTables(std::span<const std::byte> bytes, std::string name, FrozenOptions options = {})
      : FrozenTables(std::make_shared<const SafetensorsReader>(bytes, std::move(name)), options) {}

  const std::string& file() const { return file_->name(); }
  const std::vector<Table>& tables() const { return tables_; }
  /// Throws InvalidArgument if there is none of that name.
  const Table& table(std::string_view name) const {
    const auto found = std::find_if(tables_.begin(), tables_.end(),
                                    [&](const Table& t) { return t.name == name; });
    require(found != tables_.end(), "file '{}' has no table '{}'", file(), name);
    return *found;
  }

  /// Returns the checkpoint that the file was made of; step -1 for files of before they told.
  const CheckpointMark& base() const { return base_; }
  /// Returns the checkpoint whose rows these are: the base or an increment of it.
  const CheckpointMark& checkpoint() const { return checkpoint_; }

  /// Returns bytes of all rows in the file.
  std::int64_t bytes() const {
    return std::accumulate(
        tables_.begin(), tables_.end(), std::int64_t{0}, [](std::int64_t sum, const Table& t) {
          return sum + t.rows * static_cast<std::int64_t>(row_bytes(t.format, t.width));
        });
  }
  /// Returns rows in place of others in the file.
  std::int64_t changed_rows() const {
    return std::accumulate(
        tables_.begin(), tables_.end(), std::int64_t{0},
        [](std::int64_t sum, const Table& t) { return sum + (t.changed ? t.changed->rows() : 0); });
  }

  /// Reads row ids[i] of a table as floats into row i of `output`, [ids, width]. Throws BadId for
  /// an id outside the table, InvalidArgument for another shape.
  template <IdType Id>
  void rows(std::string_view name, std::span<const Id> ids, MatrixView<float> output) const {
    const Table& t = table(name);
    require(output.rows == std::ssize(ids) && output.columns == t.width &&
                output.stride >= output.columns,
            "FrozenTables: table '{}': {} rows of {} go to [{}, {}] with a stride of {}", name,
            ids.size(), t.width, output.rows, output.columns, output.stride);
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (ids[i] < 0 || ids[i] >= t.rows)
        throw BadId(name, static_cast<std::int64_t>(i), static_cast<std::int64_t>(ids[i]), t.rows);
    detail::with_rows(t, [&](auto row, const auto& rows) {
      detail::read_rows<decltype(row)>(rows, t.width, ids, output);
    });
  }

  /// Finds the rows of raw keys, KeyTable::kSharedRow for those that the training did not know.
  /// Throws InvalidArgument for a table without keys.
  template <IdType Id>
  void find(std::string_view name, std::span<const std::int64_t> keys, std::span<Id> rows) const {
    const Table& t = table(name);
    require(t.keys != nullptr,
            "FrozenTables: table '{}' of file '{}' has no keys; FreezeOptions::vocabulary "
            "freezes them",
            name, file());
    require(keys.size() == rows.size(), "FrozenTables: {} keys, room for {} rows", keys.size(),
            rows.size());
    t.keys->find(keys, t.rows, rows.data());
  }

  /// Returns the same file with other rows and keys in place of its own, by table.
  FrozenTables with(std::vector<std::shared_ptr<const detail::RowOverlay>> changed,
                    std::vector<std::shared_ptr<const detail::KeyTable>> keys,
                    CheckpointMark checkpoint) const {
    FrozenTables other = *this;
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      other.tables_[t].changed = std::move(changed[t]);
      other.tables_[t].keys = std::move(keys[t]);
    }
    other.checkpoint_ = checkpoint;
    return other;
  }

 private:
  FrozenTables(std::shared_ptr<const SafetensorsReader> file, FrozenOptions options)
      : file_(std::move(file)) {
    const auto version = file_->metadata().find(std::string(detail::kFrozenKey));
    require<DataError>(version != file_->metadata().end(),
                       "file '{}' holds no frozen tables; freeze_checkpoint writes such",
                       file_->name());
    require<DataError>(version->second == detail::kFrozenVersion,
                       "file '{}' has frozen tables of version '{}', this library reads {}",
                       file_->name(), version->second, detail::kFrozenVersion);
    for (const detail::TensorInfo& info : file_->tensors())
      if (!info.name.starts_with(detail::kOwnTensors)) add(info);
    for (Table& table : tables_) add_keys(table);
    if (const std::string* mark = text(detail::kCheckpointKey)) {
      const auto [step, end] = number<std::int64_t>(*mark);
      const auto [crc, rest] = number<std::uint32_t>(end);
      require<DataError>(step && crc && rest.empty(), "file '{}': '{}' names no checkpoint",
                         file_->name(), *mark);
      base_ = checkpoint_ = {*step, *crc};
    }
    if (options.verify) verify();
  }

  const std::string* text(std::string_view key, std::string_view table = {}) const {
    const auto found = file_->metadata().find(std::string(key) + std::string(table));
    return found == file_->metadata().end() ? nullptr : &found->second;
  }
  /// Returns a number, and the text behind the blank that follows it.
  template <class T>
  static std::pair<std::optional<T>, std::string_view> number(std::string_view text) {
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) return {};
    std::string_view rest = text.substr(static_cast<std::size_t>(end - text.data()));
    if (rest.starts_with(' ')) rest.remove_prefix(1);
    return {value, rest};
  }

  void add(const detail::TensorInfo& info) {
    const auto fault = [&](std::string_view what) {
      return detail::formatted("file '{}', table '{}': {}", file_->name(), info.name, what);
    };
    const std::string* const format = text(detail::kFormatKey, info.name);
    if (format == nullptr) throw DataError(fault("its format is not given"));
    const std::string_view words = *format;
    const std::size_t space = std::min(words.find(' '), words.size());
    Table table{.name = info.name};
    const auto name =
        std::find(row_format_names.begin(), row_format_names.end(), words.substr(0, space));
    if (name == row_format_names.end() || space == words.size())
      throw DataError(fault(detail::formatted("there is no format '{}'", words)));
    table.format = static_cast<RowFormat>(name - row_format_names.begin());
    const auto [width, rest] = number<int>(words.substr(space + 1));
    if (!width || !rest.empty() || *width < 1 || *width > 1 << 20)
      throw DataError(fault(detail::formatted("'{}' is no format and width", words)));
    table.width = *width;
    const detail::TensorType type =
        detail::with_row_type(table.format, [](auto row) { return decltype(row)::type; });
    const auto bytes = static_cast<std::int64_t>(row_bytes(table.format, table.width));
    if (info.type != type || info.shape.size() != 2 || info.shape[0] < 1 ||
        info.shape[1] * static_cast<std::int64_t>(detail::tensor_type_size(type)) != bytes)
      throw DataError(fault(detail::formatted("{} {} is not its rows in {}",
                                              detail::tensor_type_name(info.type),
                                              detail::shape_text(info.shape), words)));
    table.rows = info.shape[0];
    table.data = file_->bytes(info.name).data();
    if (reinterpret_cast<std::uintptr_t>(table.data) % detail::tensor_type_size(type) != 0)
      throw DataError(fault("its elements are not aligned"));
    tables_.push_back(std::move(table));
  }

  void add_keys(Table& table) {
    const std::string* const seed_and_name = text(detail::kVocabularyKey, table.name);
    if (seed_and_name == nullptr) return;
    const auto fault = [&](std::string_view what) {
      return detail::formatted("file '{}', keys of table '{}': {}", file_->name(), table.name,
                               what);
    };
    const auto [seed, name] = number<std::uint64_t>(*seed_and_name);
    if (!seed || name.empty())
      throw DataError(fault(detail::formatted("'{}' is no seed and name", *seed_and_name)));
    const std::string tensor = std::string(detail::kKeys) + table.name;
    if (!file_->contains(tensor)) throw DataError(fault("they are missing"));
    const detail::TensorInfo& info = file_->info(tensor);
    const std::span<const std::byte> bytes = file_->bytes(tensor);
    if (info.type != detail::TensorType::i64 || info.shape.size() != 2 || info.shape[1] != 2 ||
        info.shape[0] < 1 || info.shape[0] > std::int64_t{1} << 32)
      throw DataError(fault(detail::formatted("{} {} is no list of keys and rows",
                                              detail::tensor_type_name(info.type),
                                              detail::shape_text(info.shape))));
    if (reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(detail::KeyTable::Slot) != 0)
      throw DataError(fault("they are not aligned"));
    const auto* const slots = reinterpret_cast<const detail::KeyTable::Slot*>(bytes.data());
    table.keys = std::make_shared<const detail::KeyTable>(
        std::span(slots, static_cast<std::size_t>(info.shape[0])), *seed);
    table.keys_name = name;
  }

  void verify() const {
    const std::vector<std::uint8_t> sums = file_->contains(detail::kChecksums)
                                               ? file_->read<std::uint8_t>(detail::kChecksums)
                                               : std::vector<std::uint8_t>();
    require<DataError>(sums.size() == 4 * (file_->tensors().size() - 1),
                       "file '{}' lacks its checksums", file_->name());
    std::size_t at = 0;
    for (const detail::TensorInfo& info : file_->tensors()) {
      if (info.name == detail::kChecksums) continue;
      std::uint32_t expected = 0;
      std::memcpy(&expected, sums.data() + at, sizeof(expected));
      at += sizeof(expected);
      require<DataError>(detail::crc32(file_->bytes(info.name)) == expected,
                         "file '{}', table '{}': its bytes do not have the checksum that was "
                         "written: the file is damaged",
                         file_->name(), info.name);
    }
  }

  std::shared_ptr<const SafetensorsReader> file_;
  std::vector<Table> tables_;
  CheckpointMark base_{}, checkpoint_{};
};

}}  // namespace tessera::v0
