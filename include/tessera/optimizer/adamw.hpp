// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/optimizer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/math.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace tessera { inline namespace v0 {

namespace detail {

/// What optimizers of Adam's kind share in a step.
struct AdamConstants {
  float learning_rate, beta1, beta2, one_minus_beta1, one_minus_beta2, epsilon;
  float mean, root;  ///< 1/(1-beta1^t), 1/sqrt(1-beta2^t)

  TESSERA_HOST_DEVICE static AdamConstants at(float beta1, float beta2, float epsilon,
                                              float learning_rate, std::int64_t step) {
    const double t = static_cast<double>(step);
    return {learning_rate,
            beta1,
            beta2,
            static_cast<float>(1.0 - beta1),
            static_cast<float>(1.0 - beta2),
            epsilon,
            static_cast<float>(1 / (1 - std::pow(static_cast<double>(beta1), t))),
            static_cast<float>(1 / std::sqrt(1 - std::pow(static_cast<double>(beta2), t)))};
  }
  /// Lets m and v take a gradient in.
  TESSERA_SIDE_OF_ARGUMENTS
  template <class V>
  TESSERA_HOST_DEVICE void move(V gradient, V* state) const {
    using math::multiply_add;
    state[0] = multiply_add(beta1, state[0], one_minus_beta1 * gradient);
    state[1] = multiply_add(beta2, state[1], one_minus_beta2 * (gradient * gradient));
  }
  /// Returns sqrt(v/(1-beta2^t)) + epsilon.
  TESSERA_SIDE_OF_ARGUMENTS
  template <class V>
  TESSERA_HOST_DEVICE V spread(V v) const {
    using math::square_root, math::multiply_add;
    return multiply_add(root, square_root(v), epsilon);
  }
};

}  // namespace detail

/// Adam with decoupled weight decay, lazy (touched rows only): m = beta1 m + (1-beta1) g; v = beta2
/// v + (1-beta2) g^2; w = (1 - lr weight_decay) w - lr (m/(1-beta1^t)) / (sqrt(v/(1-beta2^t)) +
/// epsilon), t the global step counted from 1. Loshchilov, Hutter 2019; torch.optim.AdamW.
///
///     EmbeddingCollection<MyPlan, AdamW, Host, Comm> embeddings(
///         communicator, Host(), {.optimizer = {.weight_decay = 0.01f}});
struct AdamW {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 0.01f;

  static constexpr int element_states = 2, row_states = 0;
  static constexpr bool device_steps = true, needs_mean_square = false;
  static constexpr std::array<std::string_view, 2> state_names{"m", "v"};

  struct Step {
    detail::AdamConstants adam;
    float decay;
    struct Row {};
    TESSERA_HOST_DEVICE Row row(float*, float) const { return {}; }
    TESSERA_SIDE_OF_ARGUMENTS
    template <class V>
    TESSERA_HOST_DEVICE V element(V weight, V gradient, V* state, const Row&) const {
      using namespace math;
      adam.move(gradient, state);
      return multiply_add(decay, weight,
                          -adam.learning_rate * adam.mean * state[0] / adam.spread(state[1]));
    }
  };
  constexpr float initial_state(int) const { return 0; }
  TESSERA_HOST_DEVICE Step at(float learning_rate, std::int64_t step) const {
    return {detail::AdamConstants::at(beta1, beta2, epsilon, learning_rate, step),
            static_cast<float>(1 - static_cast<double>(learning_rate) * weight_decay)};
  }
};

/// AdamW with one v per row: v = beta2 v + (1-beta2) mean(g^2). FBGEMM's PARTIAL_ROWWISE_ADAM.
///
///     EmbeddingCollection<MyPlan, PartialRowWiseAdam, Host, Comm> embeddings(
///         communicator, Host(), {.optimizer = {.beta2 = 0.99f}});
struct PartialRowWiseAdam {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 0;

  static constexpr int element_states = 1, row_states = 1;
  static constexpr bool device_steps = true, needs_mean_square = true;
  static constexpr std::array<std::string_view, 2> state_names{"m", "v"};

  struct Step {
    detail::AdamConstants adam;
    float decay;
    struct Row {
      float rate;
    };
    TESSERA_HOST_DEVICE Row row(float* row_state, float mean_square) const {
      using namespace math;
      row_state[0] = multiply_add(adam.beta2, row_state[0], adam.one_minus_beta2 * mean_square);
      return {adam.learning_rate * adam.mean / adam.spread(row_state[0])};
    }
    TESSERA_SIDE_OF_ARGUMENTS
    template <class V>
    TESSERA_HOST_DEVICE V element(V weight, V gradient, V* state, const Row& row) const {
      using namespace math;
      state[0] = multiply_add(adam.beta1, state[0], adam.one_minus_beta1 * gradient);
      return multiply_add(-row.rate, state[0], decay * weight);
    }
  };
  constexpr float initial_state(int) const { return 0; }
  TESSERA_HOST_DEVICE Step at(float learning_rate, std::int64_t step) const {
    return {detail::AdamConstants::at(beta1, beta2, epsilon, learning_rate, step),
            static_cast<float>(1 - static_cast<double>(learning_rate) * weight_decay)};
  }
};

