// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/backend.cuh>
#include <tessera/op/non_finite.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 {
namespace gpu::detail {

inline constexpr int non_finite_threads = 256;

/// Counts: threads go through the elements in strides, without a division for each; a warp adds
/// what it found with one atomic: sums of integers have no order.
template <Element T>
__global__ void __launch_bounds__(non_finite_threads)
    count_non_finite(const MatrixView<const T> values, unsigned long long* count) {
  const std::int64_t elements = values.rows * values.columns,
                     step = static_cast<std::int64_t>(gridDim.x) * non_finite_threads;
  unsigned found = 0;
  const std::int64_t rows_in_step = step / values.columns, columns_in_step = step % values.columns;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * non_finite_threads + threadIdx.x,
               row = i / values.columns, column = i % values.columns;
  for (; i < elements; i += step) {
    const float x = to_float(values(row, column));
    found += (__float_as_uint(x) & 0x7f800000u) == 0x7f800000u;
    row += rows_in_step;
    column += columns_in_step;
    if (column >= values.columns) column -= values.columns, ++row;
  }
  const unsigned sum = __reduce_add_sync(0xffffffffu, found);
  if (threadIdx.x % 32 == 0 && sum != 0) atomicAdd(count, static_cast<unsigned long long>(sum));
}

}  // namespace gpu::detail

template <Element T>
struct op::Kernel<op::CountNonFinite<T>, Cuda> {
  static void run(const Cuda& backend, const typename op::CountNonFinite<T>::Parameters& p) {
    constexpr std::int64_t most_blocks = 4096;
    const std::int64_t blocks =
        gpu::ceil_divide(p.values.rows * p.values.columns, gpu::detail::non_finite_threads);
    backend.launch("count_non_finite", blocks < most_blocks ? blocks : most_blocks,
                   gpu::detail::non_finite_threads, gpu::detail::count_non_finite<T>, p.values,
                   p.count);
  }
};

}}  // namespace tessera::v0
