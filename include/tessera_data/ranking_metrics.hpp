// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 {

/// How far in front the one right item is in rankings: hit rate and NDCG among the first
/// `cutoff`, and the mean reciprocal rank over all. Counts how often each rank comes, so that the
/// values are the same bits in whatever order samples are added and merged.
class RankingMetrics {
 public:
  explicit RankingMetrics(std::int64_t cutoff = 10) : cutoff_(cutoff) {
    require(cutoff > 0, "RankingMetrics: cutoff ({}) must be positive", cutoff);
  }

  /// Adds a ranking. `rank`: how many items are before the right one, from 0.
  void add(std::int64_t rank) {
    require(rank >= 0, "RankingMetrics: rank ({}) must not be negative", rank);
    const auto r = static_cast<std::size_t>(rank);
    if (r >= counts_.size()) counts_.resize(r + 1);
    ++counts_[r];
    ++count_;
  }
  void merge(const RankingMetrics& other) {
    counts_.resize(std::max(counts_.size(), other.counts_.size()));
    for (std::size_t r = 0; r < other.counts_.size(); ++r) counts_[r] += other.counts_[r];
    count_ += other.count_;
  }

  std::int64_t count() const { return count_; }
  /// Returns how often each rank came, for exchange between processes.
  std::span<const std::int64_t> counts() const { return counts_; }

  /// Returns the share of rankings with the right item among the first `cutoff`. All three are NaN
  /// if there are no rankings.
  double hit_rate() const {
    return mean(cutoff_, [](double) { return 1.0; });
  }
  /// Returns, of one right item, 1 / log2(2 + rank) among the first `cutoff`, else 0.
  double ndcg() const {
    return mean(cutoff_, [](double rank) { return 1 / std::log2(2 + rank); });
  }
  double mean_reciprocal_rank() const {
    return mean(std::numeric_limits<std::int64_t>::max(),
                [](double rank) { return 1 / (1 + rank); });
  }

 private:
  template <class Gain>
  double mean(std::int64_t cutoff, const Gain& gain) const {
    if (count_ == 0) return std::numeric_limits<double>::quiet_NaN();
    double sum = 0;
    for (std::int64_t r = 0; r < std::min(cutoff, std::ssize(counts_)); ++r)
      sum +=
          static_cast<double>(counts_[static_cast<std::size_t>(r)]) * gain(static_cast<double>(r));
    return sum / static_cast<double>(count_);
  }

  std::int64_t cutoff_, count_ = 0;
  std::vector<std::int64_t> counts_;
};

/// Returns how many items score at least as high as `target`, of all but those in `without` (in any
/// order, also several times; the target itself may be among them and counts as not). Ties are
/// lost: a model that gives all items one score gets no hits. Throws InvalidArgument for items that
/// are not there and for a score that is NaN.
template <class Id>
std::int64_t rank_of(std::span<const float> scores, std::int64_t target,
                     std::span<const Id> without) {
  const auto items = static_cast<std::int64_t>(scores.size());
  require(target >= 0 && target < items, "rank_of: item {} is not among the {} scores", target,
          items);
  const float own = scores[static_cast<std::size_t>(target)];
  std::int64_t rank = -1, numbers = 0;  // the target is as high as itself
  for (const float score : scores) {
    rank += score >= own;
    numbers += score == score;
  }
  require(numbers == items, "rank_of: {} of {} scores are NaN: has the training diverged?",
          items - numbers, items);
  std::vector<Id> out(without.begin(), without.end());
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  for (const Id item : out) {
    require(item >= 0 && item < items, "rank_of: item {} is not among the {} scores", item, items);
    rank -= item != target && scores[static_cast<std::size_t>(item)] >= own;
  }
  return rank;
}

}}  // namespace tessera::v0
