// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/op/kernel.hpp>

namespace tessera { inline namespace v0 { namespace op {

/// Every element of `from` becomes one of `to`: widened, or rounded to nearest even. The matrices
/// have the same rows and columns.
template <Element From, Element To>
struct ConvertRows {
  struct Parameters {
    MatrixView<const From> from;
    MatrixView<To> to;
  };
};

}}}  // namespace tessera::v0::op
