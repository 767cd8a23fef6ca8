// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/matrix_view.hpp>

#include <variant>

namespace tessera { inline namespace v0 {

namespace detail {

/// A matrix whose element type is known at run time.
using AnyMatrix = std::variant<MatrixView<float>, MatrixView<BFloat16>, MatrixView<Half>>;

}  // namespace detail

/// Calls f(the matrix), whose element type may be known or not.
template <class T, class F>
decltype(auto) with_matrix(const MatrixView<T>& matrix, F&& f) {
  return f(matrix);
}
template <class F>
decltype(auto) with_matrix(const detail::AnyMatrix& matrix, F&& f) {
  return std::visit(f, matrix);
}

}}  // namespace tessera::v0
