// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/pod_vector.hpp>
#include <tessera/ids/device_admission.hpp>
#include <tessera/ids/host_admission.hpp>
#include <tessera/sharding/policies.hpp>
#include <tessera/tables/rank_layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Returns the bags of samples [first, first + count), which hold `entries` entries, the first of
/// them at `first_entry`.
template <IdType Id>
op::Bags<Id> part_of(op::Bags<Id> bags, std::int64_t first, std::int64_t count,
                     std::int64_t entries, std::int64_t first_entry) {
  if (bags.offsets != nullptr) {
    bags.offsets += first;
  } else {
    bags.ids += first;
    if (bags.weights != nullptr) bags.weights += first;
  }
  if (bags.bag_scale != nullptr) bags.bag_scale += first;
  bags.bags = count;
  bags.entry_bound = entries;
  bags.first_entry = first_entry;
  return bags;
}

/// The batch of a step: its ids, checked, and what they say of this rank. Written by `admit`.
template <IdType Id, class Backend>
class AdmittedBatch {
 public:
  using Checks = IdChecks<Backend>;

  /// Admits this rank's samples of `features`: all. `rate`: of this rank now; NaN: ranks do not
  /// compare it.
  void admit(const Backend& backend, const Layout& layout, std::span<const int> features,
             const KeyedJagged<Id>& ids, const Checks& checks, double rate) {
    model_parallel_ = false;
    samples_ = ids.batch;
    sample_begin_.assign({0, ids.batch});
    check(backend, layout, features, ids, checks, rate);
  }

  /// Admits model-parallel input: the global batch of the features that this rank's shards read, of
  /// which each rank has the samples that `given` says (ranks + 1 numbers), or as many as others.
  void admit_global(const Backend& backend, const Layout& layout, const RankLayout& routing,
                    const KeyedJagged<Id>& ids, std::span<const std::int64_t> given,
                    const Checks& checks, double rate) {
    model_parallel_ = true;
    check_features(ids, routing.local_features().size());
    const int ranks = routing.ranks();
    require(given.empty() || static_cast<int>(given.size()) == ranks + 1,
            "forward_model_parallel: {} sample boundaries for {} ranks; give {}", given.size(),
            ranks, ranks + 1);
    sample_begin_.resize(static_cast<std::size_t>(ranks) + 1);
    for (int r = 0; r <= ranks; ++r)
      sample_begin_[r] = given.empty() ? even_cut(ids.batch, ranks, r) : given[r];
    require(sample_begin_[0] == 0 && sample_begin_[ranks] == ids.batch &&
                std::is_sorted(sample_begin_.begin(), sample_begin_.end()),
            "forward_model_parallel: sample boundaries must ascend from 0 to the batch ({})",
            ids.batch);
    samples_ = sample_begin_[routing.rank() + 1] - sample_begin_[routing.rank()];
    check(backend, layout, routing.local_features(), ids, checks, rate);
  }

  /// Makes the step one of fixed sizes (EqualSizes): other ranks' batches have the bounds of this
  /// one.
  void fix_sizes(const Layout& layout, int ranks) {
    most_entries_.assign(layout.tables.size(), 0);
    for (std::size_t f = 0; f < layout.features.size(); ++f) {
      const std::int64_t most = part(static_cast<int>(f), 0).entry_bound;
      require(most <= std::numeric_limits<std::int32_t>::max(),
              "option equal_batches: the bound of feature '{}' is {}; at most 2^31 - 1",
              layout.features[f].name, most);
      most_entries_[layout.feature_table[f]] += most * ranks;
    }
  }

  std::int64_t samples() const { return samples_; }  ///< of this rank
  std::int64_t ids() const { return ids_; }          ///< of the batch given
  double learning_rate() const { return learning_rate_; }
  bool model_parallel() const { return model_parallel_; }
  /// Returns, if model parallel, the first global sample of a rank.
  std::int64_t sample_begin(int rank) const {
    return sample_begin_[static_cast<std::size_t>(rank)];
  }
  /// Returns the most entries of each table, of all ranks; in a step of fixed sizes, else empty.
  std::span<const std::int64_t> most_entries() const { return most_entries_; }
  /// Returns whether every rank's messages have the room that this rank's bounds tell: no rank is
  /// asked for sizes.
  bool fixed_sizes() const { return !most_entries_.empty(); }

  const FeatureInput<Id>& operator[](int feature) const { return inputs_[feature]; }
  /// Returns a feature's bags of this rank's samples, or, model parallel, of rank i's; with their
  /// exact number of entries if the host knows it.
  op::Bags<Id> part(int feature, std::size_t i) const {
    const op::Bags<Id>& bags = inputs_[feature].bags;
    const std::int64_t first = sample_begin_[i], count = sample_begin_[i + 1] - first;
    if (bags.offsets == nullptr) return part_of(bags, first, count, count, 0);
    if (ends_.empty()) return bags;  // one part
    const std::size_t k = index_of_[feature] * sample_begin_.size() + i;
    return part_of(bags, first, count, ends_[k + 1] - ends_[k], ends_[k]);
  }

 private:
  void check(const Backend& backend, const Layout& layout, std::span<const int> features,
             const KeyedJagged<Id>& ids, const Checks& checks, double rate) {
    ids_ = std::ssize(ids.ids);
    learning_rate_ = rate;
    most_entries_.clear();
    ends_.clear();
    inputs_.assign(layout.features.size(), {});
    index_of_.assign(layout.features.size(), 0);
    for (std::size_t k = 0; k < features.size(); ++k) index_of_[features[k]] = k;
    admission_.admit(backend, layout, features, ids, sample_begin_, checks, inputs_, ends_);
  }

  std::conditional_t<Backend::host_readable, HostAdmission<Id, Backend>,
                     DeviceAdmission<Id, Backend>>
      admission_;
  PodVector<FeatureInput<Id>> inputs_;  // by feature of the layout
  std::vector<std::size_t> index_of_;   // of a feature of the layout in the batch
  // entries before each cut, by feature of the batch; empty: not known or not needed
  std::vector<std::int64_t> ends_;
  std::int64_t samples_ = 0, ids_ = 0;
  double learning_rate_ = 0;
  bool model_parallel_ = false;
  std::vector<std::int64_t> sample_begin_, most_entries_;
};

}}}  // namespace tessera::v0::detail
