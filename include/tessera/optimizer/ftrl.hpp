// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/optimizer.hpp>
#include <tessera/config.hpp>
#include <tessera/core/math.hpp>

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera::inline v0 {

struct Constant;

/// FTRL-Proximal: sigma = (sqrt(n + g^2) - sqrt(n)) / lr; z += g - sigma w; n += g^2; w = 0 where |z|
/// <= l1, else (sign(z) l1 - z) / ((beta + sqrt(n)) / lr + 2 l2). McMahan et al. 2013, whose lambda_2
/// is 2 l2; TensorFlow's ApplyFtrl with learning_rate_power -0.5. The weight is what z and n say: so
/// tables begin with zeros unless told otherwise. A learning rate of 0 changes nothing.
struct Ftrl {
  float beta = 1;
  float l1 = 0;
  float l2 = 0;
  float initial_accumulator = 0;

  static constexpr int element_states = 2, row_states = 0;
  static constexpr bool device_steps = true;
  static constexpr bool needs_mean_square = false;
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
      return moved(weight, taken * gradient, state);
    }

   private:
    TESSERA_SIDE_OF_ARGUMENTS
    template <class V>
    TESSERA_HOST_DEVICE V moved(V weight, V gradient, V* state) const {
      state[0] = multiply_add(
          (square_root(state[1]) - square_root(multiply_add(gradient, gradient, state[1]))) *
              inverse_rate,
          weight, state[0] + gradient);
      state[1] = multiply_add(gradient, gradient, state[1]);
      return multiply_add(kept, weight,
                          -rate * sign(state[0]) * maximum(absolute(state[0]) - l1, 0.0f) /
                              maximum(square_root(state[1]) + least, 1e-30f));
    }
  };
  constexpr float initial_state(int i) const { return i == 0 ? 0 : initial_accumulator; }
  TESSERA_HOST_DEVICE constexpr Step at(float learning_rate, std::int64_t) const {
    const bool still = learning_rate == 0;
    return {learning_rate,
            still ? 0.0f : 1 / learning_rate,
            l1,
            beta + 2 * l2 * learning_rate,
            still ? 0.0f : 1.0f,
            still ? 1.0f : 0.0f};
  }
};
static_assert(Optimizer<Ftrl>);

}  // namespace tessera::inline v0
