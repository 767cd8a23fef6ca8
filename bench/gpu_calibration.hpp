// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Fits the cost model to GPUs, by the measurements that calibrate a host.
#pragma once

#include "../examples/tessera_plan/cluster_file.hpp"
#include "sharding.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace tessera::bench {

/// Cluster::bus_bandwidth: bytes a second that a device reads of rows of `rows` in its host's memory,
/// in lookups of bags of ten, `batch` of them.
template <class Run>
double bus_bandwidth(const Cluster& fitted, std::int64_t rows, std::int64_t batch, Run run) {
  constexpr int width = 64, bag = 10;
  const ShardingModel model = make_model("", batch, 0, {{1, rows, width, bag}});
  Cluster one = fitted;
  one.ranks = 1;
  Layout layout = layouts_of(model, one).front().layout;
  for (Shard& shard : layout.shards) shard.tier = Tier::host;
  const double ids = static_cast<double>(batch) * bag,
               seconds = run(layout, model.workload, 10).work.lookup - fitted.launch_seconds -
                         ids * fitted.lookup_seconds;
  require<Error>(seconds > 0, "lookups of rows in the host's memory took no longer than a launch");
  return ids * width * 4 / seconds;
}

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
  base.bus_bandwidth = bus_bandwidth(base, 4'000'000, 65'536, run);
  fmt::print("rows in the host's memory: {:.1f} GB/s over the bus\n", base.bus_bandwidth * 1e-9);
  base.directory_seconds = directory_seconds(Tier::host, 1'000'000, 65'536, run);
  fmt::print("an id of a table behind a cache: {:.1f} ns on the host\n",
             1e9 * base.directory_seconds);
  plan::Calibration machine = plan::this_machine();
  machine.processor = "GPUs beside " + machine.processor;
  plan::write_machine(folder, base, machine);
}

}  // namespace tessera::bench
