// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/matrix_view.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 { namespace detail {

/// Computes `out` [rows, columns] = the source, 0 if the activation is 0 or less (empty:
/// nowhere), and its columns are added to `sums` (null: not). Out may be the source. One pass, for
/// a chunk that is in cache: the ReLU's and the bias' gradient.
template <Element Source, Element Activation, Element Out>
void mask_and_sum(MatrixView<const Source> source, MatrixView<const Activation> activation,
                  Out* out, float* sums) {
  // What is the same for all elements is decided once, and a few of them at a time go by way of an
  // array of their own: so compilers know that nothing overlaps, and make vectors of them.
  constexpr std::int64_t at_once = 32;
  const auto pass = [&]<bool Masked, bool Summed>() {
    for (std::int64_t i = 0; i < source.rows; ++i) {
      const auto some = [&](std::int64_t first, std::int64_t count) {
        const Source* const s = source.row(i) + first;
        const Activation* const a = Masked ? activation.row(i) + first : nullptr;
        Out* const o = out + i * source.columns + first;
        float g[at_once];
        for (std::int64_t j = 0; j < count; ++j) {
          g[j] = to_float(s[j]);
          if constexpr (Masked) g[j] = to_float(a[j]) <= 0.0f ? 0.0f : g[j];
        }
        for (std::int64_t j = 0; j < count; ++j) o[j] = from_float<Out>(g[j]);
        if constexpr (Summed)
          for (std::int64_t j = 0; j < count; ++j) sums[first + j] += g[j];
      };
      std::int64_t first = 0;
      for (; first + at_once <= source.columns; first += at_once) some(first, at_once);
      some(first, source.columns - first);
    }
  };
  if (activation.data)
    sums ? pass.template operator()<true, true>() : pass.template operator()<true, false>();
  else
    sums ? pass.template operator()<false, true>() : pass.template operator()<false, false>();
}

}}}  // namespace tessera::v0::detail
