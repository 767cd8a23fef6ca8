// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"
#include "shape.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace dlrm {

/// The data's shape, and what the options make a model of: every table has its width. Wide & Deep
/// (Cheng et al. 2016) has each table a second time with one column, "wide.NAME": `wide` features
/// that read those stand behind the others, and their values are added to the logit.
struct ModelShape : DataShape {
  bool criteo = false;          ///< the data are of Criteo's shape
  std::size_t data_tables = 0;  ///< the wide part's stand behind them
  std::size_t wide = 0;
  int stride = 1;  ///< neighbouring columns of the vectors that a concat averages
  bool bottom =
      true;  ///< numbers go through a bottom MLP; else the interaction gets them as they are
  /// of the bottom MLP's output, and of the vectors that a dot interaction multiplies
  std::int32_t vector_width = 0;

  std::int32_t width_of(const Feature& feature) const { return tables[feature.table].width; }
  /// Those but the wide part's.
  std::span<const Feature> deep() const {
    return std::span(features).first(features.size() - wide);
  }
  /// Of what stands before the features' vectors.
  std::int64_t first_columns() const { return bottom ? vector_width : numbers; }
  /// Of what the interaction reads: that, and the vectors of `deep` side by side.
  std::int64_t columns() const;
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
