// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/host/convert_rows.hpp>
#include <tessera/op/kernel.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>

namespace tessera { inline namespace v0 {

namespace op {

/// A matrix into another of the same shape.
template <class T>
struct CopyMatrix {
  struct Parameters {
    MatrixView<const T> from;
    MatrixView<T> to;
  };
};

template <class T>
struct Kernel<CopyMatrix<T>, Host> {
  static void run(const Host&, const typename CopyMatrix<T>::Parameters& p) {
    for (std::int64_t i = 0; i < p.from.rows; ++i)
      std::copy_n(p.from.row(i), p.from.columns, p.to.row(i));
  }
};

}  // namespace op

namespace detail {

/// Throws InvalidArgument unless the matrices `parts`, side by side, have the shape of `whole`.
template <class Part, class Whole>
void check_concat(std::span<const Part> parts, const Whole& whole) {
  std::int64_t columns = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    require(parts[i].rows == whole.rows, "Concat: part {} has {} rows, the whole has {}", i,
            parts[i].rows, whole.rows);
    columns += parts[i].columns;
  }
  require(columns == whole.columns, "Concat: the parts have {} columns together, the whole has {}",
          columns, whole.columns);
}

}  // namespace detail

/// Puts matrices of equally many rows side by side. Where the parts can be written into one
/// buffer's columns in the first place (MatrixView::column_range), nothing needs to be copied at
/// all. Matrices are in the backend's memory. Parts of other element types than the whole, such as
/// pooled vectors of 16 bits beside a bottom MLP's floats, come as a tuple of views:
///
///     Concat::forward(backend, std::tuple(bottom_output, pooled.values), x);
///     Concat::backward(backend, dx, std::tuple(d_bottom, d_pooled));
struct Concat {
  /// Computes y [batch, sum of the parts' columns] from the parts, left to right.
  template <class T, class Backend>
  static void forward(const Backend& backend, std::span<const MatrixView<const T>> parts,
                      MatrixView<T> y) {
    detail::check_concat(parts, y);
    std::int64_t column = 0;
    for (const MatrixView<const T>& part : parts) {
      op::run<op::CopyMatrix<T>>(backend, {part, y.column_range(column, part.columns)});
      column += part.columns;
    }
  }

  /// Computes the parts' gradients (overwritten) from dy.
  template <class T, class Backend>
  static void backward(const Backend& backend, MatrixView<const T> dy,
                       std::span<const MatrixView<T>> parts) {
    detail::check_concat(parts, dy);
    std::int64_t column = 0;
    for (const MatrixView<T>& part : parts) {
      op::run<op::CopyMatrix<T>>(backend, {dy.column_range(column, part.columns), part});
      column += part.columns;
    }
  }

  /// Computes the same from views of float, BFloat16 or Half, each of its own; each element is
  /// widened, or rounded to nearest even, where its part's type is not y's.
  template <class T, class Backend, class... Parts>
  static void forward(const Backend& backend, const std::tuple<MatrixView<Parts>...>& parts,
                      MatrixView<T> y) {
    explain_elements<T, std::remove_const_t<Parts>...>();
    check(parts, y);
    std::int64_t column = 0;
    const auto put = [&]<class Part>(MatrixView<Part> part) {
      move<std::remove_const_t<Part>, T>(backend, part, y.column_range(column, part.columns));
      column += part.columns;
    };
    std::apply([&](const auto&... part) { (put(part), ...); }, parts);
  }

  /// Computes the parts' gradients (overwritten) from dy, likewise.
  template <class T, class Backend, class... Parts>
  static void backward(const Backend& backend, MatrixView<T> dy,
                       const std::tuple<MatrixView<Parts>...>& parts) {
    explain_elements<std::remove_const_t<T>, Parts...>();
    check(parts, dy);
    std::int64_t column = 0;
    const auto take = [&]<class Part>(MatrixView<Part> part) {
      move<std::remove_const_t<T>, Part>(backend, dy.column_range(column, part.columns), part);
      column += part.columns;
    };
    std::apply([&](const auto&... part) { (take(part), ...); }, parts);
  }

 private:
  template <class... T>
  static consteval void explain_elements() {
    static_assert((Element<T> && ...),
                  "Concat: parts and the whole must hold float, BFloat16 or Half, and none that is "
                  "written const (docs/concepts/interaction.md)");
  }

  template <class Parts, class Whole>
  static void check(const Parts& parts, const Whole& whole) {
    const auto shapes = std::apply(
        [](const auto&... part) {
          return std::array<MatrixView<const char>, sizeof...(part)>{
              MatrixView<const char>(nullptr, part.rows, part.columns)...};
        },
        parts);
    detail::check_concat(std::span<const MatrixView<const char>>(shapes), whole);
  }

  template <class From, class To, class Backend>
  static void move(const Backend& backend, MatrixView<const From> from, MatrixView<To> to) {
    if constexpr (std::is_same_v<From, To>)
      op::run<op::CopyMatrix<To>>(backend, {from, to});
    else if constexpr (Element<From> && Element<To>)
      op::run<op::ConvertRows<From, To>>(backend, {from, to});
  }
};

}}  // namespace tessera::v0
