// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/math.hpp>
#include <tessera/dense/parameters.hpp>

#include <cmath>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tessera::inline v0 {

/// Options of the dense optimizers. `weight_decay` is added to the gradient as weight_decay * w, as
/// PyTorch does.
struct DenseOptimizerOptions {
  float weight_decay = 0.0f;
  float epsilon = 1e-8f;             ///< Adagrad, Adam
  float beta1 = 0.9f;                ///< Adam
  float beta2 = 0.999f;              ///< Adam
  float initial_accumulator = 0.0f;  ///< Adagrad
};

namespace detail {

/// Calls f(i) for all i, divided over `threads` OpenMP threads in contiguous parts.
template <class F>
void for_each_parameter(std::size_t count, int threads, const F& f) {
  if (threads <= 1) {
    for (std::size_t i = 0; i < count; ++i) f(i);
    return;
  }
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::size_t i = 0; i < count; ++i) f(i);
}

}  // namespace detail

/// w -= lr * g over all dense parameters of a model.
class DenseSgd {
 public:
  explicit DenseSgd(DenseOptimizerOptions options = {}) : options_(options) {}

  /// What a checkpoint must hold beside the parameters. The spans stay valid as long as the
  /// optimizer stays where it is.
  std::vector<DenseState> states(const DenseParameters&) { return {}; }

  void step(DenseParameters& parameters, float learning_rate, int threads = 1) {
    float* __restrict w = parameters.values().data();
    const float* __restrict g = parameters.gradients().data();
    const auto count = static_cast<std::size_t>(parameters.size());
    const float decay = options_.weight_decay;
    detail::for_each_parameter(count, threads, [=](std::size_t i) {
      w[i] = multiply_add(-learning_rate, multiply_add(decay, w[i], g[i]), w[i]);
    });
  }

 private:
  DenseOptimizerOptions options_;
};

/// sum += g^2; w -= lr * g / (sqrt(sum) + epsilon).
class DenseAdagrad {
 public:
  explicit DenseAdagrad(DenseOptimizerOptions options = {}) : options_(options) {}

  std::vector<DenseState> states(const DenseParameters& parameters) {
    sum_.resize(static_cast<std::size_t>(parameters.size()), options_.initial_accumulator);
    return {{"sum", sum_}};
  }

  void step(DenseParameters& parameters, float learning_rate, int threads = 1) {
    float* __restrict w = parameters.values().data();
    const float* __restrict g = parameters.gradients().data();
    const auto count = static_cast<std::size_t>(parameters.size());
    sum_.resize(count, options_.initial_accumulator);
    float* __restrict sum = sum_.data();
    detail::for_each_parameter(count, threads, [=, o = options_](std::size_t i) {
      const float gradient = multiply_add(o.weight_decay, w[i], g[i]);
      sum[i] = multiply_add(gradient, gradient, sum[i]);
      w[i] -= learning_rate * gradient / (std::sqrt(sum[i]) + o.epsilon);
    });
  }

 private:
  DenseOptimizerOptions options_;
  std::vector<float> sum_;
};

/// Adam: m and v as usual, bias correction by the step; w -= lr * sqrt(1-b2^t)/(1-b1^t) * m /
/// (sqrt(v) + epsilon).
class DenseAdam {
 public:
  explicit DenseAdam(DenseOptimizerOptions options = {}) : options_(options) {}

  std::vector<DenseState> states(const DenseParameters& parameters) {
    m_.resize(static_cast<std::size_t>(parameters.size()));
    v_.resize(static_cast<std::size_t>(parameters.size()));
    return {{"m", m_}, {"v", v_}};
  }
  /// Updates so far: part of the state, too.
  std::int64_t& steps() { return step_; }

  void step(DenseParameters& parameters, float learning_rate, int threads = 1) {
    float* __restrict w = parameters.values().data();
    const float* __restrict g = parameters.gradients().data();
    const auto count = static_cast<std::size_t>(parameters.size());
    m_.resize(count);
    v_.resize(count);
    ++step_;
    const double t = static_cast<double>(step_);
    const float rate =
        static_cast<float>(learning_rate * std::sqrt(1.0 - std::pow(options_.beta2, t)) /
                           (1.0 - std::pow(options_.beta1, t)));
    float* __restrict m = m_.data(), * __restrict v = v_.data();
    detail::for_each_parameter(count, threads, [=, o = options_](std::size_t i) {
      const float gradient = multiply_add(o.weight_decay, w[i], g[i]);
      m[i] = multiply_add(o.beta1, m[i], (1.0f - o.beta1) * gradient);
      v[i] = multiply_add(o.beta2, v[i], (1.0f - o.beta2) * (gradient * gradient));
      w[i] -= rate * m[i] / (std::sqrt(v[i]) + o.epsilon);
    });
  }

 private:
  DenseOptimizerOptions options_;
  std::vector<float> m_, v_;
  std::int64_t step_ = 0;
};

}  // namespace tessera::inline v0
