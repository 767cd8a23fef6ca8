// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Rates at chosen steps against numbers worked out by hand; golden cases of kind schedule hold many
// more.
#include <tessera/optimizer/schedule.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

using namespace tessera;

TEST_CASE("a chain hands over from stage to stage, stages of stages too") {
  const Schedule inner = Schedule::chain(
      {{10, Schedule::warmup(2, 10)}, {5, Schedule::constant(7)}}, Schedule::constant(3));
  const Schedule outer =
      Schedule::chain({{12, inner}, {0, Schedule::constant(100)}}, Schedule::step_decay(8, 2, 0.5));
  CHECK(outer.rate(0) == doctest::Approx(0.2));
  CHECK(outer.rate(9) == 2);
  CHECK(outer.rate(10) == 7);
  CHECK(outer.rate(11) == 7);
  CHECK(outer.rate(12) == 8);
  CHECK(outer.rate(13) == 8);
  CHECK(outer.rate(14) == 4);
  CHECK(inner.rate(14) == 7);
  CHECK(inner.rate(15) == 3);
  CHECK(inner.rate(5'000'000'000) == 3);
}

TEST_CASE("a schedule's text: the recipe's, in one line, equals the recipe's polynomial") {
  const Schedule text = Schedule::parse("warmup:8000,hold:40000,poly:24000:2", 24);
  const Schedule recipe = Schedule::polynomial({.rate = 24,
                                                .warmup_steps = 8000,
                                                .decay_start_step = 48000,
                                                .decay_steps = 24000,
                                                .power = 2});
  for (const std::int64_t step :
       {0, 1, 4000, 7999, 8000, 30000, 47999, 48000, 48001, 60000, 71998, 71999, 72000, 100000})
    CHECK(text.rate(step) == doctest::Approx(recipe.rate(step)).epsilon(1e-14));
}

TEST_CASE("a schedule's text: what each stage means, and what follows the last") {
  const auto rate = [](const char* text, std::int64_t step) {
    return Schedule::parse(text, 2).rate(step);
  };
  CHECK(rate("constant", 9) == 2);
  CHECK(rate("warmup:4", 0) == 0.5);
  CHECK(rate("warmup:4", 100) == 2);
  CHECK(rate("poly:4", 0) == 1.5);
  CHECK(rate("poly:4", 3) == 0);
  CHECK(rate("poly:4", 4) == 0);
  CHECK(rate("poly:4:1:0.25", 3) == 0.5);
  CHECK(rate("poly:4:1:0.25", 1000) == 0.5);
  CHECK(rate("cosine:10:0.5", 0) == 2);
  CHECK(rate("cosine:10:0.5", 5) == doctest::Approx(1.5));
  CHECK(rate("cosine:10:0.5", 10) == 1);
  CHECK(rate("cosine:10:0.5,hold:3", 12) == 1);
  CHECK(rate("inverse-sqrt:4", 15) == 1);
  CHECK(rate("hold:3,step:2:0.5", 2) == 2);
  CHECK(rate("hold:3,step:2:0.5", 5) == 1);
}

TEST_CASE("bad schedules are refused, and the text's stage at fault is named") {
  for (const char* text : {"",
                           ",",
                           "hold",
                           "hold:",
                           "hold:0",
                           "hold:-1",
                           "hold:1.5",
                           "hold:9223372036854775807",
                           "hold:99999999999999999999",
                           "warmup:4:1",
                           "poly",
                           "poly:0",
                           "poly:4:x",
                           "poly:4:-1",
                           "poly:4:nan",
                           "poly:4:1:-1",
                           "poly:4:1:0:0",
                           "cosine:4:inf",
                           "constant:1",
                           "constant,hold:3",
                           "inverse-sqrt:3,hold:3",
                           "inverse-sqrt:0",
                           "step:3",
                           "step:0:0.5",
                           "step:3:-0.5",
                           "step:3:0.5,hold:1",
                           "linear:4",
                           "warmup:4,",
                           " warmup:4"}) {
    INFO(text);
    CHECK_THROWS_AS(Schedule::parse(text, 1), InvalidArgument);
  }
  CHECK_THROWS_WITH_AS(Schedule::parse("warmup:8,hodl:4", 1),
                       doctest::Contains("'warmup:8,hodl:4', stage 'hodl:4'"), InvalidArgument);
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               inf = std::numeric_limits<double>::infinity();
  for (const double bad : {-1.0, nan, inf}) {
    CHECK_THROWS_AS(Schedule::constant(bad), InvalidArgument);
    CHECK_THROWS_AS(Schedule::warmup(bad, 3), InvalidArgument);
    CHECK_THROWS_AS(Schedule::cosine(1, 3, bad), InvalidArgument);
    CHECK_THROWS_AS(Schedule::step_decay(1, 3, bad), InvalidArgument);
    CHECK_THROWS_AS(Schedule::polynomial({.rate = 1, .power = bad}), InvalidArgument);
    CHECK_THROWS_AS(Schedule::parse("constant", bad), InvalidArgument);
  }
  CHECK_THROWS_AS(Schedule::warmup(1, -1), InvalidArgument);
  CHECK_THROWS_AS(Schedule::cosine(1, 0), InvalidArgument);
  CHECK_THROWS_AS(Schedule::inverse_sqrt(1, 0), InvalidArgument);
  CHECK_THROWS_AS(Schedule::step_decay(1, 0, 0.5), InvalidArgument);
  CHECK_THROWS_AS(Schedule::step_decay(1, {3, 2}, 0.5), InvalidArgument);
  CHECK_THROWS_AS(Schedule::polynomial({.rate = 1, .warmup_steps = 3, .decay_start_step = 2}),
                  InvalidArgument);
  CHECK_THROWS_AS(Schedule::polynomial({.rate = 1, .decay_steps = 0}), InvalidArgument);
  CHECK_THROWS_AS(Schedule::chain({{-1, Schedule::constant(1)}}, Schedule::constant(1)),
                  InvalidArgument);
  CHECK_THROWS_AS(Schedule::constant(1).rate(-1), InvalidArgument);
}
