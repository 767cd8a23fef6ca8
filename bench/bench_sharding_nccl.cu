// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The plans of bench_sharding on all GPUs of this machine, a thread and an NCCL rank each; or the
// cost model's constants, fitted to them.
//   bench_sharding_nccl [Google Benchmark's options]
//   bench_sharding_nccl --calibrate [FOLDER]     writes machine.json and machine.hpp
#include "gpu_calibration.hpp"

#include <tessera/comm/nccl_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/tessera.cuh>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string_view>
#include <utility>

namespace {

using namespace tessera;

/// What rank 0's f(communicator, backend) answers, called on a thread for each of the first GPUs.
template <class F>
auto on_gpus(int ranks, F f) {
  decltype(f(std::declval<NcclCommunicator&>(), std::declval<const Cuda&>())) result{};
  run_ranks(ranks, [&](ThreadCommunicator& threads) {
    gpu::check(cudaSetDevice(threads.rank()), "choosing GPU {}", threads.rank());
    const gpu::Stream stream;
    const Cuda backend({.stream = stream.get()});
    NcclCommunicator communicator(share_nccl_id(threads), threads.rank(), ranks,
                                  {.stream = stream.get()});
    auto mine = f(communicator, backend);
    if (threads.rank() == 0) result = std::move(mine);
  });
  return result;
}

bench::Measured measure_on_gpus(const Layout& layout, const Workload& workload, int steps) {
  return on_gpus(layout.ranks(), [&](NcclCommunicator& c, const Cuda& backend) {
    return bench::measure(c, layout, workload, steps, backend);
  });
}

}  // namespace

int main(int argc, char** argv) try {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices < 2) {
    fmt::print(stderr, "bench_sharding_nccl: needs two GPUs or more, there are {}\n", devices);
    return 77;
  }
  Cluster base = dgx_a100(devices);
  if (argc > 1 && std::string_view(argv[1]) == "--calibrate") {
    const auto collective = [](int ranks) {
      return on_gpus(ranks, [](NcclCommunicator& c, const Cuda& backend) {
        return bench::collective_seconds(c, backend);
      });
    };
    // t(ranks) = launch + (ranks - 1) latency
    base.node_latency = devices == 2
                            ? collective(2)
                            : std::max(0.0, collective(devices) - collective(2)) / (devices - 2);
    bench::calibrate_gpus({1, 2, devices}, base, argc > 2 ? argv[2] : ".", measure_on_gpus);
    return 0;
  }
  bench::register_plans("nccl", devices, base, measure_on_gpus);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_sharding_nccl: {}\n", error.what());
  return 1;
}
