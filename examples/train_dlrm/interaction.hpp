// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>

#include <cstdint>

namespace dlrm {

/// tessera::DotInteraction of 27 vectors, whatever their width.
struct Interaction {
  std::int64_t input_columns;
  std::int64_t columns;
  void (*forward)(tessera::MatrixView<const float> x, tessera::MatrixView<float> z, int threads);
  void (*backward)(tessera::MatrixView<const float> x, tessera::MatrixView<const float> dz, tessera::MatrixView<float> dx, int threads);
};

Interaction dot_interaction(int width);

}  // namespace dlrm
