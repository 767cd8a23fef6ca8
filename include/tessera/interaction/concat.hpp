// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/op/kernel.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera::inline v0 {

namespace op {

/// A matrix into another of the same shape.
template <class T>
struct CopyMatrix {
  struct Parameters {
    MatrixView<const T> from;
    MatrixView<T> to;
  };
};

template <class T>
struct Kernel<CopyMatrix<T>, Host> {
  static void run(const Host&, const typename CopyMatrix<T>::Parameters& p) {
    for (std::int64_t i = 0; i < p.from.rows; ++i)
      std::copy_n(p.from.row(i), p.from.columns, p.to.row(i));
  }
};

}  // namespace op

namespace detail {

/// Throws InvalidArgument unless the matrices `parts`, side by side, have the shape of `whole`.
template <class Part, class Whole>
void check_concat(std::span<const Part> parts, const Whole& whole) {
  std::int64_t columns = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    require(parts[i].rows == whole.rows, "Concat: part {} has {} rows, the whole has {}", i,
            parts[i].rows, whole.rows);
    columns += parts[i].columns;
  }
  require(columns == whole.columns, "Concat: the parts have {} columns together, the whole has {}",
          columns, whole.columns);
}

}  // namespace detail

/// Puts matrices of equally many rows side by side. Where the parts can be written into one
/// buffer's columns in the first place (MatrixView::column_range), nothing needs to be copied at
/// all. Matrices are in the backend's memory.
struct Concat {
  /// y [batch, sum of the parts' columns] from the parts, left to right.
  template <class T, class Backend>
  static void forward(const Backend& backend, std::span<const MatrixView<const T>> parts,
                      MatrixView<T> y) {
    detail::check_concat(parts, y);
    std::int64_t column = 0;
    for (const MatrixView<const T>& part : parts) {
      op::run<op::CopyMatrix<T>>(backend, {part, y.column_range(column, part.columns)});
      column += part.columns;
    }
  }

  /// The parts' gradients (overwritten) from dy.
  template <class T, class Backend>
  static void backward(const Backend& backend, MatrixView<const T> dy,
                       std::span<const MatrixView<T>> parts) {
    detail::check_concat(parts, dy);
    std::int64_t column = 0;
    for (const MatrixView<T>& part : parts) {
      op::run<op::CopyMatrix<T>>(backend, {dy.column_range(column, part.columns), part});
      column += part.columns;
    }
  }
};

}  // namespace tessera::inline v0
