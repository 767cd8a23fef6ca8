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

/// Row-wise Adagrad whose gradient takes the weight in: h = g + weight_decay w; sum += mean(h^2); w
/// -= lr h / (sqrt(sum) + epsilon). FBGEMM's EXACT_ROWWISE_ADAGRAD with WeightDecayMode.L2.
///
///     EmbeddingCollection<MyPlan, RowWiseAdagradL2, Host, Comm> embeddings(
///         communicator, Host(), {.optimizer = {.weight_decay = 1e-5f}});
struct RowWiseAdagradL2 {
  float epsilon = 1e-8f;
  float initial_accumulator = 0;
  float weight_decay = 0;

  static constexpr int element_states = 0, row_states = 1;
  static constexpr bool device_steps = true, needs_mean_square = true;
  static constexpr std::array<std::string_view, 1> state_names{"sum"};

  struct Step {
    float learning_rate, epsilon, weight_decay;
    struct Row {
      float rate;
    };
    TESSERA_SIDE_OF_ARGUMENTS
    template <class V>
    TESSERA_HOST_DEVICE V measured(V weight, V gradient, V*) const {
      using namespace math;
      return multiply_add(weight_decay, weight, gradient);
    }
    TESSERA_HOST_DEVICE Row row(float* row_state, float mean_square) const {
      using namespace math;
      row_state[0] += mean_square;
      return {learning_rate / (square_root(row_state[0]) + epsilon)};
    }
    TESSERA_SIDE_OF_ARGUMENTS
    template <class V>
    TESSERA_HOST_DEVICE V element(V weight, V gradient, V* state, const Row& row) const {
      using namespace math;
      return multiply_add(-row.rate, measured(weight, gradient, state), weight);
    }
  };
  constexpr float initial_state(int) const { return initial_accumulator; }
  TESSERA_HOST_DEVICE constexpr Step at(float learning_rate, std::int64_t) const {
    return {learning_rate, epsilon, weight_decay};
  }
};

/// Row-wise Adagrad beside which weights shrink: sum += mean(g^2); w = (1 - lr weight_decay) w - lr
/// g / (sqrt(sum) + epsilon). FBGEMM's EXACT_ROWWISE_ADAGRAD with WeightDecayMode.DECOUPLE.
///
///     EmbeddingCollection<MyPlan, RowWiseAdagradDecoupled, Host, Comm> embeddings(
///         communicator, Host(), {.optimizer = {.weight_decay = 1e-3f}});
struct RowWiseAdagradDecoupled {
  float epsilon = 1e-8f;
  float initial_accumulator = 0;
  float weight_decay = 0;

  static constexpr int element_states = 0, row_states = 1;
  static constexpr bool device_steps = true, needs_mean_square = true;
  static constexpr std::array<std::string_view, 1> state_names{"sum"};

  struct Step {
    float learning_rate, epsilon, decay;
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
      return multiply_add(-row.rate, gradient, decay * weight);
    }
  };
  constexpr float initial_state(int) const { return initial_accumulator; }
  TESSERA_HOST_DEVICE constexpr Step at(float learning_rate, std::int64_t) const {
    return {learning_rate, epsilon,
            static_cast<float>(1 - static_cast<double>(learning_rate) * weight_decay)};
  }
};

namespace detail {

/// What a row's count does to its rate: see CountedRowWiseAdagrad.
enum class CountedRate : std::uint8_t { faster, slower, by_count };

/// A step of the two optimizers below: what a row's count makes of its rate and its weights.
struct CountedStep {
  float learning_rate, epsilon, step, forgetting, power, most, threshold, decay;
  CountedRate mode;
  struct Row {
    float rate, kept;
  };
  TESSERA_HOST_DEVICE float rate(float adagrad, float count) const {
    using math::square_root, math::maximum, math::minimum;
    if (!(count > threshold)) return adagrad;
    if (mode == CountedRate::by_count)
      return learning_rate / (square_root(power * count) + epsilon);
    if (mode == CountedRate::faster)
      return adagrad * maximum(minimum(powf(most / (count + 1), power), 10.0f), 1.0f);
    return adagrad * minimum(maximum(powf((count + 1) / most, power), 0.1f), 1.0f);
  }
  TESSERA_HOST_DEVICE Row row(float* state, float mean_square) const {
    using math::square_root, math::multiply_add, math::maximum;
    const float since = state[2] == 0 ? 1.0f : maximum(step - state[2], 1.0f);
    state[0] += mean_square;
    state[1] = multiply_add(exp2f(-since * forgetting), state[1], 1.0f);
    state[2] = step;
    return {rate(learning_rate / (square_root(state[0]) + epsilon), state[1]),
            1 - learning_rate * decay / state[1]};
  }
  TESSERA_SIDE_OF_ARGUMENTS
  template <class V>
  TESSERA_HOST_DEVICE V element(V weight, V gradient, V*, const Row& row) const {
    using math::multiply_add;
    return multiply_add(-row.rate, gradient, row.kept * weight);
  }
};

}  // namespace detail

