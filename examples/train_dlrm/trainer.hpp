// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../support/step_graph.hpp"
#include "clicks.hpp"
#include "options.hpp"
#include "ranks.hpp"
#include "run_log.hpp"

#include <tessera/tables/cache_counters.hpp>

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace dlrm {

/// What `Result::latencies` holds.
inline constexpr std::array<std::size_t, 3> kPercentiles{50, 95, 99};

/// What the test samples say about the model.
struct Quality {
  double auc = 0, logloss = 0;
  double normalized_entropy = 0;  ///< log loss over that of the mean label; NaN without both labels
  double calibration = 0;  ///< sum of probabilities over sum of labels; NaN without positives
};

struct Result {
  Quality quality;
  std::vector<std::pair<std::int64_t, Quality>> evaluations;  ///< of the training, by step
  std::vector<float> predictions;     ///< of the test samples in their order, if asked for
  std::array<double, 3> latencies{};  ///< --mode inference: percentiles 50, 95, 99, in seconds
  double best_auc = 0;                ///< what no model can surpass; NaN if unknown
  double seconds = 0, samples_per_second = 0;
  std::int64_t steps = 0;
  std::int64_t dense_parameters = 0, embedding_parameters = 0;
  tessera::detail::CacheCounters cache;  ///< of this rank's tables in files
  support::GraphCounts graph;            ///< of the first rank
  /// of each category: its ids exchanged between samples; the last: of all categories
  std::vector<double> auc_without;
  std::string fault;  ///< what the training could not write: the last checkpoint, --trace
};

/// Trains, tests, prints what happens. The result is that of the process of rank 0, where `log`,
/// if given, gets what happens, too. Throws what the first rank that failed here threw.
Result train(const Options& options, const Clicks& clicks, Ranks& ranks, RunLog* log = nullptr);

}  // namespace dlrm
