// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/jagged.hpp>
#include <tessera/core/table_spec.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace lab {

/// Every id of one feature, sample by sample.
struct FeatureIds {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> offsets;  ///< samples + 1

  std::int64_t samples() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
};

/// Reads recorded ids: a folder of FEATURE.values.npy and FEATURE.offsets.npy (without: one id a
/// sample), or a CSV or TSV file with a column for each feature. Throws tessera::DataError with the
/// file and the element or line.
std::vector<FeatureIds> read_ids(const std::string& path,
                                 const std::vector<tessera::FeatureSpec>& features,
                                 const std::vector<tessera::TableSpec>& tables,
                                 const std::vector<int>& feature_table);

/// What the steps of every case are given.
struct Batches {
  std::int64_t samples = 0;  ///< of a batch, over all ranks
  std::vector<std::vector<std::int64_t>> ids, offsets;
  std::vector<tessera::KeyedJagged<std::int64_t>> views;
  std::vector<double> hotness;   ///< ids per sample, by feature
  std::vector<double> distinct;  ///< rows that a batch touches, by table, the mean
  std::vector<double> given;     ///< ids of a batch, by table
  std::string source;
};

/// Cuts the first batches. `path`: of the ids, for errors. Throws tessera::DataError if there is not
/// one.
Batches batches_of(const std::vector<FeatureIds>& features, std::int64_t samples, int most,
                   const std::string& path);

/// Draws batches by power laws. `skew`: of tables that name none.
Batches draw_batches(const std::vector<tessera::FeatureSpec>& features,
                     const std::vector<tessera::TableSpec>& tables,
                     const std::vector<int>& feature_table, std::int64_t samples, int count,
                     double skew, bool sorted_ids, std::uint64_t seed);

/// Counts what each table is asked for.
void count_rows(Batches& batches, std::size_t tables, const std::vector<int>& feature_table);

/// The exponent of the power law by which so many ids touch so many of the rows; 0 to 4.
double fitted_skew(double ids, double rows, double distinct);

}  // namespace lab
