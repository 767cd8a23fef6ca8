// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/table_spec.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace plan {

/// Every id of one feature, sample by sample.
struct FeatureIds {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> offsets;  ///< samples + 1

  std::int64_t samples() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
};

/// Reads recorded ids: a folder of FEATURE.values.npy and FEATURE.offsets.npy (without: one id a
/// sample), a folder with a feature_spec.yaml, whose training samples are read, or a CSV or TSV file
/// with a column for each feature. `option`: that named them, for errors. Throws tessera::DataError with the
/// file and the element or line.
std::vector<FeatureIds> read_ids(const std::string& path, const char* option,
                                 const std::vector<tessera::FeatureSpec>& features,
                                 const std::vector<tessera::TableSpec>& tables,
                                 const std::vector<int>& feature_table);

}  // namespace plan
