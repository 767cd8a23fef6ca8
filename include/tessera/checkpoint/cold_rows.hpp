// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/contents.hpp>
#include <tessera/checkpoint/reader.hpp>
#include <tessera/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera { inline namespace v0 {

/// A ColdRows' part of one save: takes a copy of what this rank keeps, adds it to the contents as
/// tensors NAME.TABLE.keys, [n, 2]: key and age, and NAME.TABLE.rows, [n, bytes], and keeps it until
/// it has been saved. The store may go on meanwhile. Give it a copy of the contents that are loaded:
/// which tables have such rows changes.
template <class ColdRows>
class SavedColdRows {
 public:
  SavedColdRows(CheckpointContents& contents, const ColdRows& cold,
                const std::string& name = "cold_rows") {
    for (const std::int64_t table : cold.tables()) {
      const typename ColdRows::Records& r = records_.emplace_back(cold.export_records(table));
      contents.add_rows<std::int64_t>(detail::formatted("{}.{}.keys", name, table), 2, r.keys,
                                      name);
      contents.add_rows<std::uint8_t>(detail::formatted("{}.{}.rows", name, table), r.row_bytes,
                                      r.rows, name);
    }
  }
  SavedColdRows(const SavedColdRows&) = delete;
  SavedColdRows& operator=(const SavedColdRows&) = delete;

 private:
  std::deque<typename ColdRows::Records> records_{};
};

/// Restores an empty ColdRows from a checkpoint's folder, on any number of ranks and under any
/// plan: each rank reads all records and keeps the rows of its share of the keys. Call it after
/// load_checkpoint, which verifies the files; its LoadOptions::extra needs "cold_rows.*". Throws
/// DataError for what is broken, InvalidArgument for rows of other widths, elements or optimizers.
template <class ColdRows, class Collection>
void load_cold_rows(const std::filesystem::path& folder, ColdRows& cold,
                    const Collection& collection, const std::string& name = "cold_rows") {
  require(cold.size() == 0, "load_cold_rows: {} keys are here already; give an empty ColdRows",
          cold.size());
  CheckpointReader reader(folder);
  ColdRows loaded = cold;  // `cold` stays empty if something is refused
  for (std::int64_t table = 0; table < std::ssize(collection.layout().tables); ++table) {
    const std::string keys_name = detail::formatted("{}.{}.keys", name, table),
                      rows_name = detail::formatted("{}.{}.rows", name, table);
    if (reader.manifest().find(keys_name) == nullptr) continue;
    const detail::StoredTensor& keys = reader.tensor(keys_name);
    const detail::StoredTensor& rows = reader.tensor(rows_name);
    require<DataError>(
        keys.type == detail::TensorType::i64 && keys.columns() == 2 &&
            rows.type == detail::TensorType::u8 && rows.rows() == keys.rows(),
        "checkpoint '{}': tensors '{}' and '{}' must be I64 [n, 2] and U8 [n, bytes]",
        folder.string(), keys_name, rows_name);
    typename ColdRows::Records records{.row_bytes = rows.columns()};
    const std::int64_t at_once = std::max<std::int64_t>(
        1, (std::int64_t{1} << 24) / std::max<std::int64_t>(1, rows.columns()));
    for (std::int64_t begin = 0; begin < rows.rows(); begin += at_once) {
      const std::int64_t count = std::min(at_once, rows.rows() - begin);
      records.keys.resize(static_cast<std::size_t>(2 * count));
      records.rows.resize(static_cast<std::size_t>(count * rows.columns()));
      reader.read_rows(keys, begin, count, std::as_writable_bytes(std::span(records.keys)).data());
      reader.read_rows(rows, begin, count, std::as_writable_bytes(std::span(records.rows)).data());
      loaded.import_records(table, records, collection);
    }
  }
  cold = std::move(loaded);
}

}}  // namespace tessera::v0
