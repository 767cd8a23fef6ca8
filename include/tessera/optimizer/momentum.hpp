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

/// SGD with momentum: m = momentum m + g; w -= lr m, or with Nesterov's step w -= lr (g + momentum
/// m). Polyak 1964; Sutskever et al. 2013, as in torch.optim.SGD without dampening. Lazy: rows that
/// no id touched rest.
///
///     EmbeddingCollection<MyPlan, Momentum, Host, Comm> embeddings(
///         communicator, Host(), {.optimizer = {.momentum = 0.9f}});
struct Momentum {
  float momentum = 0.9f;
  bool nesterov = false;

  static constexpr int element_states = 1, row_states = 0;
  static constexpr bool device_steps = true, needs_mean_square = false;
  static constexpr std::array<std::string_view, 1> state_names{"m"};

  struct Step {
    float learning_rate, momentum, of_gradient, of_momentum;
    struct Row {};
    TESSERA_HOST_DEVICE Row row(float*, float) const { return {}; }
    TESSERA_SIDE_OF_ARGUMENTS
    template <class V>
    TESSERA_HOST_DEVICE V element(V weight, V gradient, V* state, const Row&) const {
      using namespace math;
      state[0] = multiply_add(momentum, state[0], gradient);
      return multiply_add(-learning_rate,
                          multiply_add(of_momentum, state[0], of_gradient * gradient), weight);
    }
  };
  constexpr float initial_state(int) const { return 0; }
  TESSERA_HOST_DEVICE constexpr Step at(float learning_rate, std::int64_t) const {
    return {learning_rate, momentum, nesterov ? 1.0f : 0.0f, nesterov ? momentum : 1.0f};
  }
};
static_assert(Optimizer<Momentum>);

}}  // namespace tessera::v0
