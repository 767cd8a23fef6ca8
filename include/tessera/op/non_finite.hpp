// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/op/kernel.hpp>

#include <cstdint>

namespace tessera::inline v0 {

/// Counts the elements of a matrix that are NaN or infinite. The host waits for the answer.
template <Element T>
struct CountNonFinite {
  struct Parameters {
    MatrixView<const T> values;
    std::int64_t* count = nullptr;  ///< in host memory
  };
};

}  // namespace tessera::inline v0
