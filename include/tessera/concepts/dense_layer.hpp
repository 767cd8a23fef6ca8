// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>

#include <concepts>
#include <cstdint>
#include <span>

namespace tessera { inline namespace v0 {

namespace detail {

// A dense layer maps each sample's numbers to others, by parameters that DenseParameters owns. All
// views and spans are in the memory of its backend:
//
//   std::int64_t input_size() const;                                 // columns of x
//   std::int64_t output_size() const;                                // columns of y
//   std::int64_t parameter_count() const;
//   void bind(std::span<float> values, std::span<float> gradients);  // parameter_count() each
//   int initialize(std::uint64_t seed, int first_layer);             // returns the next layer's number
//   void forward(ts::MatrixView<const float> x, ts::MatrixView<float> y);
//   void backward(ts::MatrixView<const float> dy, ts::MatrixView<float> dx);

template <class L>
concept HasLayerSizes = requires(const L& layer) {
  { layer.input_size() } -> std::convertible_to<std::int64_t>;
  { layer.output_size() } -> std::convertible_to<std::int64_t>;
};
template <class L>
concept HasLayerParameters = requires(L& layer, const L& constant, std::span<float> part) {
  { constant.parameter_count() } -> std::convertible_to<std::int64_t>;
  layer.bind(part, part);
  { layer.initialize(std::uint64_t{}, int{}) } -> std::same_as<int>;
};
template <class L>
concept HasLayerForward =
    requires(L& layer, MatrixView<const float> x, MatrixView<float> y) { layer.forward(x, y); };
template <class L>
concept HasLayerBackward = requires(L& layer, MatrixView<const float> dy, MatrixView<float> dx) {
  layer.backward(dy, dx);
};

}  // namespace detail

/// A layer with parameters: Mlp, Linear, CrossInteraction, or one of your own. Meaning and laws:
/// docs/concepts/dense.md.
template <class L>
concept DenseLayer = detail::HasLayerSizes<L> && detail::HasLayerParameters<L> &&
                     detail::HasLayerForward<L> && detail::HasLayerBackward<L>;

/// Lists every requirement that `L` misses, one error each. (Of a concept itself g++ would add
/// seven lines to each.)
template <class L>
consteval bool explain_dense_layer() {
  constexpr bool sizes = detail::HasLayerSizes<L>, parameters = detail::HasLayerParameters<L>,
                 forward = detail::HasLayerForward<L>, backward = detail::HasLayerBackward<L>;
  constexpr bool any = sizes || parameters || forward || backward;
  static_assert(any,
                "DenseLayer: this type has no member of a dense layer (docs/concepts/dense.md)");
  static_assert(!any || sizes,
                "DenseLayer: need std::int64_t input_size() const and "
                "std::int64_t output_size() const (docs/concepts/dense.md)");
  static_assert(!any || parameters,
                "DenseLayer: need std::int64_t parameter_count() const, "
                "void bind(std::span<float> values, std::span<float> gradients) and "
                "int initialize(std::uint64_t seed, int first_layer) (docs/concepts/dense.md)");
  static_assert(!any || forward,
                "DenseLayer: need void forward(MatrixView<const float> x, MatrixView<float> y) "
                "(docs/concepts/dense.md)");
  static_assert(!any || backward,
                "DenseLayer: need void backward(MatrixView<const float> dy, MatrixView<float> dx) "
                "(docs/concepts/dense.md)");
  return DenseLayer<L>;
}

}}  // namespace tessera::v0
