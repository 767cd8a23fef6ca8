// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A user's optimizers: one has fewer states than none, in doubles; one names one of its two states.
// expect: Optimizer: need static constexpr int element_states, row_states, 0 or more (docs/concepts/optimizer.md)
// expect: Optimizer: state_element is float, BFloat16 or Half (docs/concepts/optimizer.md)
// expect: Optimizer: need static constexpr state_names, one per state (docs/concepts/optimizer.md)
#include <tessera/concepts/optimizer.hpp>

#include <array>

using namespace tessera;

struct Descent {
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
struct Nothing : Descent {
#ifdef ALLOWED_TWIN
  static constexpr int element_states = 0, row_states = 0;
#else
  static constexpr int element_states = -1, row_states = 0;
  using state_element = double;
#endif
};
struct Two : Descent {
  static constexpr int element_states = 1, row_states = 1;
#ifdef ALLOWED_TWIN
  static constexpr std::array<std::string_view, 2> state_names{"sum", "count"};
#else
  static constexpr std::array<std::string_view, 1> state_names{"sum"};
#endif
};
static_assert(explain_optimizer<Nothing>());
static_assert(explain_optimizer<Two>());
