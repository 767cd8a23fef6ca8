// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/dense_layer.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/core/sequence_batch.hpp>

#include <concepts>
#include <cstdint>
#include <span>

namespace tessera { inline namespace v0 {

namespace detail {

// A sequence layer maps each position of each sequence to a vector of the same width, on the host:
//
//   std::int64_t width() const;                                      // of x and y
//   std::int64_t parameter_count() const;                            // these three as every dense layer
//   void bind(std::span<float> values, std::span<float> gradients);
//   int initialize(std::uint64_t seed, int first_layer);             // returns the next layer's number
//   void forward(ts::MatrixView<const float> x, const ts::SequenceBatch& batch, ts::MatrixView<float> y);
//   void backward(ts::MatrixView<const float> dy, ts::MatrixView<float> dx);   // dx.data may be null

template <class L>
concept HasSequenceWidth = requires(const L& layer) {
  { layer.width() } -> std::same_as<std::int64_t>;
};
template <class L>
concept HasSequenceForward =
    requires(L& layer, MatrixView<const float> x, const SequenceBatch& batch, MatrixView<float> y) {
      layer.forward(x, batch, y);
    };
template <class L>
concept HasSequenceBackward = requires(L& layer, MatrixView<const float> dy, MatrixView<float> dx) {
  layer.backward(dy, dx);
};

}  // namespace detail

/// A layer over sequences of different lengths, one after another without padding.
/// Meaning and laws: docs/concepts/sequence.md.
template <class L>
concept SequenceLayer = detail::HasSequenceWidth<L> && detail::HasLayerParameters<L> &&
                        detail::HasSequenceForward<L> && detail::HasSequenceBackward<L>;

/// Lists every requirement that `L` misses, one error each. (Of a concept itself g++ would add
/// seven lines to each.)
template <class L>
consteval bool explain_sequence_layer() {
  constexpr bool width = detail::HasSequenceWidth<L>, parameters = detail::HasLayerParameters<L>,
                 forward = detail::HasSequenceForward<L>, backward = detail::HasSequenceBackward<L>;
  constexpr bool any = width || parameters || forward || backward;
  static_assert(
      any,
      "SequenceLayer: this type has no member of a sequence layer (docs/concepts/sequence.md)");
  static_assert(!any || width,
                "SequenceLayer: need std::int64_t width() const (docs/concepts/sequence.md)");
  static_assert(!any || parameters,
                "SequenceLayer: need std::int64_t parameter_count() const, "
                "void bind(std::span<float> values, std::span<float> gradients) and "
                "int initialize(std::uint64_t seed, int first_layer) (docs/concepts/sequence.md)");
  static_assert(!any || forward,
                "SequenceLayer: need void forward(MatrixView<const float> x, "
                "const SequenceBatch& batch, MatrixView<float> y) (docs/concepts/sequence.md)");
  static_assert(!any || backward,
                "SequenceLayer: need void backward(MatrixView<const float> dy, "
                "MatrixView<float> dx) (docs/concepts/sequence.md)");
  return SequenceLayer<L>;
}

}}  // namespace tessera::v0
