// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/collection/options.hpp>
#include <tessera/op/exchange.hpp>
#include <tessera/sharding/layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::inline v0 {

/// One feature's bags, made fit for use: every id is inside the table, and coefficients are in place.
template <IdType Id>
struct FeatureInput {
  Bags<Id> bags;                            ///< row_bias 0
  std::int64_t base = 0;                    ///< index in the batch's ids of entry 0
  const std::int64_t* positions = nullptr;  ///< where ids were dropped: index in the batch's ids of each entry; else null
  std::span<const float> length_scale;      ///< of a weighted mean: 1 / ids, per bag (its weights already contain it)
  bool weighted = false;
  bool scaled = false;  ///< has bag_scale

  /// Index in the batch's ids of entry i.
  std::int64_t position(std::int64_t i) const { return positions != nullptr ? positions[i] : base + i; }
};

/// Checks a batch's ids under a bad-id policy and works out the coefficients. Copies ids only where some are bad. Keeps its memory.
template <IdType Id>
class Inputs {
 public:
  /// `features`: which features of the layout the batch holds, in its order. `bad_counts`: per table, added to.
  template <class Backend>
  void prepare(const Backend& backend, const Layout& layout, std::span<const int> features, const KeyedJagged<Id>& batch, BadIds policy,
               std::span<std::uint64_t> bad_counts) {
    require(batch.features == static_cast<std::int64_t>(features.size()), "forward: the batch has {} features, the plan needs {}",
            batch.features, features.size());
    batch.validate();
    inputs_.assign(layout.features.size(), {});
    if (owned_.size() < features.size()) owned_.resize(features.size());
    for (std::size_t i = 0; i < features.size(); ++i) {
      const int f = features[i];
      const FeatureSpec& feature = layout.features[f];
      const TableSpec& table = layout.tables[layout.feature_table[f]];
      require(!feature.weighted || batch.weights.size() == batch.ids.size(),
              "forward: feature '{}' is weighted, but the batch has no weights", feature.name);
      FeatureInput<Id>& input = inputs_[f];
      const std::int64_t k = static_cast<std::int64_t>(i);
      Bags<Id>& bags = input.bags;
      bags.bags = batch.batch;
      input.base = batch.one_hot() ? k * batch.batch : 0;
      bags.ids = batch.ids.data() + input.base;
      bags.offsets = batch.one_hot() ? nullptr : batch.offsets.data() + k * batch.batch;
      input.weighted = feature.weighted;
      if (feature.weighted) bags.weights = batch.weights.data() + input.base;
      if (feature.pooling == Pooling::mean && bags.offsets != nullptr) apply_mean(input, owned_[i]);
      check(backend, input, owned_[i], feature, table, policy, bad_counts[layout.feature_table[f]]);
    }
  }

  const FeatureInput<Id>& operator[](int feature) const { return inputs_[feature]; }

 private:
  struct Owned {
    std::vector<float> scale;
    std::vector<float> weights;
    std::vector<Id> ids;
    std::vector<std::int64_t> offsets;
    std::vector<std::int64_t> positions;
  };

  static void apply_mean(FeatureInput<Id>& input, Owned& owned) {
    Bags<Id>& bags = input.bags;
    owned.scale.resize(static_cast<std::size_t>(bags.bags));
    for (std::int64_t bag = 0; bag < bags.bags; ++bag) {
      const std::int64_t length = bags.end(bag) - bags.begin(bag);
      owned.scale[bag] = length == 0 ? 0.0f : 1.0f / static_cast<float>(length);
    }
    if (!input.weighted) {
      bags.bag_scale = owned.scale.data();
      input.scaled = true;
      return;
    }
    const std::int64_t first = bags.begin(0), last = bags.end(bags.bags - 1);
    if (bags.bags == 0 || last == first) return;
    owned.weights.resize(static_cast<std::size_t>(last - first));
    for (std::int64_t bag = 0; bag < bags.bags; ++bag)
      for (std::int64_t i = bags.begin(bag); i < bags.end(bag); ++i) owned.weights[i - first] = bags.weights[i] * owned.scale[bag];
    input.length_scale = owned.scale;
    rebase(input, owned, first);
    bags.weights = owned.weights.data();
  }

