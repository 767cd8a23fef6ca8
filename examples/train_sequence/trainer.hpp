// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../support/step_graph.hpp"
#include "data.hpp"
#include "options.hpp"

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sequence {

/// What a test says; NaN: of the other model.
struct Quality {
  double hr10 = NAN, ndcg10 = NAN, mrr = NAN;
  double hr10_sampled = NAN, ndcg10_sampled = NAN;  ///< among at most 100 unseen items
  double auc = NAN;
};

struct Result {
  Quality test;
  std::vector<std::pair<int, Quality>> validations;  ///< after so many epochs
  double seconds = 0, samples_per_second = 0, tokens_per_second = 0;
  double loss = NAN;        ///< mean of the last epoch
  std::string predictions;  ///< lines, of the test, if asked for
  int best_epoch = 0;       ///< of --epochs auto
  std::int64_t steps = 0, dense_parameters = 0, embedding_parameters = 0;
  support::GraphCounts graph;  ///< of the first rank
};

/// Returns the options with what was not given as the data ask for.
Options settled(Options options, const Data& data);

/// Trains on ranks that are threads. Throws what the first rank threw.
Result train(const Options& options, const Data& data);

}  // namespace sequence
