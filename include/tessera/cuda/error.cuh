// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/cuda/primitives.cuh>

namespace tessera::inline v0 {

/// A call of the CUDA runtime, or a kernel launch, that failed. CUDA reports some faults of kernels at a later call.
class CudaError : public Error {
 public:
  CudaError(cudaError_t code, const std::string& doing)
      : Error(fmt::format("{}: CUDA error {} ({})", doing, cudaGetErrorName(code), cudaGetErrorString(code))), code_(code) {}

  cudaError_t code() const noexcept { return code_; }

 private:
  cudaError_t code_;
};

namespace gpu {

/// Throws CudaError. CUDA also keeps the code as this thread's last error; whoever asks for that later, as CUB does after each of its
/// launches, would take it for an error of its own.
[[noreturn]] inline void fail(cudaError_t code, const std::string& doing) {
  static_cast<void>(cudaGetLastError());
  throw CudaError(code, doing);
}

/// Throws CudaError unless `code` is success. The text says what was being done.
template <class... Args>
void check(cudaError_t code, fmt::format_string<Args...> doing, Args&&... args) {
  if (code != cudaSuccess) fail(code, fmt::format(doing, std::forward<Args>(args)...));
}

}  // namespace gpu
}  // namespace tessera::inline v0
