// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/backend.cuh>
#include <tessera/op/max_pooling.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 {
namespace gpu::detail {

inline constexpr int max_threads = 256;

/// Returns the entry of a bag that has the largest value of a column; -1: the bag has no row.
template <class Parameters>
__device__ std::int64_t largest_entry(const Parameters& p, std::int64_t bag, std::int64_t column,
                                      float& largest) {
  std::int64_t winner = -1;
  largest = 0;
  const std::int64_t end = p.bags.end(bag);
  for (std::int64_t i = p.bags.begin(bag); i < end; ++i) {
    const std::int32_t row = p.bags.ids[i];
    if (row < 0) continue;
    float x = p.rows[std::int64_t{row} * p.width + column];
    if (p.bags.weights != nullptr) x *= p.bags.weights[i];
    if (winner < 0 || op::exceeds(x, largest)) winner = i, largest = x;
  }
  return winner;
}

// A thread per bag and column: neighbours read neighbouring columns.

template <int = 0>
__global__ void __launch_bounds__(max_threads) pool_max(const op::PoolMax::Parameters p) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * max_threads + threadIdx.x;
  const std::int64_t bag = at / p.width, column = at % p.width;
  if (bag >= p.bags.bags) return;
  float largest;
  largest_entry(p, bag, column, largest);
  p.output[bag * p.output_stride + column] = largest;
}

template <int = 0>
__global__ void __launch_bounds__(max_threads)
    pool_max_backward(const op::PoolMaxBackward::Parameters p) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * max_threads + threadIdx.x;
  const std::int64_t bag = at / p.width, column = at % p.width;
  if (bag >= p.bags.bags) return;
  float largest;
  const std::int64_t winner = largest_entry(p, bag, column, largest), first = p.bags.begin(0),
                     end = p.bags.end(bag);
  const float gradient = p.gradient[bag * p.gradient_stride + column];
  for (std::int64_t i = p.bags.begin(bag); i < end; ++i)
    p.to[(i - first) * p.width + column] = i == winner ? gradient : 0.0f;
}

}  // namespace gpu::detail

template <>
struct op::Kernel<op::PoolMax, Cuda> {
  static void run(const Cuda& backend, const op::PoolMax::Parameters& p) {
    backend.launch("pool_max", gpu::ceil_divide(p.bags.bags * p.width, gpu::detail::max_threads),
                   gpu::detail::max_threads, gpu::detail::pool_max<>, p);
  }
};

template <>
struct op::Kernel<op::PoolMaxBackward, Cuda> {
  static void run(const Cuda& backend, const op::PoolMaxBackward::Parameters& p) {
    backend.launch("pool_max_backward",
                   gpu::ceil_divide(p.bags.bags * p.width, gpu::detail::max_threads),
                   gpu::detail::max_threads, gpu::detail::pool_max_backward<>, p);
  }
};

}}  // namespace tessera::v0
