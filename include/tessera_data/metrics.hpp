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

/// Area under the ROC curve: the share of (positive, negative) pairs that the scores put in order,
/// ties counting a half. Exact: keeps 4 bytes per sample and sorts at the end. Any increasing
/// function of the probability will do as score (logits).
///
///     Auc auc;
///     auc.add(scores, labels);
///     const double area = auc.value();
class Auc {
 public:
  /// Adds scores. Labels above 0.5 are positive. Throws InvalidArgument on spans of unlike size, a
  /// label outside [0, 1] or a NaN score; then nothing is added.
  void add(std::span<const float> scores, std::span<const float> labels) {
    require(scores.size() == labels.size(), "Auc: {} scores for {} labels", scores.size(),
            labels.size());
    detail::check_labels("Auc", labels);
    detail::check_scores("Auc", scores);
    for (std::size_t i = 0; i < scores.size(); ++i)
      (labels[i] > 0.5f ? positives_ : negatives_).push_back(scores[i]);
  }

  /// Adds all samples of another accumulator: a rank's, say. The order of merging does not matter.
  void merge(const Auc& other) {
    positives_.insert(positives_.end(), other.positives_.begin(), other.positives_.end());
    negatives_.insert(negatives_.end(), other.negatives_.begin(), other.negatives_.end());
  }

  std::int64_t positives() const { return static_cast<std::int64_t>(positives_.size()); }
  std::int64_t negatives() const { return static_cast<std::int64_t>(negatives_.size()); }
  /// Returns the scores kept, for exchange between processes.
  std::span<const float> positive_scores() const { return positives_; }
  std::span<const float> negative_scores() const { return negatives_; }

  /// Returns the area, in O(n log n). NaN unless there is a positive and a negative sample.
  double value() const {
    if (positives_.empty() || negatives_.empty()) return std::numeric_limits<double>::quiet_NaN();
    std::vector<float> positives = positives_, negatives = negatives_;
    std::sort(positives.begin(), positives.end());
    std::sort(negatives.begin(), negatives.end());
    // Half pairs, counted in whole numbers: exact up to 2^63 of them, three thousand million
    // samples.
    std::uint64_t half_pairs = 0;
    std::size_t below = 0, not_above = 0;
    for (const float score : positives) {
      while (below < negatives.size() && negatives[below] < score) ++below;
      while (not_above < negatives.size() && negatives[not_above] <= score) ++not_above;
      half_pairs += below + not_above;
    }
    return 0.5 * static_cast<double>(half_pairs) /
           (static_cast<double>(positives.size()) * static_cast<double>(negatives.size()));
  }

 private:
  std::vector<float> positives_;
  std::vector<float> negatives_;
};

/// Mean binary cross entropy, from logits: log(1 + exp(-logit)) for a positive sample, log(1 +
/// exp(logit)) for a negative one. Neither overflows nor loses digits at any logit. Sums in double.
class LogLoss {
 public:
  /// Throws InvalidArgument as Auc::add does.
  void add(std::span<const float> logits, std::span<const float> labels) {
    require(logits.size() == labels.size(), "LogLoss: {} logits for {} labels", logits.size(),
            labels.size());
    detail::check_labels("LogLoss", labels);
    detail::check_scores("LogLoss", logits);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double x = logits[i];
      // no loss if it is right, infinite if it is not: the difference below would be NaN
      if (std::isinf(x))
        sum_ += labels[i] == (x > 0 ? 1.0f : 0.0f) ? 0 : std::abs(x);
      else
        sum_ += std::max(x, 0.0) - x * labels[i] + std::log1p(std::exp(-std::abs(x)));
    }
    count_ += static_cast<std::int64_t>(logits.size());
  }

  void merge(const LogLoss& other) {
    sum_ += other.sum_;
    count_ += other.count_;
  }

  double sum() const { return sum_; }
  std::int64_t count() const { return count_; }
  /// Returns the metric; NaN when there are no samples.
  double value() const {
    return count_ == 0 ? std::numeric_limits<double>::quiet_NaN()
                       : sum_ / static_cast<double>(count_);
  }

 private:
  double sum_ = 0.0;
  std::int64_t count_ = 0;
};

/// Log loss over the entropy of the mean label: 1 is a model that predicts the mean for everyone.
/// He et al., Practical Lessons from Predicting Clicks on Ads at Facebook (2014).
class NormalizedEntropy {
 public:
  /// Does as LogLoss::add.
  void add(std::span<const float> logits, std::span<const float> labels) {
    detail::check_labels("NormalizedEntropy", labels);
    loss_.add(logits, labels);
    for (const float label : labels) labels_ += label;
  }
  void merge(const NormalizedEntropy& other) {
    loss_.merge(other.loss_);
    labels_ += other.labels_;
  }
  /// Returns the metric; NaN if there are no samples, or all labels are 0 or all are 1.
  double value() const {
    const double mean = labels_ / static_cast<double>(loss_.count());
    const double entropy = -(mean * std::log(mean) + (1 - mean) * std::log1p(-mean));
    return entropy > 0 ? loss_.value() / entropy : std::numeric_limits<double>::quiet_NaN();
  }

 private:
  LogLoss loss_;
  double labels_ = 0.0;
};

/// Mean predicted probability over mean label: above 1, the model predicts too many clicks. Same
/// source.
class Calibration {
 public:
  /// Does as LogLoss::add.
  void add(std::span<const float> logits, std::span<const float> labels) {
    require(logits.size() == labels.size(), "Calibration: {} logits for {} labels", logits.size(),
            labels.size());
    detail::check_labels("Calibration", labels);
    detail::check_scores("Calibration", logits);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      predicted_ += 1 / (1 + std::exp(-double{logits[i]}));
      labels_ += labels[i];
    }
  }
  void merge(const Calibration& other) {
    predicted_ += other.predicted_;
    labels_ += other.labels_;
  }
  /// Returns the metric; NaN without a positive label.
  double value() const {
    return labels_ > 0 ? predicted_ / labels_ : std::numeric_limits<double>::quiet_NaN();
  }

 private:
  double predicted_ = 0.0, labels_ = 0.0;
};

}}  // namespace tessera::v0
