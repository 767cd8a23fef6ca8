// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/core/element.hpp>
#include <tessera/interaction/concat.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <tuple>

#include "support/random_matrix.hpp"

using namespace tessera;
using test::Matrix;

TEST_CASE("parts side by side, and their gradients back") {
  for (const std::int64_t batch : {0, 1, 5}) {
    const Matrix<float> a(batch, 3, 2, 1), b(batch, 1, 0, 2), c(batch, 0, 1, 3), d(batch, 17, 3, 4);
    Matrix<float> y(batch, 21, 4);
    const std::array<MatrixView<const float>, 4> parts{a.view(), b.view(), c.view(), d.view()};
    Concat::forward<float>(Host(), parts, y.view());
    for (std::int64_t i = 0; i < batch; ++i)
      for (std::int64_t j = 0; j < 21; ++j)
        CHECK(y(i, j) == (j < 3 ? a(i, j) : j < 4 ? b(i, 0) : d(i, j - 4)));
    CHECK(y.margin_untouched());

    Matrix<float> da(batch, 3, 2), db(batch, 1, 0), dc(batch, 0, 1), dd(batch, 17, 3);
    const std::array<MatrixView<float>, 4> gradients{da.view(), db.view(), dc.view(), dd.view()};
    Concat::backward<float>(Host(), y.view(), gradients);
    for (std::int64_t i = 0; i < batch; ++i) {
      for (std::int64_t j = 0; j < 3; ++j) CHECK(da(i, j) == a(i, j));
      CHECK(db(i, 0) == b(i, 0));
      for (std::int64_t j = 0; j < 17; ++j) CHECK(dd(i, j) == d(i, j));
    }
    CHECK(dd.margin_untouched());
  }
}

TEST_CASE("parts of other types than the whole are widened or rounded") {
  const Matrix<float> bottom(3, 2, 1, 1);
  const Matrix<BFloat16> pooled(3, 5, 0, 2);
  Matrix<BFloat16> x(3, 7, 2), d_pooled(3, 5, 0);
  Matrix<float> d_bottom(3, 2, 1);
  Concat::forward(Host(), std::tuple(bottom.view(), pooled.view()), x.view());
  Concat::backward(Host(), x.view(), std::tuple(d_bottom.view(), d_pooled.view()));
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t k = 0; k < 2; ++k) {
      CHECK(x(i, k) == from_float<BFloat16>(bottom(i, k)));
      CHECK(d_bottom(i, k) == to_float(x(i, k)));
    }
    for (std::int64_t k = 0; k < 5; ++k) {
      CHECK(x(i, k + 2) == pooled(i, k));
      CHECK(d_pooled(i, k) == pooled(i, k));
    }
  }
  CHECK(x.margin_untouched());
  CHECK(d_bottom.margin_untouched());
  CHECK_THROWS_WITH_AS(Concat::forward(Host(), std::tuple(bottom.view(), bottom.view()), x.view()),
                       "Concat: the parts have 4 columns together, the whole has 7",
                       InvalidArgument);
}

TEST_CASE("parts that do not fit") {
  const Matrix<float> a(2, 3, 0, 1), b(1, 4, 0, 2);
  Matrix<float> y(2, 7, 0), narrow(2, 6, 0);
  const std::array<MatrixView<const float>, 2> uneven{a.view(), b.view()}, even{a.view(), a.view()};
  CHECK_THROWS_WITH_AS(Concat::forward<float>(Host(), uneven, y.view()),
                       "Concat: part 1 has 1 rows, the whole has 2", InvalidArgument);
  CHECK_THROWS_WITH_AS(Concat::forward<float>(Host(), even, y.view()),
                       "Concat: the parts have 6 columns together, the whole has 7",
                       InvalidArgument);
}
