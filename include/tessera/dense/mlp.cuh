// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/dense/dense_kernels.cuh>
#include <tessera/dense/gemm.cuh>
#include <tessera/dense/mlp_layers.hpp>
#include <tessera/dense/weight_copies.cuh>
#include <tessera/tables/buffer.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// Mlp on a GPU: a stack of fully connected layers, y = x W^T + b, ReLU between them, in device
/// memory; the same parameters in the same order and with the same first values. Bias and ReLU are
/// epilogues of cuBLASLt's products. In bfloat16 hidden activations and their gradients have 16
/// bits, and so have copies of the input, of the weights and of hidden layers' biases; input and
/// output, and their gradients, may have them, too: such an input is read in place where its
/// width is a multiple of 8, and such an output's bias is rounded. One object serves one caller at a time.
template <>
class Mlp<Cuda> : public detail::MlpLayers {
 public:
  /// Makes layers of `sizes`: the input's width, then every layer's output width. Throws
  /// InvalidArgument unless there are two or more, all positive.
  Mlp(const Cuda& backend, std::vector<std::int64_t> sizes, MlpOptions options = {})
      : detail::MlpLayers("Mlp", std::move(sizes), options.bias),
        backend_(backend),
        options_(options),
        gemm_(backend, options.tf32, options.candidates),
        copies_(backend, places()),
        activations_(static_cast<std::size_t>(layers() - 1)),
        masks_(activations_.size()) {}

  /// Initializes as Mlp's, to the bit. Returns the next layer's number.
  int initialize(std::uint64_t seed, int first_layer = 0) {
    require_bound();
    std::vector<float> values(values_.size());
    first_values(values, seed, first_layer);
    backend_.copy(values_.data(), values.data(), values_.size_bytes());
    backend_.synchronize();
    return first_layer + layers();
  }

  /// What cuBLASLt's products did for a layer in the last forward and backward, under
  /// gradient_epilogues; the rest was done by kernels.
  struct Epilogues {
    bool kept_mask = false;     ///< forward: kept where the layer's ReLU let numbers through
    bool applied_mask = false;  ///< backward: the product of the layer above applied it
    bool summed = false;        ///< backward: the bias gradient
    friend bool operator==(const Epilogues&, const Epilogues&) = default;
  };
  const Epilogues& epilogues(int layer) const {
    return epilogues_.at(static_cast<std::size_t>(layer));
  }

  /// Says that the bound parameters do not change from here on, until this is called again: where
  /// products read copies of them, the next forward makes these, and later ones do not.
  void keep_weights(bool keep = true) { copies_.keep(keep); }

  /// Computes y [batch, output_size()] from x [batch, input_size()]; both may be columns of wider
  /// matrices. Remembers the views: x and y must not change until backward, and so must the
  /// parameters.
  void forward(MatrixView<const float> x, MatrixView<float> y) { forward_any(x, y); }
  /// Computes the same with 16 bits. Throws InvalidArgument unless the precision is bfloat16.
  void forward(MatrixView<const BFloat16> x, MatrixView<float> y) { forward_any(x, y); }
  void forward(MatrixView<const float> x, MatrixView<BFloat16> y) { forward_any(x, y); }
  void forward(MatrixView<const BFloat16> x, MatrixView<BFloat16> y) { forward_any(x, y); }

  /// Takes a part of gradients() that the work given to the backend so far makes final.
  using Ready = std::function<void(std::span<const float>)>;

  /// Computes, after forward, from dy, the gradient of its y, the gradients of all parameters
  /// (overwritten) and of x, written to dx unless dx is an empty view. dx may not overlap dy, x or
  /// y. `ready` is called once per layer, last layer first, as soon as the layer's weight and bias
  /// gradients have been launched.
  void backward(MatrixView<const float> dy, MatrixView<float> dx = {}, const Ready& ready = {}) {
    backward_any({dy, {}}, {dx, {}}, ready);
  }
  /// Computes the same if y has 16 bits: so has dy, or it throws InvalidArgument.
  void backward(MatrixView<const BFloat16> dy, MatrixView<float> dx = {}, const Ready& ready = {}) {
    backward_any({floats(dy), dy}, {dx, {}}, ready);
  }
  /// Computes either, with a dx of 16 bits, whatever x has.
  template <class T>
    requires std::is_same_v<T, BFloat16>
  void backward(MatrixView<const float> dy, MatrixView<T> dx, const Ready& ready = {}) {
    backward_any({dy, {}}, {floats(dx), dx}, ready);
  }
  template <class T>
    requires std::is_same_v<T, BFloat16>
  void backward(MatrixView<const BFloat16> dy, MatrixView<T> dx, const Ready& ready = {}) {
    backward_any({floats(dy), dy}, {floats(dx), dx}, ready);
  }