/// Row-wise Adagrad whose rate depends on how often the row occurs: per step, counter = 1 + counter
/// 2^(-d / half_life), d the steps since the row's last (half_life -1: counter + 1; 0: always 1).
/// Rows whose counter exceeds `threshold` (under threshold_is_share: floor(threshold most)), in
/// steps after `first_step`, have the Adagrad rate times min(max((most / (counter + 1))^power, 1),
/// 10) (faster) or times max(min(((counter + 1) / most)^power, 1), 0.1) (slower), or in its place
/// lr / (sqrt(power counter) + epsilon) (by_count). In these steps weights shrink, the more the
/// rarer the row: w = (1 - lr weight_decay half_life / counter) w - rate g, where half_life is
/// positive. FBGEMM's rowwise_adagrad_with_counter: TAIL_ID_LR_INCREASE, TAIL_ID_LR_DECREASE,
/// COUNTER_SGD, and CounterWeightDecayMode.DECOUPLE; max_counter, which FBGEMM counts anew every
/// thousand steps, is the constant `most`. FBGEMM's CowClip and CounterWeightDecayMode.ADAGRADW are
/// not here.
struct CountedRowWiseAdagrad {
  using Rate = detail::CountedRate;
  float epsilon = 1e-8f;
  Rate rate = Rate::by_count;
  float half_life = -1, power = 1, most = 1, threshold = 0;
  bool threshold_is_share = false;
  float weight_decay = 0;
  std::int64_t first_step = 0;

  static constexpr int element_states = 0, row_states = 3;
  static constexpr bool device_steps = true, needs_mean_square = true;
  static constexpr std::array<std::string_view, 3> state_names{"sum", "counter", "last_step"};

  using Step = detail::CountedStep;
  constexpr float initial_state(int) const { return 0; }
  TESSERA_HOST_DEVICE Step at(float learning_rate, std::int64_t step) const {
    const float least = threshold_is_share ? floorf(threshold * most) : threshold;
    const float forgets = half_life > 0 ? 1 / half_life : half_life < 0 ? 0.0f : INFINITY;
    const float decay = step > first_step && half_life > 0 ? weight_decay * half_life : 0.0f;
    return {learning_rate,
            epsilon,
            static_cast<float>(step),
            forgets,
            power,
            most,
            step > first_step ? least : INFINITY,
            decay,
            rate};
  }
};

/// The same, its gradient taking the weight in: sum += mean((g + weight_decay w)^2); w = (1 - a
/// weight_decay half_life / counter) w - rate g, a the Adagrad rate. CounterWeightDecayMode.L2.
struct CountedRowWiseAdagradL2 : CountedRowWiseAdagrad {
  struct Step : detail::CountedStep {
    float weight_decay;
    TESSERA_SIDE_OF_ARGUMENTS
    template <class V>
    TESSERA_HOST_DEVICE V measured(V weight, V gradient, V*) const {
      using namespace math;
      return multiply_add(weight_decay, weight, gradient);
    }
    TESSERA_HOST_DEVICE Row row(float* state, float mean_square) const {
      using namespace math;
      const Row row = detail::CountedStep::row(state, mean_square);
      const float adagrad = learning_rate / (square_root(state[0]) + epsilon);
      return {row.rate, 1 - adagrad * decay / state[1]};
    }
  };
  TESSERA_HOST_DEVICE Step at(float learning_rate, std::int64_t step) const {
    return {CountedRowWiseAdagrad::at(learning_rate, step), weight_decay};
  }
};

static_assert(Optimizer<RowWiseAdagradL2> && Optimizer<RowWiseAdagradDecoupled> &&
              Optimizer<CountedRowWiseAdagrad> && Optimizer<CountedRowWiseAdagradL2>);

}}  // namespace tessera::v0
