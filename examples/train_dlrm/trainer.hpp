// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "clicks.hpp"
#include "options.hpp"
#include "ranks.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace dlrm {

struct Result {
  double auc = 0, logloss = 0;
  double best_auc = 0;  ///< what no model can surpass; NaN if unknown
  double seconds = 0, samples_per_second = 0;
  std::int64_t steps = 0;
  std::int64_t dense_parameters = 0, embedding_parameters = 0;
  /// of each category: its ids exchanged between samples; the last: of all categories
  std::vector<double> auc_without;
};

/// Trains, tests, prints what happens. The result is that of the process of rank 0. Throws what the
/// first rank that failed here threw.
Result train(const Options& options, const Clicks& clicks, Ranks& ranks);

}  // namespace dlrm
