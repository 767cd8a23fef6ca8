// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/jagged.hpp>
#include <tessera/core/matrix_view.hpp>

#include <cstdint>
#include <vector>

namespace tessera::inline v0 {

/// One batch of clicks, as readers and generators fill it and a trainer consumes it. Owns its memory; a refill reuses it.
template <IdType Id>
struct ClickBatch {
  std::int64_t size = 0;              ///< samples
  std::int64_t features = 0;          ///< categorical features
  std::int64_t dense_columns = 0;     ///< numbers per sample
  std::vector<float> labels;          ///< [size], 0 or 1
  std::vector<float> dense;           ///< [size, dense_columns], row-major
  std::vector<Id> ids;                ///< feature by feature, see KeyedJagged
  std::vector<std::int64_t> offsets;  ///< [features*size + 1], or empty: one id per bag

  /// The categorical part as embeddings take it. Valid until the batch is refilled.
  KeyedJagged<Id> keyed() const { return {.features = features, .batch = size, .ids = ids, .offsets = offsets, .weights = {}}; }
  MatrixView<const float> dense_view() const { return {dense.data(), size, dense_columns}; }
};

}  // namespace tessera::inline v0
