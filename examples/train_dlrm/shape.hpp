// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/table_spec.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dlrm {

/// What a model must know of its data.
struct DataShape {
  struct Table {
    std::string name;
    std::int64_t rows;
    std::int32_t width = 0;      ///< 0: the options say
    std::int64_t min_count = 0;  ///< of a vocabulary's keys; 0: the options say
  };
  struct Feature {
    std::string name;
    std::size_t table;
    tessera::Pooling pooling = tessera::Pooling::sum;
    bool list = false;         ///< any number of ids per sample, else one
    std::int32_t hotness = 1;  ///< ids per sample, as the planner is told
    char separator = '|';      ///< between a list's entries, in texts
  };

  std::int64_t numbers = 13;  ///< per sample, at least 1
  std::vector<Table> tables;
  std::vector<Feature> features;

  /// Criteo's columns, or others of that shape: each category has one id and a table of its own.
  bool is_criteo() const {
    if (numbers != 13 || features.size() != 26 || tables.size() != 26) return false;
    for (std::size_t f = 0; f < features.size(); ++f)
      if (features[f].table != f || features[f].list) return false;
    return true;
  }
  bool has_lists() const {
    for (const Feature& feature : features)
      if (feature.list) return true;
    return false;
  }
};

/// 13 numbers and 26 categories, named C1..C26.
inline DataShape criteo_shape(const std::vector<std::int64_t>& rows) {
  DataShape shape;
  for (std::size_t f = 0; f < rows.size(); ++f) {
    shape.tables.push_back({"C" + std::to_string(f + 1), rows[f]});
    shape.features.push_back({shape.tables[f].name, f});
  }
  return shape;
}

}  // namespace dlrm