  /// Makes offsets start at 0, so that owned arrays can be indexed by them.
  static void rebase(FeatureInput<Id>& input, Owned& owned, std::int64_t first) {
    if (first == 0) return;
    Bags<Id>& bags = input.bags;
    input.base += first;
    owned.offsets.resize(static_cast<std::size_t>(bags.bags) + 1);
    for (std::int64_t bag = 0; bag <= bags.bags; ++bag) owned.offsets[bag] = bags.offsets[bag] - first;
    bags.offsets = owned.offsets.data();
    bags.ids += first;
  }

  template <class Backend>
  static void check(const Backend& backend, FeatureInput<Id>& input, Owned& owned, const FeatureSpec& feature, const TableSpec& table,
                    BadIds policy, std::uint64_t& bad_count) {
    Bags<Id>& bags = input.bags;
    if (bags.bags == 0) return;
    const std::int64_t first = bags.begin(0);
    typename CheckIds<Id>::Result result;
    run<CheckIds<Id>>(backend, {bags.ids + first, bags.entries(), table.rows, &result});
    if (result.bad == 0) return;
    if (policy == BadIds::throw_error) {
      std::int64_t sample = 0;
      while (bags.end(sample) <= first + result.first) ++sample;
      throw BadId(feature.name, sample, static_cast<std::int64_t>(bags.ids[first + result.first]), table.rows);
    }
    bad_count += static_cast<std::uint64_t>(result.bad);
    policy == BadIds::zero_vector ? drop(input, owned, table.rows) : replace(input, owned, table.rows, policy);
  }

  static bool is_bad(Id id, std::int64_t rows) { return id < 0 || static_cast<std::int64_t>(id) >= rows; }

  static void replace(FeatureInput<Id>& input, Owned& owned, std::int64_t rows, BadIds policy) {
    Bags<Id>& bags = input.bags;
    const std::int64_t first = bags.begin(0), count = bags.entries();
    owned.ids.resize(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t id = bags.ids[first + i];
      const std::int64_t good = policy == BadIds::clamp ? std::clamp<std::int64_t>(id, 0, rows - 1) : ((id % rows) + rows) % rows;
      owned.ids[i] = static_cast<Id>(good);
    }
    if (bags.offsets != nullptr && first != 0) {
      if (bags.weights != nullptr) bags.weights += first;
      rebase(input, owned, first);
    }
    bags.ids = owned.ids.data();
  }

  /// ids[offsets[0]] must stay where offsets says: new arrays start at 0.
  static void drop(FeatureInput<Id>& input, Owned& owned, std::int64_t rows) {
    Bags<Id>& bags = input.bags;
    std::vector<std::int64_t> offsets{0};
    std::vector<float> weights;
    owned.ids.clear();
    owned.positions.clear();
    for (std::int64_t bag = 0; bag < bags.bags; ++bag) {
      for (std::int64_t i = bags.begin(bag); i < bags.end(bag); ++i) {
        if (is_bad(bags.ids[i], rows)) continue;
        owned.ids.push_back(bags.ids[i]);
        owned.positions.push_back(input.base + i);
        if (bags.weights != nullptr) weights.push_back(bags.weights[i]);
      }
      offsets.push_back(static_cast<std::int64_t>(owned.ids.size()));
    }
    owned.offsets = std::move(offsets);
    bags.ids = owned.ids.data();
    bags.offsets = owned.offsets.data();
    if (bags.weights != nullptr) {
      owned.weights = std::move(weights);
      bags.weights = owned.weights.data();
    }
    input.positions = owned.positions.data();
  }

  std::vector<FeatureInput<Id>> inputs_;  // by feature of the layout
  std::vector<Owned> owned_;
};

}  // namespace tessera::inline v0
