// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera { inline namespace v0 {

/// Rows of a file that is no text, as fields of the text that a CSV file of them would hold.
struct RecordSource {
  std::vector<std::string> columns;  ///< the names of all columns, in the file's order
  /// Returns the next row's fields, valid until the next call; none at the end. Those of columns
  /// that are not wanted may be empty.
  std::function<std::span<const std::string_view>()> next;
};

/// A column that is read.
struct WantedColumn {
  std::string name;
  char list = 0;  ///< what separates a list's entries in its field; 0: the column is no list
};

/// Opens a file of rows, at row `first`, from 0; a source without `next`: the file is none of those
/// that it knows. Several threads call it at one time. Throws DataError, which names file, column
/// and type, for what it cannot read.
using OpenRecords = std::function<RecordSource(const std::filesystem::path&,
                                               std::span<const WantedColumn>, std::int64_t first)>;

namespace detail {

/// Returns whether a header's name is that of a column, or it and one of the types that RecBole
/// writes behind it, as in `user_id:token`.
inline bool names_column(std::string_view name, std::string_view column) {
  if (!name.starts_with(column)) return false;
  name.remove_prefix(column.size());
  for (const std::string_view type : {"", ":token", ":token_seq", ":float", ":float_seq"})
    if (name == type) return true;
  return false;
}

}  // namespace detail

}}  // namespace tessera::v0
