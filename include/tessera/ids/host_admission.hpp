// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/pod_vector.hpp>
#include <tessera/ids/id_report.hpp>
#include <tessera/op/exchange.hpp>
#include <tessera/op/inputs.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/tables/rank_layout.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// One feature's bags, made fit for use: every id is inside the table, and coefficients are in
/// place.
template <IdType Id>
struct FeatureInput {
  op::Bags<Id> bags;      ///< row_bias 0
  std::int64_t base = 0;  ///< index in the batch's ids of entry 0
  /// if ids were dropped: index in the batch's ids of each entry; else null
  const std::int64_t* positions = nullptr;
  /// of weighted bags that are scaled: pooling_scale of each (its weights already contain it); else
  /// null
  const float* length_scale = nullptr;
  bool weighted = false;
  bool scaled = false;  ///< has bag_scale
};

/// Checks a batch's sizes, before memory is asked for.
template <IdType Id>
void check_features(const KeyedJagged<Id>& batch, std::size_t needed) {
  batch.validate_sizes();
  require(batch.features == static_cast<std::int64_t>(needed),
          "forward: the batch has {} features, the plan needs {}", batch.features, needed);
}
inline void check_weights(const FeatureSpec& feature, std::size_t weights, std::size_t ids) {
  require(!feature.weighted || weights == ids,
          "forward: feature '{}' is weighted, but the batch has no weights", feature.name);
}

/// How a batch's ids are checked.
template <class Backend>
struct IdChecks {
  BadIds bad_ids = BadIds::throw_error;
  IdReport<Backend>& report;
  SizesNeeded sizes = SizesNeeded::exact;

  /// Throws InvalidArgument if bad ids may become rows that an Id cannot hold.
  template <IdType Id>
  void require_room(const TableSpec& table) const {
    require(bad_ids != BadIds::wrap || table.rows - 1 <= std::numeric_limits<Id>::max(),
            "BadIds::wrap: table '{}' has {} rows; give ids of 64 bits", table.name, table.rows);
  }
};

/// How AdmittedBatch makes ids fit for use if the host can read a backend's memory: ids are read
/// where the caller has them and copied only if some are bad; those of a sequence become -1
/// under zero_vector. Keeps its memory. DeviceAdmission is for other backends.
template <IdType Id, class Backend>
class HostAdmission {
 public:
  /// Admits a batch. `features`: which features of the layout the batch holds, in its order;
  /// `inputs` of them are set. `cuts`: samples [cuts[i], cuts[i+1]) are one part; `ends` gets, by
  /// feature of the batch, its entries before each cut, if bags have offsets.
  void admit(const Backend& backend, const Layout& layout, std::span<const int> features,
             const KeyedJagged<Id>& batch, std::span<const std::int64_t> cuts,
             const IdChecks<Backend>& checks, PodVector<FeatureInput<Id>>& inputs,
             std::vector<std::int64_t>& ends) {
    check_features(batch, features.size());
    batch.validate();
    const std::span<std::uint64_t> bad_counts = checks.report.counts();
    if (owned_.size() < features.size()) owned_.resize(features.size());
    for (std::size_t i = 0; i < features.size(); ++i) {
      const int f = features[i];
      const FeatureSpec& feature = layout.features[f];
      const TableSpec& table = layout.tables[layout.feature_table[f]];
      check_weights(feature, batch.weights.size(), batch.ids.size());
      FeatureInput<Id>& input = inputs[f];
      const std::int64_t k = static_cast<std::int64_t>(i);
      op::Bags<Id>& bags = input.bags;
      bags.bags = batch.batch;
      input.base = batch.one_hot() ? k * batch.batch : 0;
      bags.ids = batch.ids.data() + input.base;
      bags.offsets = batch.one_hot() ? nullptr : batch.offsets.data() + k * batch.batch;
      input.weighted = feature.weighted;
      if (feature.weighted) bags.weights = batch.weights.data() + input.base;
      if (op::scales_sums(feature.pooling) && bags.offsets != nullptr)
        apply_scale(input, owned_[i], feature.pooling);
      check(backend, input, owned_[i], feature, table, checks, bad_counts[layout.feature_table[f]]);
      for (const std::int64_t cut : cuts)
        ends.push_back(bags.offsets == nullptr ? 0 : bags.offsets[cut]);
    }
  }

