// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/op/convert_rows.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/matrix.hpp>

namespace tessera { inline namespace v0 { namespace detail {

/// Under OutputType: how a step's pooled vectors become 16-bit ones of the caller's, and how their
/// gradients are read. Where each of this rank's vectors is complete when this rank has looked it
/// up, lookups store 16 bits; if nothing is done to gradients before the update, it reads them
/// unchanged. Else the step keeps a matrix of floats: vectors are rounded once, when all that is
/// added is there, and gradients are widened. Float values are the caller's memory itself.
template <class Backend>
class NarrowValues {
 public:
  /// Sets what is kept, before the lookup. `complete`: see above; `only_pooled`: no gradients but
  /// those of the output are needed, and these by this rank alone.
  void set(bool complete, bool only_pooled) {
    stored_ = complete;
    read_ = complete && only_pooled;
  }
  /// Returns whether lookups store 16 bits.
  bool stored() const { return stored_; }

  /// Returns where vectors are pooled as floats that become `output`.
  static MatrixView<float> floats(const Backend&, MatrixView<float> output) { return output; }
  template <Element T>
  MatrixView<float> floats(const Backend& backend, MatrixView<T> output) {
    if (stored_) return {nullptr, output.rows, 0};
    return make_matrix(backend, pooled_, output.rows, output.columns);
  }
  /// Rounds what is complete to become `output`.
  static void round(const Backend&, MatrixView<float>) {}
  template <Element T>
  void round(const Backend& backend, MatrixView<T> output) {
    if (stored_) return;
    op::run<op::ConvertRows<float, T>>(backend,
                                       {{pooled_.data(), output.rows, output.columns}, output});
  }

  /// Takes a step's gradients: what of them is needed as floats before the update.
  static MatrixView<const float> begin(const Backend&, MatrixView<const float> gradient) {
    return gradient;
  }
  template <Element T>
  MatrixView<const float> begin(const Backend& backend, MatrixView<const T> gradient) {
    widened_ = false;
    if (read_) return {nullptr, gradient.rows, 0};
    return widened(backend, gradient);
  }
  /// Returns the same gradients, all as floats.
  static MatrixView<const float> widened(const Backend&, MatrixView<const float> gradient) {
    return gradient;
  }
  template <Element T>
  MatrixView<const float> widened(const Backend& backend, MatrixView<const T> gradient) {
    const MatrixView<float> floats =
        make_matrix(backend, gradients_, gradient.rows, gradient.columns);
    if (!widened_) op::run<op::ConvertRows<T, float>>(backend, {gradient, floats});
    widened_ = true;
    return floats;
  }
  /// Calls f(the same gradients), as floats or in 16 bits.
  template <class F>
  static void visit(const Backend&, MatrixView<const float> gradient, const F& f) {
    f(gradient);
  }
  template <Element T, class F>
  void visit(const Backend& backend, MatrixView<const T> gradient, const F& f) {
    read_ ? f(gradient) : f(widened(backend, gradient));
  }

 private:
  bool stored_ = false, read_ = false;
  bool widened_ = false;  ///< gradients_ are those of this step
  Buffer<float, Backend> pooled_, gradients_;
};

}}}  // namespace tessera::v0::detail