 private:
  /// A matrix of floats, or of 16 bits if that has data: then `floats` is its shape alone.
  template <class F, class B>
  struct Either {
    MatrixView<F> floats;
    MatrixView<B> narrow;
    bool given() const { return floats.data != nullptr || narrow.data != nullptr; }
  };
  using Given = Either<const float, const BFloat16>;
  using Wanted = Either<float, BFloat16>;
  static MatrixView<const float> floats(MatrixView<const float> m) { return m; }
  static MatrixView<float> floats(MatrixView<float> m) { return m; }
  static MatrixView<const float> floats(MatrixView<const BFloat16> m) {
    return {nullptr, m.rows, m.columns, m.stride};
  }
  static MatrixView<float> floats(MatrixView<BFloat16> m) {
    return {nullptr, m.rows, m.columns, m.stride};
  }

  template <class X, class Y>
  void forward_any(MatrixView<const X> x, MatrixView<Y> y) {
    require(bfloat16() || (std::is_same_v<X, float> && std::is_same_v<Y, float>),
            "Mlp: an input or output of 16 bits needs .precision = DensePrecision::bfloat16");
    start_forward(floats(x), floats(y));
    narrow_x_ = {};
    narrow_y_ = {};
    if constexpr (std::is_same_v<X, BFloat16>) narrow_x_ = x;
    if constexpr (std::is_same_v<Y, BFloat16>) narrow_y_ = y;
    bfloat16() ? forward_in<BFloat16>() : forward_in<float>();
  }

  void backward_any(const Given& dy, const Wanted& dx, const Ready& ready) {
    require(dy.floats.rows == 0 || (dy.narrow.data != nullptr) == (narrow_y_.data != nullptr),
            "Mlp: an output of 16 bits has a gradient of 16 bits, one of floats has one of floats");
    require(bfloat16() || dx.narrow.data == nullptr,
            "Mlp: an input gradient of 16 bits needs .precision = DensePrecision::bfloat16");
    check_backward(dy.floats, dx.floats, dx.given());
    if (dy.floats.rows == 0) {
      backend_.fill_zero(gradients_.data(), gradients_.size_bytes());
      for (int l = layers() - 1; l >= 0; --l) announce(ready, l);
      return;
    }
    bfloat16() ? backward_in<BFloat16>(dy, dx, ready) : backward_in<float>(dy, dx, ready);
  }

  template <class T>
  void forward_in() {
    const std::int64_t rows = x_.rows;
    for (int l = 1; l < layers(); ++l) {
      activations_[static_cast<std::size_t>(l - 1)].resize(
          backend_, rows * stride_of<T>(size(l)) * static_cast<std::int64_t>(sizeof(T)));
      if (options_.gradient_epilogues)
        masks_[static_cast<std::size_t>(l - 1)].resize(backend_,
                                                       rows * gpu::mask_row_bits(size(l)) / 8);
    }
    if constexpr (!std::is_same_v<T, float>)
      if (!reads_narrow_x()) {
        const std::int64_t columns = padded<T>(input_size());
        narrow_input_.resize(backend_, rows * columns);
        const MatrixView<T> copied(narrow_input_.data(), rows, columns);
        if (narrow_x_.data == nullptr) {
          gpu::narrow(backend_, x_, copied);
        } else {
          backend_.fill_zero(copied.data, narrow_input_.size() * sizeof(T));
          gpu::detail::copy_matrix<T>(backend_, narrow_x_, copied);
        }
      }
    copies_.refresh<T>(values_);
    if (relu(0)) {
      most_.resize(backend_, 2);
      backend_.fill_zero(most_.data(), most_.size() * sizeof(std::uint32_t));
      if (narrow_x_.data != nullptr)
        gpu::measure(backend_, narrow_x_, most_.data());
      else
        gpu::measure(backend_, x_, most_.data());
      gpu::measure(backend_, MatrixView<const float>(values_.data(), 1, std::ssize(values_)),
                   most_.data() + 1);
    }
    for (int l = 0; l + 1 < layers(); ++l) forward_layer<T>(l, hidden<T>(l + 1), bias_of<T>(l));
    const int last = layers() - 1;
    if constexpr (!std::is_same_v<T, float>)
      if (narrow_y_.data != nullptr) return forward_layer<T>(last, narrow_y_, bias_of<T>(last));
    forward_layer<T>(last, y_, values_.data() + bias_offset(last));
  }

