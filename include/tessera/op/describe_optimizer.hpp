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

/// Describes an optimizer and its constants, by what four steps of it do to a row. Throws
/// InvalidArgument if that is no number.
template <Optimizer O>
std::string describe_optimizer(const O& optimizer) {
  std::string text = formatted("{} of {} bytes + {} states ", O::element_states,
                               sizeof(StateElement<O>), O::row_states);
  for (int i = 0; i < O::element_states + O::row_states; ++i)
    text += formatted("{} ", std::string_view(O::state_names[i]));
  std::array<float, O::element_states + 1> element{};
  std::array<float, O::row_states + 1> row{};
  for (int i = 0; i < O::element_states; ++i) element[i] = optimizer.initial_state(i);
  for (int i = 0; i < O::row_states; ++i) row[i] = optimizer.initial_state(O::element_states + i);
  for (const float state : element) require_number(state, "a first state");
  for (const float state : row) require_number(state, "a first state");
  float weight = 1;
  int step = 0;
  for (const float gradient : {1e-6f, 0.25f, 0.5f, 1e-6f}) {
    const typename O::Step functor = optimizer.at(0.5f, ++step);
    const typename O::Step::Row of_row =
        op::shared_by_row<O>(functor, row.data(), {0.75f * gradient * gradient, weight * weight});
    weight = functor.element(weight, gradient, element.data(), of_row);
    require_number(weight, "a weight of 1 and small gradients");
    text += formatted("{}{}", step == 1 ? "takes 1 to " : ", ", weight);
  }
  return text;
}

#ifdef TESSERA_INLINE
TESSERA_INLINE void require_number(float x, std::string_view of) {
  require(std::isfinite(x), "the optimizer makes {} of {}; check its constants", x, of);
}
#endif

}}}  // namespace tessera::v0::detail
