// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The dot interaction of shapes known at run time against the one of shapes known to the compiler:
// forward to the bit, backward to rounding.
#include <tessera/interaction/dot.hpp>
#include <tessera/interaction/dot_any_shape.hpp>

#include <doctest/doctest.h>

#include <cstdint>

#include "support/random_matrix.hpp"

using namespace tessera;
using test::Matrix;

namespace {

template <int Vectors, int Width, int PadTo>
void check_shape(std::int64_t batch, int threads) {
  using Dot = DotInteraction<Vectors, Width, PadTo>;
  CAPTURE(Vectors);
  CAPTURE(Width);
  AnyDotInteraction any(Host({.threads = threads}), Vectors, Width, PadTo);
  REQUIRE(any.columns() == Dot::columns());
  const Matrix<float> x(batch, Dot::input_columns(), 5, 1), dz(batch, Dot::columns(), 3, 2);
  Matrix<float> z(batch, Dot::columns(), 7), dx(batch, Dot::input_columns(), 1), any_z = z,
                                                                                 any_dx = dx;
  Dot::forward(Host(), x.view(), z.view());
  Dot::backward(Host(), x.view(), dz.view(), dx.view());
  any.forward(x.view(), any_z.view());
  any.backward(x.view(), dz.view(), any_dx.view());
  std::int64_t different = 0;
  double worst = 0;
  for (std::int64_t s = 0; s < batch; ++s) {
    for (std::int64_t c = 0; c < Dot::columns(); ++c) different += !(z(s, c) == any_z(s, c));
    for (std::int64_t c = 0; c < Dot::input_columns(); ++c)
      worst = test::worst(worst, dx(s, c) - any_dx(s, c));
  }
  CHECK(different == 0);
  CHECK(worst < 1e-5);
  CHECK(any_z.margin_untouched());
  CHECK(any_dx.margin_untouched());
}

}  // namespace

TEST_CASE("shapes known at run time give the same products") {
  for (const int threads : {1, 3}) {
    check_shape<27, 16, 16>(5, threads);
    check_shape<27, 8, 16>(4, threads);
    check_shape<27, 100, 1>(3, threads);
    check_shape<6, 3, 8>(2, threads);
    check_shape<1, 12, 1>(2, threads);
    check_shape<5, 4, 1>(0, threads);
  }
  CHECK_THROWS_AS(AnyDotInteraction(Host(), 0, 8), InvalidArgument);
  AnyDotInteraction any(Host(), 3, 8);
  Matrix<float> x(2, 24, 0, 1), z(2, 12, 0);
  CHECK_THROWS_WITH_AS(any.forward(x.view(), z.view()), doctest::Contains("output is 2 x 12"),
                       InvalidArgument);
}
