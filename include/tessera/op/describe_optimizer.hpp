// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/optimizer.hpp>
#include <tessera/core/error.hpp>
#include <tessera/op/update.hpp>

#include <array>
#include <cmath>
#include <string>
#include <string_view>

namespace tessera { inline namespace v0 { namespace detail {

void require_number(float x, std::string_view of);
void require_constant(std::string_view name, double x, double most = 1e30);

/// Describes an optimizer and its constants, by what four steps of it do to a row. Throws
/// InvalidArgument if that is no number, and for constants out of range that have the names of the
/// library's.
template <Optimizer O>
std::string describe_optimizer(const O& o) {
  if constexpr (requires { double{o.beta1}; }) require_constant("beta1", o.beta1, 1);
  if constexpr (requires { double{o.beta2}; }) require_constant("beta2", o.beta2, 1);
  if constexpr (requires { double{o.momentum}; }) require_constant("momentum", o.momentum, 1);
  if constexpr (requires { double{o.epsilon}; }) require_constant("epsilon", o.epsilon);
  if constexpr (requires { double{o.weight_decay}; }) require_constant("decay", o.weight_decay);
  if constexpr (requires { double{o.l2}; }) require_constant("l2", o.l2);
  std::string text = formatted("{} of {} bytes + {} states ", O::element_states,
                               sizeof(StateElement<O>), O::row_states);
  std::array<float, O::element_states + O::row_states + 1> states{};
  for (int i = 0; i < O::element_states + O::row_states; ++i) {
    text += formatted("{} ", std::string_view(O::state_names[i]));
    require_number(states[i] = o.initial_state(i), "a first state");
  }
  float weight = 1;
  for (int step = 0; const float gradient : {1e-6f, 0.25f, 0.5f, 1e-6f}) {
    const typename O::Step functor = o.at(0.5f, ++step);
    const typename O::Step::Row of_row = op::shared_by_row<O>(
        functor, states.data() + O::element_states, {0.75f * gradient * gradient, weight * weight});
    weight = functor.element(weight, gradient, states.data(), of_row);
    require_number(weight, "a weight of 1 and small gradients");
    text += formatted("{}{}", step == 1 ? "takes 1 to " : ", ", weight);
  }
  return text;
}

#ifdef TESSERA_INLINE
TESSERA_INLINE void require_number(float x, std::string_view of) {
  require(std::isfinite(x), "the optimizer makes {} of {}; check its constants", x, of);
}
TESSERA_INLINE void require_constant(std::string_view name, double x, double most) {
  require(!(x < 0 || x > most), "the optimizer's {} is {}; check its constants", name, x);
}
#endif

}}}  // namespace tessera::v0::detail
