// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/op/kernel.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <span>

namespace tessera { inline namespace v0 {

namespace op {

/// Adds scale * sum(max(x, 0) - x*y + log(1 + exp(-|x|))) to `loss`; gradient becomes scale *
/// (sigmoid(x) - y). Each row is taken times its share, if there are shares.
struct BinaryCrossEntropy {
  struct Parameters {
    MatrixView<const float> logits;  ///< [batch, 1], not empty
    const float* labels = nullptr;   ///< [batch]
    const double* shares = nullptr;  ///< [batch], or null
    MatrixView<float> gradient;      ///< [batch, 1], or empty
    double scale = 1;
    double* loss = nullptr;
  };
};

template <>
struct Kernel<BinaryCrossEntropy, Host> {
  static void run(const Host&, const BinaryCrossEntropy::Parameters& p) {
    double sum = 0.0;
    for (std::int64_t i = 0; i < p.logits.rows; ++i) {
      if (p.shares != nullptr && p.shares[i] == 0) {
        if (p.gradient.data) p.gradient(i, 0) = 0;
        continue;
      }
      const double x = p.logits(i, 0), y = p.labels[i];
      require(y >= 0.0 && y <= 1.0,
              "BinaryCrossEntropyWithLogits: the label of sample {} is {}; labels are in [0, 1]", i,
              y);
      const double share = p.shares == nullptr ? 1.0 : p.shares[i], small = std::exp(-std::abs(x));
      sum += (std::max(x, 0.0) - x * y + std::log1p(small)) * share;
      if (p.gradient.data)
        p.gradient(i, 0) =
            static_cast<float>(((x >= 0.0 ? 1.0 : small) / (1.0 + small) - y) * (share * p.scale));
    }
    *p.loss += sum * p.scale;
  }
};

}  // namespace op

/// Binary cross entropy of logits [batch, 1] against labels in [0, 1]: max(x, 0) - x*y + log(1 +
/// exp(-|x|)), which never overflows. Divided by `normalizer`, or by the batch if that is 0: a
/// rank that holds a part of a global batch gives the global batch, so that gradients and losses of
/// all ranks are to be summed. The sum is taken in double.
///
///     const BinaryCrossEntropyWithLogits mean{.normalizer = global_batch};
///     const double loss = mean.forward_backward(logits, labels, d_logits);
struct BinaryCrossEntropyWithLogits {
  std::int64_t normalizer = 0;
  /// [batch], in the backend's memory: what each row's loss is multiplied by, in place of dividing
  /// by `normalizer`; a row of share 0 counts for nothing. None: all count alike.
  std::span<const double> shares{};

  /// Adds the loss of these rows, divided by `normalizer`, to `loss`; everything is in the
  /// backend's memory, so that the host need not wait. On one of several ranks that is its share;
  /// the loss is the ranks' sum. A label outside [0, 1] is an InvalidArgument on Host and makes the
  /// loss NaN on Cuda.
  template <class Backend>
  void forward(const Backend& backend, MatrixView<const float> logits,
               std::span<const float> labels, double* loss) const {
    run(backend, logits, labels, {}, loss);
  }
  /// Does the same; `gradient` [batch, 1] becomes (sigmoid(x) - y) / normalizer.
  template <class Backend>
  void forward_backward(const Backend& backend, MatrixView<const float> logits,
                        std::span<const float> labels, MatrixView<float> gradient,
                        double* loss) const {
    require(gradient.rows == logits.rows && gradient.columns == 1,
            "BinaryCrossEntropyWithLogits: gradient is {} x {}, needs {} x 1", gradient.rows,
            gradient.columns, logits.rows);
    require(gradient.sound(),
            "BinaryCrossEntropyWithLogits: gradient has no memory, or a stride below its columns");
    run(backend, logits, labels, gradient, loss);
  }

  /// Return the loss, on the host.
  double forward(MatrixView<const float> logits, std::span<const float> labels) const {
    double loss = 0;
    forward(Host(), logits, labels, &loss);
    return loss;
  }
  double forward_backward(MatrixView<const float> logits, std::span<const float> labels,
                          MatrixView<float> gradient) const {
    double loss = 0;
    forward_backward(Host(), logits, labels, gradient, &loss);
    return loss;
  }

 private:
  template <class Backend>
  void run(const Backend& backend, MatrixView<const float> logits, std::span<const float> labels,
           MatrixView<float> gradient, double* loss) const {
    require(normalizer >= 0,
            "BinaryCrossEntropyWithLogits: normalizer is {}; give the global batch, or 0 for the "
            "rows given",
            normalizer);
    require(logits.columns == 1, "BinaryCrossEntropyWithLogits: logits have {} columns, need 1",
            logits.columns);
    require(logits.sound(),
            "BinaryCrossEntropyWithLogits: logits have no memory, or a stride below their columns");
    require(static_cast<std::int64_t>(labels.size()) == logits.rows,
            "BinaryCrossEntropyWithLogits: {} labels for {} logits", labels.size(), logits.rows);
    require(shares.empty() || std::ssize(shares) == logits.rows,
            "BinaryCrossEntropyWithLogits: {} shares for {} logits", shares.size(), logits.rows);
    if (logits.rows == 0) return;
    const bool shared = !shares.empty();
    const double scale =
        shared ? 1.0 : 1.0 / static_cast<double>(normalizer > 0 ? normalizer : logits.rows);
    op::run<op::BinaryCrossEntropy>(backend, {.logits = logits,
                                              .labels = labels.data(),
                                              .shares = shared ? shares.data() : nullptr,
                                              .gradient = gradient,
                                              .scale = scale,
                                              .loss = loss});
  }
};

}}  // namespace tessera::v0
