// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/cuda/backend.cuh>
#include <tessera/cuda/convert_rows.cuh>
#include <tessera/interaction/concat.hpp>

#include <cstddef>
#include <cstdint>

namespace tessera { inline namespace v0 {

template <class T>
struct op::Kernel<op::CopyMatrix<T>, Cuda> {
  static void run(const Cuda& backend, const typename op::CopyMatrix<T>::Parameters& p) {
    if (p.from.rows == 0 || p.from.columns == 0) return;
    const auto bytes = [](std::int64_t elements) {
      return static_cast<std::size_t>(elements) * sizeof(T);
    };
    gpu::check(cudaMemcpy2DAsync(p.to.data, bytes(p.to.stride), p.from.data, bytes(p.from.stride),
                                 bytes(p.from.columns), static_cast<std::size_t>(p.from.rows),
                                 cudaMemcpyDeviceToDevice, backend.stream()),
               "copying a matrix of {} x {}", p.from.rows, p.from.columns);
  }
};

}}  // namespace tessera::v0
