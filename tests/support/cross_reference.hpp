// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Cross layers by their definition, and the smallest linear layer that CrossInteraction takes.
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/host/backend.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace cross_reference {

using namespace tessera;

/// y = x W^T + b by plain loops. Nothing that CrossInteraction's contract does not ask for.
class PlainLinear {
 public:
  struct Options {
    bool bias = true;
  };

  PlainLinear(const Host&, std::int64_t in, std::int64_t out, Options options)
      : in_(in), out_(out), bias_(options.bias) {}

  std::int64_t parameter_count() const { return in_ * out_ + (bias_ ? out_ : 0); }
  void bind(std::span<float> values, std::span<float> gradients) {
    w_ = values.data();
    dw_ = gradients.data();
  }
  int initialize(std::uint64_t, int layer) { return layer + 1; }

  void forward(MatrixView<const float> x, MatrixView<float> y) {
    x_ = x;
    for (std::int64_t i = 0; i < x.rows; ++i)
      for (std::int64_t o = 0; o < out_; ++o) {
        y(i, o) = bias_ ? w_[in_ * out_ + o] : 0.0f;
        for (std::int64_t k = 0; k < in_; ++k) y(i, o) += x(i, k) * w_[o * in_ + k];
      }
  }

  void backward(MatrixView<const float> dy, MatrixView<float> dx) {
    std::fill_n(dw_, parameter_count(), 0.0f);
    for (std::int64_t i = 0; i < dy.rows; ++i) {
      for (std::int64_t k = 0; k < in_; ++k) dx(i, k) = 0.0f;
      for (std::int64_t o = 0; o < out_; ++o) {
        if (bias_) dw_[in_ * out_ + o] += dy(i, o);
        for (std::int64_t k = 0; k < in_; ++k) {
          dw_[o * in_ + k] += dy(i, o) * x_(i, k);
          dx(i, k) += dy(i, o) * w_[o * in_ + k];
        }
      }
    }
  }

 private:
  std::int64_t in_, out_;
  bool bias_;
  float* w_ = nullptr;
  float* dw_ = nullptr;
  MatrixView<const float> x_;
};

/// The definition, in double: parameters per layer are V, then U, then b.
inline std::vector<double> reference(const std::vector<double>& x,
                                     const std::vector<double>& parameters, std::int64_t n,
                                     int layers, std::int64_t rank) {
  std::vector<double> state = x, next(x.size());
  const std::size_t batch = x.size() / static_cast<std::size_t>(n);
  const double* p = parameters.data();
  for (int l = 0; l < layers; ++l) {
    const std::int64_t inner = rank > 0 ? rank : n;
    const double *v = p, *u = v + rank * n, *b = u + n * inner;
    for (std::size_t s = 0; s < batch; ++s) {
      const double* in = state.data() + s * static_cast<std::size_t>(n);
      std::vector<double> t(in, in + n);
      if (rank > 0) {
        t.assign(static_cast<std::size_t>(rank), 0.0);
        for (std::int64_t r = 0; r < rank; ++r)
          for (std::int64_t k = 0; k < n; ++k)
            t[static_cast<std::size_t>(r)] += v[r * n + k] * in[k];
      }
      for (std::int64_t k = 0; k < n; ++k) {
        double scale = b[k];
        for (std::int64_t r = 0; r < inner; ++r)
          scale += u[k * inner + r] * t[static_cast<std::size_t>(r)];
        const std::size_t i = s * static_cast<std::size_t>(n) + static_cast<std::size_t>(k);
        next[i] = x[i] * scale + state[i];
      }
    }
    state = next;
    p = b + n;
  }
  return state;
}

}  // namespace cross_reference
