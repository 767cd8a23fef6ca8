// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/op/convert_rows.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/matrix.hpp>

namespace tessera::inline v0::detail {

/// The pooled vectors of a step as floats, and their gradients, where the caller's have 16 bits
/// (OutputType): what is added over blocks of rows or ranks is rounded once, at the end. The
/// caller's own memory where it is of floats.
template <class Backend>
class FloatValues {
 public:
  /// Where vectors are pooled that become `output`.
  static MatrixView<float> of(const Backend&, MatrixView<float> output) { return output; }
  template <Element T>
  MatrixView<float> of(const Backend& backend, MatrixView<T> output) {
    return make_matrix(backend, pooled_, output.rows, output.columns);
  }
  /// They are complete, and become `output`.
  static void round(const Backend&, MatrixView<float>) {}
  template <Element T>
  void round(const Backend& backend, MatrixView<T> output) {
    op::run<op::ConvertRows<float, T>>(backend,
                                       {{pooled_.data(), output.rows, output.columns}, output});
  }

  /// The gradients as floats.
  static MatrixView<const float> widen(const Backend&, MatrixView<const float> gradient) {
    return gradient;
  }
  template <Element T>
  MatrixView<const float> widen(const Backend& backend, MatrixView<const T> gradient) {
    const MatrixView<float> floats =
        make_matrix(backend, gradients_, gradient.rows, gradient.columns);
    op::run<op::ConvertRows<T, float>>(backend, {gradient, floats});
    return floats;
  }
  /// Those of the last `widen`, to which the same was given.
  static MatrixView<const float> widened(MatrixView<const float> gradient) { return gradient; }
  template <Element T>
  MatrixView<const float> widened(MatrixView<const T> gradient) const {
    return {gradients_.data(), gradient.rows, gradient.columns};
  }

 private:
  Buffer<float, Backend> pooled_, gradients_;
};

}  // namespace tessera::inline v0::detail
