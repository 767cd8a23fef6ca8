// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/op/kernel.hpp>

namespace tessera { inline namespace v0 { namespace op {

/// Adds the number of elements of a matrix that are NaN or infinite.
template <Element T>
struct CountNonFinite {
  struct Parameters {
    MatrixView<const T> values;
    unsigned long long* count = nullptr;  ///< in the backend's memory
  };
};

}}}  // namespace tessera::v0::op
