// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/pod_vector.hpp>
#include <tessera/ids/host_admission.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// The same for backends whose memory the host cannot read. The whole batch is checked and copied by
/// one operation, so that the caller's memory is free after `forward`. The host waits only where
/// offsets are given and their sizes are needed: not on one rank whose tables are all whole and of
/// one width, nor for batches with bounds (KeyedJagged::bounds) on one rank or if all ranks' are
/// equal, unless duplicates are removed; then `ends` stays empty.
template <IdType Id, class Backend>
class DeviceAdmission {
 public:
  /// Admits as HostAdmission's does.
  void admit(const Backend& backend, const Layout& layout, std::span<const int> features,
             const KeyedJagged<Id>& batch, std::span<const std::int64_t> cuts,
             const IdChecks<Backend>& checks, PodVector<FeatureInput<Id>>& inputs,
             std::vector<std::int64_t>& ends) {
    checks.report.raise(backend, layout);
    check_features(batch, features.size());
    for (const int f : features)
      checks.template require_room<Id>(layout.tables[layout.feature_table[f]]);
    offsets_given_ = !batch.one_hot();
    make_jobs(layout, features, batch);
    run(backend, batch, checks);
    checks.report.send(backend, layout, features);
    const bool known = checks.sizes == SizesNeeded::none ||
                       (checks.sizes == SizesNeeded::bounds && !batch.bounds.empty());
    if (offsets_given_ && !known) {
      read_ends(backend, batch, cuts, ends);
      checks.report.raise(backend, layout);
    }
    describe(batch, features, !ends.empty(), inputs);
  }

 private:
  using Job = typename op::AdmitIds<Id>::Job;

  void make_jobs(const Layout& layout, std::span<const int> features,
                 const KeyedJagged<Id>& batch) {
    jobs_.clear();
    for (const int f : features) {
      const FeatureSpec& feature = layout.features[f];
      check_weights(feature, batch.weights.size(), batch.ids.size());
      const int table = layout.feature_table[f];
      Job& job = jobs_.emplace_back();
      job.rows = layout.tables[table].rows;
      job.table = table;
      if (offsets_given_) job.pooling = feature.pooling;
      job.weighted = feature.weighted;
      if (!batch.bounds.empty()) job.bound = batch.bounds[jobs_.size() - 1];
    }
  }

  void run(const Backend& backend, const KeyedJagged<Id>& batch, const IdChecks<Backend>& checks) {
    const auto any = [&](auto which) { return std::any_of(jobs_.begin(), jobs_.end(), which); };
    const bool scales = any([](const Job& j) { return j.scales(); }),
               scales_weights = any([](const Job& j) { return j.scales_weights(); });
    ids_.resize(backend, batch.ids.size());
    offsets_.resize(backend, batch.offsets.size());
    scale_.resize(backend, scales ? static_cast<std::size_t>(batch.features * batch.batch) : 0);
    scaled_weights_.resize(backend, scales_weights ? batch.ids.size() : 0);
    const bool weighted = any([](const Job& j) { return j.weighted; });
    weights_.resize(backend, weighted ? batch.weights.size() : 0);
    if (weighted) backend.copy(weights_.data(), batch.weights.data(), batch.weights.size_bytes());
    op::run<op::AdmitIds<Id>>(backend, {.ids = batch.ids.data(),
                                        .count = static_cast<std::int64_t>(batch.ids.size()),
                                        .room = !batch.bounds.empty(),
                                        .offsets = offsets_given_ ? batch.offsets.data() : nullptr,
                                        .weights = batch.weights.data(),
                                        .batch = batch.batch,
                                        .jobs = jobs_,
                                        .policy = checks.bad_ids,
                                        .admitted = ids_.data(),
                                        .admitted_offsets = offsets_.data(),
                                        .scale = scale_.data(),
                                        .scaled_weights = scaled_weights_.data(),
                                        .bad_counts = checks.report.counts(),
                                        .fault = checks.report.fault()});
  }

  /// Reads offsets at the cuts of every feature.
  void read_ends(const Backend& backend, const KeyedJagged<Id>& batch,
                 std::span<const std::int64_t> cuts, std::vector<std::int64_t>& ends) {
    indices_.clear();
    for (std::int64_t k = 0; k < batch.features; ++k)
      for (const std::int64_t cut : cuts) indices_.push_back(k * batch.batch + cut);
    ends.resize(indices_.size());
    op::run<op::ReadNumbers>(backend, {offsets_.data(), indices_, ends});
  }

  void describe(const KeyedJagged<Id>& batch, std::span<const int> features, bool ends_known,
                PodVector<FeatureInput<Id>>& inputs) {
    for (std::size_t k = 0; k < jobs_.size(); ++k) {
      const Job& job = jobs_[k];
      const std::int64_t first_bag = static_cast<std::int64_t>(k) * batch.batch;
      FeatureInput<Id>& input = inputs[features[k]];
      op::Bags<Id>& bags = input.bags;
      input.base = offsets_given_ ? 0 : first_bag;
      input.weighted = job.weighted;
      input.scaled = job.scales() && !job.weighted;
      bags.bags = batch.batch;
      bags.ids = ids_.data() + input.base;
      bags.offsets = offsets_given_ ? offsets_.data() + first_bag : nullptr;
      if (job.weighted)
        bags.weights =
            (job.scales_weights() ? scaled_weights_.data() : weights_.data()) + input.base;
      if (input.scaled) bags.bag_scale = scale_.data() + first_bag;
      if (job.scales_weights()) input.length_scale = scale_.data() + first_bag;
      if (!offsets_given_ || ends_known) continue;
      bags.entry_bound =
          batch.bounds.empty() ? static_cast<std::int64_t>(batch.ids.size()) : batch.bounds[k];
      if (batch.bounds.empty()) bags.first_entry = op::Bags<Id>::part_of_batch;
    }
  }

  std::vector<std::int64_t> indices_;
  PodVector<Job> jobs_;
  bool offsets_given_ = false;
  Buffer<Id, Backend> ids_;
  Buffer<std::int64_t, Backend> offsets_;
  Buffer<float, Backend> weights_, scale_, scaled_weights_;
};

}}}  // namespace tessera::v0::detail
