// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/interaction.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/laws/dense_layer_laws.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera { inline namespace v0 { namespace laws {

/// Checks an interaction (docs/concepts/interaction.md) on a backend: those laws of dense layers
/// that a layer without parameters keeps. Needs no test framework; returns what it found wrong,
/// repeated faults counted.
template <class I, class Backend>
std::vector<std::string> interaction_laws(const Backend& backend, const I& interaction,
                                          DenseLayerLawsOptions options = {}) {
  static_assert(explain_interaction<I, Backend>());
  struct Layer {
    Backend backend;
    const I& interaction;
    MatrixView<const float> x{};

    std::int64_t input_size() const { return interaction.input_columns(); }
    std::int64_t output_size() const { return interaction.columns(); }
    std::int64_t parameter_count() const { return 0; }
    void bind(std::span<float>, std::span<float>) {}
    int initialize(std::uint64_t, int first_layer) { return first_layer; }
    void forward(MatrixView<const float> from, MatrixView<float> z) {
      x = from;
      interaction.forward(backend, x, z);
    }
    void backward(MatrixView<const float> dz, MatrixView<float> dx) {
      interaction.backward(backend, x, dz, dx);
    }
  } layer{backend, interaction};
  return dense_layer_laws(backend, layer, options);
}

}}}  // namespace tessera::v0::laws
