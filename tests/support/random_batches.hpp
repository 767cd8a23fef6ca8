// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/jagged.hpp>

#include <support/random_layouts.hpp>
#include <support/reference_embeddings.hpp>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace random_layouts {

inline reference::Batch random_batch(Random& random, const Model& model, int samples,
                                     bool one_hot) {
  reference::Batch batch;
  for (const FeatureSpec& feature : model.features) {
    const auto table = std::find_if(model.tables.begin(), model.tables.end(),
                                    [&](const TableSpec& t) { return t.name == feature.table; });
    const bool always_empty = !one_hot && pick(random, 0, 6) == 0;
    auto& bags = batch.emplace_back();
    for (int s = 0; s < samples; ++s) {
      reference::Bag bag;
      for (int n = one_hot ? 1 : always_empty ? 0 : pick(random, 0, 5); n-- > 0;) {
        bag.ids.push_back(
            pick(random, 0, 2) == 0 ? 0 : pick(random, 0, static_cast<int>(table->rows) - 1));
        bag.weights.push_back(static_cast<float>(pick(random, -8, 8)) / 4);
      }
      bags.push_back(bag);
    }
  }
  return batch;
}

/// Samples [begin, end) of a batch in the collection's form.
template <class Id>
struct Input {
  std::vector<Id> ids;
  std::vector<std::int64_t> offsets;
  std::vector<float> weights;
  std::int64_t features, samples;

  Input(const reference::Batch& batch, std::span<const int> which, std::int64_t begin,
        std::int64_t end, bool one_hot)
      : features(static_cast<std::int64_t>(which.size())), samples(end - begin) {
    if (!one_hot) offsets.push_back(0);
    for (const int f : which)
      for (std::int64_t s = begin; s < end; ++s) {
        for (const std::int64_t id : batch[f][s].ids) ids.push_back(static_cast<Id>(id));
        weights.insert(weights.end(), batch[f][s].weights.begin(), batch[f][s].weights.end());
        if (!one_hot) offsets.push_back(static_cast<std::int64_t>(ids.size()));
      }
  }
  KeyedJagged<Id> view() const { return {features, samples, ids, offsets, weights}; }
};

}  // namespace random_layouts
