// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model.hpp"
#include "recorded_ids.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace plan {

/// The exponent of the power law by which so many ids touch so many of the rows; 0 to 4.
double fitted_skew(double ids, double rows, double distinct);

/// What recorded ids say of tables and features, as a file of statistics. `batch`: samples of a
/// step, over all ranks.
std::string statistics_text(const std::vector<FeatureIds>& ids,
                            const std::vector<tessera::FeatureSpec>& features,
                            const std::vector<tessera::TableSpec>& tables,
                            const std::vector<int>& feature_table, std::int64_t batch);

}  // namespace plan
