// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/dense/mlp_layers.hpp>
#include <tessera/host/gradients.hpp>
#include <tessera/op/gradients.hpp>
#include <tessera/tables/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera { inline namespace v0 {

/// All dense parameters of a model in one contiguous array of the backend's memory and their
/// gradients in another, so that one all-reduce or one optimizer step serves every layer. Binds the
/// layers in the given order; each gets a contiguous part of both. A layer is anything with
/// `parameter_count()`, `bind(values, gradients)` and `initialize(seed, first_layer)`, which
/// returns the next layer's number. Initial values depend on (seed, layer, index) alone: every rank
/// builds the same ones. Must outlive its layers' use; moving it is fine.
///
///     DenseParameters parameters(host, 42, bottom, top);  // all layers in one array
///     communicator.all_reduce(parameters.gradients());
template <class Backend = Host>
class DenseParameters {
 public:
  template <class... Layers>
  DenseParameters(const Backend& backend, std::uint64_t seed, Layers&... layers)
      : backend_(backend) {
    const auto count = static_cast<std::size_t>((std::int64_t{0} + ... + layers.parameter_count()));
    for (Buffer<float, Backend>* const each : {&values_, &gradients_})
      backend_.fill_zero(each->resize(backend_, count).data(), count * sizeof(float));
    detail::bind_layers(values(), gradients(), seed, layers...);
  }
  template <class... Layers>
  explicit DenseParameters(std::uint64_t seed, Layers&... layers)
      : DenseParameters(Backend(), seed, layers...) {}

  DenseParameters(DenseParameters&&) = default;
  DenseParameters& operator=(DenseParameters&&) = default;

  std::int64_t size() const { return static_cast<std::int64_t>(values_.size()); }
  // In the backend's memory:
  std::span<float> values() { return values_.span(); }
  std::span<const float> values() const { return values_.span(); }
  std::span<float> gradients() { return gradients_.span(); }
  std::span<const float> gradients() const { return gradients_.span(); }

  /// Sets this batch's gradients aside, on top of those of the batches before.
  void accumulate() {
    const std::span<float> sum = sum_.resize(backend_, gradients_.size());
    if (!accumulated_) backend_.fill_zero(sum.data(), sum.size_bytes());
    accumulated_ = true;
    op::run<op::AddValues>(backend_, {sum.data(), gradients_.data(), size()});
  }
  /// Makes what was set aside, and nothing else, the gradients. Throws InvalidArgument if nothing
  /// was.
  void take_accumulated() {
    require(accumulated_ || size() == 0,
            "take_accumulated: no gradients are accumulated; call accumulate after each backward");
    backend_.copy(gradients_.data(), sum_.data(), gradients_.size() * sizeof(float));
    accumulated_ = false;
  }

 private:
  Backend backend_;
  Buffer<float, Backend> values_, gradients_;
  Buffer<float, Backend> sum_;  ///< of what is set aside
  bool accumulated_ = false;
};

}}  // namespace tessera::v0
