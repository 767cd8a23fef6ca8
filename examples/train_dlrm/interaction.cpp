// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "interaction.hpp"

#include "plans.hpp"

#include <tessera/core/error.hpp>
#include <tessera/interaction/dot.hpp>

#include <cstddef>
#include <utility>

namespace dlrm {

Interaction dot_interaction(int width) {
  Interaction found{};
  const auto try_width = [&]<int Width>(std::integral_constant<int, Width>) {
    // Padded to whole registers: the products of the top layers like their rows aligned.
    using Dot = tessera::DotInteraction<kFeatures + 1, Width, 16>;
    if (width == Width) found = {Dot::input_columns(), Dot::columns(), &Dot::forward, &Dot::backward};
  };
  [&]<std::size_t... I>(std::index_sequence<I...>) { (try_width(std::integral_constant<int, kWidths[I]>{}), ...); }
  (std::make_index_sequence<kWidths.size()>{});
  tessera::require(found.forward != nullptr, "no interaction of width {} is compiled in", width);
  return found;
}

}  // namespace dlrm
