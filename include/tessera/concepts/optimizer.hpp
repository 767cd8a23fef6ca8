// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <type_traits>

namespace tessera { inline namespace v0 {

namespace detail {

// An optimizer is two small structs: the optimizer itself holds constants; `at(learning_rate,
// step)` gives the functor of one step, which kernels copy. docs/concepts/optimizer.md has the
// smallest model.
//
//   struct Step {
//     struct Row { ... };                                             // what all elements of a row share
//     HD Row row(float* row_state, float mean_square) const;          // row_state: row_states floats, read and written
//     HD float element(float weight, float gradient, float* state, const Row&) const;   // state: element_states floats; new weight
//   };
//
// `element` may be a template on the value type, V element(V weight, V gradient, V* state, const
// Row&), made of + - * /, comparisons and the functions of core/math.hpp: backends then run several
// columns at once. A Step may have two more things, for optimizers whose rows share more than the
// gradient's mean square (both need needs_mean_square):
//
//     HD float measured(float weight, float gradient, float* state) const;    // its mean square is the one that `row` gets; state: a copy
//     HD Row row(float* row_state, float mean_square, float weight_mean_square) const;   // in place of `row` with two parameters
//
// An optimizer that needs certain first weights says so by `using initializer =
// ...`, which collections use unless they are told otherwise.

template <class O>
concept HasStateCounts = requires {
  { O::element_states } -> std::convertible_to<int>;
  { O::row_states } -> std::convertible_to<int>;
  requires std::bool_constant<(O::element_states >= 0 && O::row_states >= 0)>::value;
};
template <class O>
concept HasStateElement =
    !requires { typename O::state_element; } || Element<typename O::state_element>;
template <class O>
concept HasMeanSquareFlag = requires {
  { O::needs_mean_square } -> std::convertible_to<bool>;
};
template <class O>
concept HasStateNames = requires {
  { O::state_names[0] } -> std::convertible_to<std::string_view>;
  requires std::size(O::state_names) == std::size_t{O::element_states + O::row_states};
} || (O::element_states + O::row_states == 0);
template <class O>
concept HasInitialState = requires(const O& optimizer, int i) {
  { optimizer.initial_state(i) } -> std::convertible_to<float>;
};
template <class O>
concept HasStep = requires(const O& optimizer, float learning_rate, std::int64_t step) {
  { optimizer.at(learning_rate, step) } -> std::same_as<typename O::Step>;
};

/// The mean square that `row` gets is that of `measured`, not of the gradient.
template <class O>
concept MeasuresUpdates =
    requires(const typename O::Step& step, float weight, float gradient, float* state) {
      { step.measured(weight, gradient, state) } -> std::same_as<float>;
    };

/// `row` gets the mean square of the row's weights, too.
template <class O>
concept MeasuresWeights = requires(const typename O::Step& step, float* state, float x) {
  { step.row(state, x, x) } -> std::same_as<typename O::Step::Row>;
};

template <class O>
concept HasRowMath =
    std::default_initializable<typename O::Step::Row> &&
    (MeasuresWeights<O> || requires(const typename O::Step& step, float* state, float x) {
      { step.row(state, x) } -> std::same_as<typename O::Step::Row>;
    });
template <class O>
concept HasMeasures = O::needs_mean_square || !(MeasuresUpdates<O> || MeasuresWeights<O>);
template <class O>
concept HasElementMath = requires(const typename O::Step& step, float* state, float x,
                                  const typename O::Step::Row& row) {
  { step.element(x, x, state, row) } -> std::same_as<float>;
};
template <class O>
concept HasTrivialStep = std::is_trivially_copyable_v<typename O::Step>;

}  // namespace detail

/// Turns a row's summed gradient into new weights. States: element_states floats per element, then
/// row_states floats per row.
template <class O>
concept Optimizer =
    detail::HasStateCounts<O> && detail::HasStateElement<O> && detail::HasMeanSquareFlag<O> &&
    detail::HasStateNames<O> && detail::HasInitialState<O> && detail::HasStep<O> &&
    detail::HasRowMath<O> && detail::HasElementMath<O> && detail::HasTrivialStep<O> &&
    detail::HasMeasures<O>;

namespace detail {
template <class O>
struct StateElementOf {
  using type = float;
};
template <class O>
  requires requires { typename O::state_element; }
struct StateElementOf<O> {
  using type = typename O::state_element;
};
/// How tables store the states of elements: O::state_element, else float. Those of rows are floats.
template <class O>
using StateElement = typename StateElementOf<O>::type;

template <class O>
inline constexpr int state_bytes = O::element_states * static_cast<int>(sizeof(StateElement<O>));

}  // namespace detail

/// Lists every requirement that `O` misses, one error each. (Of a concept itself g++ would add
/// seven lines to each.)
template <class O>
consteval bool explain_optimizer() {
  constexpr bool counts = detail::HasStateCounts<O>, mean_square = detail::HasMeanSquareFlag<O>,
                 initial = detail::HasInitialState<O>, step = detail::HasStep<O>;
  constexpr bool any = counts || mean_square || initial || step;
  constexpr bool names = !counts || detail::HasStateNames<O>,
                 trivial = !step || detail::HasTrivialStep<O>, row = !step || detail::HasRowMath<O>;
  constexpr bool measures = !step || !mean_square || detail::HasMeasures<O>;
  constexpr bool element = !step || !row || detail::HasElementMath<O>;
  static_assert(any,
                "Optimizer: this type has no member of an optimizer (docs/concepts/optimizer.md)");
  static_assert(!any || counts,
                "Optimizer: need static constexpr int element_states, row_states, 0 or more "
                "(docs/concepts/optimizer.md)");
  static_assert(detail::HasStateElement<O>,
                "Optimizer: state_element is float, BFloat16 or Half (docs/concepts/optimizer.md)");
  static_assert(
      !any || mean_square,
      "Optimizer: need static constexpr bool needs_mean_square (docs/concepts/optimizer.md)");
  static_assert(
      names,
      "Optimizer: need static constexpr state_names, one per state (docs/concepts/optimizer.md)");
  static_assert(
      !any || initial,
      "Optimizer: need float initial_state(int state) const (docs/concepts/optimizer.md)");
  static_assert(!any || step,
                "Optimizer: need struct Step and Step at(float learning_rate, std::int64_t step) "
                "const (docs/concepts/optimizer.md)");
  static_assert(row,
                "Optimizer: Step needs Row row(float* row_state, float mean_square) const, and a "
                "Row{} (docs/concepts/optimizer.md)");
  static_assert(measures,
                "Optimizer: measured, and row with three parameters, need needs_mean_square = true "
                "(docs/concepts/optimizer.md)");
  static_assert(element,
                "Optimizer: Step needs float element(float weight, float gradient, float* state, "
                "const Row&) const (docs/concepts/optimizer.md)");
  static_assert(trivial,
                "Optimizer: Step must be trivially copyable: kernels take it by value "
                "(docs/concepts/optimizer.md)");
  return Optimizer<O>;
}

}}  // namespace tessera::v0
