// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/dense_layers.hpp>
#include <tessera/cuda/dense_kernels.cuh>
#include <tessera/cuda/gemm.cuh>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

namespace tessera::inline v0 {

struct CudaMlpOptions {
  bool last_relu = false;  ///< ReLU after the last layer too
  bool bias = true;
  bool tf32 = false;  ///< products of inputs rounded to 10 bits of mantissa, on the tensor cores
  /// Gradients of bias and ReLU as epilogues of cuBLASLt's products, too, instead of kernels of this library. Not every version has them
  /// for every shape; where it has none an Error says so.
  bool gradient_epilogues = false;
};

/// Mlp on a GPU: a stack of fully connected layers, y = x W^T + b, ReLU between them, floats in device memory; the same parameters in the
/// same order and with the same first values. Bias and ReLU are epilogues of cuBLASLt's products. One object serves one caller at a time.
class CudaMlp : public MlpLayers {
 public:
  /// `sizes`: the input's width, then every layer's output width. Throws InvalidArgument unless there are two or more, all positive.
  CudaMlp(const Cuda& backend, std::vector<std::int64_t> sizes, CudaMlpOptions options = {})
      : MlpLayers("CudaMlp", std::move(sizes), options.bias), backend_(backend), options_(options), gemm_(backend, options.tf32) {
    for (int l = 1; l < layers(); ++l) {
      activations_.emplace_back(0, backend.stream());
      masks_.emplace_back(0, backend.stream());
    }
  }

  /// As Mlp's, to the bit. Returns the next layer's number.
  int initialize(std::uint64_t seed, int first_layer = 0) {
    require_bound();
    std::vector<float> values(values_.size());
    first_values(values, seed, first_layer);
    backend_.copy(values_.data(), values.data(), values_.size_bytes());
    backend_.synchronize();
    return first_layer + layers();
  }

  /// y [batch, output_size()] from x [batch, input_size()]; both may be columns of wider matrices. Remembers the views: x and y must
  /// stay as they are until backward.
  void forward(MatrixView<const float> x, MatrixView<float> y) {
    start_forward(x, y);
    for (int l = 1; l < layers(); ++l) {
      activations_[static_cast<std::size_t>(l - 1)].reserve_discard(x.rows * size(l));
      if (options_.gradient_epilogues) masks_[static_cast<std::size_t>(l - 1)].reserve_discard(x.rows * gpu::mask_row_bits(size(l)) / 8);
    }
    for (int l = 0; l < layers(); ++l) {
      const MatrixView<const float> in = input(l);
      const bool last = l + 1 == layers(), masked = options_.gradient_epilogues && !last;
      const MatrixView<float> out = last ? y : hidden(l + 1);
      gemm_.run({.rows = x.rows,
                 .columns = size(l + 1),
                 .inner = size(l),
                 .a_stride = in.stride,
                 .b_stride = size(l),
                 .c_stride = out.stride,
                 .b_transposed = true,
                 .bias = options_.bias,
                 .relu = relu(l),
                 .keep_mask = masked},
                in.data, values_.data() + offset(l), values_.data() + bias_offset(l), out.data, nullptr, masked ? mask(l + 1) : nullptr);
    }
  }

  /// Takes a part of gradients() that the work given to the backend so far makes final.
  using Ready = std::function<void(std::span<const float>)>;

  /// After forward: from dy, the gradient of its y, the gradients of all parameters (overwritten) and of x, written to dx
  /// unless dx is an empty view. dx may not overlap dy, x or y. `ready` is called once per layer, last layer first, as soon as the layer's
  /// weight and bias gradients have been launched.
  void backward(MatrixView<const float> dy, MatrixView<float> dx = {}, const Ready& ready = {}) {
    check_backward(dy, dx);
    if (dy.rows == 0) {
      backend_.fill_zero(gradients_.data(), gradients_.size_bytes());
      for (int l = layers() - 1; l >= 0; --l) announce(ready, l);
      return;
    }
    const std::int64_t widest = *std::max_element(sizes().begin() + 1, sizes().end());
    for (auto& buffer : gradient_) buffer.reserve_discard(dy.rows * widest);
    MatrixView<const float> above = dy;
    for (int l = layers() - 1; l >= 0; --l) {
      float* sums = options_.bias ? gradients_.data() + bias_offset(l) : nullptr;
      MatrixView<const float> g = above;
      const bool epilogues = options_.gradient_epilogues;
      if (relu(l) && !(epilogues && l + 1 < layers())) {  // else the product of the layer above has done it
        const MatrixView<const float> output = l + 1 == layers() ? MatrixView<const float>(y_) : hidden(l + 1);
        const MatrixView<float> masked(gradient_[static_cast<std::size_t>(l % 2)].data(), dy.rows, size(l + 1));
        gpu::mask_and_sum(backend_, above, output, masked, epilogues ? nullptr : sums);
        g = masked;
      } else if (sums != nullptr && !epilogues) {
        gpu::mask_and_sum(backend_, above, {}, {}, sums);
      }
      const MatrixView<const float> in = input(l);
      gemm_.run({.rows = size(l + 1),
                 .columns = size(l),
                 .inner = dy.rows,
                 .a_stride = g.stride,
                 .b_stride = in.stride,
                 .c_stride = size(l),
                 .a_transposed = true,
                 .sum_a = epilogues && sums != nullptr},
                g.data, in.data, sums, gradients_.data() + offset(l));
      announce(ready, l);
      if (l == 0 && dx.data == nullptr) return;
      const MatrixView<float> below =
          l == 0 ? dx : MatrixView<float>(gradient_[static_cast<std::size_t>((l + 1) % 2)].data(), dy.rows, size(l));
      const bool masked = epilogues && l > 0;
      gemm_.run({.rows = dy.rows,
                 .columns = size(l),
                 .inner = size(l + 1),
                 .a_stride = g.stride,
                 .b_stride = size(l),
                 .c_stride = below.stride,
                 .apply_mask = masked},
                g.data, values_.data() + offset(l), nullptr, below.data, nullptr, masked ? mask(l) : nullptr);
      above = below;
    }
  }

 private:
  void announce(const Ready& ready, int layer) const {
    if (ready)
      ready(gradients_.subspan(static_cast<std::size_t>(offset(layer)), static_cast<std::size_t>(offset(layer + 1) - offset(layer))));
  }
  bool relu(int layer) const { return layer + 1 < layers() || options_.last_relu; }
  MatrixView<float> hidden(int layer) const { return {activations_[static_cast<std::size_t>(layer - 1)].data(), x_.rows, size(layer)}; }
  std::byte* mask(int layer) const { return masks_[static_cast<std::size_t>(layer - 1)].data(); }
  MatrixView<const float> input(int layer) const { return layer == 0 ? x_ : MatrixView<const float>(hidden(layer)); }

  Cuda backend_;
  CudaMlpOptions options_;
  gpu::Gemm gemm_;
  std::vector<gpu::DeviceBuffer<float>> activations_;  ///< outputs of all layers but the last
  std::vector<gpu::DeviceBuffer<std::byte>> masks_;    ///< with gradient_epilogues: of their ReLUs
  gpu::DeviceBuffer<float> gradient_[2]{{0, backend_.stream()}, {0, backend_.stream()}};
};

}  // namespace tessera::inline v0
