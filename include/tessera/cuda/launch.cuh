// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/error.cuh>

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera::inline v0::gpu {

/// How a kernel is launched: blocks, threads of a block, dynamic shared memory in bytes, stream.
struct LaunchShape {
  std::int64_t blocks = 0;
  int threads = 0;
  std::size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};

/// The number of pieces of `size` that cover `count`.
TESSERA_HOST_DEVICE constexpr std::int64_t ceil_divide(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

/// Launches `kernel(arguments...)`: the only place that launches. No blocks: nothing to do. Throws CudaError that names the kernel,
/// its grid, block and shared memory.
template <class... Parameters, class... Arguments>
void launch(std::string_view name, const LaunchShape& shape, void (*kernel)(Parameters...), Arguments&&... arguments) {
  if (shape.blocks == 0) return;
  require(shape.blocks > 0 && shape.blocks <= INT32_MAX, "kernel {}: {} blocks; a grid holds 1..2147483647", name, shape.blocks);
  const auto check_launch = [&](cudaError_t code) {
    check(code, "kernel {} (grid {}, block {}, {} bytes of dynamic shared memory)", name, shape.blocks, shape.threads, shape.shared_bytes);
  };
  constexpr std::size_t free_for_all = 48 * 1024;
  if (shape.shared_bytes > free_for_all)
    check_launch(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes)));
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = shape.stream;
  // It returns what the launch met. cudaGetLastError would add what other calls of this thread have met.
  check_launch(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace tessera::inline v0::gpu
