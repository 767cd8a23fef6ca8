// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Fits the cost model's constants to one GPU: what a rank does by itself (check, look up, merge, update; the rates of its memory). What
// takes several GPUs stays as dgx_a100 assumes it.
//   bench_calibrate_cuda [FOLDER]     writes machine.json and machine.hpp
#include "../examples/tessera_plan/cluster_file.hpp"
#include "sharding.hpp"

#include <tessera/tessera.cuh>

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <vector>

namespace {

using namespace tessera;
using namespace tessera::bench;

Measured measure_on_gpu(const Layout& layout, const Workload& workload, int steps) {
  const Cuda backend({.stream = cudaStreamPerThread});
  BasicSelfCommunicator<CudaMemory> self{CudaMemory(backend)};
  return measure(self, layout, workload, steps, backend);
}

}  // namespace

int main(int argc, char** argv) try {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    fmt::print(stderr, "bench_calibrate_cuda: there is no GPU\n");
    return 77;
  }
  Cluster base = dgx_a100(1);
  // Next to no data: what is left is launches.
  const ShardingModel nothing = make_model("", 1, 0, {{1, 16, 16, 1}});
  base.launch_seconds = measure_on_gpu(layouts_of(nothing, base).front().layout, nothing.workload, 50).work.lookup;
  std::vector<ShardingModel> models = calibration_models();
  for (ShardingModel& m : models) m.workload.batch *= 8;  // a GPU has more to keep busy
  std::vector<Case> cases = cases_of(models, {1}, base);
  measure_in_turn(cases, measure_on_gpu);
  base = fit(observations_of(cases), base);
  print_stages(cases, base);
  plan::write_machine(argc > 1 ? argv[1] : ".", base);
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_calibrate_cuda: {}\n", error.what());
  return 1;
}
