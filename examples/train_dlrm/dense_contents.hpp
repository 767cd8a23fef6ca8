// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interaction.hpp"

#include <tessera/checkpoint/contents.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/dense/mlp_layers.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

namespace dlrm {

/// Adds the layers by name, and the dense optimizer's state. `bottom`: null where there are none.
template <class Backend, class Layers, class Parameters, class Optimizers>
void add_dense(tessera::CheckpointContents& contents, const Backend& backend, Layers* bottom,
               const Interaction& interaction, Layers& top, Parameters& parameters,
               Optimizers& optimizer) {
  const auto add_layers = [&](const char* name, Layers& mlp) {
    for (int l = 0; l < mlp.layers(); ++l) {
      const tessera::MatrixView<float> weight = mlp.weight(l);
      contents.add(backend, fmt::format("{}.{}.weight", name, l), {weight.rows, weight.columns},
                   std::span(weight.data, static_cast<std::size_t>(weight.rows * weight.columns)));
      contents.add(backend, fmt::format("{}.{}.bias", name, l), {weight.rows}, mlp.bias(l));
    }
  };
  if (bottom != nullptr) add_layers("bottom", *bottom);
  for (const DenseTensor& tensor : interaction.tensors())
    contents.add(backend, tensor.name, tensor.shape, tensor.values);
  add_layers("top", top);
  std::visit(
      [&](auto& chosen) {
        for (const tessera::detail::DenseState& state : chosen.states(parameters))
          contents.add(backend, fmt::format("dense.{}", state.name), {parameters.size()},
                       state.values);
        if constexpr (requires { chosen.steps(); })
          contents.add_number(  // asked for at each save: replays of a graph are counted by the GPU
              "dense.step", [&chosen] { return static_cast<std::uint64_t>(chosen.steps()); },
              [&chosen](std::uint64_t steps) {
                chosen.steps() = static_cast<std::int64_t>(steps);
              });
      },
      optimizer);
}

}  // namespace dlrm
