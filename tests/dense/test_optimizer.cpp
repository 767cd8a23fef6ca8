// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Dense optimizers against their formulas in double, over several steps with a changing learning
// rate.
#include <tessera/dense/mlp.hpp>
#include <tessera/dense/optimizer.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <vector>

using namespace tessera;

namespace {

/// Runs `optimizer` and `expected(w, g, rate, step, slot)` side by side on made-up gradients.
template <class Optimizer, class Expected>
void check_optimizer(Optimizer optimizer, const Expected& expected) {
  Linear linear(20, 7);
  DenseParameters parameters(3, linear);
  std::vector<double> w(parameters.values().begin(), parameters.values().end());
  for (int step = 1; step <= 5; ++step) {
    const float rate = 0.1f / static_cast<float>(step);
    for (std::size_t i = 0; i < w.size(); ++i)
      parameters.gradients()[i] =
          i % 4 == 3 ? 0.0f : std::sin(static_cast<float>(i) + static_cast<float>(step));
    for (std::size_t i = 0; i < w.size(); ++i)
      w[i] = expected(w[i], parameters.gradients()[i], rate, step, i);
    optimizer.step(parameters, rate);
  }
  for (std::size_t i = 0; i < w.size(); ++i)
    CHECK(parameters.values()[i] == doctest::Approx(w[i]).epsilon(1e-5));
}

}  // namespace

TEST_CASE("gradients of several batches are summed, and then taken once") {
  Linear linear(2, 1);
  DenseParameters parameters(3, linear);
  const auto set = [&](float x) {
    for (float& g : parameters.gradients()) g = x;
  };
  const float* const bound = parameters.gradients().data();
  for (const float x : {1.0f, 10.0f, 100.0f}) set(x), parameters.accumulate();
  set(1000);
  parameters.take_accumulated();
  for (const float g : parameters.gradients()) CHECK(g == 111);
  CHECK(parameters.gradients().data() == bound);  // where the layers write
  CHECK_THROWS_WITH_AS(parameters.take_accumulated(), doctest::Contains("no gradients"),
                       InvalidArgument);
  set(7), parameters.accumulate();
  parameters.take_accumulated();
  for (const float g : parameters.gradients()) CHECK(g == 7);
}

TEST_CASE("rates, decays, constants and steps that make no step are refused") {
  const float nan = std::nanf("");
  for (const float rate : {nan, -1.0f, std::numeric_limits<float>::infinity()})
    CHECK_THROWS_WITH_AS(DenseOptimizer(Sgd{}).set_learning_rate(rate),
                         doctest::Contains("the learning rate is "), InvalidArgument);
  for (const float decay : {nan, -1.0f})
    CHECK_THROWS_WITH_AS(DenseOptimizer(Sgd{}, decay),
                         doctest::Contains("DenseOptimizer: the weight decay is "),
                         InvalidArgument);
  CHECK_THROWS_WITH_AS(DenseOptimizer(Adam{.beta1 = 1}), doctest::Contains("check its constants"),
                       InvalidArgument);
  DenseOptimizer adam(Adam{});
  adam.steps() = -5;
  CHECK_THROWS_WITH_AS(adam.steps(), "DenseOptimizer: -5 steps; give 0 or more", InvalidArgument);
}

TEST_CASE("SGD, with and without weight decay") {
  for (const float decay : {0.0f, 0.3f})
    check_optimizer(DenseOptimizer(Sgd{}, decay),
                    [&](double w, double g, double rate, int, std::size_t) {
                      return w - rate * (g + decay * w);
                    });
}

TEST_CASE("Adagrad") {
  std::vector<double> sums(147, 0.1);
  check_optimizer(DenseOptimizer(Adagrad{.epsilon = 1e-6f, .initial_accumulator = 0.1f}),
                  [&](double w, double g, double rate, int, std::size_t i) {
                    sums[i] += g * g;
                    return w - rate * g / (std::sqrt(sums[i]) + 1e-6);
                  });
}

TEST_CASE("Adam") {
  std::vector<double> m(147), v(147);
  check_optimizer(DenseOptimizer(Adam{.beta1 = 0.8f, .beta2 = 0.95f}, 0.01f),
                  [&](double w, double g, double rate, int step, std::size_t i) {
                    g += static_cast<double>(0.01f) * w;
                    m[i] = 0.8 * m[i] + 0.2 * g;
                    v[i] = 0.95 * v[i] + 0.05 * g * g;
                    return w - rate * std::sqrt(1 - std::pow(0.95, step)) /
                                   (1 - std::pow(0.8, step)) * m[i] / (std::sqrt(v[i]) + 1e-8);
                  });
}
