// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/backend.cuh>

#include <cstdint>

namespace support {

inline constexpr int element_threads = 256;

/// f(row, column) for the elements of `rows` x `columns`, a thread each.
template <class F>
__global__ void __launch_bounds__(element_threads)
    for_each_element(const std::int64_t rows, const std::int64_t columns, const F f) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * element_threads + threadIdx.x;
  if (i < rows * columns) f(i / columns, i % columns);
}

/// Launches it on a backend's stream.
template <class F>
void launch(const tessera::Cuda& backend, const char* name, std::int64_t rows, std::int64_t columns,
            const F& f) {
  backend.launch(name, tessera::gpu::ceil_divide(rows * columns, element_threads), element_threads,
                 for_each_element<F>, rows, columns, f);
}

}  // namespace support
