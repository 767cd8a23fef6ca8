// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"
#include "shape.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace dlrm {

/// The data's shape, and what the options make a model of: every table has its width.
struct ModelShape : DataShape {
  /// of the bottom MLP's output, and of the vectors that a dot interaction multiplies
  std::int32_t vector_width = 0;

  std::int32_t width_of(const Feature& feature) const { return tables[feature.table].width; }
  /// Of the features' vectors, side by side.
  std::int64_t feature_columns() const;
  /// Of what the interaction reads: the bottom MLP's output, then those.
  std::int64_t columns() const { return vector_width + feature_columns(); }
  /// Whether all vectors of a sample have `vector_width` columns.
  bool one_width() const;
};

inline constexpr std::int32_t kMostWidth = 1024;

/// The width that `auto` gives a table: 6 rows^(1/4) (Wang et al. 2017, "Deep & Cross Network for
/// Ad Click Predictions"), taken to the nearest power of two from 8 to 128, whose kernels are
/// compiled.
std::int32_t auto_width(std::int64_t rows);

/// "16", a list "8,16,16", one width for each table, or "auto": then none. Throws InvalidArgument.
std::vector<std::int32_t> parse_widths(std::string_view text);

/// Throws InvalidArgument where there are not as many widths as tables.
ModelShape model_shape(const Options& options, const DataShape& data);

}  // namespace dlrm
