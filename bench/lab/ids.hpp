// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../../examples/tessera_plan/recorded_ids.hpp"

#include <tessera/core/jagged.hpp>
#include <tessera/core/table_spec.hpp>
#include <tessera/sharding/layout.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace lab {

/// What the steps of every case are given.
struct Batches {
  std::int64_t samples = 0;  ///< of a batch, over all ranks
  std::vector<std::vector<std::int64_t>> ids, offsets;
  std::vector<tessera::KeyedJagged<std::int64_t>> views;
  std::vector<double> hotness;   ///< ids per sample, by feature
  std::vector<double> distinct;  ///< rows that a batch touches, by table, the mean
  std::vector<double> given;     ///< ids of a batch, by table
  std::string source;
  std::uint64_t checksum = 0;  ///< of ids and offsets, and of the tables and features they are for
};

/// Cuts the first batches. `path`: of the ids, for errors. Throws tessera::DataError if there is not
/// one.
Batches batches_of(const std::vector<plan::FeatureIds>& features, std::int64_t samples, int most,
                   const std::string& path);

/// Draws batches by power laws, or as rows' frequencies say. `skew`: of tables that name none.
Batches draw_batches(const std::vector<tessera::FeatureSpec>& features,
                     const std::vector<tessera::TableSpec>& tables,
                     const std::vector<int>& feature_table, std::int64_t samples, int count,
                     double skew, bool sorted_ids, std::uint64_t seed);

/// Counts what each table is asked for, and works out the checksum.
void count_rows(Batches& batches, const tessera::Layout& layout);

}  // namespace lab
