// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/backend.cuh>
#include <tessera/cuda/launch.cuh>
#include <tessera/op/exchange.hpp>

#include <cstdint>

namespace tessera::inline v0 {
namespace gpu::detail {

inline constexpr int zero_threads = 256;

template <int = 0>
__global__ void __launch_bounds__(zero_threads) zero_rows(const op::ZeroRows::Parameters p) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * zero_threads + threadIdx.x;
  if (i < p.rows * p.width) p.target[i / p.width * p.target_stride + i % p.width] = 0.0f;
}

}  // namespace gpu::detail

template <>
struct op::Kernel<op::ZeroRows, Cuda> {
  static void run(const Cuda& backend, const op::ZeroRows::Parameters& p) {
    backend.launch("zero_rows", gpu::ceil_divide(p.rows * p.width, gpu::detail::zero_threads),
                   gpu::detail::zero_threads, gpu::detail::zero_rows<>, p);
  }
};

}  // namespace tessera::inline v0
