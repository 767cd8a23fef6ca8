// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Dot interaction and its gradient against sums in double, for vectors and widths on both sides of
// every register and tile size. Outputs start as NaN: an element that is not written, or written
// from what was not, fails the comparison.
#include <tessera/interaction/dot.hpp>
#include <tessera/planner/auto_plan.hpp>
#include <tessera/sharding/plan.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "simt/sanitizer.hpp"
#include "support/random_matrix.hpp"

using namespace tessera;
using test::Matrix;

namespace {

// The shape that belongs to a plan: one vector for each feature, and those of the bottom MLP.
using Query = Table<"query", dynamic_rows, 16>;
using User = Table<"user", 50, 16>;
using Read =
    Features<Feature<"asked", "query">, Feature<"clicked", "query">, Feature<"user", "user">>;
static_assert(
    std::is_same_v<DotFor<Plan<RowWise<Query>, ColumnWise<2, User>>>, DotInteraction<2, 16>>);
static_assert(std::is_same_v<DotFor<Plan<RowWise<Query>, TableWise<User>, Read>, 1, 8, BFloat16>,
                             DotInteraction<4, 16, 8, BFloat16>>);
static_assert(
    std::is_same_v<DotFor<AutoPlan<TableList<Query, User>, Cluster{.ranks = 2}, Workload{}, Read>>,
                   DotInteraction<3, 16>>);

/// Relative to the sum of the terms' magnitudes: what rounding of storage and of the sum in float
/// can cost.
template <class T>
constexpr double kTolerance = std::is_same_v<T, float> ? 2e-6 : 5e-3;

template <int Vectors, int Width, int PadTo, class T>
void check_dot(std::int64_t batch, int threads) {
  using Dot = DotInteraction<Vectors, Width, PadTo, T>;
  CAPTURE(Vectors);
  CAPTURE(Width);
  CAPTURE(PadTo);
  CAPTURE(batch);
  CAPTURE(threads);
  const std::int64_t pairs = Vectors * (Vectors - 1) / 2;
  REQUIRE(Dot::columns() >= Width + pairs);
  REQUIRE(Dot::columns() < Width + pairs + PadTo);
  REQUIRE(Dot::columns() % PadTo == 0);

  // Views into wider buffers: a stride that is no multiple of anything.
  const Matrix<T> x(batch, Dot::input_columns(), 5, 1), dz(batch, Dot::columns(), 3, 2);
  Matrix<T> z(batch, Dot::columns(), 7), dx(batch, Dot::input_columns(), 1);
  const Host host({.threads = threads});
  Dot::forward(host, x.view(), z.view());
  Dot::backward(host, x.view(), dz.view(), dx.view());

  double worst_z = 0.0, worst_dx = 0.0;
  for (std::int64_t s = 0; s < batch; ++s) {
    const auto at = [&](std::int64_t v, std::int64_t k) {
      return static_cast<double>(to_float(x(s, v * Width + k)));
    };
    std::vector<double> gradient(static_cast<std::size_t>(Vectors * Width)), scale(gradient.size());
    for (std::int64_t k = 0; k < Width; ++k) {
      if (!(z(s, k) == x(s, k))) worst_z = std::numeric_limits<double>::infinity();
      gradient[static_cast<std::size_t>(k)] = to_float(dz(s, k));
      scale[static_cast<std::size_t>(k)] = std::abs(gradient[static_cast<std::size_t>(k)]);
    }
    std::int64_t column = Width;
    for (std::int64_t i = 1; i < Vectors; ++i) {
      for (std::int64_t j = 0; j < i; ++j, ++column) {
        const double g = to_float(dz(s, column));
        double dot = 0.0, size = 1e-30;
        for (std::int64_t k = 0; k < Width; ++k) {
          dot += at(i, k) * at(j, k);
          size += std::abs(at(i, k) * at(j, k));
          gradient[static_cast<std::size_t>(i * Width + k)] += g * at(j, k);
          gradient[static_cast<std::size_t>(j * Width + k)] += g * at(i, k);
          scale[static_cast<std::size_t>(i * Width + k)] += std::abs(g * at(j, k));
          scale[static_cast<std::size_t>(j * Width + k)] += std::abs(g * at(i, k));
        }
        worst_z = test::worst(worst_z, (to_float(z(s, column)) - dot) / size);
      }
    }
    for (; column < Dot::columns(); ++column)
      worst_z = test::worst(worst_z, to_float(z(s, column)));
    for (std::size_t i = 0; i < gradient.size(); ++i)
      worst_dx =
          test::worst(worst_dx, (to_float(dx(s, static_cast<std::int64_t>(i))) - gradient[i]) /
                                    (scale[i] + 1e-30));
  }
  CHECK(worst_z <= kTolerance<T>);
  CHECK(worst_dx <= kTolerance<T>);
  CHECK(z.margin_untouched());
  CHECK(dx.margin_untouched());
}

template <class T, int Vectors, int... Widths>
void check_widths(std::integer_sequence<int, Widths...>) {
  for (const std::int64_t batch : {0, 1, 5, 33}) (check_dot<Vectors, Widths, 1, T>(batch, 1), ...);
}

// Unrolled kernels take the address sanitizer long to compile: it gets the shapes with tails, and
// one without.
using AllWidths =
    std::conditional_t<simt::has_asan, std::integer_sequence<int, 3, 16, 100>,
                       std::integer_sequence<int, 1, 3, 4, 8, 12, 16, 64, 100, 128, 130, 256>>;
using SomeWidths = std::conditional_t<simt::has_asan, std::integer_sequence<int, 130>,
                                      std::integer_sequence<int, 1, 12, 16, 130>>;

}  // namespace

