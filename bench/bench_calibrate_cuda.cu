// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Fits the cost model's constants to one GPU: what a rank does by itself (check, look up, merge,
// update; the rates of its memory). What takes several GPUs stays as dgx_a100 assumes it:
// bench_sharding_nccl --calibrate.
//   bench_calibrate_cuda [FOLDER]     writes machine.json and machine.hpp
#include "gpu_calibration.hpp"

#include <tessera/tessera.cuh>

#include <fmt/format.h>

#include <exception>

int main(int argc, char** argv) try {
  using namespace tessera;
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    fmt::print(stderr, "bench_calibrate_cuda: there is no GPU\n");
    return 77;
  }
  bench::calibrate_gpus({1}, dgx_a100(1), argc > 1 ? argv[1] : ".",
                        [](const Layout& layout, const Workload& workload, int steps) {
                          const gpu::Stream stream;
                          const Cuda backend({.stream = stream.get()});
                          BasicSelfCommunicator<CudaTransfer> self{CudaTransfer(backend)};
                          return bench::measure(self, layout, workload, steps, backend);
                        });
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "bench_calibrate_cuda: {}\n", error.what());
  return 1;
}
