// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/error.cuh>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace tessera { inline namespace v0 { namespace gpu {

/// How a kernel is launched: blocks, threads of a block, dynamic shared memory in bytes, stream.
struct LaunchShape {
  std::int64_t blocks = 0;
  int threads = 0;
  std::size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};

/// Returns the number of pieces of `size` that cover `count`.
TESSERA_HOST_DEVICE constexpr std::int64_t ceil_divide(std::int64_t count, std::int64_t size) {
  return (count + size - 1) / size;
}

/// Throws CudaError that names the kernel, its grid, block and shared memory.
inline void check_kernel(cudaError_t code, std::string_view doing, std::string_view name,
                         const LaunchShape& shape) {
  if (code != cudaSuccess)
    fail(code,
         tessera::detail::formatted("{} {} (grid {}, block {}, {} bytes of dynamic shared memory)",
                                    doing, name, shape.blocks, shape.threads, shape.shared_bytes));
}

// A kernel that needs no template parameter begins with `template <int = 0>`: as a template it is
// compiled only into programs that launch it, and may be in several files of one program.

/// Launches `kernel(arguments...)`: the only place that launches. No blocks: nothing to do. Throws
/// CudaError that names the kernel, its grid, block and shared memory. With TESSERA_CUDA_CHECK=1
/// the host waits before and after it, unless the stream is captured: what the stream met earlier
/// (a copy, a kernel of CUB, cuBLASLt or NCCL) and what the kernel meets are told apart.
template <class... Parameters, class... Arguments>
void launch(std::string_view name, const LaunchShape& shape, void (*kernel)(Parameters...),
            Arguments&&... arguments) {
  if (shape.blocks == 0) return;
  require(shape.blocks > 0 && shape.blocks <= INT32_MAX,
          "kernel {}: {} blocks; a grid holds 1..2147483647", name, shape.blocks);
  const bool checked = checks_launches() && !capturing(shape.stream);
  if (checked)
    check_kernel(cudaStreamSynchronize(shape.stream), "work of the stream before kernel", name,
                 shape);
  constexpr std::size_t free_for_all = 48 * 1024;
  if (shape.shared_bytes > free_for_all)
    check_kernel(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(shape.shared_bytes)),
                 "kernel", name, shape);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = shape.stream;
  // It returns what the launch met. cudaGetLastError would add what other calls of this thread have
  // met.
  check_kernel(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), "kernel",
               name, shape);
  if (checked) check_kernel(cudaStreamSynchronize(shape.stream), "running kernel", name, shape);
}

}}}  // namespace tessera::v0::gpu
