// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/collection/options.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/stage/sequence_view.hpp>
#include <tessera/tables/non_finite_count.hpp>
#include <tessera/tables/training_groups.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera::inline v0 {

namespace detail {

template <class Group, NonFinite of_all>
constexpr NonFinite guard_of() {
  if constexpr (NonFinitePolicy<Group>)
    return Group::non_finite;
  else
    return of_all;
}

/// The guard of each training group: its own, else `of_all`.
template <class Trained, NonFinite of_all>
struct Guards {
  static constexpr std::array<NonFinite, 1> of_groups{of_all};
};
template <class... Groups, NonFinite of_all>
struct Guards<TrainingGroups<Groups...>, of_all> {
  static constexpr std::array<NonFinite, sizeof...(Groups)> of_groups{
      guard_of<Groups, of_all>()...};
};

/// Of any group the strictest.
template <class Trained, NonFinite of_all>
inline constexpr NonFinite strictest_guard = *std::max_element(
    Guards<Trained, of_all>::of_groups.begin(), Guards<Trained, of_all>::of_groups.end());

}  // namespace detail

/// Looks for gradients that are NaN or infinite before a step uses them, as the policy of each
/// feature's training group says; a group without one has `of_all`.
template <class Trained, NonFinite of_all, class Backend,
          NonFinite strictest = detail::strictest_guard<Trained, of_all>>
class GradientGuard {
 public:
  template <class Store>
  GradientGuard(const Backend& backend, const Store& store)
      : counted_(backend), rejecting_(backend) {
    const auto& layout = store.layout();
    for (std::size_t f = 0; f < layout.features.size(); ++f) {
      const NonFinite policy = detail::Guards<Trained, of_all>::of_groups[static_cast<std::size_t>(
          store.group_of(layout.feature_table[f]))];
      const std::int64_t begin = layout.feature_column[f], end = layout.feature_column[f + 1];
      of_feature_.push_back(policy);
      if (policy == NonFinite::use || begin == end) continue;
      if (!ranges_.empty() && ranges_.back().policy == policy && ranges_.back().end == begin)
        ranges_.back().end = end;
      else
        ranges_.push_back({policy, begin, end});
    }
  }

  /// Whether the step may change the tables: the same answer on every rank. Where a group rejects,
  /// collective, and the host waits.
  template <class Comm>
  bool accept([[maybe_unused]] Comm& communicator, MatrixView<const float> gradient,
              SequenceGradients sequences) {
    for (const Range& range : ranges_)
      count_of(range.policy).add(gradient.column_range(range.begin, range.end - range.begin));
    for (const SequenceGradient& sequence : sequences)
      if (const NonFinite policy = of_feature_[static_cast<std::size_t>(sequence.feature)];
          policy != NonFinite::use)
        count_of(policy).add(sequence.values);
    if constexpr (strictest == NonFinite::reject) {
      auto found = static_cast<std::int64_t>(rejecting_.read() - seen_);
      seen_ += static_cast<std::uint64_t>(found);
      if (communicator.size() > 1) communicator.all_reduce(std::span<std::int64_t>(&found, 1));
      rejected_ += found != 0;
      return found == 0;
    }
    return true;
  }

  /// Of this rank, so far. The host waits.
  std::uint64_t counted() const { return counted_.read() + rejecting_.read(); }
  /// Steps.
  std::uint64_t rejected() const { return rejected_; }

 private:
  /// Columns of the gradient that one policy is about.
  struct Range {
    NonFinite policy;
    std::int64_t begin, end;
  };
  NonFiniteCount<Backend>& count_of(NonFinite policy) {
    return policy == NonFinite::reject ? rejecting_ : counted_;
  }

  std::vector<NonFinite> of_feature_;
  std::vector<Range> ranges_;
  NonFiniteCount<Backend> counted_, rejecting_;
  std::uint64_t seen_ = 0;  ///< of those that reject, by earlier steps
  std::uint64_t rejected_ = 0;
};

template <class Trained, NonFinite of_all, class Backend>
class GradientGuard<Trained, of_all, Backend, NonFinite::use> {
 public:
  template <class Store>
  GradientGuard(const Backend&, const Store&) {}

  template <class Comm>
  bool accept(Comm&, MatrixView<const float>, SequenceGradients) {
    return true;
  }
  std::uint64_t counted() const { return 0; }
  std::uint64_t rejected() const { return 0; }
};

}  // namespace tessera::inline v0
