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

struct Constant;

/// FTRL-Proximal: sigma = (sqrt(n + g^2) - sqrt(n)) / lr; z += g - sigma w; n += g^2; w = 0 if
/// |z| <= l1, else (sign(z) l1 - z) / ((beta + sqrt(n)) / lr + 2 l2). McMahan et al. 2013, whose
/// lambda_2 is 2 l2; TensorFlow's ApplyFtrl with learning_rate_power -0.5. The weight is what z and
/// n say: so tables begin with zeros unless told otherwise. A learning rate of 0 changes nothing.
///
///     EmbeddingCollection<MyPlan, Ftrl, Host, Comm> embeddings(
///         communicator, Host(), {.optimizer = {.l1 = 0.01f}});
struct Ftrl {
  float beta = 1, l1 = 0, l2 = 0;
  float initial_accumulator = 0;

  static constexpr int element_states = 2, row_states = 0;
  static constexpr bool device_steps = true, needs_mean_square = false;
  static constexpr std::array<std::string_view, 2> state_names{"z", "n"};
  using initializer = Constant;

  struct Step {
    float rate, inverse_rate, l1, least;
    float taken, kept;  ///< 1 and 0; with a rate of 0 the other way round
    struct Row {};
    TESSERA_HOST_DEVICE Row row(float*, float) const { return {}; }
    TESSERA_SIDE_OF_ARGUMENTS
    template <class V>
    TESSERA_HOST_DEVICE V element(V weight, V gradient, V* state, const Row&) const {
      using namespace math;
      const V g = taken * gradient, n = multiply_add(g, g, state[1]);
      state[0] = multiply_add((square_root(state[1]) - square_root(n)) * inverse_rate, weight,
                              state[0] + g);
      state[1] = n;
      return multiply_add(kept, weight,
                          -rate * sign(state[0]) * maximum(0.0f, absolute(state[0]) - l1) /
                              maximum(square_root(n) + least, 1e-30f));
    }
  };
  constexpr float initial_state(int i) const { return i == 0 ? 0 : initial_accumulator; }
  TESSERA_HOST_DEVICE constexpr Step at(float learning_rate, std::int64_t) const {
    const float taken = learning_rate == 0 ? 0.0f : 1.0f,
                inverse = taken == 0 ? 0 : 1 / learning_rate;
    return {learning_rate, inverse, l1, beta + 2 * l2 * learning_rate, taken, 1 - taken};
  }
};
static_assert(Optimizer<Ftrl>);

}}  // namespace tessera::v0
