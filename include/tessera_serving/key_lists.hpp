// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/checkpoint/reader.hpp>
#include <tessera/core/error.hpp>
#include <tessera/io/safetensors.hpp>
#include <tessera_serving/model_description.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Returns for each row of a table the row that its key had in another one, -1: none.
inline std::vector<std::int64_t> rows_of_keys(const KeyList& before, const KeyList& now,
                                              std::int64_t rows) {
  const auto row = [](const KeyList& list, std::size_t i) {
    return list.rows.empty() ? static_cast<std::int64_t>(i) + 2 : std::int64_t{list.rows[i]};
  };
  std::unordered_map<std::int64_t, std::int64_t> had;
  for (std::size_t i = 0; i < before.keys.size(); ++i) had.emplace(before.keys[i], row(before, i));
  std::vector<std::int64_t> from(static_cast<std::size_t>(rows), -1);
  for (std::size_t i = 0; i < now.keys.size(); ++i)
    if (const auto found = had.find(now.keys[i]); found != had.end())
      from[static_cast<std::size_t>(row(now, i))] = found->second;
  return from;
}

/// Returns the keys of the tables whose rows are those of a list, by table, checked: every row is
/// one of the table's. Throws DataError for what is missing or does not fit the description.
inline std::map<std::string, KeyList> read_key_lists(CheckpointReader& reader,
                                                     const ModelDescription& model) {
  std::map<std::string, KeyList> lists;
  std::optional<SafetensorsReader> file;
  std::string bytes;
  for (const TableInput& table : model.tables) {
    if (table.rows_by != KeyRows::list) continue;
    const std::string name = (reader.folder() / ModelDescription::kKeysFile).string();
    if (!file) {
      bytes = reader.read_file(ModelDescription::kKeysFile);
      file.emplace(std::as_bytes(std::span(bytes)), name);
    }
    KeyList list{file->read<std::int64_t>(table.name + ".keys")};
    if (file->contains(table.name + ".rows"))
      list.rows = file->read<std::int32_t>(table.name + ".rows");
    const bool fits =
        list.rows.empty()
            ? std::ssize(list.keys) <= std::max<std::int64_t>(table.rows - 2, 0)
            : list.rows.size() == list.keys.size() &&
                  std::all_of(list.rows.begin(), list.rows.end(),
                              [&](std::int32_t row) { return row >= 0 && row < table.rows; });
    require<DataError>(fits, "file '{}': table '{}' of {} rows does not have the rows of {} keys",
                       name, table.name, table.rows, list.keys.size());
    lists.emplace(table.name, std::move(list));
  }
  return lists;
}

}}}  // namespace tessera::v0::detail
