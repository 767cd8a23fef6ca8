// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/backend.cuh>
#include <tessera/cuda/primitives.cuh>
#include <tessera/op/gradients.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 {
namespace gpu::detail {

inline constexpr int gradient_threads = 256;
/// Adds squares: a block adds in its own memory first. Sums of integers have no order.
template <int = 0>
__global__ void __launch_bounds__(gradient_threads)
    add_squares(const float* values, const std::int64_t count, std::int64_t* digits) {
  auto& sums = block_shared<unsigned long long[op::square_digits + 1]>();
  const int thread = static_cast<int>(threadIdx.x);
  if (thread <= op::square_digits) sums[thread] = 0;
  __syncthreads();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * gradient_threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * gradient_threads + thread;
       i < count; i += step)
    op::add_square(values[i], [&](int place, std::int64_t amount) {
      if (amount != 0) atomicAdd(sums + place, static_cast<unsigned long long>(amount));
    });
  __syncthreads();
  if (thread <= op::square_digits && sums[thread] != 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(digits) + thread, sums[thread]);
}

/// Counts how many lanes of a warp, all of which call this, say yes.
__device__ inline void add_count(bool yes, std::int64_t* count) {
  const unsigned all = __ballot_sync(0xffffffffu, yes);
  if (threadIdx.x % 32 == 0 && all != 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(count),
              static_cast<unsigned long long>(__popc(all)));
}

template <int = 0>
__global__ void __launch_bounds__(gradient_threads)
    add_values(float* to, const float* values, const std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * gradient_threads + threadIdx.x;
  if (i < count) to[i] += values[i];
}

template <int = 0>
__global__ void __launch_bounds__(gradient_threads)
    clip_values(float* values, const std::int64_t count, const float factor, const float limit,
                std::int64_t* clipped) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * gradient_threads + threadIdx.x;
  if (clipped != nullptr)
    add_count(i < count && op::ClipValues::held_back(values[i] * factor, limit), clipped);
  if (i < count) values[i] = op::ClipValues::clipped(values[i], factor, limit);
}

/// Clips rows, a thread per value.
template <int = 0>
__global__ void __launch_bounds__(gradient_threads)
    clip_rows(const std::int64_t* rows, float* gradients, const std::int64_t count, const int width,
              const float* mean_squares, const float limit, const op::ClipRows::Segment* segments,
              const int segment_count, std::int64_t* clipped) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * gradient_threads + threadIdx.x,
                     k = i / width;
  const float factor =
      k < count ? op::ClipRows::factor(rows[k], mean_squares[k], limit, segments, segment_count)
                : 1.0f;
  if (clipped != nullptr) add_count(factor != 1.0f && i % width == 0, clipped);
  if (factor != 1.0f) gradients[i] *= factor;
}

}  // namespace gpu::detail

template <>
struct op::Kernel<op::AddSquares, Cuda> {
  static void run(const Cuda& backend, const op::AddSquares::Parameters& p) {
    constexpr std::int64_t most_blocks = 1024;
    const std::int64_t blocks = gpu::ceil_divide(p.count, gpu::detail::gradient_threads);
    backend.launch("add_squares", blocks < most_blocks ? blocks : most_blocks,
                   gpu::detail::gradient_threads, gpu::detail::add_squares<>, p.values, p.count,
                   p.digits);
  }
};

template <>
struct op::Kernel<op::ClipValues, Cuda> {
  static void run(const Cuda& backend, const op::ClipValues::Parameters& p) {
    backend.launch("clip_values", gpu::ceil_divide(p.count, gpu::detail::gradient_threads),
                   gpu::detail::gradient_threads, gpu::detail::clip_values<>, p.values, p.count,
                   p.factor, p.limit, p.clipped);
  }
};

template <>
struct op::Kernel<op::ClipRows, Cuda> {
  static void run(const Cuda& backend, const op::ClipRows::Parameters& p) {
    auto* const segments = static_cast<op::ClipRows::Segment*>(
        backend.scratch(gpu::ScratchSlot::clip_segments, p.segments.size_bytes()));
    backend.copy(segments, p.segments.data(), p.segments.size_bytes());
    backend.launch("clip_rows", gpu::ceil_divide(p.count * p.width, gpu::detail::gradient_threads),
                   gpu::detail::gradient_threads, gpu::detail::clip_rows<>, p.rows, p.gradients,
                   p.count, p.width, p.mean_squares, p.limit, segments,
                   static_cast<int>(p.segments.size()), p.clipped);
  }
};

template <>
struct op::Kernel<op::AddValues, Cuda> {
  static void run(const Cuda& backend, const op::AddValues::Parameters& p) {
    backend.launch("add_values", gpu::ceil_divide(p.count, gpu::detail::gradient_threads),
                   gpu::detail::gradient_threads, gpu::detail::add_values<>, p.to, p.values,
                   p.count);
  }
};

}}  // namespace tessera::v0
