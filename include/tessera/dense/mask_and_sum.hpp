// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/matrix_view.hpp>

#include <cstdint>

namespace tessera::inline v0::detail {

/// `out` [rows, columns] = the source, 0 where the activation is not positive (empty: nowhere), and
/// its columns are added to `sums` (null: not). Out may be the source. One pass, for a chunk that
/// is in cache: the ReLU's and the bias' gradient.
template <Element Source, Element Activation, Element Out>
void mask_and_sum(MatrixView<const Source> source, MatrixView<const Activation> activation,
                  Out* out, float* sums) {
  // what is the same for all elements is decided once, so that they go in vectors
  const auto pass = [&]<bool Masked, bool Summed>() {
    for (std::int64_t i = 0; i < source.rows; ++i) {
      const Source* s = source.row(i);
      const Activation* a = Masked ? activation.row(i) : nullptr;
      Out* o = out + i * source.columns;
#pragma omp simd
      for (std::int64_t j = 0; j < source.columns; ++j) {
        float g = to_float(s[j]);
        if constexpr (Masked) g = to_float(a[j]) > 0.0f ? g : 0.0f;
        o[j] = from_float<Out>(g);
        if constexpr (Summed) sums[j] += g;
      }
    }
  };
  if (activation.data)
    sums ? pass.template operator()<true, true>() : pass.template operator()<true, false>();
  else
    sums ? pass.template operator()<false, true>() : pass.template operator()<false, false>();
}

}  // namespace tessera::inline v0::detail
