// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model.hpp"

#include <tessera/sharding/plan_layout.hpp>

#include <string>
#include <vector>

namespace plan {

/// One plan and what is predicted for it.
struct Candidate {
  std::string name;
  tessera::PlanChoice choice;
  tessera::Layout layout;
  tessera::Prediction prediction;
  bool fits = true;
};

struct Report {
  const Model& model;
  tessera::Cluster cluster;
  tessera::Workload workload;
  std::vector<Candidate> candidates;  ///< the planner's first, then the plain strategies

  const Candidate& chosen() const { return candidates.front(); }
};

/// For a terminal: the plan's tables (at most `most_tables`, largest first), ranks, and the comparison.
std::string text_of(const Report& report, std::size_t most_tables);

/// A header with `using Plan = ...`: the same rectangles on the same ranks.
std::string header_of(const Report& report);

/// The plan's rectangles coloured by rank, memory and predicted time of every rank: a picture of its own.
std::string svg_of(const Report& report);

/// The picture, the traffic matrix, the comparison and the tables on one page that needs nothing else.
std::string page_of(const Report& report);

std::string bytes_text(double bytes);

}  // namespace plan
