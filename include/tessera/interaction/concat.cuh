// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/cuda/backend.cuh>
#include <tessera/interaction/concat_parts.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera::inline v0 {

/// Concat (interaction/concat.hpp) for matrices in device memory: a copy per part, in the order of
/// the backend's stream.
struct CudaConcat {
  /// y [batch, sum of the parts' columns] from the parts, left to right.
  template <class T>
  static void forward(const Cuda& backend, std::span<const MatrixView<const T>> parts,
                      MatrixView<T> y) {
    detail::check_concat(parts, y);
    std::int64_t column = 0;
    for (const MatrixView<const T>& part : parts) {
      copy(backend, part, y.column_range(column, part.columns));
      column += part.columns;
    }
  }

  /// The parts' gradients (overwritten) from dy.
  template <class T>
  static void backward(const Cuda& backend, MatrixView<const T> dy,
                       std::span<const MatrixView<T>> parts) {
    detail::check_concat(parts, dy);
    std::int64_t column = 0;
    for (const MatrixView<T>& part : parts) {
      copy(backend, dy.column_range(column, part.columns), part);
      column += part.columns;
    }
  }

 private:
  template <class T>
  static void copy(const Cuda& backend, MatrixView<const T> from, MatrixView<T> to) {
    if (from.rows == 0 || from.columns == 0) return;
    const auto bytes = [](std::int64_t elements) {
      return static_cast<std::size_t>(elements) * sizeof(T);
    };
    gpu::check(cudaMemcpy2DAsync(to.data, bytes(to.stride), from.data, bytes(from.stride),
                                 bytes(from.columns), static_cast<std::size_t>(from.rows),
                                 cudaMemcpyDeviceToDevice, backend.stream()),
               "copying a matrix of {} x {}", from.rows, from.columns);
  }
};

}  // namespace tessera::inline v0
