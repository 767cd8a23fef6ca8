// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/core/normal.hpp>
#include <tessera/cuda/dense_kernels.cuh>
#include <tessera/cuda/gemm.cuh>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tessera::inline v0 {

struct CudaMlpOptions {
  bool last_relu = false;  ///< ReLU after the last layer too
  bool bias = true;
  bool tf32 = false;  ///< products of inputs rounded to 10 bits of mantissa, on the tensor cores
};

/// Mlp on a GPU: a stack of fully connected layers, y = x W^T + b, ReLU between them, floats in device memory; the same parameters in the
/// same order and with the same first values. Bias and ReLU are epilogues of cuBLASLt's products. One object serves one caller at a time.
class CudaMlp {
 public:
  /// `sizes`: the input's width, then every layer's output width. Throws InvalidArgument unless there are two or more, all positive.
  CudaMlp(const Cuda& backend, std::vector<std::int64_t> sizes, CudaMlpOptions options = {})
      : backend_(backend), sizes_(std::move(sizes)), options_(options), gemm_(backend, options.tf32) {
    require(sizes_.size() >= 2, "CudaMlp: needs an input and at least one layer, got {} sizes", sizes_.size());
    for (const std::int64_t size : sizes_) require(size > 0, "CudaMlp: sizes must be positive, got {}", size);
    for (int l = 1; l < layers(); ++l) activations_.emplace_back(0, backend.stream());
  }

  int layers() const { return static_cast<int>(sizes_.size()) - 1; }
  std::int64_t input_size() const { return sizes_.front(); }
  std::int64_t output_size() const { return sizes_.back(); }

  /// Weights and biases, layer by layer: weight [out, in], then bias [out].
  std::int64_t parameter_count() const { return offset(layers()); }

  /// Uses these spans of device memory (parameter_count() floats each) from now on; CudaDenseParameters calls it.
  void bind(std::span<float> values, std::span<float> gradients) {
    const auto count = static_cast<std::size_t>(parameter_count());
    require(values.size() == count && gradients.size() == count, "CudaMlp: bind needs {} parameters, got {} values and {} gradients", count,
            values.size(), gradients.size());
    values_ = values;
    gradients_ = gradients;
  }

  /// As Mlp's, to the bit. Returns the next layer's number.
  int initialize(std::uint64_t seed, int first_layer = 0) {
    require_bound();
    std::vector<float> values(values_.size());
    for (int l = 0; l < layers(); ++l) {
      const auto in = static_cast<float>(size(l)), out = static_cast<float>(size(l + 1));
      const auto stream = static_cast<std::uint64_t>(first_layer + l) * 2;
      const auto weights = static_cast<std::size_t>(size(l) * size(l + 1));
      const auto layer = std::span(values).subspan(static_cast<std::size_t>(offset(l)), weights + bias_size(l));
      fill_normal(layer.first(weights), std::sqrt(2.0f / (in + out)), seed, stream);
      fill_normal(layer.subspan(weights), std::sqrt(1.0f / out), seed, stream + 1);
    }
    backend_.copy(values_.data(), values.data(), values_.size_bytes());
    backend_.synchronize();
    return first_layer + layers();
  }

  /// y [batch, output_size()] from x [batch, input_size()]; both may be columns of wider matrices. Remembers the views: x and y must
  /// stay as they are until backward.
  void forward(MatrixView<const float> x, MatrixView<float> y) {
    require_bound();
    require(x.columns == input_size(), "CudaMlp: input has {} columns, the first layer takes {}", x.columns, input_size());
    require(y.columns == output_size() && y.rows == x.rows, "CudaMlp: output is {} x {}, must be {} x {}", y.rows, y.columns, x.rows,
            output_size());
    x_ = x;
    y_ = y;
    for (int l = 1; l < layers(); ++l) activations_[static_cast<std::size_t>(l - 1)].reserve_discard(x.rows * size(l));
    for (int l = 0; l < layers(); ++l) {
      const MatrixView<const float> in = input(l);
      const MatrixView<float> out = l + 1 == layers() ? y : hidden(l + 1);
      gemm_.run({.rows = x.rows,
                 .columns = size(l + 1),
                 .inner = size(l),
                 .a_stride = in.stride,
                 .b_stride = size(l),
                 .c_stride = out.stride,
                 .b_transposed = true,
                 .bias = options_.bias,
                 .relu = relu(l)},
                in.data, values_.data() + offset(l), values_.data() + bias_offset(l), out.data);
    }
  }

