// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/rank_memory.hpp>
#include <tessera/cuda/groups.cuh>

#include <cstddef>
#include <cstdint>

namespace tessera { inline namespace v0 {
namespace gpu::detail {

inline constexpr int reduce_threads = 256;
inline constexpr int reduce_ranks = 128;  ///< at most

/// Where the ranks' values are and where the result goes.
template <class T>
struct ReducePlaces {
  const T* from[reduce_ranks];
  T* to[reduce_ranks];
  int sources, targets;
  Reduction reduction;
};

template <Reducible T>
__global__ void __launch_bounds__(reduce_threads)
    reduce_ranks_values(const ReducePlaces<T> __grid_constant__ places, const std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * reduce_threads + threadIdx.x;
  if (i >= count) return;
  T result = places.from[0][i];
  for (int r = 1; r < places.sources; ++r) {
    const T other = places.from[r][i];
    if (places.reduction == Reduction::sum)
      result += other;
    else if (places.reduction == Reduction::min ? other < result : result < other)
      result = other;
  }
  for (int r = 0; r < places.targets; ++r) places.to[r][i] = result;
}

}  // namespace gpu::detail

/// How communicators of one process move device memory, in the order of a stream:
/// BasicThreadCommunicator<CudaTransfer> for ranks that are threads and share a GPU (or hold GPUs
/// that read each other's memory: that of the driver's pools by cudaMemPoolSetAccess alone),
/// BasicSelfCommunicator<CudaTransfer> for one rank. Buffers in host memory are moved by the
/// calling thread.
class CudaTransfer {
 public:
  CudaTransfer() = default;
  explicit CudaTransfer(const Cuda& backend) : backend_(backend) {}

  void publish(const void* buffer) const {
    if (on_device(buffer)) backend_.synchronize();
  }
  void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes == 0) return;
    if (!on_device(to) && !on_device(from)) return host_.copy(to, from, bytes);
    backend_.copy(to, from, bytes);
    busy_ = true;
  }
  template <Reducible T, class From, class To>
  void reduce(int sources, From from, int targets, To to, std::size_t count, Reduction reduction) {
    if (count == 0) return;
    if (!on_device(from(0))) return host_.reduce<T>(sources, from, targets, to, count, reduction);
    require(sources <= gpu::detail::reduce_ranks,
            "CudaTransfer: {} ranks reduce together; at most {}", sources,
            gpu::detail::reduce_ranks);
    gpu::detail::ReducePlaces<T> places{};
    for (int i = 0; i < sources; ++i) places.from[places.sources++] = from(i);
    for (int i = 0; i < targets; ++i) places.to[places.targets++] = to(i);
    places.reduction = reduction;
    backend_.launch("reduce_ranks_values",
                    gpu::ceil_divide(static_cast<std::int64_t>(count), gpu::detail::reduce_threads),
                    gpu::detail::reduce_threads, gpu::detail::reduce_ranks_values<T>, places,
                    static_cast<std::int64_t>(count));
    busy_ = true;
  }
  void complete() {
    if (busy_) backend_.synchronize();
    busy_ = false;
  }

  /// Returns whether a pointer is to memory of a device.
  static bool on_device(const void* p) {
    if (p == nullptr) return false;
    cudaPointerAttributes attributes{};
    gpu::check(cudaPointerGetAttributes(&attributes, p), "asking what memory a pointer is in");
    return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
  }

 private:
  Cuda backend_;
  detail::HostTransfer host_;
  bool busy_ = false;
};

}}  // namespace tessera::v0
