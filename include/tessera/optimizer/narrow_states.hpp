// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/optimizer.hpp>
#include <tessera/core/element.hpp>

#include <type_traits>

namespace tessera { inline namespace v0 {

/// An optimizer whose states of elements (moments, sums) are stored in 16 bits, with stochastic
/// rounding: `NarrowStates<Adam>`, constants as `{{.beta1 = 0.8f}}`. The formulas are those of `O`
/// in float; each step rounds once, so that a moment's expected value stays O's. States of rows
/// stay floats. T: BFloat16, or Half if no state comes below 6e-8 (a second moment does).
///
///     using E = EmbeddingCollection<MyPlan, NarrowStates<Adam, BFloat16>, Host, Comm>;
template <Optimizer O, Element T = BFloat16>
struct NarrowStates : O {
  static_assert(O::element_states > 0,
                "NarrowStates: the optimizer has no states of elements to make narrow");
  static_assert(!std::is_same_v<T, float>, "NarrowStates: T is BFloat16 or Half");
  using state_element = T;
};

}}  // namespace tessera::v0
