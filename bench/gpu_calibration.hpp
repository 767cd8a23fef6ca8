// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Fits the cost model to GPUs, by the measurements that calibrate a host.
#pragma once

#include "../examples/tessera_plan/cluster_file.hpp"
#include "sharding.hpp"

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <vector>

namespace tessera::bench {

/// Fits `base` to plans on these numbers of ranks, by run(layout, workload, steps), and writes
/// machine.json and machine.hpp.
template <class Run>
void calibrate_gpus(std::initializer_list<int> ranks, Cluster base, const std::string& folder,
                    Run run) {
  // Next to no data: what is left is launches.
  const ShardingModel nothing = make_model("", 1, 0, {{1, 16, 16, 1}});
  Cluster one = base;
  one.ranks = 1;
  base.launch_seconds =
      run(layouts_of(nothing, one).front().layout, nothing.workload, 50).work.lookup;
  std::vector<ShardingModel> models = calibration_models();
  for (ShardingModel& m : models) m.workload.batch *= 8;  // a GPU has more to keep busy
  std::vector<Case> cases = cases_of(models, ranks, base);
  measure_in_turn(cases, run);
  base = fit(observations_of(cases), base);
  print_stages(cases, base);
  plan::Calibration machine = plan::this_machine();
  machine.processor = "GPUs beside " + machine.processor;
  plan::write_machine(folder, base, machine);
}

}  // namespace tessera::bench
