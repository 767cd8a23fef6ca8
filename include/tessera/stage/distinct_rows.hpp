// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/op/distinct_ids.hpp>
#include <tessera/op/lookup.hpp>
#include <tessera/op/update.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/rank_layout.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

namespace tessera::inline v0 {

/// Duplicate removal before the exchange. Of a feature whose rows are on other ranks each distinct
/// id of this rank's batch travels once, as a batch of its own with one id per bag; the rows come
/// back unpooled and are pooled here, in the order of the bag's ids. Backward merges the gradients
/// of each distinct id here, and one row per id travels.
template <IdType Id, class Backend>
class DistinctRows {
 public:
  /// No feature is treated.
  void clear() { features_.clear(); }

  /// Treats the features that travel. `inputs` stay in use until the end of the step.
  template <class Inputs>
  void find(const Backend& backend, const Layout& layout, const RankLayout& routing,
            const Inputs& inputs) {
    features_.assign(layout.features.size(), {});
    std::size_t entries = 0;
    for (std::size_t f = 0; f < features_.size(); ++f) {
      Feature& feature = features_[f];
      feature.bags = inputs.part(static_cast<int>(f), 0);
      feature.active = routing.travels(static_cast<int>(f));
      feature.gradients = routing.gradients(static_cast<int>(f));
      feature.width = layout.tables[layout.feature_table[f]].width;
      feature.rows = layout.tables[layout.feature_table[f]].rows;
      feature.column = layout.feature_column[f];
      require(feature.bags.bags == 0 ||
                  feature.bags.entry_bound < std::numeric_limits<std::int32_t>::max(),
              "Deduplicate: feature '{}' has {} ids on this rank; at most 2^31 - 2",
              layout.features[f].name, feature.bags.entry_bound);
      if (feature.active && feature.bags.bags != 0)
        entries += static_cast<std::size_t>(feature.bags.entry_bound);
    }
    Id* distinct = ids_.resize(backend, entries).data();
    // not null, as places are counted from before it
    std::int32_t* index = index_.resize(backend, entries + 1).data();
    std::vector<typename op::DistinctIds<Id>::Job> jobs;
    for (const Feature& feature : features_)
      if (feature.active && feature.bags.bags != 0) {
        const std::int64_t count = feature.bags.entry_bound;
        jobs.push_back(
            {feature.bags.ids + feature.bags.first_entry, count, distinct, index, 0, feature.rows});
        distinct += count;
        index += count;
      }
    op::run<op::DistinctIds<Id>>(backend, {jobs});
    auto job = jobs.begin();
    std::size_t floats = 0;
    for (Feature& feature : features_) {
      if (!feature.active) continue;
      feature.first = floats;
      if (feature.bags.bags == 0) continue;
      feature.ids.ids = job->distinct;
      feature.ids.bags = feature.ids.entry_bound = job->found;
      feature.indices.ids = job->index - feature.bags.first_entry;
      feature.indices.offsets = feature.bags.offsets;
      feature.indices.weights = feature.bags.weights;
      feature.indices.bag_scale = feature.bags.bag_scale;
      feature.indices.bags = feature.bags.bags;
      feature.indices.entry_bound = feature.bags.entry_bound;
      feature.indices.first_entry = feature.bags.first_entry;
      const std::size_t size = static_cast<std::size_t>(job->found * feature.width);
      floats += (size + 15) / 16 * 16;  // rows of every feature begin as tables do, at 64 bytes
      ++job;
    }
    rows_.resize(backend, floats);
    gradients_.resize(backend, floats);
  }

  bool active(int feature) const { return !features_.empty() && features_[feature].active; }
  /// First column of an active feature in the output.
  std::int64_t column(int feature) const { return features_[feature].column; }
  /// Distinct ids of an active feature: one per bag.
  const op::Bags<Id>& ids(int feature) const { return features_[feature].ids; }
  /// The batch's bags of an active feature, with the places of their ids among the distinct ones
  /// for ids.
  const op::Bags<std::int32_t>& indices(int feature) const { return features_[feature].indices; }
  /// Rows of an active feature's distinct ids, and their merged gradients: [ids, width].
  MatrixView<float> rows(int feature) const { return view(rows_, feature); }
  MatrixView<float> gradients(int feature) const { return view(gradients_, feature); }

  /// Pools the rows into the features' columns of `output`.
  template <class Store>
  void pool(const Backend& backend, MatrixView<float> output) {
    for (std::size_t f = 0; f < features_.size(); ++f) {
      const Feature& feature = features_[f];
      if (!feature.active || feature.bags.bags == 0) continue;
      const op::LookupGroup<std::int32_t> groups[] = {
          {feature.indices, output.data + feature.column, output.stride}};
      Store::with_width(feature.width, [&]<int Width>(std::integral_constant<int, Width>) {
        op::run<op::Lookup<float, std::int32_t, Width>>(
            backend, {rows_.data() + feature.first, feature.width, groups});
      });
    }
  }

  /// Merges the output's gradient by distinct id, in the order of the batch.
  template <class Store>
  void merge(const Backend& backend, MatrixView<const float> gradient) {
    for (std::size_t f = 0; f < features_.size(); ++f) {
      const Feature& feature = features_[f];
      if (!feature.active || !feature.gradients || feature.ids.bags == 0) continue;
      const std::vector<op::GradientGroup<std::int32_t>> groups{
          {feature.indices, gradient.data + feature.column, gradient.stride}};
      // Every distinct id occurs: row i of the result is that of id i.
      op::MergedGradients merged{
          0, merged_rows_.resize(backend, static_cast<std::size_t>(feature.ids.bags)).data(),
          gradients_.data() + feature.first};
      Store::with_width(feature.width, [&]<int Width>(std::integral_constant<int, Width>) {
        op::run<op::Merge<std::int32_t, Width>>(
            backend, {feature.ids.bags, feature.width, groups, &merged, true});
      });
    }
  }

 private:
  struct Feature {
    bool active = false;
    bool gradients = true;  // are sent
    int width = 0;
    std::int64_t rows = 0;    // of the table
    std::int64_t column = 0;  // in the output
    std::size_t first = 0;    // float of rows_ and gradients_
    op::Bags<Id> bags;
    op::Bags<Id> ids;
    op::Bags<std::int32_t> indices;
  };

  MatrixView<float> view(const Buffer<float, Backend>& memory, int f) const {
    return {memory.data() + features_[f].first, features_[f].ids.bags, features_[f].width};
  }

  std::vector<Feature> features_;  // of the layout
  Buffer<Id, Backend> ids_;
  Buffer<std::int32_t, Backend> index_;
  Buffer<float, Backend> rows_, gradients_;
  Buffer<std::int64_t, Backend> merged_rows_;
};

}  // namespace tessera::inline v0