TEST_CASE("any number of vectors") {
  check_widths<float, 1>(SomeWidths{});
  check_widths<float, 2>(SomeWidths{});
  check_widths<float, 3>(SomeWidths{});
  check_widths<float, 4>(SomeWidths{});
  check_widths<float, 5>(SomeWidths{});
  check_widths<float, 16>(SomeWidths{});
  check_widths<float, 17>(SomeWidths{});
  check_widths<float, 33>(SomeWidths{});
}

TEST_CASE("any width") { check_widths<float, 27>(AllWidths{}); }

TEST_CASE("16-bit storage, arithmetic in float") {
  check_widths<BFloat16, 1>(SomeWidths{});
  check_widths<BFloat16, 3>(SomeWidths{});
  check_widths<BFloat16, 16>(SomeWidths{});
  check_widths<BFloat16, 27>(SomeWidths{});
  check_widths<Half, 5>(std::integer_sequence<int, 12>{});
}

TEST_CASE("shapes that do not fit a stack") { check_dot<70, 1000, 1, float>(2, 2); }

TEST_CASE("padding to a multiple is zero and ignored in the gradient") {
  check_dot<27, 16, 8, float>(5, 1);
  check_dot<27, 128, 32, float>(5, 1);
  check_dot<3, 5, 64, float>(5, 1);
  check_dot<3, 8, 11, float>(5, 1);  // 8 + 3 columns: already a multiple
  check_dot<17, 12, 16, BFloat16>(5, 1);
}

TEST_CASE("samples divided over threads") {
  for (const int threads : {2, 3, 8}) {
    check_dot<27, 16, 1, float>(33, threads);
    check_dot<27, 16, 1, float>(5, threads);
    check_dot<27, 16, 1, float>(0, threads);
  }
}

TEST_CASE("every sample has the same bits whatever the batch and the threads") {
  using Dot = DotInteraction<27, 100>;
  const Matrix<float> x(9, Dot::input_columns(), 0, 1);
  Matrix<float> whole(9, Dot::columns(), 0), single(1, Dot::columns(), 0);
  Dot::forward(Host({.threads = 3}), x.view(), whole.view());
  Dot::forward(Host(), x.view().row_range(4, 1), single.view());
  for (std::int64_t c = 0; c < Dot::columns(); ++c) CHECK(whole(4, c) == single(0, c));
}

TEST_CASE("views of the wrong shape") {
  using Dot = DotInteraction<3, 4>;
  static_assert(Dot::input_columns() == 12 && Dot::columns() == 7);
  static_assert(DotInteraction<27, 128, 32>::columns() == 480 &&
                DotInteraction<1, 5>::columns() == 5);
  Matrix<float> x(2, 12, 0), z(2, 7, 0), narrow(2, 6, 0), shorter(1, 7, 0);
  CHECK_THROWS_WITH_AS(Dot::forward(Host(), z.view(), z.view()),
                       "DotInteraction<3, 4>: input is 2 x 7, must be 2 x 12", InvalidArgument);
  CHECK_THROWS_WITH_AS(Dot::forward(Host(), x.view(), narrow.view()),
                       "DotInteraction<3, 4>: output is 2 x 6, must be 2 x 7", InvalidArgument);
  CHECK_THROWS_WITH_AS(Dot::forward(Host(), x.view(), shorter.view()),
                       "DotInteraction<3, 4>: output is 1 x 7, must be 2 x 7", InvalidArgument);
  CHECK_THROWS_WITH_AS(Dot::backward(Host(), x.view(), narrow.view(), x.view()),
                       "DotInteraction<3, 4>: output gradient is 2 x 6, must be 2 x 7",
                       InvalidArgument);
  CHECK_THROWS_WITH_AS(Dot::forward(Host({.threads = 0}), x.view(), z.view()),
                       "Host: 0 threads; give 1 to 4,096", InvalidArgument);
  CHECK_THROWS_WITH_AS(Dot::backward(Host(), x.view(), z.view(), z.view()),
                       "DotInteraction<3, 4>: input gradient is 2 x 7, must be 2 x 12",
                       InvalidArgument);
}
