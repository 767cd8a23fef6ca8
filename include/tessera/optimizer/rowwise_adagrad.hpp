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

namespace tessera::inline v0 {

/// Row-wise Adagrad whose gradient takes the weight in: h = g + weight_decay w; sum += mean(h^2); w
/// -= lr h / (sqrt(sum) + epsilon). FBGEMM's EXACT_ROWWISE_ADAGRAD with WeightDecayMode.L2.
struct RowWiseAdagradL2 {
  float epsilon = 1e-8f;
  float initial_accumulator = 0;
  float weight_decay = 0;

  static constexpr int element_states = 0, row_states = 1;
  static constexpr bool device_steps = true;
  static constexpr bool needs_mean_square = true;
  static constexpr std::array<std::string_view, 1> state_names{"sum"};

  struct Step {
    float learning_rate, epsilon, weight_decay;
    struct Row {
      float rate;
    };
    TESSERA_SIDE_OF_ARGUMENTS
    template <class V>
    TESSERA_HOST_DEVICE V measured(V weight, V gradient, V*) const {
      return multiply_add(weight_decay, weight, gradient);
    }
    TESSERA_HOST_DEVICE Row row(float* row_state, float mean_square) const {
      row_state[0] += mean_square;
      return {learning_rate / (square_root(row_state[0]) + epsilon)};
    }
    TESSERA_SIDE_OF_ARGUMENTS
    template <class V>
    TESSERA_HOST_DEVICE V element(V weight, V gradient, V* state, const Row& row) const {
      return multiply_add(-row.rate, measured(weight, gradient, state), weight);
    }
  };
  constexpr float initial_state(int) const { return initial_accumulator; }
  TESSERA_HOST_DEVICE constexpr Step at(float learning_rate, std::int64_t) const {
    return {learning_rate, epsilon, weight_decay};
  }
};

/// Row-wise Adagrad beside which weights shrink: sum += mean(g^2); w = (1 - lr weight_decay) w - lr g
/// / (sqrt(sum) + epsilon). FBGEMM's EXACT_ROWWISE_ADAGRAD with WeightDecayMode.DECOUPLE.
struct RowWiseAdagradDecoupled {
  float epsilon = 1e-8f;
  float initial_accumulator = 0;
  float weight_decay = 0;

  static constexpr int element_states = 0, row_states = 1;
  static constexpr bool device_steps = true;
  static constexpr bool needs_mean_square = true;
  static constexpr std::array<std::string_view, 1> state_names{"sum"};

  struct Step {
    float learning_rate, epsilon, decay;
    struct Row {
      float rate;
    };
    TESSERA_HOST_DEVICE Row row(float* row_state, float mean_square) const {
      row_state[0] += mean_square;
      return {learning_rate / (square_root(row_state[0]) + epsilon)};
    }
    TESSERA_SIDE_OF_ARGUMENTS
    template <class V>
    TESSERA_HOST_DEVICE V element(V weight, V gradient, V*, const Row& row) const {
      return multiply_add(-row.rate, gradient, decay * weight);
    }
  };
  constexpr float initial_state(int) const { return initial_accumulator; }
  TESSERA_HOST_DEVICE constexpr Step at(float learning_rate, std::int64_t) const {
    return {learning_rate, epsilon,
            static_cast<float>(1 - static_cast<double>(learning_rate) * weight_decay)};
  }
};

/// Row-wise Adagrad whose rate depends on how often the row occurs: per step, counter = 1 + counter
/// 2^(-d / half_life), d the steps since the row's last (without half_life: counter + 1). Rows whose
/// counter exceeds `threshold`, in steps after `first_step`, have the Adagrad rate times
/// min(max((most / (counter + 1))^power, 1), 10) (faster) or times max(min(((counter + 1) /
/// most)^power, 1), 0.1) (slower), or in its place lr / (sqrt(power counter) + epsilon) (by_count).
/// FBGEMM's rowwise_adagrad_with_counter: TAIL_ID_LR_INCREASE, TAIL_ID_LR_DECREASE, COUNTER_SGD;
/// max_counter, which FBGEMM counts, is the constant `most`.
struct CountedRowWiseAdagrad {
  enum class Rate : std::uint8_t { faster, slower, by_count };
  float epsilon = 1e-8f;
  Rate rate = Rate::by_count;
  float half_life = 0;  ///< in steps; 0: none
  float power = 1;
  float most = 1;
  float threshold = 0;
  std::int64_t first_step = 0;

  static constexpr int element_states = 0, row_states = 3;
  static constexpr bool device_steps = true;
  static constexpr bool needs_mean_square = true;
  static constexpr std::array<std::string_view, 3> state_names{"sum", "counter", "last_step"};

  struct Step {
    float learning_rate, epsilon, step, inverse_half_life, power, most, threshold;
    Rate mode;
    struct Row {
      float rate;
    };
    TESSERA_HOST_DEVICE Row row(float* row_state, float mean_square) const {
      const float delta = row_state[2] == 0 ? 1.0f : step - row_state[2];
      const float occurrences = multiply_add(exp2f(-delta * inverse_half_life), row_state[1], 1.0f);
      row_state[0] += mean_square;
      row_state[1] = occurrences;
      row_state[2] = step;
      const float adagrad = learning_rate / (square_root(row_state[0]) + epsilon);
      if (!(occurrences > threshold)) return {adagrad};
      if (mode == Rate::by_count)
        return {learning_rate / (square_root(power * occurrences) + epsilon)};
      if (mode == Rate::faster)
        return {adagrad * maximum(minimum(powf(most / (occurrences + 1), power), 10.0f), 1.0f)};
      return {adagrad * minimum(maximum(powf((occurrences + 1) / most, power), 0.1f), 1.0f)};
    }
    TESSERA_SIDE_OF_ARGUMENTS
    template <class V>
    TESSERA_HOST_DEVICE V element(V weight, V gradient, V*, const Row& row) const {
      return multiply_add(-row.rate, gradient, weight);
    }
  };
  constexpr float initial_state(int) const { return 0; }
  TESSERA_HOST_DEVICE Step at(float learning_rate, std::int64_t step) const {
    return {learning_rate,
            epsilon,
            static_cast<float>(step),
            half_life > 0 ? 1 / half_life : 0.0f,
            power,
            most,
            step > first_step ? threshold : INFINITY,
            rate};
  }
};

static_assert(Optimizer<RowWiseAdagradL2> && Optimizer<RowWiseAdagradDecoupled> &&
              Optimizer<CountedRowWiseAdagrad>);

}  // namespace tessera::inline v0
