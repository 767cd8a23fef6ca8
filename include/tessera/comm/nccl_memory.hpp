// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstddef>

namespace tessera { inline namespace v0 {

namespace detail {
/// Returns whether a call of CUDA succeeded. What failed is not left as the thread's last error,
/// which CUB would take for an error of its next launch.
inline bool cuda_succeeds(cudaError_t result) noexcept {
  if (result != cudaSuccess) static_cast<void>(cudaGetLastError());
  return result == cudaSuccess;
}
}  // namespace detail

/// Where device memory comes from, in the order of a stream: the driver's pool (cudaMallocAsync;
/// cudaMalloc if the GPU has none), or a memory resource as the CUDA backend's
/// (gpu::MemoryResource), which must outlive the communicator.
class NcclMemory {
 public:
  NcclMemory() = default;
  template <class R>
    requires requires(R& resource, void* p, cudaStream_t stream) {
      { resource.allocate(std::size_t{}, stream) } -> std::same_as<void*>;
      { resource.deallocate(p, std::size_t{}, stream) } noexcept;
    }
  explicit NcclMemory(R& resource)
      : resource_(&resource),
        allocate_([](void* r, std::size_t bytes, cudaStream_t stream) {
          return static_cast<R*>(r)->allocate(bytes, stream);
        }),
        deallocate_([](void* r, void* p, std::size_t bytes, cudaStream_t stream) noexcept {
          static_cast<R*>(r)->deallocate(p, bytes, stream);
        }) {}

  /// Throws what the resource throws. Null: the driver has no memory.
  void* allocate(std::size_t bytes, cudaStream_t stream) const {
    if (allocate_ != nullptr) return allocate_(resource_, bytes, stream);
    void* p = nullptr;
    const bool made = detail::cuda_succeeds(has_pools() ? cudaMallocAsync(&p, bytes, stream)
                                                        : cudaMalloc(&p, bytes));
    return made ? p : nullptr;
  }
  void deallocate(void* p, std::size_t bytes, cudaStream_t stream) const noexcept {
    if (deallocate_ != nullptr) {
      deallocate_(resource_, p, bytes, stream);
    } else if (has_pools()) {
      detail::cuda_succeeds(cudaFreeAsync(p, stream));
    } else {
      detail::cuda_succeeds(cudaStreamSynchronize(stream));
      detail::cuda_succeeds(cudaFree(p));
    }
  }

 private:
  /// Returns whether the GPU of the calling thread has memory pools. True if CUDA does not say: the
  /// allocation does.
  static bool has_pools() noexcept {
    int device = 0, pools = 1;
    return !detail::cuda_succeeds(cudaGetDevice(&device)) ||
           !detail::cuda_succeeds(
               cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, device)) ||
           pools != 0;
  }

  void* resource_ = nullptr;
  void* (*allocate_)(void*, std::size_t, cudaStream_t) = nullptr;
  void (*deallocate_)(void*, void*, std::size_t, cudaStream_t) noexcept = nullptr;
};

}}  // namespace tessera::v0
