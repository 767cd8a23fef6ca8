// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera::inline v0 {

/// Binary cross entropy of logits [batch, 1] against labels in [0, 1]: max(x, 0) - x*y + log(1 +
/// exp(-|x|)), which never overflows. Divided by `normalizer`, or by the batch where that is 0: a
/// rank that holds a part of a global batch gives the global batch, so that gradients and losses of
/// all ranks are to be summed. The sum is taken in double.
struct BinaryCrossEntropyWithLogits {
  std::int64_t normalizer = 0;

  /// The loss alone: of these rows, divided by `normalizer`. On one of several ranks that is its
  /// share; the loss is the ranks' sum.
  double forward(MatrixView<const float> logits, std::span<const float> labels) const {
    return run(logits, labels, {});
  }

  /// The loss; `gradient` [batch, 1] becomes (sigmoid(x) - y) / normalizer.
  double forward_backward(MatrixView<const float> logits, std::span<const float> labels,
                          MatrixView<float> gradient) const {
    require(gradient.rows == logits.rows && gradient.columns == 1,
            "BinaryCrossEntropyWithLogits: gradient is {} x {}, needs {} x 1", gradient.rows,
            gradient.columns, logits.rows);
    return run(logits, labels, gradient);
  }

 private:
  double run(MatrixView<const float> logits, std::span<const float> labels,
             MatrixView<float> gradient) const {
    require(normalizer >= 0,
            "BinaryCrossEntropyWithLogits: normalizer is {}; give the global batch, or 0 for the "
            "rows given",
            normalizer);
    require(logits.columns == 1, "BinaryCrossEntropyWithLogits: logits have {} columns, need 1",
            logits.columns);
    require(static_cast<std::int64_t>(labels.size()) == logits.rows,
            "BinaryCrossEntropyWithLogits: {} labels for {} logits", labels.size(), logits.rows);
    if (logits.rows == 0) return 0.0;
    const double scale = 1.0 / static_cast<double>(normalizer > 0 ? normalizer : logits.rows);
    double sum = 0.0;
    for (std::int64_t i = 0; i < logits.rows; ++i) {
      const double x = logits(i, 0), y = labels[static_cast<std::size_t>(i)];
      require(y >= 0.0 && y <= 1.0,
              "BinaryCrossEntropyWithLogits: the label of sample {} is {}; labels are in [0, 1]", i,
              y);
      const double small = std::exp(-std::abs(x));
      sum += std::max(x, 0.0) - x * y + std::log1p(small);
      if (gradient.data)
        gradient(i, 0) = static_cast<float>(((x >= 0.0 ? 1.0 : small) / (1.0 + small) - y) * scale);
    }
    return sum * scale;
  }
};

}  // namespace tessera::inline v0
