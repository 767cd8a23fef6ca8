// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/cuda/primitives.cuh>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace tessera { inline namespace v0 {

/// A call of the CUDA runtime, or a kernel launch, that failed. CUDA reports some faults of kernels
/// at a later call.
class CudaError : public Error {
 public:
  CudaError(cudaError_t code, const std::string& doing)
      : Error(detail::formatted("{}: CUDA error {} ({})", doing, cudaGetErrorName(code),
                                cudaGetErrorString(code))),
        code_(code) {}

  cudaError_t code() const noexcept { return code_; }

 private:
  cudaError_t code_;
};

namespace gpu {

/// Throws CudaError. CUDA also keeps the code as this thread's last error; code that asks for it
/// later, as CUB does after each of its launches, would take it for an error of its own.
[[noreturn]] inline void fail(cudaError_t code, const std::string& doing) {
  static_cast<void>(cudaGetLastError());
  throw CudaError(code, doing);
}

/// Throws CudaError unless `code` is success. The text says what was being done.
template <class... Args>
void check(cudaError_t code, tessera::detail::FormatText<Args...> doing, const Args&... args) {
  if (code != cudaSuccess) fail(code, tessera::detail::formatted<Args...>(doing, args...));
}

/// Returns whether the environment variable TESSERA_CUDA_CHECK is set, and not to 0; it is read
/// once. Then launches wait for their kernels and name the one that failed, and frees that fail are
/// printed. It makes programs slow and changes no result.
inline bool checks_launches() {
  static const bool on = [] {
    const char* const value = std::getenv("TESSERA_CUDA_CHECK");
    return value != nullptr && !std::string_view(value).empty() && std::string_view(value) != "0";
  }();
  return on;
}

/// Prints the error, for what cannot throw, as destructors. The error is not left for the next call
/// of this thread that asks for the last one; TESSERA_CUDA_CHECK prints it.
inline void report(cudaError_t code, const char* doing) noexcept {
  if (code == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  if (checks_launches())
    std::fprintf(stderr, "tessera: %s: CUDA error %s (%s)\n", doing, cudaGetErrorName(code),
                 cudaGetErrorString(code));
}

/// Returns whether work of the stream goes into a graph. False if CUDA does not say: the next
/// call on the stream meets the same error.
inline bool capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(stream, &status) == cudaSuccess)
    return status != cudaStreamCaptureStatusNone;
  static_cast<void>(cudaGetLastError());
  return false;
}

/// Throws CudaError while the stream is captured. An allocation would become a node of the graph,
/// and its memory valid inside replays alone. Called before memory is freed in order to grow, so
/// that a refused growth loses nothing.
inline void refuse_growth_of_capture(cudaStream_t stream, std::size_t bytes) {
  if (capturing(stream))
    fail(cudaErrorStreamCaptureUnsupported,
         tessera::detail::formatted(
             "allocating {} bytes of device memory while the stream is captured: run the "
             "largest batch once before capturing "
             "(docs/gpu/README.md, A step as a CUDA graph)",
             bytes));
}

/// Throws CudaError while the stream is captured: the host needs numbers that the graph would find.
inline void refuse_wait_of_capture(cudaStream_t stream, const char* numbers) {
  if (capturing(stream))
    fail(cudaErrorStreamCaptureUnsupported,
         tessera::detail::formatted(
             "the host needs {} while the stream is captured: give KeyedJagged::bounds or "
             "one-hot ids; with several ranks, sequences or max pooling set "
             "Options::equal_batches, too, and at most one of gradient_blocks per rank "
             "(docs/gpu/README.md, A step as a CUDA graph)",
             numbers));
}

}  // namespace gpu
}}  // namespace tessera::v0
