// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/dense/normal.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

class Host;

namespace detail {

/// Gives each layer its part of both arrays, in the given order, and its first values.
template <class... Layers>
void bind_layers(std::span<float> values, std::span<float> gradients, std::uint64_t seed,
                 Layers&... layers) {
  std::size_t begin = 0;
  int layer = 0;
  const auto add = [&](auto& one) {
    const std::size_t count = static_cast<std::size_t>(one.parameter_count());
    one.bind(values.subspan(begin, count), gradients.subspan(begin, count));
    begin += count;
    layer = one.initialize(seed, layer);
  };
  (add(layers), ...);
}

/// One array of a dense optimizer's state: one number for each parameter, in the backend's memory.
struct DenseState {
  std::string_view name;
  std::span<float> values;
};

/// What a stack of fully connected layers, y = x W^T + b with W [out, in], is on every backend:
/// sizes, the places of parameters in memory, their first values, and the shapes that forward and
/// backward take.
class MlpLayers {
 public:
  const std::vector<std::int64_t>& sizes() const { return sizes_; }
  int layers() const { return static_cast<int>(sizes_.size()) - 1; }
  std::int64_t input_size() const { return sizes_.front(); }
  std::int64_t output_size() const { return sizes_.back(); }

  /// Returns the number of weights and biases, layer by layer: weight [out, in], then bias [out].
  std::int64_t parameter_count() const { return offset(layers()); }

  /// Uses these spans (parameter_count() floats each, in the backend's memory) from now on; the
  /// dense parameters' constructor calls it.
  void bind(std::span<float> values, std::span<float> gradients) {
    const auto count = static_cast<std::size_t>(parameter_count());
    require(values.size() == count && gradients.size() == count,
            "{}: bind needs {} parameters, got {} values and {} gradients", name_, count,
            values.size(), gradients.size());
    values_ = values;
    gradients_ = gradients;
  }

  // In the backend's memory:
  std::span<float> values() { return values_; }
  std::span<float> gradients() { return gradients_; }
  MatrixView<float> weight(int layer) {
    return {values_.data() + offset(layer), size(layer + 1), size(layer)};
  }
  std::span<float> bias(int layer) { return values_.subspan(bias_offset(layer), bias_size(layer)); }
  MatrixView<float> weight_gradient(int layer) {
    return {gradients_.data() + offset(layer), size(layer + 1), size(layer)};
  }
  std::span<float> bias_gradient(int layer) {
    return gradients_.subspan(bias_offset(layer), bias_size(layer));
  }

 protected:
  /// Takes the sizes. `name`: of the class, for errors.
  MlpLayers(std::string_view name, std::vector<std::int64_t> sizes, bool bias)
      : name_(name), sizes_(std::move(sizes)), bias_(bias) {
    require(sizes_.size() >= 2, "{}: needs an input and at least one layer, got {} sizes", name_,
            sizes_.size());
    for (const std::int64_t size : sizes_)
      require(size > 0, "{}: sizes must be positive, got {}", name_, size);
  }

  std::int64_t size(int i) const { return sizes_[static_cast<std::size_t>(i)]; }
  std::int64_t offset(int layer) const {
    std::int64_t sum = 0;
    for (int l = 0; l < layer; ++l)
      sum += size(l) * size(l + 1) + static_cast<std::int64_t>(bias_size(l));
    return sum;
  }
  std::size_t bias_size(int layer) const {
    return bias_ ? static_cast<std::size_t>(size(layer + 1)) : 0;
  }
  std::size_t bias_offset(int layer) const {
    return static_cast<std::size_t>(offset(layer) + size(layer) * size(layer + 1));
  }

  /// Writes first values into host memory: weights Glorot normal, biases normal of variance 1/out,
  /// from (seed, layer number, index).
  void first_values(std::span<float> values, std::uint64_t seed, int first_layer) const {
    for (int l = 0; l < layers(); ++l) {
      const auto in = static_cast<float>(size(l)), out = static_cast<float>(size(l + 1));
      const auto stream = static_cast<std::uint64_t>(first_layer + l) * 2;
      const auto weights = static_cast<std::size_t>(size(l) * size(l + 1));
      fill_normal(values.subspan(static_cast<std::size_t>(offset(l)), weights),
                  std::sqrt(2.0f / (in + out)), seed, stream);
      fill_normal(values.subspan(bias_offset(l), bias_size(l)), std::sqrt(1.0f / out), seed,
                  stream + 1);
    }
  }