  template <class T, class Out>
  void forward_layer(int l, MatrixView<Out> out, const Out* bias) {
    const MatrixView<const T> in = input<T>(l);
    gpu::GemmShape product{.rows = in.rows,
                           .columns = l + 1 < layers() ? padded<T>(size(l + 1)) : size(l + 1),
                           .inner = padded<T>(size(l)),
                           .a_stride = in.stride,
                           .b_stride = weight_of<T>(l).stride,
                           .c_stride = out.stride,
                           .b_transposed = true,
                           .bias = options_.bias,
                           .relu = relu(l)};
    const T* const weight = weight_of<T>(l).data;
    bool& masked = at(l).kept_mask;
    if (options_.gradient_epilogues && l + 1 < layers()) {
      product.keep_mask = true;
      masked = gemm_.offers(product, in.data, weight, bias, out.data, mask(l + 1));
      product.keep_mask = masked;
    }
    gemm_.run(product, in.data, weight, bias, out.data, nullptr, masked ? mask(l + 1) : nullptr);
    if (relu(l))
      gpu::keep_nan(backend_, in, weight_of<T>(l), options_.bias ? bias : nullptr, out,
                    most_.data(), l + 1, *std::max_element(sizes().begin(), sizes().end()));
  }

  template <class T>
  void backward_in(const Given& dy, const Wanted& dx, const Ready& ready) {
    const std::int64_t widest = *std::max_element(sizes().begin() + 1, sizes().end()),
                       rows = dy.floats.rows;
    for (auto& buffer : gradient_)
      buffer.resize(backend_, rows * stride_of<T>(widest) * static_cast<std::int64_t>(sizeof(T)));
    const int last = layers() - 1;
    if (dy.narrow.data == nullptr)
      backward_layer<T>(last, dy.floats, MatrixView<const float>(y_), dx, ready);
    if constexpr (!std::is_same_v<T, float>)
      if (dy.narrow.data != nullptr)
        backward_layer<T>(last, dy.narrow, MatrixView<const T>(narrow_y_), dx, ready);
    for (int l = last - 1; l >= 0; --l)
      backward_layer<T>(l, MatrixView<const T>(gradient<T>(l, rows)),
                        MatrixView<const T>(hidden<T>(l + 1)), dx, ready);
  }

  /// Goes back through a layer. `above`: the gradient of this layer's output, that of the layer
  /// below goes to gradient(l - 1) or dx.
  template <class T, class Above>
  void backward_layer(int l, MatrixView<const Above> above, MatrixView<const Above> output,
                      const Wanted& dx, const Ready& ready) {
    float* const sums = options_.bias ? gradients_.data() + bias_offset(l) : nullptr;
    // else the product of the layer above has done it
    const bool masks = relu(l) && !at(l).applied_mask;
    MatrixView<const T> g;
    if constexpr (std::is_same_v<T, Above>) g = above;
    const bool copies = masks || !std::is_same_v<T, Above>;
    if (copies) g = MatrixView<const T>(gradient<T>(l, above.rows));
    const MatrixView<const T> in = input<T>(l);
    const MatrixView<float> given = weight_gradient(l);
    const auto mask_above = [&](float* of_bias) {
      if (copies)
        gpu::mask_and_sum(backend_, above, masks ? output : MatrixView<const Above>(),
                          gradient<T>(l, above.rows), of_bias);
      else if (of_bias != nullptr)
        gpu::mask_and_sum(backend_, above, MatrixView<const Above>(), MatrixView<T>(), of_bias);
    };
    // f(where the gradient of the layer's input goes), which is empty if it is not wanted
    const auto with_below = [&](const auto& f) {
      if (l > 0) return f(gradient<T>(l - 1, above.rows));
      if constexpr (!std::is_same_v<T, float>)
        if (dx.narrow.data != nullptr) return f(dx.narrow);
      f(dx.floats);
    };
    if (l > 0) at(l - 1).applied_mask = false;
    bool& summed = at(l).summed;
    summed = false;
    const T* const weight = weight_of<T>(l).data;
    if (size(l + 1) == 1) {
      mask_above(sums);
      with_below([&](auto below) {
        gpu::one_output_backward(backend_, in, g, weight, below, given.data);
      });
      return announce(ready, l);
    }

    gpu::detail::multiply_aligned(
        backend_, weight_gradient_, given, [&](MatrixView<float> weights) {
          gpu::GemmShape product{.rows = size(l + 1),
                                 .columns = size(l),
                                 .inner = above.rows,
                                 .a_stride = g.stride,
                                 .b_stride = in.stride,
                                 .c_stride = weights.stride,
                                 .a_transposed = true};
          // of what is narrowed here, the kernel adds the floats
          if (options_.gradient_epilogues && sums != nullptr && std::is_same_v<T, Above>) {
            product.sum_a = true;
            product.sum_a = summed = gemm_.offers(product, g.data, in.data, sums, weights.data);
          }
          mask_above(summed ? nullptr : sums);
          gemm_.run(product, g.data, in.data, sums, weights.data);
        });
    announce(ready, l);
    with_below([&](auto below) {
      if (below.data == nullptr) return;
      gpu::GemmShape down{.rows = above.rows,
                          .columns = size(l),
                          .inner = size(l + 1),
                          .a_stride = g.stride,
                          .b_stride = weight_of<T>(l).stride,
                          .c_stride = below.stride};
      if (l > 0 && at(l - 1).kept_mask) {
        down.apply_mask = true;
        down.apply_mask = at(l - 1).applied_mask =
            gemm_.offers(down, g.data, weight, nullptr, below.data, mask(l));
      }
      gemm_.run(down, g.data, weight, nullptr, below.data, nullptr,
                down.apply_mask ? mask(l) : nullptr);
    });
  }

