// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The cross network's own arithmetic, with the smallest linear layer that its contract allows:
// against a forward pass in double and that pass's central differences.
#include <tessera/core/element.hpp>
#include <tessera/interaction/cross.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "support/cross_reference.hpp"
#include "support/random_matrix.hpp"

using namespace tessera;
using cross_reference::PlainLinear;
using cross_reference::reference;
using test::Matrix;

namespace {

void check_cross(std::int64_t batch, std::int64_t n, int layers, std::int64_t rank, int threads) {
  CAPTURE(batch);
  CAPTURE(n);
  CAPTURE(layers);
  CAPTURE(rank);
  CrossInteraction<PlainLinear> cross(Host({.threads = threads}), n,
                                      {.layers = layers, .rank = rank});
  const std::int64_t count = cross.parameter_count();
  REQUIRE(count == layers * (rank > 0 ? 2 * rank * n + n : n * n + n));
  Matrix<float> values(1, count, 0, 7), gradients(1, count, 0);
  cross.bind({values.view().data, static_cast<std::size_t>(count)},
             {gradients.view().data, static_cast<std::size_t>(count)});
  const Matrix<float> x(batch, n, 3, 8), dy(batch, n, 1, 9);
  Matrix<float> y(batch, n, 2), dx(batch, n, 5);
  cross.forward(x.view(), y.view());
  cross.backward(dy.view(), dx.view());
  CHECK(y.margin_untouched());
  CHECK(dx.margin_untouched());

  std::vector<double> input, parameters;
  for (std::int64_t s = 0; s < batch; ++s)
    for (std::int64_t k = 0; k < n; ++k) input.push_back(x(s, k));
  for (std::int64_t i = 0; i < count; ++i) parameters.push_back(values(0, i));
  const std::vector<double> expected = reference(input, parameters, n, layers, rank);
  double worst = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto s = static_cast<std::int64_t>(i) / n, k = static_cast<std::int64_t>(i) % n;
    worst = test::worst(worst, (y(s, k) - expected[i]) / (1.0 + std::abs(expected[i])));
  }
  CHECK(worst < 1e-5);

  // Central differences of L = sum of dy * y over each number in turn.
  const auto loss = [&] {
    const std::vector<double> out = reference(input, parameters, n, layers, rank);
    double sum = 0.0;
    for (std::size_t i = 0; i < out.size(); ++i)
      sum += out[i] * dy(static_cast<std::int64_t>(i) / n, static_cast<std::int64_t>(i) % n);
    return sum;
  };
  const auto derivative = [&](double& at) {
    const double middle = at, step = 1e-5;
    at = middle + step;
    const double above = loss();
    at = middle - step;
    const double below = loss();
    at = middle;
    return (above - below) / (2 * step);
  };
  double worst_input = 0.0, worst_parameter = 0.0;
  for (std::size_t i = 0; i < input.size(); ++i) {
    const double d = derivative(input[i]);
    worst_input = test::worst(
        worst_input, (dx(static_cast<std::int64_t>(i) / n, static_cast<std::int64_t>(i) % n) - d) /
                         (1.0 + std::abs(d)));
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const double d = derivative(parameters[i]);
    worst_parameter = test::worst(
        worst_parameter, (gradients(0, static_cast<std::int64_t>(i)) - d) / (1.0 + std::abs(d)));
  }
  CHECK(worst_input < 1e-4);
  CHECK(worst_parameter < 1e-4);
}

/// Ends of 16 bits: outputs by the definition, and all numbers those of the same layers with float
/// ends, rounded once.
template <class X, class Y>
void check_narrow_ends(int layers, std::int64_t rank) {
  CAPTURE(layers);
  CAPTURE(rank);
  constexpr std::int64_t batch = 5, n = 7;
  CrossInteraction<PlainLinear> cross(n, {.layers = layers, .rank = rank});
  const std::int64_t count = cross.parameter_count();
  Matrix<float> values(1, count, 0, 7), gradients(1, count, 0), expected_gradients(1, count, 0);
  const auto bind = [&](Matrix<float>& to) {
    cross.bind({values.view().data, static_cast<std::size_t>(count)},
               {to.view().data, static_cast<std::size_t>(count)});
  };
  const Matrix<X> x(batch, n, 3, 8);
  const Matrix<Y> dy(batch, n, 1, 9);
  Matrix<X> dx(batch, n, 5);
  Matrix<Y> y(batch, n, 2);
  bind(gradients);
  cross.forward(x.view(), y.view());
  cross.backward(dy.view(), dx.view());
  CHECK(y.margin_untouched());
  CHECK(dx.margin_untouched());

  Matrix<float> wide_x(batch, n, 0), wide_dy(batch, n, 0), wide_y(batch, n, 0),
      wide_dx(batch, n, 0);
  std::vector<double> input, parameters;
  for (std::int64_t s = 0; s < batch; ++s)
    for (std::int64_t k = 0; k < n; ++k) {
      wide_x(s, k) = to_float(x(s, k));
      wide_dy(s, k) = to_float(dy(s, k));
      input.push_back(wide_x(s, k));
    }
  for (std::int64_t i = 0; i < count; ++i) parameters.push_back(values(0, i));
  bind(expected_gradients);
  cross.forward(wide_x.view(), wide_y.view());
  cross.backward(wide_dy.view(), wide_dx.view());
  const std::vector<double> expected = reference(input, parameters, n, layers, rank);
  // half a step of the last place
  const double rounding = std::is_same_v<Y, float>  ? 1e-5
                          : std::is_same_v<Y, Half> ? 0x1p-11
                                                    : 0x1p-8;
  double worst = 0.0;
  int other_bits = 0;
  for (std::int64_t s = 0; s < batch; ++s)
    for (std::int64_t k = 0; k < n; ++k) {
      const double e = expected[static_cast<std::size_t>(s * n + k)];
      worst = test::worst(worst, (to_float(y(s, k)) - e) / (1e-2 + std::abs(e)));
      other_bits += !(y(s, k) == from_float<Y>(wide_y(s, k)));
      other_bits += !(dx(s, k) == from_float<X>(wide_dx(s, k)));
    }
  for (std::int64_t i = 0; i < count; ++i)
    other_bits += gradients(0, i) != expected_gradients(0, i);
  CHECK(worst <= 1.01 * rounding);
  CHECK(other_bits == 0);
}

}  // namespace

