// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../../examples/tessera_plan/cluster_file.hpp"
#include "../../examples/tessera_plan/model.hpp"
#include "run_lab.hpp"

#include <tessera/planner/cut_options.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lab {

/// The command line, with what the model file says where it is silent.
struct Settings {
  std::string program, model_file, model_name, ids, statistics, cluster, out = "lab", compare;
  std::vector<std::string> plans{"auto", "table-wise", "column-wise", "row-wise"};
  std::vector<std::string> ranks{"2"};
  std::vector<std::string> axes, optimizers{"rowwise-adagrad"}, codecs{"fp32"}, precisions{"fp32"};
  std::string optimizer = "rowwise-adagrad", which = "all";
  std::int64_t batch = 0;
  int width = 128, batches = 4, steps = 12, rounds = 5;
  std::uint64_t seed = 1;
  double skew = -1;
  bool resume = false;

  plan::Model model;
  plan::Constants constants;
  tessera::detail::PlanConstraints constraints{};
  std::vector<std::string> pins, pin_places, forbidden;
  std::vector<NamedPolicy> policies;

  bool has_axis(const std::string& name) const;
};

/// One of --ranks: a number of thread ranks, or ghost:N.
struct RankChoice {
  int ranks = 1;
  bool ghosts = false;
};
RankChoice rank_choice(const std::string& text);

/// Reads the command line and the model. No value: help or the version was printed. Throws
/// CLI::Error for a wrong command line, tessera::Error for wrong files.
std::optional<Settings> read_settings(int argc, const char* const* argv,
                                      const std::vector<NamedPolicy>& policies,
                                      const std::string& program);

}  // namespace lab
