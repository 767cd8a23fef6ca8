// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model_shape.hpp"
#include "options.hpp"

#include <tessera/sharding/cluster.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/sharding/plan.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dlrm {

inline constexpr int kFeatures = 26;
/// Widths of dot interactions of 27 vectors that are compiled.
inline constexpr std::array<int, 5> kWidths{8, 16, 32, 64, 128};
inline constexpr std::array<std::string_view, 9> kPlans{"table-wise",  "column-wise", "row-wise",
                                                        "interleaved", "hot-rows",    "grid",
                                                        "replicated",  "mixed",       "auto"};

/// Works the plan of the options out, or reads it from --plan-file, for the model's tables, whose
/// names it keeps as views, on so many ranks. `auto`, and `mixed` of data that are not of Criteo's
/// shape, search for the plan whose predicted step is shortest (docs/cost_model.md). Under
/// --device-memory some tables are OnHost, under --table-files OnFile. Throws
/// tessera::InvalidArgument for an unknown plan.
tessera::Layout make_layout(const Options& options, int ranks, const ModelShape& shape);

/// Transfers of table files under way at a time: what bench_sharding found best on this machine,
/// else TableFiles's own.
int file_queue_depth();

/// What the ranks of a layout send each other in a step, as the planner predicts it.
struct StepTraffic {
  std::vector<double> ids, vectors;  ///< bytes [from * ranks + to]
  tessera::Cluster cluster;          ///< with these constants,
  std::string source;                ///< which come from here
};
StepTraffic step_traffic(const Options& options, const tessera::Layout& layout);

/// Of plan `auto`: why each table is cut as it is, the predicted step by its parts, the next best
/// plan, and where the constants of the prediction come from. Empty for other plans.
std::string explain_plan(const Options& options, const tessera::Layout& layout);

}  // namespace dlrm
