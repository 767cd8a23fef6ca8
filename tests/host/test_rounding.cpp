// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Stochastic rounding is unbiased and goes to one of the two neighbours; the canonical mean square
// has one value for every cut.
#include <tessera/host/lanes.hpp>
#include <tessera/host/update.hpp>
#include <tessera/op/mean_square.hpp>
#include <tessera/op/stochastic_rounding.hpp>
#include <tessera/optimizer/optimizers.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "cases.hpp"

using namespace tessera;
using namespace tessera::test;

TEST_CASE_TEMPLATE("rounding goes to a neighbour, with the probability of the distance", T,
                   BFloat16, Half) {
  const int dropped = std::is_same_v<T, Half> ? 3 : 0;  // Half uses the upper 13 of the 16 bits
  for (const float x :
       {1.0f, 1.001f, -3.14159f, 0.1f, -1e-3f, 1e-5f, 3e-7f, 6e-8f, -2e-8f, 1234.567f, 0.0f}) {
    CAPTURE(x);
    double sum = 0;
    std::set<std::uint16_t> values;
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      const T rounded = detail::round_stochastic<T>(x, bits);
      values.insert(rounded.bits);
      sum += to_float(rounded);
    }
    const float nearest = to_float(from_float<T>(x));
    CHECK(values.size() == (nearest == x ? 1u : 2u));
    CHECK(values.count(from_float<T>(x).bits) == 1);
    const double unit =
        values.size() == 1 ? 0
                           : std::abs(to_float(T{*values.begin()}) - to_float(T{*values.rbegin()}));
    CHECK(std::abs(sum / 65536 - x) <= unit * (1 << dropped) / 65536);
  }
}

TEST_CASE_TEMPLATE("rounding keeps what has no neighbours", T, BFloat16, Half) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const std::uint32_t bits : {0u, 77u, 65535u}) {
    CHECK(to_float(detail::round_stochastic<T>(infinity, bits)) == infinity);
    CHECK(to_float(detail::round_stochastic<T>(-infinity, bits)) == -infinity);
    CHECK(std::isnan(
        to_float(detail::round_stochastic<T>(std::numeric_limits<float>::quiet_NaN(), bits))));
    CHECK(to_float(detail::round_stochastic<T>(-2.0f, bits)) == -2.0f);
    CHECK(detail::round_stochastic<float>(0.3f, bits) == 0.3f);
  }
  CHECK(to_float(detail::round_stochastic<Half>(1e6f, 0)) == infinity);
}

TEST_CASE(
    "updates far below a unit in the last place are not lost, and every element is rounded on its "
    "own") {
  // 1000 steps of 1e-4 units at 1.0: rounding to nearest would stay at 1.
  using Operation = op::Apply<BFloat16, op::dynamic_width, Sgd>;
  const int width = 50;
  const std::int64_t rows = 40;
  Array<BFloat16> weights(static_cast<std::size_t>(rows * width));
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = from_float<BFloat16>(1.0f);
  std::vector<std::int64_t> all(rows);
  for (std::int64_t r = 0; r < rows; ++r) all[static_cast<std::size_t>(r)] = r;
  Array<float> gradient(weights.size());
  for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] = -1;
  const op::ArenaSegment segment{.rows = rows, .table_key = 5};
  std::set<std::vector<std::uint16_t>> distinct_rows;
  for (std::uint64_t step = 0; step < 1000; ++step) {
    op::ArenaState<BFloat16, Sgd> state{.arena = weights.data(),
                                        .rows = rows,
                                        .width = width,
                                        .segments = {&segment, 1},
                                        .rounding_seed = step};
    op::run<Operation>(
        Host(), {.state = state,
                 .step = Sgd{}.at(1e-4f, 1),
                 .merged = {.count = rows, .rows = all.data(), .gradients = gradient.data()}});
  }
  double sum = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    std::vector<std::uint16_t> row;
    for (int c = 0; c < width; ++c) {
      const BFloat16 w = weights[static_cast<std::size_t>(r * width + c)];
      sum += to_float(w);
      row.push_back(w.bits);
    }
    distinct_rows.insert(row);
  }
  // its standard deviation is 0.0006
  CHECK(std::abs(sum / static_cast<double>(rows * width) - 1.1) < 0.005);
  CHECK(distinct_rows.size() == rows);
}

TEST_CASE(
    "the mean square of a row is that of its shards, for every cut, and near that in double") {
  std::mt19937 random(3);
  for (int trial = 0; trial < 2000; ++trial) {
    const int width = 1 + static_cast<int>(random() % 200);
    CAPTURE(width);
    const auto gradient = random_elements<float>(static_cast<std::size_t>(width), random());
    const float whole = op::mean_square(gradient.data(), width);
    double expected = 0;
    for (int c = 0; c < width; ++c)
      expected += static_cast<double>(gradient[static_cast<std::size_t>(c)]) *
                  gradient[static_cast<std::size_t>(c)] / width;
    REQUIRE(whole == doctest::Approx(expected).epsilon(1e-6));
    REQUIRE(whole == detail::fast_mean_square(gradient.data(), width));
    op::MeanSquareSum sum;
    for (int begin = 0; begin < width;) {
      const int end =
          random() % 4 == 0
              ? width
              : begin + 1 + static_cast<int>(random() % static_cast<unsigned>(width - begin));
      std::vector<float> partials(
          static_cast<std::size_t>(op::mean_square_partials(begin, end, width)) + 1, -7.0f);
      op::write_mean_square_partials(gradient.data() + begin, begin, end, width, partials.data());
      REQUIRE(partials.back() == -7.0f);
      sum.add(partials.data(), begin, end, width);
      begin = end;
    }
    REQUIRE(sum.mean(width) == whole);
  }
  CHECK(op::mean_square_partials(0, 128, 128) == 8);
  CHECK(op::mean_square_partials(16, 40, 40) == 2);  // the last block ends with the table
  CHECK(op::mean_square_partials(0, 24, 128) == 1 + 8);
}
