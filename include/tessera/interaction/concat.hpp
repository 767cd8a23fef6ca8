// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/interaction/concat_parts.hpp>

#include <algorithm>
#include <cstdint>
#include <span>

namespace tessera::inline v0 {

/// Puts matrices of equally many rows side by side. Where the parts can be written into one
/// buffer's columns in the first place (MatrixView::column_range), nothing needs to be copied at
/// all.
struct Concat {
  /// y [batch, sum of the parts' columns] from the parts, left to right.
  template <class T>
  static void forward(std::span<const MatrixView<const T>> parts, MatrixView<T> y) {
    detail::check_concat(parts, y);
    std::int64_t column = 0;
    for (const MatrixView<const T>& part : parts) {
      for (std::int64_t i = 0; i < part.rows; ++i)
        std::copy_n(part.row(i), part.columns, y.row(i) + column);
      column += part.columns;
    }
  }

  /// The parts' gradients (overwritten) from dy.
  template <class T>
  static void backward(MatrixView<const T> dy, std::span<const MatrixView<T>> parts) {
    detail::check_concat(parts, dy);
    std::int64_t column = 0;
    for (const MatrixView<T>& part : parts) {
      for (std::int64_t i = 0; i < part.rows; ++i)
        std::copy_n(dy.row(i) + column, part.columns, part.row(i));
      column += part.columns;
    }
  }
};

}  // namespace tessera::inline v0
