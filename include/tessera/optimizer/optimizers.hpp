// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/optimizer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/math.hpp>
#include <tessera/optimizer/adamw.hpp>
#include <tessera/optimizer/ftrl.hpp>
#include <tessera/optimizer/lion.hpp>
#include <tessera/optimizer/momentum.hpp>
#include <tessera/optimizer/narrow_states.hpp>
#include <tessera/optimizer/rowwise_adagrad.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace tessera { inline namespace v0 {

// Every product that a sum follows is a multiply_add by name: the host, a GPU and every plan give a
// row the same bits, whatever the compiler's options of contraction.

/// w -= lr * g.
///
///     using E = EmbeddingCollection<MyPlan, Sgd, Host, Comm>;
struct Sgd {
  static constexpr int element_states = 0, row_states = 0;
  static constexpr bool device_steps = true, needs_mean_square = false;
  static constexpr std::array<std::string_view, 0> state_names{};

  struct Step {
    float learning_rate;
    struct Row {};
    TESSERA_HOST_DEVICE Row row(float*, float) const { return {}; }
    TESSERA_SIDE_OF_ARGUMENTS
    template <class V>
    TESSERA_HOST_DEVICE V element(V weight, V gradient, V*, const Row&) const {
      using namespace math;
      return multiply_add(-learning_rate, gradient, weight);
    }
  };
  constexpr float initial_state(int) const { return 0; }
  TESSERA_HOST_DEVICE constexpr Step at(float learning_rate, std::int64_t) const {
    return {learning_rate};
  }
};

/// sum += g^2; w -= lr * g / (sqrt(sum) + epsilon). Duchi, Hazan, Singer 2011; constants as in
/// PyTorch.
///
///     EmbeddingCollection<MyPlan, Adagrad, Host, Comm> embeddings(
///         communicator, Host(), {.optimizer = {.epsilon = 1e-7f}});
struct Adagrad {
  float epsilon = 1e-10f;
  float initial_accumulator = 0;

  static constexpr int element_states = 1, row_states = 0;
  static constexpr bool device_steps = true, needs_mean_square = false;
  static constexpr std::array<std::string_view, 1> state_names{"sum"};

  struct Step {
    float learning_rate, epsilon;
    struct Row {};
    TESSERA_HOST_DEVICE Row row(float*, float) const { return {}; }
    TESSERA_SIDE_OF_ARGUMENTS
    template <class V>
    TESSERA_HOST_DEVICE V element(V weight, V gradient, V* state, const Row&) const {
      using namespace math;
      state[0] = multiply_add(gradient, gradient, state[0]);
      return weight - learning_rate * gradient / (square_root(state[0]) + epsilon);
    }
  };
  constexpr float initial_state(int) const { return initial_accumulator; }
  TESSERA_HOST_DEVICE constexpr Step at(float learning_rate, std::int64_t) const {
    return {learning_rate, epsilon};
  }
};

/// One sum per row: sum += mean(g^2); w -= lr * g / (sqrt(sum) + epsilon). FBGEMM's
/// EXACT_ROWWISE_ADAGRAD.
///
///     EmbeddingCollection<MyPlan, RowWiseAdagrad, Host, Comm> embeddings(
///         communicator, Host(), {.optimizer = {.initial_accumulator = 0.1f}});
struct RowWiseAdagrad {
  float epsilon = 1e-8f;
  float initial_accumulator = 0;

  static constexpr int element_states = 0, row_states = 1;
  static constexpr bool device_steps = true, needs_mean_square = true;
  static constexpr std::array<std::string_view, 1> state_names{"sum"};

  struct Step {
    float learning_rate, epsilon;
    struct Row {
      float rate;
    };
    TESSERA_HOST_DEVICE Row row(float* row_state, float mean_square) const {
      using namespace math;
      row_state[0] += mean_square;
      return {learning_rate / (square_root(row_state[0]) + epsilon)};
    }
    TESSERA_SIDE_OF_ARGUMENTS
    template <class V>
    TESSERA_HOST_DEVICE V element(V weight, V gradient, V*, const Row& row) const {
      using namespace math;
      return multiply_add(-row.rate, gradient, weight);
    }
  };
  constexpr float initial_state(int) const { return initial_accumulator; }
  TESSERA_HOST_DEVICE constexpr Step at(float learning_rate, std::int64_t) const {
    return {learning_rate, epsilon};
  }
};

/// Lazy Adam (touched rows only): w -= lr * sqrt(1-b2^t)/(1-b1^t) * m / (sqrt(v) + epsilon), t the
/// global step counted from 1. Kingma, Ba 2015; PyTorch's SparseAdam.
///
///     EmbeddingCollection<MyPlan, Adam, Host, Comm> embeddings(
///         communicator, Host(), {.optimizer = {.beta1 = 0.9f, .beta2 = 0.99f}});
struct Adam {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;

  static constexpr int element_states = 2, row_states = 0;
  static constexpr bool device_steps = true, needs_mean_square = false;
  static constexpr std::array<std::string_view, 2> state_names{"m", "v"};

  struct Step {
    float rate, beta1, beta2, one_minus_beta1, one_minus_beta2, epsilon;
    struct Row {};
    TESSERA_HOST_DEVICE Row row(float*, float) const { return {}; }
    TESSERA_SIDE_OF_ARGUMENTS
    template <class V>
    TESSERA_HOST_DEVICE V element(V weight, V gradient, V* state, const Row&) const {
      using namespace math;
      state[0] = multiply_add(beta1, state[0], one_minus_beta1 * gradient);
      state[1] = multiply_add(beta2, state[1], one_minus_beta2 * (gradient * gradient));
      return weight - rate * state[0] / (square_root(state[1]) + epsilon);
    }
  };
  constexpr float initial_state(int) const { return 0; }
  TESSERA_HOST_DEVICE Step at(float learning_rate, std::int64_t step) const {
    const double t = static_cast<double>(step);
    const double rate = learning_rate * std::sqrt(1 - std::pow(static_cast<double>(beta2), t)) /
                        (1 - std::pow(static_cast<double>(beta1), t));
    return {static_cast<float>(rate),        beta1,  beta2, static_cast<float>(1.0 - beta1),
            static_cast<float>(1.0 - beta2), epsilon};
  }
};

static_assert(Optimizer<Sgd> && Optimizer<Adagrad> && Optimizer<RowWiseAdagrad> && Optimizer<Adam>);

}}  // namespace tessera::v0