TEST_CASE("ends of 16 bits are those of floats, rounded once") {
  for (const int layers : {1, 3})
    for (const std::int64_t rank : {0, 2}) {
      check_narrow_ends<BFloat16, BFloat16>(layers, rank);
      check_narrow_ends<Half, float>(layers, rank);
      check_narrow_ends<BFloat16, Half>(layers, rank);
    }
}

TEST_CASE("a gradient of another type than the input is refused") {
  CrossInteraction<PlainLinear> cross(4);
  std::vector<float> values(static_cast<std::size_t>(cross.parameter_count()), 0.25f),
      gradients(values.size());
  cross.bind(values, gradients);
  const Matrix<BFloat16> x(2, 4, 0, 1);
  Matrix<float> y(2, 4, 0), dx(2, 4, 0);
  cross.forward(x.view(), y.view());
  CHECK_THROWS_WITH_AS(cross.backward(y.view(), dx.view()),
                       "CrossInteraction: the last forward read an input of BFloat16, its gradient "
                       "is to be float; give one of the same type",
                       InvalidArgument);
}

TEST_CASE("forward and gradients, low rank and full") {
  for (const std::int64_t rank : {0, 1, 3})
    for (const int layers : {1, 2, 3})
      for (const std::int64_t batch : {0, 1, 5}) check_cross(batch, 7, layers, rank, 1);
  check_cross(6, 5, 2, 2, 2);
}

TEST_CASE("a smaller batch after a larger one") {
  CrossInteraction<PlainLinear> cross(4, {.layers = 2, .rank = 2});
  std::vector<float> values(static_cast<std::size_t>(cross.parameter_count()), 0.25f),
      gradients(values.size());
  cross.bind(values, gradients);
  const Matrix<float> x(9, 4, 0, 1);
  Matrix<float> large(9, 4, 0), small(2, 4, 0), dx(2, 4, 0);
  cross.forward(x.view(), large.view());
  cross.forward(x.view().row_range(3, 2), small.view());
  cross.backward(small.view(), dx.view());
  for (std::int64_t k = 0; k < 4; ++k) CHECK(small(1, k) == large(4, k));
}

TEST_CASE("options and views of the wrong shape") {
  using Cross = CrossInteraction<PlainLinear>;
  CHECK_THROWS_WITH_AS(Cross(0), "CrossInteraction: width must be positive, is 0", InvalidArgument);
  CHECK_THROWS_WITH_AS(Cross(4, {.layers = 0}), "CrossInteraction: needs at least one layer, got 0",
                       InvalidArgument);
  CHECK_THROWS_WITH_AS(Cross(Host({.threads = 0}), 4), "Host: 0 threads; give 1 to 4,096",
                       InvalidArgument);
  CHECK_THROWS_WITH_AS(Cross(4, {.rank = -1}),
                       "CrossInteraction: rank must not be negative (0 is full rank), is -1",
                       InvalidArgument);
  CHECK_THROWS_WITH_AS(Cross(4, {.precision = DensePrecision::bfloat16}),
                       "CrossInteraction: these linear layers multiply floats alone; leave out the "
                       "precision",
                       InvalidArgument);
  Cross cross(4);
  std::vector<float> few(10);
  CHECK_THROWS_WITH_AS(cross.bind(few, few), doctest::Contains("10 values and 10 gradients"),
                       InvalidArgument);
  CHECK_THROWS_WITH_AS(cross.backward(MatrixView<const float>(few.data(), 0, 4),
                                      MatrixView<float>(few.data(), 0, 4)),
                       "CrossInteraction: backward comes before any forward", InvalidArgument);
  Matrix<float> x(2, 4, 0, 1), y(2, 5, 0);
  CHECK_THROWS_WITH_AS(cross.forward(x.view(), MatrixView<float>(few.data(), 2, 4, 3)),
                       "CrossInteraction: output has no memory, or a stride below its columns",
                       InvalidArgument);
  CHECK_THROWS_WITH_AS(cross.forward(y.view(), x.view()),
                       "CrossInteraction: input is 2 x 5, must be 2 x 4", InvalidArgument);
  CHECK_THROWS_WITH_AS(cross.forward(x.view(), y.view()),
                       "CrossInteraction: output is 2 x 5, must be 2 x 4", InvalidArgument);
}
