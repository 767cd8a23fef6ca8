// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/optional_collectives.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/core/pod_vector.hpp>
#include <tessera/ids/sequence_view.hpp>
#include <tessera/tables/non_finite_count.hpp>
#include <tessera/tables/rank_tables.hpp>
#include <tessera/tables/training_groups.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Returns what each training group does about gradients that are NaN or infinite.
template <class Options>
PodVector<NonFinite> guards_of(const Options& options) {
  using Trained = std::remove_cvref_t<decltype(options.optimizer)>;
  PodVector<NonFinite> of_groups;
  for_each_training_group<Trained>([&](auto i) {
    of_groups.push_back(
        GroupsOf<Trained>::template own_guard<i()>(options.optimizer).value_or(options.non_finite));
  });
  return of_groups;
}

/// Looks for gradients that are NaN or infinite before a step uses them, as Options::non_finite of
/// the collection or of each feature's training group says.
template <class Backend>
class GradientGuard {
 public:
  /// Takes tables. `of_groups`: by training group.
  GradientGuard(const Backend& backend, const RankTables<Backend>& tables,
                std::span<const NonFinite> of_groups) {
    const Layout& layout = tables.layout();
    for (std::size_t f = 0; f < layout.features.size(); ++f) {
      const int table = layout.feature_table[f];
      const NonFinite policy = tables.trains(table) || layout.features[f].weighted
                                   ? of_groups[static_cast<std::size_t>(tables.group_of(table))]
                                   : NonFinite::use;
      const std::int64_t begin = layout.feature_column[f], end = layout.feature_column[f + 1];
      of_feature_.push_back(policy);
      if (policy == NonFinite::use) continue;
      rejects_ = rejects_ || policy == NonFinite::reject;
      if (!counts_) counts_.emplace(backend);
      if (begin == end) continue;
      if (!ranges_.empty() && ranges_.back().policy == policy && ranges_.back().end == begin)
        ranges_.back().end = end;
      else
        ranges_.push_back({policy, begin, end});
    }
  }

  /// Returns whether any gradients are rejected; needs all_reduce on several ranks.
  bool rejects() const { return rejects_; }

  /// Returns whether the step may change the tables: the same answer on every rank. Where a group
  /// rejects, collective, and the host waits.
  template <class Comm, Element G>
  bool accept(Comm& communicator, MatrixView<const G> gradient, SequenceGradients sequences) {
    for (const Range& range : ranges_)
      count_of(range.policy).add(gradient.column_range(range.begin, range.end - range.begin));
    for (const SequenceGradient& sequence : sequences)
      if (const NonFinite policy = of_feature_[static_cast<std::size_t>(sequence.feature)];
          policy != NonFinite::use)
        count_of(policy).add(sequence.values);
    if (!rejects_) return true;
    auto found = static_cast<std::int64_t>(counts_->rejecting.read() - seen_);
    seen_ += static_cast<std::uint64_t>(found);
    if (communicator.size() > 1)
      all_reduce(communicator, std::span<std::int64_t>(&found, 1), "option NonFinite::reject");
    rejected_ += found != 0;
    return found == 0;
  }

  /// Returns the number of those of this rank so far. The host waits.
  std::uint64_t counted() const {
    return counts_ ? counts_->used.read() + counts_->rejecting.read() : 0;
  }
  /// Returns the number of steps.
  std::uint64_t rejected() const { return rejected_; }

 private:
  /// Columns of the gradient that one policy is about.
  struct Range {
    NonFinite policy;
    std::int64_t begin, end;
  };
  NonFiniteCount<Backend>& count_of(NonFinite policy) {
    return policy == NonFinite::reject ? counts_->rejecting : counts_->used;
  }

  PodVector<NonFinite> of_feature_;
  PodVector<Range> ranges_;
  /// Of those that are used, and of those that reject a step.
  struct Counts {
    explicit Counts(const Backend& backend) : used(backend), rejecting(backend) {}
    NonFiniteCount<Backend> used, rejecting;
  };
  std::optional<Counts> counts_;  ///< if any are looked at
  bool rejects_ = false;
  std::uint64_t seen_ = 0;  ///< of those that reject, by earlier steps
  std::uint64_t rejected_ = 0;
};

}  // namespace detail

}}  // namespace tessera::v0
