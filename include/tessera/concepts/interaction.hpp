// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>

#include <concepts>
#include <cstdint>

namespace tessera { inline namespace v0 {

namespace detail {

// An interaction maps the vectors of a sample, side by side in a row of x, to the top MLP's input.
// It has no parameters (one that has is a DenseLayer) and keeps nothing between calls. Matrices are
// in the memory of the backend that is given; member functions may be static:
//
//   std::int64_t input_columns() const;    // of x
//   std::int64_t columns() const;          // of z
//   void forward(const Backend&, ts::MatrixView<const float> x, ts::MatrixView<float> z) const;
//   void backward(const Backend&, ts::MatrixView<const float> x, ts::MatrixView<const float> dz,
//                 ts::MatrixView<float> dx) const;

template <class I>
concept HasInteractionColumns = requires(const I& interaction) {
  { interaction.input_columns() } -> std::convertible_to<std::int64_t>;
  { interaction.columns() } -> std::convertible_to<std::int64_t>;
};
template <class I, class Backend>
concept HasInteractionForward =
    requires(const I& interaction, const Backend& backend, MatrixView<const float> x,
             MatrixView<float> z) { interaction.forward(backend, x, z); };
template <class I, class Backend>
concept HasInteractionBackward = requires(
    const I& interaction, const Backend& backend, MatrixView<const float> x,
    MatrixView<const float> dz, MatrixView<float> dx) { interaction.backward(backend, x, dz, dx); };

}  // namespace detail

/// What joins the vectors of a sample on `Backend`: DotInteraction, or one of your own. Meaning and
/// laws: docs/concepts/interaction.md.
template <class I, class Backend>
concept Interaction =
    detail::HasInteractionColumns<I> && detail::HasInteractionForward<I, Backend> &&
    detail::HasInteractionBackward<I, Backend>;

/// Lists every requirement that `I` misses, one error each. (Of a concept itself g++ would add
/// seven lines to each.)
template <class I, class Backend>
consteval bool explain_interaction() {
  constexpr bool columns = detail::HasInteractionColumns<I>,
                 forward = detail::HasInteractionForward<I, Backend>,
                 backward = detail::HasInteractionBackward<I, Backend>;
  constexpr bool any = columns || forward || backward;
  static_assert(
      any, "Interaction: this type has no member of an interaction (docs/concepts/interaction.md)");
  static_assert(!any || columns,
                "Interaction: need std::int64_t input_columns() const and "
                "std::int64_t columns() const (docs/concepts/interaction.md)");
  static_assert(!any || forward,
                "Interaction: need void forward(const Backend&, MatrixView<const float> x, "
                "MatrixView<float> z) const (docs/concepts/interaction.md)");
  static_assert(!any || backward,
                "Interaction: need void backward(const Backend&, MatrixView<const float> x, "
                "MatrixView<const float> dz, MatrixView<float> dx) const "
                "(docs/concepts/interaction.md)");
  return Interaction<I, Backend>;
}

}}  // namespace tessera::v0