 private:
  struct Owned {
    std::vector<float> scale;
    std::vector<float> weights;
    std::vector<Id> ids;
    std::vector<std::int64_t> offsets;
    std::vector<std::int64_t> positions;
  };

  static void apply_scale(FeatureInput<Id>& input, Owned& owned, Pooling pooling) {
    op::Bags<Id>& bags = input.bags;
    owned.scale.resize(static_cast<std::size_t>(bags.bags));
    for (std::int64_t bag = 0; bag < bags.bags; ++bag) {
      owned.scale[bag] = op::pooling_scale(pooling, bags.end(bag) - bags.begin(bag));
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
      for (std::int64_t i = bags.begin(bag); i < bags.end(bag); ++i)
        owned.weights[i - first] = bags.weights[i] * owned.scale[bag];
    input.length_scale = owned.scale.data();
    rebase(input, owned, first);
    bags.weights = owned.weights.data();
  }

  /// Makes offsets start at 0, so that owned arrays can be indexed by them.
  static void rebase(FeatureInput<Id>& input, Owned& owned, std::int64_t first) {
    if (first == 0) return;
    op::Bags<Id>& bags = input.bags;
    input.base += first;
    owned.offsets.resize(static_cast<std::size_t>(bags.bags) + 1);
    for (std::int64_t bag = 0; bag <= bags.bags; ++bag)
      owned.offsets[bag] = bags.offsets[bag] - first;
    bags.offsets = owned.offsets.data();
    bags.ids += first;
  }

  static void check(const Backend& backend, FeatureInput<Id>& input, Owned& owned,
                    const FeatureSpec& feature, const TableSpec& table,
                    const IdChecks<Backend>& checks, std::uint64_t& bad_count) {
    const BadIds policy = checks.bad_ids;
    checks.template require_room<Id>(table);
    op::Bags<Id>& bags = input.bags;
    if (bags.bags == 0) return;
    const std::int64_t first = bags.begin(0);
    typename op::CheckIds<Id>::Result result;
    op::run<op::CheckIds<Id>>(backend, {bags.ids + first, bags.entries(), table.rows, &result});
    if (result.bad == 0) return;
    if (policy == BadIds::throw_error) {
      std::int64_t sample = 0;
      while (bags.end(sample) <= first + result.first) ++sample;
      throw BadId(feature.name, sample, static_cast<std::int64_t>(bags.ids[first + result.first]),
                  table.rows, checks.report.rank());
    }
    // other threads look up, too
    std::atomic_ref(bad_count).fetch_add(static_cast<std::uint64_t>(result.bad),
                                         std::memory_order_relaxed);
    // the ids of a sequence keep their places
    if (policy == BadIds::zero_vector && feature.pooling != Pooling::none)
      drop(input, owned, table.rows);
    else
      replace(input, owned, table.rows, policy);
  }

  static bool is_bad(Id id, std::int64_t rows) {
    return id < 0 || static_cast<std::int64_t>(id) >= rows;
  }

  static void replace(FeatureInput<Id>& input, Owned& owned, std::int64_t rows, BadIds policy) {
    op::Bags<Id>& bags = input.bags;
    const std::int64_t first = bags.begin(0), count = bags.entries();
    owned.ids.resize(static_cast<std::size_t>(count));
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t id = bags.ids[first + i];
      const std::int64_t good = policy == BadIds::clamp  ? std::clamp<std::int64_t>(id, 0, rows - 1)
                                : policy == BadIds::wrap ? ((id % rows) + rows) % rows
                                : is_bad(id, rows)       ? -1
                                                         : id;
      owned.ids[i] = static_cast<Id>(good);
    }
    if (bags.offsets != nullptr && first != 0) {
      if (bags.weights != nullptr) bags.weights += first;
      rebase(input, owned, first);
    }
    bags.ids = owned.ids.data();
  }

  /// Drops ids: ids[offsets[0]] must stay where offsets says: new arrays start at 0.
  static void drop(FeatureInput<Id>& input, Owned& owned, std::int64_t rows) {
    op::Bags<Id>& bags = input.bags;
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

  std::vector<Owned> owned_;  // by feature of the batch
};

}}}  // namespace tessera::v0::detail
