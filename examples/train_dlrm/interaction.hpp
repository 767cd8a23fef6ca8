// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model_shape.hpp"
#include "options.hpp"
#include "plans.hpp"

#include <tessera/core/matrix_view.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/interaction/dot.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace dlrm {

/// A dense tensor in a backend's memory, as a checkpoint names it.
struct DenseTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<float> values;
};

/// What makes the top layers' input of a sample's vectors, in a backend's memory; a layer of its
/// dense parameters, which may have none.
class Interaction {
 public:
  virtual ~Interaction() = default;
  /// Of z.
  virtual std::int64_t columns() const = 0;
  /// z [batch, columns()] from x [batch, columns of the model's shape], which stays as it is until
  /// backward.
  virtual void forward(tessera::MatrixView<const float> x, tessera::MatrixView<float> z) = 0;
  /// dx from dz, and the gradients of the parameters; x is that of the last forward.
  virtual void backward(tessera::MatrixView<const float> x, tessera::MatrixView<const float> dz,
                        tessera::MatrixView<float> dx) = 0;

  /// The parameters do not change until this is called again.
  virtual void keep_weights() {}
  virtual std::int64_t parameter_count() const { return 0; }
  virtual void bind(std::span<float>, std::span<float>) {}
  virtual int initialize(std::uint64_t, int first_layer) { return first_layer; }
  virtual std::span<const float> gradients() const { return {}; }
  virtual std::vector<DenseTensor> tensors() const { return {}; }
};

/// Cross layers of either backend.
template <class Cross>
class CrossOf final : public Interaction {
 public:
  template <class... Arguments>
  explicit CrossOf(Arguments&&... arguments) : cross_(std::forward<Arguments>(arguments)...) {}

  std::int64_t columns() const override { return cross_.width(); }
  void forward(tessera::MatrixView<const float> x, tessera::MatrixView<float> z) override {
    cross_.forward(x, z);
  }
  void backward(tessera::MatrixView<const float>, tessera::MatrixView<const float> dz,
                tessera::MatrixView<float> dx) override {
    cross_.backward(dz, dx);
  }
  void keep_weights() override {
    if constexpr (requires { cross_.keep_weights(); }) cross_.keep_weights();
  }
  std::int64_t parameter_count() const override { return cross_.parameter_count(); }
  void bind(std::span<float> values, std::span<float> gradients) override {
    cross_.bind(values, gradients);
    values_ = values;
    gradients_ = gradients;
  }
  int initialize(std::uint64_t seed, int first_layer) override {
    return cross_.initialize(seed, first_layer);
  }
  std::span<const float> gradients() const override { return gradients_; }
  std::vector<DenseTensor> tensors() const override {
    std::vector<DenseTensor> all;
    std::span<float> rest = values_;
    const auto next = [&](int layer, const char* name, std::vector<std::int64_t> shape) {
      std::size_t count = 1;
      for (const std::int64_t n : shape) count *= static_cast<std::size_t>(n);
      all.push_back({fmt::format("cross.{}.{}", layer, name), std::move(shape), rest.first(count)});
      rest = rest.subspan(count);
    };
    const std::int64_t width = cross_.width(), rank = cross_.rank();
    for (int l = 0; l < cross_.layers(); ++l) {
      if (cross_.low_rank()) next(l, "v", {rank, width});
      next(l, "u", {width, cross_.low_rank() ? rank : width});
      next(l, "bias", {width});
    }
    return all;
  }

 private:
  Cross cross_;
  std::span<float> values_, gradients_;
};

/// Dot products, padded to whole registers: the products of the top layers like their rows aligned.
template <class Backend, int Width, bool Tf32>
class DotOf final : public Interaction {
  using Products = tessera::DotInteraction<kFeatures + 1, Width, 16, float, Tf32>;

 public:
  explicit DotOf(const Backend& backend) : backend_(backend) {}
  std::int64_t columns() const override { return Products::columns(); }
  void forward(tessera::MatrixView<const float> x, tessera::MatrixView<float> z) override {
    Products::forward(backend_, x, z);
  }
  void backward(tessera::MatrixView<const float> x, tessera::MatrixView<const float> dz,
                tessera::MatrixView<float> dx) override {
    Products::backward(backend_, x, dz, dx);
  }

 private:
  Backend backend_;
};

/// Of Criteo's features with vectors of one of kWidths; null for another width.
template <bool Tf32, class Backend>
std::unique_ptr<Interaction> make_dot(const Backend& backend, int width) {
  std::unique_ptr<Interaction> found;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    (void)((width == kWidths[I] &&
            (found = std::make_unique<DotOf<Backend, kWidths[I], Tf32>>(backend))) ||
           ...);
  }(std::make_index_sequence<kWidths.size()>{});
  return found;
}

/// interaction_of, on the host.
std::unique_ptr<Interaction> make_interaction(const Options& options, const ModelShape& shape,
                                              const tessera::Host& host);

}  // namespace dlrm