  void require_bound() const {
    require(values_.size() == static_cast<std::size_t>(parameter_count()),
            "{}: has no parameters yet; construct DenseParameters with it, or call bind", name_);
  }
  void require_sound(const char* what, MatrixView<const float> one,
                     MatrixView<const float> other) const {
    require(one.sound() && other.sound(), "{}: {} has no memory, or a stride below its columns",
            name_, what);
  }
  /// Remembers the views of a forward pass for backward.
  void start_forward(MatrixView<const float> x, MatrixView<float> y) {
    require_bound();
    require(x.columns == input_size(), "{}: input has {} columns, the first layer takes {}", name_,
            x.columns, input_size());
    require(y.columns == output_size() && y.rows == x.rows,
            "{}: output is {} x {}, must be {} x {}", name_, y.rows, y.columns, x.rows,
            output_size());
    x_ = x;
    y_ = y;
  }
  void check_backward(MatrixView<const float> dy, MatrixView<float> dx) const {
    check_backward(dy, dx, dx.data != nullptr);
  }
  void check_backward(MatrixView<const float> dy, MatrixView<float> dx, bool wants_dx) const {
    require_bound();
    require(dy.rows == y_.rows && dy.columns == output_size(),
            "{}: output gradient is {} x {}, the last forward gave {} x {}", name_, dy.rows,
            dy.columns, y_.rows, output_size());
    require(!wants_dx || (dx.rows == x_.rows && dx.columns == input_size()),
            "{}: input gradient is {} x {}, must be {} x {}", name_, dx.rows, dx.columns, x_.rows,
            input_size());
  }

  std::span<float> values_, gradients_;
  MatrixView<const float> x_;
  MatrixView<float> y_;

 private:
  std::string_view name_;
  std::vector<std::int64_t> sizes_;
  bool bias_;
};

}  // namespace detail

/// Of an Mlp on any backend.
struct MlpOptions {
  bool last_relu = false;  ///< ReLU after the last layer too
  bool bias = true;
  DensePrecision precision = DensePrecision::float32;
  /// Products of floats may round them to 10 bits of mantissa, for the tensor cores. A backend
  /// without such products multiplies the floats unrounded.
  bool tf32 = false;
  /// On Cuda: gradients of bias and ReLU as epilogues of cuBLASLt's products, too, instead of
  /// kernels of this library. Not every version has them for every shape: if it has none, the
  /// kernels take over, layer by layer (`epilogues`).
  bool gradient_epilogues = false;
  /// On Cuda: how many of cuBLASLt's algorithms the first step times for each product, to keep the
  /// fastest; 1: the one that cuBLASLt thinks best, and so the same bits in every run.
  int candidates = 1;
};

/// A stack of fully connected layers on a backend. `Mlp<Backend>` takes its sizes at run time:
/// dense/mlp.hpp has that of Host, dense/mlp.cuh that of Cuda. With sizes in the type:
/// `Mlp<Host, 13, 512, 256, 16> bottom(host, {.last_relu = true});`
template <class Backend = Host, int... Sizes>
class Mlp : public Mlp<Backend> {
  static_assert(sizeof...(Sizes) >= 2, "Mlp: need the input's width and at least one layer's");
  static_assert(((Sizes > 0) && ...), "Mlp: sizes must be positive");

 public:
  static constexpr std::array<int, sizeof...(Sizes)> kSizes{Sizes...};

  explicit Mlp(const Backend& backend, MlpOptions options = {})
      : Mlp<Backend>(backend, {Sizes...}, options) {}
  explicit Mlp(MlpOptions options = {}) : Mlp(Backend(), options) {}
};

template <class Backend>
class Mlp<Backend> {
  static_assert(sizeof(Backend) == 0,
                "Mlp: include tessera/dense/mlp.hpp for Host, tessera/dense/mlp.cuh for Cuda");
};

/// What a Linear adds to its product, and how it multiplies.
struct LinearOptions {
  bool bias = true;
  bool relu = false;
  DensePrecision precision = DensePrecision::float32;
  bool tf32 = false;  ///< as MlpOptions'
};

/// One fully connected layer, y = x W^T + b with W [out, in], optionally ReLU of it.
///
///     Linear<Host> projection(host, 128, 16, {.relu = true});
///     DenseParameters parameters(host, 42, projection);
///     projection.forward(x, y);
template <class Backend = Host>
class Linear : public Mlp<Backend> {
 public:
  using Options = LinearOptions;

  Linear(const Backend& backend, std::int64_t in, std::int64_t out, LinearOptions options = {})
      : Mlp<Backend>(backend, {in, out},
                     {.last_relu = options.relu,
                      .bias = options.bias,
                      .precision = options.precision,
                      .tf32 = options.tf32}) {}
  Linear(std::int64_t in, std::int64_t out, LinearOptions options = {})
      : Linear(Backend(), in, out, options) {}
};

}}  // namespace tessera::v0
