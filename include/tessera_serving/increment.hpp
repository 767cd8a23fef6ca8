// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/manifest.hpp>
#include <tessera/checkpoint/reader.hpp>
#include <tessera/core/error.hpp>
#include <tessera_serving/freeze.hpp>
#include <tessera_serving/frozen_tables.hpp>
#include <tessera_serving/key_table.hpp>
#include <tessera_serving/row_overlay.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Returns a table's rows of an increment, in the table's format.
inline std::shared_ptr<const RowOverlay> read_overlay(CheckpointReader& reader,
                                                      const FrozenTables::Table& table) {
  const StoredTensor& tensor = reader.tensor(table.name + ".weight");
  const auto fault = [&](std::string_view what) {
    return formatted("checkpoint '{}', tensor '{}': {}", reader.folder().string(), tensor.name,
                     what);
  };
  if (tensor.shape.size() != 2 || tensor.columns() != table.width)
    throw DataError(fault(formatted("{} does not fit table '{}' of {} columns",
                                    shape_text(tensor.shape), table.name, table.width)));
  if (tensor.type != TensorType::f32 && tensor.type != TensorType::bf16 &&
      tensor.type != TensorType::f16)
    throw DataError(
        fault(formatted("{} is no element type of tables", tensor_type_name(tensor.type))));
  std::vector<std::int64_t> numbers;
  if (tensor.row_numbers.empty()) {
    if (tensor.rows() != table.rows)
      throw DataError(fault(formatted("{} rows that are not numbered, of {} in the table",
                                      tensor.rows(), table.rows)));
    numbers.resize(static_cast<std::size_t>(table.rows));
    std::iota(numbers.begin(), numbers.end(), 0);
  } else {
    numbers = reader.read<std::int64_t>(tensor.row_numbers);
  }
  std::int64_t last = -1;
  for (const std::int64_t row : numbers) {
    if (row <= last || row >= table.rows)
      throw DataError(fault(formatted("row {} behind row {}, of {}", row, last, table.rows)));
    last = row;
  }
  if (numbers.empty()) return nullptr;
  const auto overlay =
      std::make_shared<RowOverlay>(table.rows, numbers, row_bytes(table.format, table.width));
  std::byte* to = overlay->data();
  encode_table(reader, {.name = table.name, .stored = &tensor, .format = table.format},
               [&](std::span<const std::byte> rows) {
                 std::memcpy(to, rows.data(), rows.size());
                 to += rows.size();
               });
  return overlay;
}

/// Returns frozen tables with the rows and keys of an increment of the checkpoint that they were
/// made of, in the same formats, in place of those of their file and of earlier increments (an
/// increment holds all that changed since its base). With the base itself: as the file has them.
/// Shares the file; takes the memory of the rows that changed, and two bits for each row. The
/// checkpoint is verified whole before anything is taken. Throws DataError, naming the checkpoint,
/// for one that is damaged, of another base, or does not fit.
inline FrozenTables with_increment(const FrozenTables& tables,
                                   const std::filesystem::path& checkpoint) {
  CheckpointReader reader(checkpoint);
  const Manifest& manifest = reader.manifest();
  const CheckpointMark mark{manifest.step, reader.crc()}, base = tables.base();
  const std::string name = checkpoint.string();
  require<DataError>(base.step >= 0,
                     "file '{}' does not say which checkpoint it was made of; freeze it again",
                     tables.file());
  const bool same = mark == base;
  require<DataError>(same || !manifest.base.empty(),
                     "checkpoint '{}' is a whole one, and file '{}' was made of another, of step "
                     "{}: freeze it",
                     name, tables.file(), base.step);
  require<DataError>(same || manifest.base_crc == base.crc,
                     "checkpoint '{}' is an increment of '{}', and file '{}' was made of another "
                     "checkpoint, of step {}",
                     name, manifest.base, tables.file(), base.step);
  reader.verify(0, reader.chunks());
  std::vector<std::shared_ptr<const RowOverlay>> changed;
  std::vector<std::shared_ptr<const KeyTable>> keys;
  for (const FrozenTables::Table& table : tables.tables()) {
    changed.push_back(same ? nullptr : detail::read_overlay(reader, table));
    keys.push_back(table.keys == nullptr
                       ? nullptr
                       : detail::read_keys(reader, table.keys_name, table.name, table.rows));
  }
  reader.check_unchanged();
  return tables.with(std::move(changed), std::move(keys), mark);
}

}  // namespace detail

}}  // namespace tessera::v0
