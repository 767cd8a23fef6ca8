// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/dense/mlp_layers.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera::inline v0 {

/// All dense parameters of a model in one contiguous buffer and their gradients in another, so that
/// one all-reduce or one optimizer step serves every layer. Binds the layers in the given order;
/// each gets a contiguous part of both. A layer is anything with `parameter_count()`, `bind(values,
/// gradients)` and `initialize(seed, first_layer)`, which returns the next layer's number. Initial
/// values depend on (seed, layer, index) alone: every rank builds the same ones. Must outlive its
/// layers' use; moving it is fine.
class DenseParameters {
 public:
  template <class... Layers>
  explicit DenseParameters(std::uint64_t seed, Layers&... layers)
      : values_(static_cast<std::size_t>((std::int64_t{0} + ... + layers.parameter_count()))),
        gradients_(values_.size()) {
    detail::bind_layers(values(), gradients(), seed, layers...);
  }

  DenseParameters(const DenseParameters&) = delete;
  DenseParameters& operator=(const DenseParameters&) = delete;
  DenseParameters(DenseParameters&&) = default;
  DenseParameters& operator=(DenseParameters&&) = default;

  std::int64_t size() const { return static_cast<std::int64_t>(values_.size()); }
  std::span<float> values() { return values_; }
  std::span<const float> values() const { return values_; }
  std::span<float> gradients() { return gradients_; }
  std::span<const float> gradients() const { return gradients_; }

  /// Sets this batch's gradients aside, on top of those of the batches before.
  void accumulate() {
    sum_.resize(gradients_.size());
    for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += gradients_[i];
  }
  /// What was set aside, and nothing else, becomes the gradients. Throws InvalidArgument where
  /// nothing was.
  void take_accumulated() {
    require(!sum_.empty() || gradients_.empty(),
            "take_accumulated: no gradients are accumulated; call accumulate after each backward");
    std::copy(sum_.begin(), sum_.end(), gradients_.begin());
    sum_.clear();
  }

 private:
  std::vector<float> values_;
  std::vector<float> gradients_;
  std::vector<float> sum_;  ///< empty: nothing is set aside
};

}  // namespace tessera::inline v0