  /// After forward: from dy, the gradient of its y, the gradients of all parameters (overwritten) and of x, written to dx
  /// unless dx is an empty view. dx may not overlap dy, x or y.
  void backward(MatrixView<const float> dy, MatrixView<float> dx = {}) {
    require_bound();
    require(dy.rows == y_.rows && dy.columns == output_size(), "CudaMlp: output gradient is {} x {}, the last forward gave {} x {}",
            dy.rows, dy.columns, y_.rows, output_size());
    require(dx.data == nullptr || (dx.rows == x_.rows && dx.columns == input_size()), "CudaMlp: input gradient is {} x {}, must be {} x {}",
            dx.rows, dx.columns, x_.rows, input_size());
    backend_.fill_zero(gradients_.data(), dy.rows == 0 ? gradients_.size_bytes() : 0);
    if (dy.rows == 0) return;
    const std::int64_t widest = *std::max_element(sizes_.begin() + 1, sizes_.end());
    for (auto& buffer : gradient_) buffer.reserve_discard(dy.rows * widest);
    MatrixView<const float> above = dy;
    for (int l = layers() - 1; l >= 0; --l) {
      float* sums = options_.bias ? gradients_.data() + bias_offset(l) : nullptr;
      MatrixView<const float> g = above;
      if (relu(l)) {
        const MatrixView<const float> output = l + 1 == layers() ? MatrixView<const float>(y_) : hidden(l + 1);
        const MatrixView<float> masked(gradient_[static_cast<std::size_t>(l % 2)].data(), dy.rows, size(l + 1));
        gpu::mask_and_sum(backend_, above, output, masked, sums);
        g = masked;
      } else if (sums != nullptr) {
        gpu::mask_and_sum(backend_, above, {}, {}, sums);
      }
      const MatrixView<const float> in = input(l);
      gemm_.run({.rows = size(l + 1),
                 .columns = size(l),
                 .inner = dy.rows,
                 .a_stride = g.stride,
                 .b_stride = in.stride,
                 .c_stride = size(l),
                 .a_transposed = true},
                g.data, in.data, nullptr, gradients_.data() + offset(l));
      if (l == 0 && dx.data == nullptr) return;
      const MatrixView<float> below =
          l == 0 ? dx : MatrixView<float>(gradient_[static_cast<std::size_t>((l + 1) % 2)].data(), dy.rows, size(l));
      gemm_.run(
          {.rows = dy.rows, .columns = size(l), .inner = size(l + 1), .a_stride = g.stride, .b_stride = size(l), .c_stride = below.stride},
          g.data, values_.data() + offset(l), nullptr, below.data);
      above = below;
    }
  }

 private:
  std::int64_t size(int i) const { return sizes_[static_cast<std::size_t>(i)]; }
  std::size_t bias_size(int layer) const { return options_.bias ? static_cast<std::size_t>(size(layer + 1)) : 0; }
  std::int64_t bias_offset(int layer) const { return offset(layer) + size(layer) * size(layer + 1); }
  bool relu(int layer) const { return layer + 1 < layers() || options_.last_relu; }
  std::int64_t offset(int layer) const {
    std::int64_t sum = 0;
    for (int l = 0; l < layer; ++l) sum += size(l) * size(l + 1) + static_cast<std::int64_t>(bias_size(l));
    return sum;
  }
  void require_bound() const {
    require(values_.size() == static_cast<std::size_t>(parameter_count()),
            "CudaMlp: has no parameters yet; construct CudaDenseParameters with it, or call bind");
  }
  MatrixView<float> hidden(int layer) const { return {activations_[static_cast<std::size_t>(layer - 1)].data(), x_.rows, size(layer)}; }
  MatrixView<const float> input(int layer) const { return layer == 0 ? x_ : MatrixView<const float>(hidden(layer)); }

  Cuda backend_;
  std::vector<std::int64_t> sizes_;
  CudaMlpOptions options_;
  gpu::Gemm gemm_;
  std::span<float> values_, gradients_;
  MatrixView<const float> x_;
  MatrixView<float> y_;
  std::vector<gpu::DeviceBuffer<float>> activations_;  ///< outputs of all layers but the last
  gpu::DeviceBuffer<float> gradient_[2]{{0, backend_.stream()}, {0, backend_.stream()}};
};

}  // namespace tessera::inline v0
