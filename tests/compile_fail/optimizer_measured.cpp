// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A user's optimizer measures what is never squared.
// expect: Optimizer: measured, and row with three parameters, need needs_mean_square = true (docs/concepts/optimizer.md)
#include <tessera/concepts/optimizer.hpp>

using namespace tessera;

struct Decayed {
  static constexpr int element_states = 0, row_states = 0;
#ifdef ALLOWED_TWIN
  static constexpr bool needs_mean_square = true;
#else
  static constexpr bool needs_mean_square = false;
#endif
  struct Step {
    struct Row {};
    float learning_rate;
    float measured(float weight, float gradient, float*) const { return gradient + weight; }
    Row row(float*, float) const { return {}; }
    float element(float weight, float gradient, float*, const Row&) const {
      return weight - learning_rate * (gradient + weight);
    }
  };
  float initial_state(int) const { return 0; }
  Step at(float learning_rate, std::int64_t) const { return {learning_rate}; }
};
static_assert(explain_optimizer<Decayed>());
