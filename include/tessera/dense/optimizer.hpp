// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/dense/parameters.hpp>

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera::inline v0 {

/// Options of the dense optimizers. `weight_decay` is added to the gradient as weight_decay * w, as PyTorch does.
struct DenseOptimizerOptions {
  float weight_decay = 0.0f;
  float epsilon = 1e-8f;             ///< Adagrad, Adam
  float beta1 = 0.9f;                ///< Adam
  float beta2 = 0.999f;              ///< Adam
  float initial_accumulator = 0.0f;  ///< Adagrad
};

/// w -= lr * g over all dense parameters of a model.
class DenseSgd {
 public:
  explicit DenseSgd(DenseOptimizerOptions options = {}) : options_(options) {}

  void step(DenseParameters& parameters, float learning_rate) {
    const std::span<float> w = parameters.values();
    const std::span<const float> g = parameters.gradients();
    for (std::size_t i = 0; i < w.size(); ++i) w[i] -= learning_rate * (g[i] + options_.weight_decay * w[i]);
  }

 private:
  DenseOptimizerOptions options_;
};

/// sum += g^2; w -= lr * g / (sqrt(sum) + epsilon).
class DenseAdagrad {
 public:
  explicit DenseAdagrad(DenseOptimizerOptions options = {}) : options_(options) {}

  void step(DenseParameters& parameters, float learning_rate) {
    const std::span<float> w = parameters.values();
    const std::span<const float> g = parameters.gradients();
    sum_.resize(w.size(), options_.initial_accumulator);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const float gradient = g[i] + options_.weight_decay * w[i];
      sum_[i] += gradient * gradient;
      w[i] -= learning_rate * gradient / (std::sqrt(sum_[i]) + options_.epsilon);
    }
  }

 private:
  DenseOptimizerOptions options_;
  std::vector<float> sum_;
};

/// Adam: m and v as usual, bias correction by the step; w -= lr * sqrt(1-b2^t)/(1-b1^t) * m / (sqrt(v) + epsilon).
class DenseAdam {
 public:
  explicit DenseAdam(DenseOptimizerOptions options = {}) : options_(options) {}

  void step(DenseParameters& parameters, float learning_rate) {
    const std::span<float> w = parameters.values();
    const std::span<const float> g = parameters.gradients();
    m_.resize(w.size());
    v_.resize(w.size());
    ++step_;
    const double t = static_cast<double>(step_);
    const float rate =
        static_cast<float>(learning_rate * std::sqrt(1.0 - std::pow(options_.beta2, t)) / (1.0 - std::pow(options_.beta1, t)));
    for (std::size_t i = 0; i < w.size(); ++i) {
      const float gradient = g[i] + options_.weight_decay * w[i];
      m_[i] = options_.beta1 * m_[i] + (1.0f - options_.beta1) * gradient;
      v_[i] = options_.beta2 * v_[i] + (1.0f - options_.beta2) * gradient * gradient;
      w[i] -= rate * m_[i] / (std::sqrt(v_[i]) + options_.epsilon);
    }
  }

 private:
  DenseOptimizerOptions options_;
  std::vector<float> m_, v_;
  std::int64_t step_ = 0;
};

}  // namespace tessera::inline v0
