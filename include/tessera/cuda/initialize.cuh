// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/backend.cuh>
#include <tessera/op/initialize.hpp>

#include <algorithm>
#include <cstdint>

namespace tessera { inline namespace v0 {
namespace gpu::detail {

inline constexpr int initialize_threads = 256;

/// Initializes: a thread writes an element; a table has more of them than 32 bits count.
template <Element T, Initializer F>
__global__ void __launch_bounds__(initialize_threads)
    initialize(const typename op::Initialize<T, F>::Parameters p, const std::int64_t first) {
  const std::int64_t i =
      first + static_cast<std::int64_t>(blockIdx.x) * initialize_threads + threadIdx.x;
  if (i >= p.rows * p.width) return;
  ElementKey key = p.first;
  key.row += i / p.width;
  key.column += static_cast<std::int32_t>(i % p.width);
  p.values[i] = from_float<T>(p.initializer(key));
}

}  // namespace gpu::detail

template <Element T, Initializer F>
struct op::Kernel<op::Initialize<T, F>, Cuda> {
  static void run(const Cuda& backend, const typename op::Initialize<T, F>::Parameters& p) {
    constexpr std::int64_t elements_per_launch = std::int64_t{1} << 38;
    for (std::int64_t first = 0; first < p.rows * p.width; first += elements_per_launch)
      backend.launch("initialize",
                     gpu::ceil_divide(std::min(elements_per_launch, p.rows * p.width - first),
                                      gpu::detail::initialize_threads),
                     gpu::detail::initialize_threads, gpu::detail::initialize<T, F>, p, first);
  }
};

}}  // namespace tessera::v0