  void announce(const Ready& ready, int layer) const {
    if (ready)
      ready(gradients_.subspan(static_cast<std::size_t>(offset(layer)),
                               static_cast<std::size_t>(offset(layer + 1) - offset(layer))));
  }
  Epilogues& at(int layer) { return epilogues_[static_cast<std::size_t>(layer)]; }
  bool bfloat16() const { return options_.precision == DensePrecision::bfloat16; }
  bool relu(int layer) const { return layer + 1 < layers() || options_.last_relu; }
  std::byte* mask(int layer) const { return masks_[static_cast<std::size_t>(layer - 1)].data(); }

  template <class T>
  static std::int64_t stride_of(std::int64_t columns) {
    return gpu::detail::row_stride<T>(columns);
  }
  template <class T>
  static std::int64_t padded(std::int64_t columns) {
    return gpu::detail::padded_columns<T>(columns);
  }
  /// Returns whether an input of 16 bits is read in place: products may read zeros behind its
  /// columns.
  bool reads_narrow_x() const {
    return narrow_x_.data != nullptr && input_size() == padded<BFloat16>(input_size());
  }
  std::vector<gpu::detail::LinearPlace> places() const {
    std::vector<gpu::detail::LinearPlace> all;
    for (int l = 0; l < layers(); ++l)
      all.push_back({size(l + 1), size(l), offset(l), bias_size(l) != 0});
    return all;
  }
  template <class T>
  MatrixView<const T> weight_of(int layer) const {
    return copies_.weight<T>(static_cast<std::size_t>(layer));
  }
  template <class T>
  const T* bias_of(int layer) const {
    return copies_.bias<T>(static_cast<std::size_t>(layer));
  }

  // What hidden layers write:
  template <class T>
  MatrixView<const T> input(int layer) const {
    if (layer > 0) return hidden<T>(layer);
    if constexpr (std::is_same_v<T, float>)
      return x_;
    else if (reads_narrow_x())
      return narrow_x_;
    else
      return {narrow_input_.data(), x_.rows, input_size(), stride_of<T>(input_size())};
  }
  template <class T>
  MatrixView<T> hidden(int layer) const {
    return {reinterpret_cast<T*>(activations_[static_cast<std::size_t>(layer - 1)].data()), x_.rows,
            size(layer), stride_of<T>(size(layer))};
  }
  /// Returns the gradient of a layer's output. Masked in place.
  template <class T>
  MatrixView<T> gradient(int layer, std::int64_t rows) const {
    return {reinterpret_cast<T*>(gradient_[static_cast<std::size_t>(layer % 2)].data()), rows,
            size(layer + 1), stride_of<T>(size(layer + 1))};
  }

  Cuda backend_;
  MlpOptions options_;
  gpu::Gemm gemm_;
  gpu::detail::WeightCopies copies_;
  std::vector<Buffer<std::byte, Cuda>> activations_;  ///< outputs of all layers but the last
  /// with gradient_epilogues: of their ReLUs
  std::vector<Buffer<std::byte, Cuda>> masks_;
  std::vector<Epilogues> epilogues_ = std::vector<Epilogues>(static_cast<std::size_t>(layers()));
  Buffer<std::byte, Cuda> gradient_[2];
  Buffer<float, Cuda> weight_gradient_;
  /// with ReLU: the largest magnitudes of the input and of the parameters (gpu::keep_nan)
  Buffer<std::uint32_t, Cuda> most_;
  Buffer<BFloat16, Cuda> narrow_input_;    ///< in bfloat16 alone
  MatrixView<const BFloat16> narrow_x_{};  ///< in place of x_ and y_
  MatrixView<BFloat16> narrow_y_{};
};

}}  // namespace tessera::v0
