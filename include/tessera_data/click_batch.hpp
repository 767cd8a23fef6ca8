// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/jagged.hpp>
#include <tessera/core/matrix_view.hpp>

#include <cstdint>
#include <vector>

namespace tessera { inline namespace v0 {

/// One batch of clicks, as readers and generators fill it and a trainer consumes it. Owns its
/// memory; a refill reuses it. Who fills it by hand sets size and features too: `keyed()` counts by
/// them, not by the vectors. A rank fills it with its own part of the global batch.
template <IdType Id>
struct ClickBatch {
  std::int64_t size = 0;           ///< samples
  std::int64_t features = 0;       ///< categorical features
  std::int64_t dense_columns = 0;  ///< numbers per sample
  std::vector<float> labels;       ///< [size], 0 or 1
  std::vector<float> dense;        ///< [size, dense_columns], row-major
  /// all samples of feature 0, then all of feature 1, ...: see KeyedJagged
  std::vector<Id> ids;
  /// [features*size + 1]: bag (f, s) begins at offsets[f*size + s]; or empty: one id per bag
  std::vector<std::int64_t> offsets;

  /// Returns the categorical part as embeddings take it, without weights. Valid until the batch is
  /// refilled. Checks nothing: `forward` does.
  KeyedJagged<Id> keyed() const {
    return {.features = features, .batch = size, .ids = ids, .offsets = offsets, .weights = {}};
  }
  /// Returns the numbers [size, dense_columns]. Valid until the batch is refilled.
  MatrixView<const float> dense_view() const { return {dense.data(), size, dense_columns}; }
};

}}  // namespace tessera::v0
