// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/backend.cuh>
#include <tessera/cuda/primitives.cuh>
#include <tessera/op/gradients.hpp>

#include <cstdint>

namespace tessera::inline v0 {
namespace gpu {

inline constexpr int gradient_threads = 256;

/// A block adds in its own memory first. Sums of integers have no order.
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

template <int = 0>
__global__ void __launch_bounds__(gradient_threads)
    clip_values(float* values, const std::int64_t count, const float factor, const float limit) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * gradient_threads + threadIdx.x;
  if (i < count) values[i] = op::ClipValues::clipped(values[i], factor, limit);
}

template <IdType Id>
__global__ void __launch_bounds__(gradient_threads)
    rows_as_ids(const std::int64_t* rows, const std::int64_t count, Id* ids) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * gradient_threads + threadIdx.x;
  if (i < count) ids[i] = static_cast<Id>(rows[i]);
}

}  // namespace gpu

template <>
struct op::Kernel<op::AddSquares, Cuda> {
  static void run(const Cuda& backend, const op::AddSquares::Parameters& p) {
    constexpr std::int64_t most_blocks = 1024;
    const std::int64_t blocks = gpu::ceil_divide(p.count, gpu::gradient_threads);
    backend.launch("add_squares", blocks < most_blocks ? blocks : most_blocks,
                   gpu::gradient_threads, gpu::add_squares<>, p.values, p.count, p.digits);
  }
};

template <>
struct op::Kernel<op::ClipValues, Cuda> {
  static void run(const Cuda& backend, const op::ClipValues::Parameters& p) {
    backend.launch("clip_values", gpu::ceil_divide(p.count, gpu::gradient_threads),
                   gpu::gradient_threads, gpu::clip_values<>, p.values, p.count, p.factor, p.limit);
  }
};

template <IdType Id>
struct op::Kernel<op::RowsAsIds<Id>, Cuda> {
  static void run(const Cuda& backend, const typename op::RowsAsIds<Id>::Parameters& p) {
    backend.launch("rows_as_ids", gpu::ceil_divide(p.count, gpu::gradient_threads),
                   gpu::gradient_threads, gpu::rows_as_ids<Id>, p.rows, p.count, p.ids);
  }
};

}  // namespace tessera::inline v0
