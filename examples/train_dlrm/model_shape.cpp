// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "model_shape.hpp"

#include <tessera/core/error.hpp>
#include <tessera_data/synthetic_models.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <system_error>

namespace dlrm {

std::int64_t ModelShape::columns() const {
  std::int64_t columns = first_columns();
  for (const Feature& feature : deep()) columns += width_of(feature);
  return columns;
}

bool ModelShape::one_width() const {
  return std::ranges::all_of(deep(), [&](const Feature& f) { return width_of(f) == vector_width; });
}

std::int32_t auto_width(std::int64_t rows) {
  const double rule = 6 * std::pow(static_cast<double>(rows), 0.25);
  std::int32_t width = 8;
  while (width < 128 && rule / width > 2 * width / rule) width *= 2;
  return width;
}

std::vector<std::int32_t> parse_widths(std::string_view text) {
  std::vector<std::int32_t> widths;
  if (text == "auto") return widths;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    std::int32_t width = 0;
    const auto [last, error] = std::from_chars(word.data(), word.data() + word.size(), width);
    tessera::require(error == std::errc() && last == word.data() + word.size() && width >= 1 &&
                         width <= kMostWidth,
                     "'{}' in '{}' is not a width from 1 to {}; give one, one for each table with "
                     "a comma between two, or auto",
                     word, text, kMostWidth);
    widths.push_back(width);
    begin = end + 1;
  }
  return widths;
}

ModelShape model_shape(const Options& options, const DataShape& data) {
  ModelShape shape{data};
  shape.criteo = data.is_criteo();
  shape.data_tables = data.tables.size();
  const std::vector<std::int32_t> widths = parse_widths(options.embedding_width);
  tessera::require(widths.size() <= 1 || widths.size() == shape.tables.size(),
                   "--embedding-width has {} widths, and these data {} tables ('{}' to '{}'); give "
                   "one for each, or one for all",
                   widths.size(), shape.tables.size(), shape.tables.front().name,
                   shape.tables.back().name);
  std::int32_t widest = 0;
  for (std::size_t t = 0; t < shape.tables.size(); ++t) {
    DataShape::Table& table = shape.tables[t];
    if (table.width == 0)  // else the schema says it
      table.width = widths.empty()       ? auto_width(table.rows)
                    : widths.size() == 1 ? widths[0]
                                         : widths[t];
    widest = std::max(widest, table.width);
  }
  shape.vector_width = options.interaction_width == 0 ? widest : options.interaction_width;
  if (!options.synthetic_model.empty()) {
    shape.bottom = false;
    shape.stride = tessera::synthetic_model(options.synthetic_model).stride;
  }
  if (options.model != "wide-deep") return shape;
  shape.bottom = false;
  shape.wide = data.features.size();
  for (const DataShape::Table& table : data.tables)
    shape.tables.push_back({"wide." + table.name, table.rows, 1});
  for (DataShape::Feature feature : data.features) {
    feature.name = "wide." + feature.name;
    feature.table += shape.data_tables;
    shape.features.push_back(feature);
  }
  return shape;
}

}  // namespace dlrm
