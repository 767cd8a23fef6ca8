// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A user's optimizer has fewer states than none, and keeps what it has in doubles.
// expect: Optimizer: need static constexpr int element_states, row_states, 0 or more (docs/concepts/optimizer.md)
// expect: Optimizer: state_element is float, BFloat16 or Half (docs/concepts/optimizer.md)
#include <tessera/concepts/optimizer.hpp>

using namespace tessera;

struct Nothing {
#ifdef ALLOWED_TWIN
  static constexpr int element_states = 0, row_states = 0;
#else
  static constexpr int element_states = -1, row_states = 0;
  using state_element = double;
#endif
  static constexpr bool needs_mean_square = false;
  struct Step {
    struct Row {};
    float learning_rate;
    Row row(float*, float) const { return {}; }
    float element(float weight, float gradient, float*, const Row&) const {
      return weight - learning_rate * gradient;
    }
  };
  float initial_state(int) const { return 0; }
  Step at(float learning_rate, std::int64_t) const { return {learning_rate}; }
};
static_assert(explain_optimizer<Nothing>());
