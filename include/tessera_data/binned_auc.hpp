// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera_data/labels.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 {

/// Area under the ROC curve over a fixed number of thresholds: constant memory for any number of
/// samples, where `Auc` keeps them all. The definition is that of
/// tf.keras.metrics.AUC(num_thresholds, curve="ROC", summation_method="interpolation"), in double:
/// thresholds just below 0, k / (thresholds - 1), and just above 1; a sample counts at a threshold
/// if its score is above it.
class BinnedAuc {
 public:
  explicit BinnedAuc(int thresholds = 8000)
      : positives_(static_cast<std::size_t>(std::max(thresholds, 0))), negatives_(positives_) {
    require(thresholds >= 2, "BinnedAuc: {} thresholds, needs 2 at least", thresholds);
  }

  /// Adds scores, which are probabilities. Labels above 0.5 are positive. Throws InvalidArgument on
  /// spans of unlike size, or a score or label outside [0, 1]; then nothing is added.
  void add(std::span<const float> scores, std::span<const float> labels) {
    require(scores.size() == labels.size(), "BinnedAuc: {} scores for {} labels", scores.size(),
            labels.size());
    detail::check_labels("BinnedAuc", labels);
    for (std::size_t i = 0; i < scores.size(); ++i)
      require(scores[i] >= 0 && scores[i] <= 1,
              "BinnedAuc: score {} is {}: scores are probabilities", i, scores[i]);
    for (std::size_t i = 0; i < scores.size(); ++i)
      ++(labels[i] > 0.5f ? positives_ : negatives_)[bin(scores[i])];
  }

  /// Adds the samples of another accumulator: a rank's, say. Throws InvalidArgument if it has
  /// another number of thresholds.
  void merge(const BinnedAuc& other) {
    require(positives_.size() == other.positives_.size(), "BinnedAuc: {} and {} thresholds",
            positives_.size(), other.positives_.size());
    for (std::size_t b = 0; b < positives_.size(); ++b) {
      positives_[b] += other.positives_[b];
      negatives_[b] += other.negatives_[b];
    }
  }

  /// Returns how many positive and negative samples are above each threshold and not above the
  /// next: what ranks add up.
  std::span<std::int64_t> positive_counts() { return positives_; }
  std::span<std::int64_t> negative_counts() { return negatives_; }

  /// Returns the area; NaN unless there is a positive and a negative sample.
  double value() const {
    double positives = 0, negatives = 0;
    for (std::size_t b = 0; b < positives_.size(); ++b) {
      positives += static_cast<double>(positives_[b]);
      negatives += static_cast<double>(negatives_[b]);
    }
    if (positives == 0 || negatives == 0) return std::numeric_limits<double>::quiet_NaN();
    double area = 0, above = positives;  // positives above the threshold
    for (std::size_t b = 0; b < positives_.size(); ++b) {
      const double next = above - static_cast<double>(positives_[b]);
      area += static_cast<double>(negatives_[b]) * (above + next) / 2;
      above = next;
    }
    return area / (positives * negatives);
  }

 private:
  /// Returns the last threshold below the score.
  std::size_t bin(double score) const {
    const double last = static_cast<double>(positives_.size() - 1);
    auto k = static_cast<std::size_t>(std::ceil(score * last));
    if (k > 0 && static_cast<double>(k - 1) / last >= score) --k;  // the product was rounded up
    if (static_cast<double>(k) / last < score) ++k;                // or down
    return k == 0 ? 0 : std::min(k - 1, positives_.size() - 2);
  }

  std::vector<std::int64_t> positives_, negatives_;
};

}}  // namespace tessera::v0
