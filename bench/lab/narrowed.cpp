// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "measure.hpp"

#include <tessera/core/error.hpp>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace lab {

using namespace tessera;

Layout narrowed(const Layout& layout) {
  std::map<int, int> widths;  // of shards, and what takes their place
  for (const Shard& shard : layout.shards) widths[shard.rectangle.width()] = 0;
  int next = 0;
  for (auto& [width, narrow] : widths) narrow = ++next;
  std::vector<std::set<int>> cuts(layout.tables.size());
  for (const Shard& shard : layout.shards) {
    cuts[static_cast<std::size_t>(shard.table)].insert(shard.rectangle.column_begin);
    cuts[static_cast<std::size_t>(shard.table)].insert(shard.rectangle.column_end);
  }
  std::vector<TableSpec> tables = layout.tables;
  std::vector<std::map<int, int>> places(tables.size());
  for (std::size_t t = 0; t < tables.size(); ++t) {
    int column = 0;
    for (auto cut = cuts[t].begin(); cut != cuts[t].end(); ++cut) {
      places[t][*cut] = column;
      if (const auto end = std::next(cut); end != cuts[t].end()) {
        const auto width = widths.find(*end - *cut);
        if (width == widths.end()) return layout;
        column += width->second;
      }
    }
    tables[t].width = column;
  }
  std::vector<Shard> shards = layout.shards;
  for (Shard& shard : shards) {
    const auto t = static_cast<std::size_t>(shard.table);
    Rectangle& r = shard.rectangle;
    const int narrow = widths.at(r.width());
    r.column_begin = places[t].at(r.column_begin);
    r.column_end = places[t].at(r.column_end);
    if (r.width() != narrow) return layout;  // other rows are cut at columns within
  }
  Layout result =
      make_layout(layout.topology, std::move(tables), layout.features, std::move(shards));
  require(result.fault.ok(), "narrowed: {}", describe(result.fault));
  return result;
}

}  // namespace lab
