// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Random tables cut into random rectangles on random ranks.
#pragma once

#include <tessera/sharding/layout.hpp>

#include <cstddef>
#include <random>
#include <vector>

namespace random_layouts {

using namespace tessera;

using Random = std::mt19937;
inline int pick(Random& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

struct Model {
  std::vector<TableSpec> tables;
  std::vector<FeatureSpec> features;
};

inline constexpr const char* kTableNames[] = {"t0", "t1", "t2", "t3", "t4"};
inline constexpr const char* kFeatureNames[] = {"f0", "f1", "f2", "f3", "f4", "f5", "f6"};

inline Model random_model(Random& random, bool weights) {
  Model model;
  constexpr int kWidths[] = {1, 3, 4, 8, 16, 17, 20, 32, 48};
  // tables of one width share an arena
  const int common_width = pick(random, 0, 2) == 0 ? kWidths[pick(random, 0, 8)] : 0;
  for (int t = pick(random, 1, 5); t-- > 0;)
    model.tables.push_back({kTableNames[t],
                            pick(random, 0, 3) == 0 ? pick(random, 1, 3) : pick(random, 4, 60),
                            common_width != 0 ? common_width : kWidths[pick(random, 0, 8)]});
  for (int f = pick(random, 1, 7); f-- > 0;)
    model.features.push_back(
        {kFeatureNames[f],
         model.tables[pick(random, 0, static_cast<int>(model.tables.size()) - 1)].name,
         static_cast<Pooling>(pick(random, 0, 2)), weights && pick(random, 0, 1) == 1});
  return model;
}

/// Cuts a rectangle again and again, by rows or by columns.
inline void cut(Random& random, const Rectangle& r, int depth, std::vector<Rectangle>& out) {
  const int how = depth == 0 ? 0 : pick(random, 0, 2);
  if (how == 1 && r.rows() > 1) {
    Rectangle a = r, b = r;
    a.row_end = b.row_begin = r.row_begin + pick(random, 1, static_cast<int>(r.rows()) - 1);
    cut(random, a, depth - 1, out);
    cut(random, b, depth - 1, out);
  } else if (how == 2 && r.width() > 1) {
    Rectangle a = r, b = r;
    a.column_end = b.column_begin =
        r.column_begin + (pick(random, 0, 1) == 0 ? r.width() / 2 : pick(random, 1, r.width() - 1));
    cut(random, a, depth - 1, out);
    cut(random, b, depth - 1, out);
  } else {
    out.push_back(r);
  }
}

/// The last: halves of columns, some of them copied to all ranks; tables of one width meet in one
/// arena, whether they have copies or not.
enum class Shape { whole, columns, any, replicated, copied_halves };

inline Layout random_layout(Random& random, const Model& model, int ranks, Shape shape) {
  std::vector<Shard> shards;
  for (std::size_t t = 0; t < model.tables.size(); ++t) {
    const TableSpec& table = model.tables[t];
    std::vector<Rectangle> rectangles;
    const Rectangle full{0, table.rows, 0, table.width};
    if (shape == Shape::any || shape == Shape::replicated)
      cut(random, full, 3, rectangles);
    else if ((shape == Shape::columns || shape == Shape::copied_halves) && table.width > 1) {
      const int at = shape == Shape::copied_halves || pick(random, 0, 1) == 0
                         ? table.width / 2
                         : pick(random, 1, table.width - 1);
      rectangles = {{0, table.rows, 0, at}, {0, table.rows, at, table.width}};
    } else {
      rectangles = {full};
    }
    for (const Rectangle& r : rectangles)
      shards.push_back({static_cast<int>(t), r,
                        (shape == Shape::replicated && pick(random, 0, 1)) ||
                                (shape == Shape::copied_halves && pick(random, 0, 3) == 0)
                            ? every_rank
                            : pick(random, 0, ranks - 1)});
  }
  return make_layout({ranks}, model.tables, model.features, shards);
}

}  // namespace random_layouts
