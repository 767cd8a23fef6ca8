// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/sharding/layout.hpp>

#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

inline std::vector<std::string> names_of(std::size_t count) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i) names.push_back("t" + std::to_string(i));
  return names;
}

/// Sizes over many orders of magnitude, widths that do and do not divide, several features on some
/// tables.
struct RandomModel {
  std::vector<std::string> names;
  std::vector<tessera::TableSpec> tables;
  std::vector<tessera::FeatureSpec> features;
  explicit RandomModel(unsigned seed, std::size_t count) : names(names_of(2 * count)) {
    std::mt19937 random(seed);
    const auto pick = [&](int least, int most) {
      return std::uniform_int_distribution<int>(least, most)(random);
    };
    const int widths[] = {8, 12, 16, 20, 32, 64, 96, 128};
    for (std::size_t t = 0; t < count; ++t) {
      std::int64_t rows = pick(1, 9);
      for (int digits = pick(0, 7); digits > 0; --digits) rows = rows * 10 + pick(0, 9);
      tables.push_back({.name = names[t],
                        .rows = rows,
                        .width = widths[pick(0, 7)],
                        .hotness = static_cast<double>(pick(1, 20)),
                        .skew = pick(0, 1) == 0 ? -1 : 0.1 * pick(0, 15)});
      features.push_back({.name = names[t], .table = names[t]});
      if (pick(0, 3) == 0)
        features.push_back({.name = names[count + t],
                            .table = names[t],
                            .hotness = static_cast<double>(pick(1, 5))});
    }
  }
};

/// The cut of each table, seen from its rectangles.
inline std::string cut_of_table(const tessera::Layout& layout, std::string_view table) {
  std::set<std::int64_t> rows, columns;
  bool everywhere = false;
  for (const tessera::Shard& s : layout.shards) {
    if (layout.tables[s.table].name != table) continue;
    rows.insert(s.rectangle.row_begin);
    columns.insert(s.rectangle.column_begin);
    everywhere |= s.rank == tessera::every_rank;
  }
  if (everywhere) return "replicated";
  return std::to_string(rows.size()) + "x" + std::to_string(columns.size());
}
