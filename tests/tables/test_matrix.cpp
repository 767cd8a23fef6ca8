// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/host/backend.hpp>
#include <tessera/tables/matrix.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

using namespace tessera;

TEST_CASE("a matrix begins as zeros, and its views are of its memory") {
  Matrix<float> m(3, 5);
  CHECK(m.rows() == 3);
  CHECK(m.columns() == 5);
  const MatrixView<float> all = m.view();
  CHECK(all.contiguous());
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 5; ++j) {
      CHECK(all(i, j) == 0.0f);
      all(i, j) = static_cast<float>(10 * i + j);
    }
  const MatrixView<float> middle = m.columns(1, 3), first = m.first_rows(2);
  CHECK(middle.rows == 3);
  CHECK(middle.columns == 3);
  CHECK(middle(2, 0) == 21.0f);
  CHECK(first.rows == 2);
  CHECK(first.columns == 5);
  CHECK(first(1, 4) == 14.0f);
  const Matrix<float>& constant = m;
  static_assert(std::is_same_v<decltype(constant.view()), MatrixView<const float>>);
  static_assert(std::is_same_v<decltype(constant.columns(0, 1)), MatrixView<const float>>);
  CHECK(constant.columns(4, 1)(2, 0) == 24.0f);
}

TEST_CASE("a matrix stands where a view of it is asked for") {
  using M = Matrix<float>;
  const auto set = [](MatrixView<float> view, float x) { view(1, 0) = x; };
  const auto get = [](MatrixView<const float> view) { return view(1, 0) + view.columns; };
  M m(2, 3);
  const M& constant = m;
  set(m, 4.0f);
  CHECK(get(m) == 7.0f);
  CHECK(get(constant) == 7.0f);
  const MatrixView<float> named = m;
  CHECK(named.data == m.view().data);
  static_assert(!std::is_convertible_v<const M&, MatrixView<float>>);
  // the view would outlive its memory
  static_assert(!std::is_convertible_v<M, MatrixView<float>> &&
                !std::is_convertible_v<M, MatrixView<const float>>);
}

TEST_CASE("a moved matrix takes its memory along") {
  Matrix<float> from(Host(), 2, 2);
  const MatrixView<float> view = from.view();
  view(1, 1) = 7.0f;
  Matrix<float> to(std::move(from));
  CHECK(to.view().data == view.data);
  CHECK(to.view()(1, 1) == 7.0f);
  CHECK(from.rows() == 0);  // NOLINT(bugprone-use-after-move)
  CHECK(from.view().data == nullptr);
  Matrix<float> target(4, 4);
  target = std::move(to);
  CHECK(target.rows() == 2);
  CHECK(target.view().data == view.data);
  CHECK(to.columns() == 0);  // NOLINT(bugprone-use-after-move)
  CHECK(to.view().data == nullptr);
}

TEST_CASE("an empty matrix has views, and sizes that do not fit are refused") {
  Matrix<float> none(0, 4);
  CHECK(none.columns(1, 2).columns == 2);
  CHECK(none.first_rows(0).rows == 0);
  CHECK(Matrix<float>().view().rows == 0);

  CHECK_THROWS_WITH_AS(Matrix<float>(-1, 2), "Matrix: -1 x 2 is no size of a matrix",
                       InvalidArgument);
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  CHECK_THROWS_AS(Matrix<float>(most, most), InvalidArgument);
  CHECK_THROWS_AS(Matrix<double>(most / 8, 2), InvalidArgument);

  Matrix<float> m(3, 5);
  CHECK_THROWS_WITH_AS(m.columns(3, 3), "Matrix: 3 columns from column 3 of a matrix of 3 x 5",
                       InvalidArgument);
  CHECK_THROWS_AS(m.columns(-1, 2), InvalidArgument);
  CHECK_THROWS_AS(m.columns(most, 2), InvalidArgument);
  CHECK_THROWS_WITH_AS(m.first_rows(4), "Matrix: first 4 rows of a matrix of 3 x 5",
                       InvalidArgument);
}