/// AdamW whose t is the row's own: how often its row has been updated, so that a rare row's first
/// steps are corrected as a frequent one's were. FBGEMM's ADAM with use_rowwise_bias_correction.
///
///     EmbeddingCollection<MyPlan, CountedAdam, Host, Comm> embeddings(
///         communicator, Host(), {.optimizer = {.beta2 = 0.99f}});
struct CountedAdam {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 0;

  static constexpr int element_states = 2, row_states = 1;
  static constexpr bool device_steps = true, needs_mean_square = false;
  static constexpr std::array<std::string_view, 3> state_names{"m", "v", "count"};

  struct Step {
    detail::AdamConstants adam;  ///< but for mean and root, which are the row's
    float log_beta1, log_beta2, decay;
    struct Row {
      float rate, root;
    };
    TESSERA_HOST_DEVICE Row row(float* row_state, float) const {
      using namespace math;
      row_state[0] += 1;
      return {adam.learning_rate / -expm1f(row_state[0] * log_beta1),
              1 / square_root(-expm1f(row_state[0] * log_beta2))};
    }
    TESSERA_SIDE_OF_ARGUMENTS
    template <class V>
    TESSERA_HOST_DEVICE V element(V weight, V gradient, V* state, const Row& row) const {
      using namespace math;
      adam.move(gradient, state);
      return multiply_add(
          decay, weight,
          -row.rate * state[0] / multiply_add(row.root, square_root(state[1]), adam.epsilon));
    }
  };
  constexpr float initial_state(int) const { return 0; }
  TESSERA_HOST_DEVICE Step at(float learning_rate, std::int64_t) const {
    return {detail::AdamConstants::at(beta1, beta2, epsilon, learning_rate, 1),
            static_cast<float>(std::log(static_cast<double>(beta1))),
            static_cast<float>(std::log(static_cast<double>(beta2))),
            static_cast<float>(1 - static_cast<double>(learning_rate) * weight_decay)};
  }
};

/// Adam's direction r = (m/(1-beta1^t)) / (sqrt(v/(1-beta2^t)) + epsilon) + weight_decay w, as long
/// as the row itself: w -= lr |w|/|r| r, with 1 for the ratio if either norm is 0. You et al.
/// 2020, with a table row as a layer, as FBGEMM's LAMB. Lazy, as AdamW.
///
///     EmbeddingCollection<MyPlan, Lamb, Host, Comm> embeddings(
///         communicator, Host(), {.optimizer = {.weight_decay = 0.01f}});
struct Lamb {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-6f;
  float weight_decay = 0;

  static constexpr int element_states = 2, row_states = 0;
  static constexpr bool device_steps = true, needs_mean_square = true;
  static constexpr std::array<std::string_view, 2> state_names{"m", "v"};

  struct Step {
    detail::AdamConstants adam;
    float weight_decay;
    struct Row {
      float rate;
    };
    TESSERA_SIDE_OF_ARGUMENTS
    template <class V>
    TESSERA_HOST_DEVICE V measured(V weight, V gradient, V* state) const {
      using namespace math;
      adam.move(gradient, state);
      return multiply_add(weight_decay, weight, adam.mean * state[0] / adam.spread(state[1]));
    }
    TESSERA_HOST_DEVICE Row row(float*, float mean_square, float weight_mean_square) const {
      using namespace math;
      const bool both = mean_square > 0 && weight_mean_square > 0;
      return {adam.learning_rate *
              (both ? square_root(weight_mean_square) / square_root(mean_square) : 1.0f)};
    }
    TESSERA_SIDE_OF_ARGUMENTS
    template <class V>
    TESSERA_HOST_DEVICE V element(V weight, V gradient, V* state, const Row& row) const {
      using namespace math;
      return multiply_add(-row.rate, measured(weight, gradient, state), weight);
    }
  };
  constexpr float initial_state(int) const { return 0; }
  TESSERA_HOST_DEVICE Step at(float learning_rate, std::int64_t step) const {
    return {detail::AdamConstants::at(beta1, beta2, epsilon, learning_rate, step), weight_decay};
  }
};

static_assert(Optimizer<AdamW> && Optimizer<PartialRowWiseAdam> && Optimizer<CountedAdam> &&
              Optimizer<Lamb>);

}}  // namespace tessera::v0
