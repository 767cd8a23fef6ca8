// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/optimizer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/math.hpp>

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera { inline namespace v0 {

/// u = sign(beta1 m + (1-beta1) g); w = (1 - lr weight_decay) w - lr u; m = beta2 m + (1-beta2) g.
/// Chen et al. 2023. Lazy: rows that no id touched rest. Wants a third to a tenth of Adam's rate.
///
///     EmbeddingCollection<MyPlan, Lion, Host, Comm> embeddings(
///         communicator, Host(), {.optimizer = {.beta1 = 0.9f}});
struct Lion {
  float beta1 = 0.9f;
  float beta2 = 0.99f;
  float weight_decay = 0;

  static constexpr int element_states = 1, row_states = 0;
  static constexpr bool device_steps = true, needs_mean_square = false;
  static constexpr std::array<std::string_view, 1> state_names{"m"};

  struct Step {
    float learning_rate, decay, beta1, beta2, one_minus_beta1, one_minus_beta2;
    struct Row {};
    TESSERA_HOST_DEVICE Row row(float*, float) const { return {}; }
    TESSERA_SIDE_OF_ARGUMENTS
    template <class V>
    TESSERA_HOST_DEVICE V element(V weight, V gradient, V* state, const Row&) const {
      using namespace math;
      return moved(multiply_add(beta1, state[0], one_minus_beta1 * gradient), weight, gradient,
                   state);
    }

   private:
    TESSERA_SIDE_OF_ARGUMENTS
    template <class V>
    TESSERA_HOST_DEVICE V moved(V direction, V weight, V gradient, V* state) const {
      using namespace math;
      state[0] = multiply_add(beta2, state[0], one_minus_beta2 * gradient);
      return multiply_add(-learning_rate, sign(direction), decay * weight);
    }
  };
  constexpr float initial_state(int) const { return 0; }
  TESSERA_HOST_DEVICE Step at(float learning_rate, std::int64_t) const {
    return {learning_rate,
            static_cast<float>(1 - static_cast<double>(learning_rate) * weight_decay),
            beta1,
            beta2,
            static_cast<float>(1.0 - beta1),
            static_cast<float>(1.0 - beta2)};
  }
};
static_assert(Optimizer<Lion>);

}}  // namespace tessera::v0
