// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/op/bags.hpp>
#include <tessera/op/inputs.hpp>
#include <tessera/sharding/policies.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// A feature whose rows come to the rank that asked.
template <IdType Id>
struct DistinctFeature {
  bool active = false;
  bool needs_gradients = true;  // they are sent
  bool zero_row = false;        // follows the rows
  bool has_offsets = false;     // of its own
  bool fixed = false;
  bool asked = false;  // its vectors go to `target`
  bool later = false;  // and are read there: ids are as given until the way back
  bool weighted = false;
  MatrixView<float> target;
  MatrixView<const float> given;  // gradients of a sequence
  Pooling pooling = Pooling::sum;
  int width = 0;
  int blocks = 0;  // of samples that have ids, each a job
  std::int64_t table_rows = 0;
  std::int64_t column = 0;  // in the output
  std::size_t first = 0;    // float of rows_ and gradients_
  std::int32_t* index = nullptr;
  std::int64_t* offsets = nullptr;
  op::Bags<Id> bags;
  op::Bags<Id> ids;
  op::Bags<std::int32_t> indices;
  MatrixView<const float> gradient;

  bool is_sequence() const { return pooling == Pooling::none; }
  /// Returns the weight of each id; null: there are none.
  const float* weights() const {
    return weighted && count() != 0 ? bags.weights + bags.first_entry : nullptr;
  }
  /// Returns the number of ids of this rank.
  std::size_t count() const {
    return bags.bags == 0 ? 0 : static_cast<std::size_t>(bags.entry_bound);
  }
  std::int64_t rows() const { return ids.bags + (zero_row ? 1 : 0); }
  /// Return every id as a bag of its own: without its weight, or with it.
  op::Bags<std::int32_t> each() const {
    const auto all = static_cast<std::int64_t>(count());
    return {.ids = index, .bags = all, .entry_bound = all};
  }
  op::Bags<std::int32_t> each_weighted() const {
    op::Bags<std::int32_t> bags_of_one = each();
    bags_of_one.weights = weights();
    return bags_of_one;
  }
};

/// Returns the entries before each block of samples, and behind the last.
template <IdType Id, class Backend>
std::vector<std::int64_t> sample_cuts(const Backend& backend, const op::Bags<Id>& bags,
                                      std::int64_t blocks) {
  std::vector<std::int64_t> samples, cuts(static_cast<std::size_t>(blocks) + 1);
  for (std::int64_t b = 1; b < blocks; ++b)
    samples.push_back(even_cut(bags.bags, static_cast<int>(blocks), static_cast<int>(b)));
  const std::span<std::int64_t> inner(cuts.data() + 1, samples.size());
  if (bags.offsets == nullptr) {
    std::copy(samples.begin(), samples.end(), inner.begin());
  } else if constexpr (Backend::host_readable) {
    for (std::size_t b = 0; b < samples.size(); ++b)
      inner[b] = bags.offsets[samples[b]] - bags.offsets[0];
  } else if (!samples.empty()) {
    op::run<op::ReadNumbers>(backend, {bags.offsets, samples, inner});
    for (std::int64_t& cut : inner) cut -= bags.first_entry;
  }
  cuts.back() = bags.entry_bound;
  return cuts;
}

}}}  // namespace tessera::v0::detail
