// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/backend.cuh>
#include <tessera/cuda/launch.cuh>
#include <tessera/op/convert_rows.hpp>

#include <cstdint>

namespace tessera::inline v0 {
namespace gpu::detail {

inline constexpr int convert_threads = 256;

/// One thread per element, along rows: each warp reads and writes consecutive elements.
template <Element From, Element To>
__global__ void __launch_bounds__(convert_threads)
    convert_rows(const typename op::ConvertRows<From, To>::Parameters p) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * convert_threads + threadIdx.x;
  if (i >= p.from.rows * p.from.columns) return;
  const std::int64_t row = i / p.from.columns, column = i % p.from.columns;
  p.to.data[row * p.to.stride + column] =
      from_float<To>(to_float(p.from.data[row * p.from.stride + column]));
}

}  // namespace gpu::detail

template <Element From, Element To>
struct op::Kernel<op::ConvertRows<From, To>, Cuda> {
  static void run(const Cuda& backend, const typename op::ConvertRows<From, To>::Parameters& p) {
    backend.launch("convert_rows",
                   gpu::ceil_divide(p.from.rows * p.from.columns, gpu::detail::convert_threads),
                   gpu::detail::convert_threads, gpu::detail::convert_rows<From, To>, p);
  }
};

}  // namespace tessera::inline v0
