// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model.hpp"

#include <tessera/planner/explain_plan.hpp>
#include <tessera/planner/plan_layout.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace plan {

/// One plan and what is predicted for it.
struct Candidate {
  std::string name;
  tessera::detail::PlanChoice choice;
  tessera::Layout layout;
  tessera::detail::Prediction prediction;
  bool fits = true;
};

struct Report {
  const Model& model;
  tessera::Cluster cluster;
  tessera::Workload workload;
  std::string source;                     ///< of the cluster's constants
  bool measured = false;                  ///< they were
  std::string optimizer;                  ///< of tables: the name of its class
  bool constrained = false;               ///< there are pins or forbidden cuts
  std::vector<Candidate> candidates{};    ///< the planner's first, then the plain strategies
  tessera::detail::RunnerUp runner_up{};  ///< of these
  std::vector<tessera::detail::CutReason>
      reasons{};  ///< of the tables that are shown, largest first

  const Candidate& chosen() const { return candidates.front(); }
};

/// The largest tables first, at most `most`.
std::vector<int> largest_tables(const Model& model, const tessera::Workload& workload,
                                std::size_t most);

/// "all", or the ranks: "0-7,12,14"; many are cut short.
std::string ranks_text(const Report& report, int table);

/// "item, history x 50": the features that read a table, with the ids per sample of each that has
/// more or less than one.
std::string features_text(const Report& report, int table);

/// ", and 1.0 GiB on the host", of the fullest rank: what is not in the memory of devices.
std::string elsewhere_text(const tessera::detail::Prediction& prediction);

/// For a terminal: the plan's tables with the reasons of their cuts, the comparison, and what the
/// prediction is worth.
std::string text_of(const Report& report);

/// A header with `using Plan = ...` in a namespace: the same rectangles on the same ranks. Beside it
/// the optimizer that was planned for, the cluster and the batch.
std::string header_of(const Report& report, const std::string& name_space);

/// The plan's rectangles coloured by rank, memory and predicted time of every rank: a picture of
/// its own.
std::string svg_of(const Report& report);

/// The picture, the traffic matrix, the comparison and the tables on one page that needs nothing
/// else.
std::string page_of(const Report& report);

/// The most ranks of a page or a picture.
inline constexpr int kMostDrawnRanks = 1024;

}  // namespace plan
