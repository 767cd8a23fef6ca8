// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A user's optimizer has no step.
// expect: Optimizer: need struct Step and Step at(float learning_rate, std::int64_t step) const (docs/concepts/optimizer.md)
#include <tessera/concepts/optimizer.hpp>

using namespace tessera;

struct SignDescent {
  static constexpr int element_states = 0, row_states = 0;
  static constexpr bool needs_mean_square = false;
  float initial_state(int) const { return 0; }
#ifdef ALLOWED_TWIN
  struct Step {
    struct Row {};
    float learning_rate;
    Row row(float*, float) const { return {}; }
    float element(float weight, float gradient, float*, const Row&) const {
      return weight - (gradient > 0 ? learning_rate : -learning_rate);
    }
  };
  Step at(float learning_rate, std::int64_t) const { return {learning_rate}; }
#endif
};
static_assert(explain_optimizer<SignDescent>());
