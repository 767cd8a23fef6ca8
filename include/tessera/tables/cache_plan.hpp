// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/io/direct_file.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/tables/rank_layout.hpp>
#include <tessera/tables/row_files.hpp>
#include <tessera/tables/table_files.hpp>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace tessera { inline namespace v0 { namespace detail {

/// Returns the name of the cache of an arena, for errors.
std::string cache_name(const Layout& layout, const ArenaPlan& plan, int rank);

/// Returns how many rows the cache of an arena holds: as its shards say, else by its share of the
/// memory for all that share it. `all_bytes`: of all those arenas' rows.
std::int64_t cache_slots(const Layout& layout, const ArenaPlan& plan, const TableFiles& files,
                         std::int64_t all_bytes);

/// Returns a name as a part of a file's name.
std::string file_name_of(std::string_view name);

/// A field of a row: its name, and its type as safetensors files name it.
struct FieldName {
  std::string_view name, type;
};

/// Makes the files of an arena's shards. `fields`: as in `format`.
void add_files(RowFiles& to, const TableFiles& files, const Layout& layout, const ArenaPlan& plan,
               int rank, const RecordFormat& format, std::span<const FieldName> fields);

#ifdef TESSERA_INLINE
TESSERA_INLINE std::string cache_name(const Layout& layout, const ArenaPlan& plan, int rank) {
  return formatted("the cache of '{}'{} on rank {}",
                   layout.tables[layout.shards[plan.shards[0]].table].name,
                   plan.shards.size() > 1 ? " and others" : "", rank);
}

TESSERA_INLINE std::int64_t cache_slots(const Layout& layout, const ArenaPlan& plan,
                                        const TableFiles& files, std::int64_t all_bytes) {
  const std::string_view table = layout.tables[layout.shards[plan.shards[0]].table].name;
  require(plan.tier != Tier::file || !files.folder.empty(),
          "EmbeddingCollection: table '{}' is OnFile; give Options::files.folder", table);
  if (plan.cache_rows != 0) return plan.cache_rows;
  require(files.cache_bytes > 0,
          "EmbeddingCollection: table '{}' is OnFile without a size for its cache; give "
          "Options::files.cache_bytes, or Cached<Rows, OnFile<...>>",
          table);
  const double share = static_cast<double>(files.cache_bytes) / static_cast<double>(all_bytes);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(share * static_cast<double>(plan.rows)),
                                  1, plan.rows);
}

TESSERA_INLINE std::string file_name_of(std::string_view name) {
  std::string text;
  for (const char c : name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
    text += plain ? std::string(1, c)
                  : formatted("%{:02x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
  }
  return text;
}

TESSERA_INLINE void add_files(RowFiles& to, const TableFiles& files, const Layout& layout,
                              const ArenaPlan& plan, int rank, const RecordFormat& format,
                              std::span<const FieldName> fields) {
  const int error = make_folders(files.folder);
  require<DataError>(error == 0, "cannot make the folder of table files '{}': {}", files.folder,
                     std::strerror(error));
  for (std::size_t i = 0; i < plan.segments.size(); ++i) {
    const Shard& shard = layout.shards[plan.shards[i]];
    const Rectangle& r = shard.rectangle;
    const std::string_view table = layout.tables[shard.table].name;
    std::map<std::string, std::string> about{
        {"table", std::string(table)},
        {"rows", formatted("{}-{}", r.row_begin, r.row_end)},
        {"columns", formatted("{}-{}", r.column_begin, r.column_end)}};
    for (std::size_t f = 0; f < fields.size(); ++f)
      about[std::string(fields[f].name)] = formatted(
          "{} at {}, {} bytes", fields[f].type, format.fields[f].offset, format.fields[f].bytes);
    const std::string name =
        formatted("{}.rank{}.rows{}-{}.columns{}-{}.safetensors", file_name_of(table), rank,
                  r.row_begin, r.row_end, r.column_begin, r.column_end);
    to.add(files.folder + (files.folder.ends_with('/') ? "" : "/") + name,
           plan.segments[i].row_offset, plan.segments[i].rows, format, about);
  }
}
#endif

}}}  // namespace tessera::v0::detail
