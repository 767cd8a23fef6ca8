// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The laws hold for every optimizer and find broken ones; published values; vectors of columns
// compute what single columns do; a user's own optimizer with plain floats runs on the host.
#include <tessera/collection/embedding_collection.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/host/lanes.hpp>
#include <tessera/host/update.hpp>
#include <tessera/optimizer/optimizers.hpp>

#include "contraction.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include <tessera/laws/optimizer_laws.hpp>

using namespace tessera;
using namespace tessera::math;

namespace {

/// The smallest optimizer with a state of each kind, in plain floats: the mean of the row's
/// gradients so far, with momentum.
struct Plain {
  static constexpr int element_states = 1, row_states = 1;
  static constexpr bool needs_mean_square = true;
  static constexpr std::array<std::string_view, 2> state_names{"momentum", "steps"};
  struct Step {
    float learning_rate;
    struct Row {
      float rate;
    };
    Row row(float* row_state, float mean_square) const {
      row_state[0] += 1;
      return {learning_rate / (row_state[0] + std::sqrt(mean_square))};
    }
    float element(float weight, float gradient, float* state, const Row& row) const {
      state[0] = 0.5f * state[0] + gradient;
      return weight - row.rate * state[0];
    }
  };
  float initial_state(int) const { return 0; }
  Step at(float learning_rate, std::int64_t) const { return {learning_rate}; }
};
static_assert(explain_optimizer<Plain>());

static_assert(explain_optimizer<Ftrl>());

using Rows = Plan<TableWise<Table<"t", 10, 4>>>;
template <class O, class... Policies>
using FirstValues =
    typename EmbeddingCollection<Rows, O, Host, SelfCommunicator, Policies...>::initializer;
static_assert(std::is_same_v<FirstValues<Ftrl>, Constant>);  // what the optimizer asks for
static_assert(std::is_same_v<FirstValues<Ftrl, InitializeWith<Normal>>, Normal>);
static_assert(std::is_same_v<FirstValues<Adagrad>, UniformByRows>);

/// Ascends, and forgets its epsilon.
struct Broken : Adagrad {
  struct Step {
    float learning_rate;
    struct Row {};
    Row row(float*, float) const { return {}; }
    float element(float weight, float gradient, float* state, const Row&) const {
      state[0] += gradient * gradient;
      return weight + learning_rate * gradient / std::sqrt(state[0]);
    }
  };
  Step at(float learning_rate, std::int64_t) const { return {learning_rate}; }
};

/// Has a state that a gradient of zero makes NaN.
struct NoGradientNoState : Adagrad {
  struct Step {
    float learning_rate;
    struct Row {};
    Row row(float*, float) const { return {}; }
    float element(float weight, float gradient, float* state, const Row&) const {
      state[0] = gradient / std::abs(gradient);
      return weight - learning_rate * gradient;
    }
  };
  Step at(float learning_rate, std::int64_t) const { return {learning_rate}; }
};

/// The columns of a register at once against one at a time.
template <Optimizer O>
void check_lanes(const O& optimizer) {
  constexpr int lanes = Lanes::count;
  Lanes weight, gradient, state[2];
  float w[lanes], g[lanes], s[2][lanes];
  for (int i = 0; i < lanes; ++i) {
    w[i] = 0.1f * static_cast<float>(i) - 0.7f;
    g[i] = 0.03f * static_cast<float>((i * 7) % lanes) - 0.2f;
    s[0][i] = s[1][i] = 0.5f + 0.01f * static_cast<float>(i);
  }
  std::memcpy(&weight, w, sizeof(w));
  std::memcpy(&gradient, g, sizeof(g));
  std::memcpy(&state[0], s[0], sizeof(s[0]));
  std::memcpy(&state[1], s[1], sizeof(s[1]));
  const auto step = optimizer.at(0.1f, 3);
  float row_state[O::row_states + 1];
  std::fill_n(row_state, O::row_states, 0.5f);
  const auto row = op::shared_by_row<O>(step, row_state, {0.25f, 0.5f});
  if constexpr (detail::MeasuresUpdates<O>) {
    Lanes copies[2] = {state[0], state[1]};
    const Lanes measured = step.measured(weight, gradient, copies);
    float several[lanes];
    std::memcpy(several, &measured, sizeof(several));
    for (int i = 0; i < lanes; ++i) {
      float single[2] = {s[0][i], s[1][i]};
      CHECK(several[i] == doctest::Approx(step.measured(w[i], g[i], single)).epsilon(1e-6));
    }
  }
  weight = step.element(weight, gradient, state, row);
  float results[lanes], first[lanes];
  std::memcpy(results, &weight, sizeof(results));
  std::memcpy(first, &state[0], sizeof(first));
  for (int i = 0; i < lanes; ++i) {
    float single[2] = {s[0][i], s[1][i]};
    CHECK(results[i] == doctest::Approx(step.element(w[i], g[i], single, row)).epsilon(1e-6));
    CHECK(first[i] == doctest::Approx(single[0]).epsilon(1e-6));
  }
}

std::string joined(const std::vector<std::string>& faults) {
  std::string text;
  for (const std::string& fault : faults) text += fault + "\n";
  return text;
}

}  // namespace

TEST_CASE("the laws hold for every optimizer") {
  CHECK(joined(laws::optimizer_laws(Sgd{})) == "");
  CHECK(joined(laws::optimizer_laws(Adagrad{})) == "");
  CHECK(joined(laws::optimizer_laws(Adagrad{.initial_accumulator = 0.1f})) == "");
  CHECK(joined(laws::optimizer_laws(RowWiseAdagrad{})) == "");
  CHECK(joined(laws::optimizer_laws(Adam{})) == "");
  CHECK(joined(laws::optimizer_laws(Plain{})) == "");
  CHECK(joined(laws::optimizer_laws(Ftrl{.l1 = 0.001f}, {.start_from_zero = true})) == "");
  const laws::OptimizerLawOptions decays{.zero_gradient_keeps_weight = false};
  CHECK(joined(laws::optimizer_laws(Momentum{})) == "");
  CHECK(joined(laws::optimizer_laws(Momentum{.nesterov = true})) == "");
  CHECK(joined(laws::optimizer_laws(AdamW{.weight_decay = 0})) == "");
  CHECK(joined(laws::optimizer_laws(PartialRowWiseAdam{})) == "");
  CHECK(joined(laws::optimizer_laws(CountedAdam{})) == "");
  CHECK(joined(laws::optimizer_laws(Lamb{})) == "");
  CHECK(joined(laws::optimizer_laws(Lion{})) == "");
  CHECK(joined(laws::optimizer_laws(RowWiseAdagradL2{})) == "");
  CHECK(joined(laws::optimizer_laws(RowWiseAdagradDecoupled{})) == "");
  using Rate = CountedRowWiseAdagrad::Rate;
  for (const Rate rate : {Rate::faster, Rate::slower, Rate::by_count})
    CHECK(joined(laws::optimizer_laws(
              CountedRowWiseAdagrad{.rate = rate, .half_life = 5, .most = 8})) == "");
  CHECK(joined(laws::optimizer_laws(CountedRowWiseAdagradL2{})) == "");
  // with weight decay a small gradient may lose against it
  std::vector<std::string> faults = laws::optimizer_laws(AdamW{.weight_decay = 0.1f}, decays);
  std::erase_if(faults, [](const std::string& fault) {
    return fault.find("along its gradient") != std::string::npos ||
           fault.find("more like the last") != std::string::npos;
  });
  CHECK(joined(faults) == "");
}

TEST_CASE("the laws find a broken optimizer") {
  const std::string faults = joined(laws::optimizer_laws(Broken{}));
  // what is wrong for every row is counted
  CHECK(std::count(faults.begin(), faults.end(), '\n') < 20);
  CHECK(faults.find("more like the last") != std::string::npos);
  // forgets weights that it did not make
  CHECK(joined(laws::optimizer_laws(Ftrl{})).find("along its gradient") != std::string::npos);
  CHECK(faults.find("along its gradient") != std::string::npos);
  CHECK(faults.find("a gradient of zero in the first step gives the weight") != std::string::npos);
  CHECK(joined(laws::optimizer_laws(NoGradientNoState{})).find("gives the element state") !=
        std::string::npos);
}

TEST_CASE("columns of a register at once are single ones") {
  check_lanes(Sgd{});
  check_lanes(Adagrad{});
  check_lanes(RowWiseAdagrad{});
  check_lanes(Adam{});
  check_lanes(Ftrl{});
  check_lanes(Ftrl{.beta = 0.5f, .l1 = 0.9f, .l2 = 0.1f});
  check_lanes(Momentum{.nesterov = true});
  check_lanes(AdamW{});
  check_lanes(PartialRowWiseAdam{.weight_decay = 0.1f});
  check_lanes(CountedAdam{.weight_decay = 0.1f});
  check_lanes(Lamb{.weight_decay = 0.1f});
  check_lanes(Lion{.weight_decay = 0.1f});
  check_lanes(RowWiseAdagradL2{.weight_decay = 0.1f});
  check_lanes(RowWiseAdagradDecoupled{.weight_decay = 0.1f});
  CountedRowWiseAdagradL2 counted;
  counted.half_life = 4, counted.weight_decay = 0.1f;
  check_lanes(counted);
  Lanes x;
  constexpr int lanes = Lanes::count;
  float values[lanes], roots[lanes];
  for (int i = 0; i < lanes; ++i) values[i] = std::ldexp(1.7f, i * 9 - 70);
  std::memcpy(&x, values, sizeof(values));
  x = square_root(x);
  std::memcpy(roots, &x, sizeof(roots));
  for (int i = 0; i < lanes; ++i) CHECK(roots[i] == std::sqrt(values[i]));
}

TEST_CASE("functions of several columns are those of single ones") {
  constexpr int lanes = Lanes::count;
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const float some[] = {0.0f,     -0.0f,     1.5f, -1.5f, 1e-40f, -1e-40f,
                        infinity, -infinity, nan,  3e38f, -2.0f,  2.0f};
  constexpr int count = std::size(some);
  const auto check = [&](const char* what, auto function) {
    for (int shift = 0; shift < count; ++shift) {
      float a[lanes], b[lanes], found[lanes];
      for (int i = 0; i < lanes; ++i) {
        a[i] = some[i % count];
        b[i] = some[(i + shift) % count];
      }
      Lanes x, y;
      std::memcpy(&x, a, sizeof(a));
      std::memcpy(&y, b, sizeof(b));
      const Lanes z = function(x, y);
      std::memcpy(found, &z, sizeof(found));
      for (int i = 0; i < lanes; ++i) {
        const float expected = function(a[i], b[i]);
        CAPTURE(what);
        CAPTURE(a[i]);
        CAPTURE(b[i]);
        CHECK(std::memcmp(&found[i], &expected, sizeof(float)) == 0);
      }
    }
  };
  check("maximum", [](auto a, auto b) { return maximum(a, b); });
  check("minimum", [](auto a, auto b) { return minimum(a, b); });
  check("maximum with a float", [](auto a, auto) { return maximum(a, 0.5f); });
  check("minimum with a float", [](auto a, auto) { return minimum(0.5f, a); });
  check("absolute", [](auto a, auto) { return absolute(a); });
  check("sign", [](auto a, auto) { return sign(a); });
  check("<", [](auto a, auto b) { return select(a < b, a, b); });
  check(">", [](auto a, auto b) { return select(a > b, 1.0f, b); });
  check("<=", [](auto a, auto b) { return select(a <= b, a, -1.0f); });
  check(">=", [](auto a, auto b) { return select(a >= b, a, b); });
  check("< a float", [](auto a, auto b) { return select(a < 1.5f, a, b); });
  check("> a float", [](auto a, auto b) { return select(1.5f > a, a, b); });
  check("constants", [](auto a, auto b) {
    return select(a < b, 1.0f, 2.0f) + 0.0f * select(0.0f <= a, 1.0f, 0.0f);
  });
}

TEST_CASE("a gradient that is no number makes a weight that is none") {
  for (const float gradient : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    float ftrl[2] = {0, 0}, lion[1] = {0};
    CHECK(!std::isfinite(Ftrl{.l1 = 0.1f}.at(0.1f, 1).element(0.5f, gradient, ftrl, {})));
    const float weight = Lion{}.at(0.1f, 1).element(0.5f, gradient, lion, {});
    CHECK((std::isnan(gradient) ? std::isnan(weight) : weight == 0.4f));
  }
}

TEST_CASE("FTRL: small gradients leave zeros, larger ones shrunk weights") {
  const auto step = Ftrl{.beta = 1, .l1 = 0.5f, .l2 = 0}.at(0.1f, 1);
  float small[2] = {0, 0}, large[2] = {0, 0};
  CHECK(step.element(0.0f, 0.4f, small, {}) == 0.0f);
  // the paper's formula
  CHECK(step.element(0.0f, 2.0f, large, {}) == doctest::Approx(-(2.0 - 0.5) / ((1 + 2.0) / 0.1)));
  CHECK(large[1] == 4.0f);
}

TEST_CASE(
    "FTRL with a learning rate of zero rests, and beta and n of zero divide nothing by zero") {
  float state[2] = {-2, 4};
  CHECK(Ftrl{}.at(0, 1).element(0.5f, 3.0f, state, {}) == 0.5f);
  CHECK(state[0] == -2);
  CHECK(state[1] == 4);
  float fresh[2] = {0, 0};
  CHECK(Ftrl{.beta = 0}.at(0.1f, 1).element(0.0f, 0.0f, fresh, {}) == 0.0f);
}

TEST_CASE("the counter halves in half_life steps, and rates follow it") {
  using Rate = CountedRowWiseAdagrad::Rate;
  const CountedRowWiseAdagrad optimizer{.epsilon = 0, .half_life = 4, .power = 2, .threshold = 1};
  float state[3] = {0, 0, 0};
  CHECK(optimizer.at(0.1f, 3).row(state, 4.0f).rate == doctest::Approx(0.1 / 2));  // seen once
  CHECK(state[1] == 1);
  CHECK(state[2] == 3);
  CHECK(optimizer.at(0.1f, 7).row(state, 5.0f).rate == doctest::Approx(0.1 / std::sqrt(2 * 1.5)));
  CHECK(state[0] == 9);
  CHECK(state[1] == 1.5f);
  const auto rate = [](CountedRowWiseAdagrad counted, std::int64_t step) {
    float row[3] = {0, 2, 0};
    return counted.at(0.1f, step).row(row, 1.0f).rate;
  };
  CHECK(rate({.epsilon = 0, .rate = Rate::faster, .power = 0.5f, .most = 16}, 1) ==
        doctest::Approx(0.1 * 2));
  CHECK(rate({.epsilon = 0, .rate = Rate::faster, .power = 9, .most = 16}, 1) ==
        doctest::Approx(0.1 * 10));
  CHECK(rate({.epsilon = 0, .rate = Rate::slower, .power = 0.5f, .most = 16}, 1) ==
        doctest::Approx(0.1 / 2));
  CHECK(rate({.epsilon = 0, .rate = Rate::slower, .power = 9, .most = 16}, 1) ==
        doctest::Approx(0.1 * 0.1));
  CHECK(rate({.epsilon = 0, .rate = Rate::slower, .power = 9, .most = 16, .first_step = 2}, 2) ==
        doctest::Approx(0.1));
  // a threshold as a share of `most`, rounded down: 3.2 is 3, and the row's counter is 3, or 4
  CHECK(rate({.epsilon = 0, .power = 4, .most = 16, .threshold = 0.2f, .threshold_is_share = true},
             1) == doctest::Approx(0.1));
  CHECK(rate({.epsilon = 0, .power = 4, .most = 14, .threshold = 0.2f, .threshold_is_share = true},
             1) == doctest::Approx(0.1 / std::sqrt(4 * 3)));
  // without a half-life rows are counted; with one of 0 each counts 1
  float counted[3] = {0, 7, 5}, once[3] = {0, 7, 5};
  CountedRowWiseAdagrad{}.at(0.1f, 900).row(counted, 1.0f);
  CountedRowWiseAdagrad{.half_life = 0}.at(0.1f, 900).row(once, 1.0f);
  CHECK(counted[1] == 8);
  CHECK(once[1] == 1);
}

TEST_CASE("weight decay by occurrence: rare rows shrink more, by FBGEMM's definitions") {
  const auto check = [](const auto& optimizer, bool l2, std::int64_t first_step) {
    double w = 0.75, sum = 0, counter = 0, last = 0;
    float weight = 0.75f, state[3] = {0, 0, 0};
    for (const int iteration : {1, 2, 7, 8, 30}) {
      const double g = 0.1 * iteration - 0.4, h = l2 ? g + 0.25 * w : g, lr = 0.125;
      counter = 1 + std::exp(-(last == 0 ? 1 : iteration - last) * std::log(2.0) / 4) * counter;
      last = iteration;
      sum += h * h;
      const double multiplier = lr / (std::sqrt(sum) + 1e-8), freq = 4 / counter;
      const double adjusted =
          iteration > first_step ? lr / (std::sqrt(2 * counter) + 1e-8) : multiplier;
      if (iteration > first_step) w *= 1 - freq * 0.25 * (l2 ? multiplier : lr);
      w -= adjusted * g;
      const auto step = optimizer.at(0.125f, iteration);
      float measured = static_cast<float>(g);
      if constexpr (detail::MeasuresUpdates<std::remove_cvref_t<decltype(optimizer)>>)
        measured = step.measured(weight, measured, state);
      const auto row = step.row(state, measured * measured);
      weight = step.element(weight, static_cast<float>(g), state, row);
      CHECK(weight == doctest::Approx(w).epsilon(1e-5));
      CHECK(state[0] == doctest::Approx(sum).epsilon(1e-5));
      CHECK(state[1] == doctest::Approx(counter).epsilon(1e-5));
    }
  };
  for (const std::int64_t first_step : {0, 2}) {
    CountedRowWiseAdagrad decoupled{
        .half_life = 4, .power = 2, .weight_decay = 0.25f, .first_step = first_step};
    check(decoupled, false, first_step);
    check(CountedRowWiseAdagradL2{decoupled}, true, first_step);
  }
}

TEST_CASE("first steps have their known values") {
  // Adam's first step moves every weight by the learning rate; Adagrad's too; row-wise Adagrad's by
  // it over the row's root mean square.
  float state[2] = {0, 0};
  CHECK(Adam{}.at(0.1f, 1).element(1.0f, -3.0f, state, {}) == doctest::Approx(1.1f));
  CHECK(state[0] == doctest::Approx(-0.3f));
  CHECK(state[1] == doctest::Approx(0.009f));
  float sum = 0;
  CHECK(Adagrad{}.at(0.1f, 1).element(1.0f, -3.0f, &sum, {}) == doctest::Approx(1.1f));
  CHECK(sum == 9.0f);
  float row_sum = 0;
  const auto step = RowWiseAdagrad{}.at(0.1f, 1);
  const auto row = step.row(&row_sum, 4.0f);
  CHECK(row_sum == 4.0f);
  CHECK(step.element(1.0f, -3.0f, state, row) == doctest::Approx(1.15f));
  // A row of LAMB moves by lr times its own length: here 0.1 * sqrt(9) along every sign.
  const auto lamb = Lamb{}.at(0.1f, 1);
  CHECK(lamb.element(3.0f, -2.0f, std::array{0.0f, 0.0f}.data(), lamb.row(nullptr, 1.0f, 9.0f)) ==
        doctest::Approx(3.3));
  // L2 adds weight decay to the gradient, decoupled decay shrinks the weight
  row_sum = 0;
  const auto l2 = RowWiseAdagradL2{.weight_decay = 0.5f}.at(0.1f, 1);
  CHECK(l2.measured(2.0f, 3.0f, state) == 4.0f);
  CHECK(l2.element(2.0f, 3.0f, state, l2.row(&row_sum, 16.0f)) == doctest::Approx(1.9));
  row_sum = 0;
  const auto decoupled = RowWiseAdagradDecoupled{.weight_decay = 0.5f}.at(0.1f, 1);
  CHECK(decoupled.element(2.0f, 3.0f, state, decoupled.row(&row_sum, 9.0f)) ==
        doctest::Approx(0.95 * 2 - 0.1));
  // Lion moves by the rate, Nesterov's step looks ahead
  float m = 0;
  CHECK(Lion{}.at(0.1f, 1).element(1.0f, -3.0f, &m, {}) == doctest::Approx(1.1));
  CHECK(m == doctest::Approx(-0.03));
  m = 1;
  CHECK(Momentum{.momentum = 0.5f}.at(0.1f, 1).element(1.0f, 2.0f, &m, {}) ==
        doctest::Approx(1 - 0.1 * 2.5));
  m = 1;
  CHECK(Momentum{.momentum = 0.5f, .nesterov = true}.at(0.1f, 1).element(1.0f, 2.0f, &m, {}) ==
        doctest::Approx(1 - 0.1 * (2 + 0.5 * 2.5)));
  CHECK(Sgd{}.at(0.5f, 7).element(1.0f, 2.0f, state, {}) == 0.0f);
}

TEST_CASE("an optimizer's bits do not depend on what the compiler fuses, nor on vectors") {
  const std::vector<std::uint32_t> bits = trained_contracted();
  CHECK((bits == trained_uncontracted()));
  // per optimizer: by single floats, then by vectors
  std::size_t at = 0;
  for (const std::size_t arrays : {1, 2, 1, 3}) {
    const auto begin = bits.begin() + static_cast<std::ptrdiff_t>(at),
               half = begin + static_cast<std::ptrdiff_t>(arrays * 64);
    CHECK(std::equal(begin, half, half));
    at += 2 * arrays * 64;
  }
}

TEST_CASE(
    "a user's optimizer in plain floats runs on the host, with the same bits for every kind of "
    "width") {
  const auto run_steps = [](auto width_constant) {
    constexpr int width = 20;
    std::vector<float> weights(4 * width, 1.0f), momentum(4 * width), steps(4),
        gradient(3 * width, 0.5f);
    const std::int32_t ids[] = {2, 0, 2};
    const op::GradientGroup<std::int32_t> groups[] = {
        {.bags = {.ids = ids, .bags = 3}, .gradient = gradient.data(), .gradient_stride = width}};
    for (int t = 1; t <= 3; ++t)
      op::run<op::Update<float, std::int32_t, decltype(width_constant)::value, Plain>>(
          Host(), {.state = {.arena = weights.data(),
                             .rows = 4,
                             .width = width,
                             .element_state = {momentum.data()},
                             .row_state = {steps.data()}},
                   .step = Plain{}.at(0.1f, t),
                   .groups = groups});
    CHECK(steps == std::vector<float>{3, 0, 3, 0});
    CHECK(momentum[2 * width] == 1.75f);  // duplicates are summed first: a gradient of 1
    CHECK(weights[width] == 1.0f);
    CHECK(weights[2 * width + 7] == doctest::Approx(1 - 0.1 * (1 / 2.0 + 1.5 / 3.0 + 1.75 / 4.0)));
    return weights;
  };
  CHECK(run_steps(std::integral_constant<int, 20>{}) ==
        run_steps(std::integral_constant<int, op::dynamic_width>{}));
}

TEST_CASE(
    "CountedAdam corrects a row by its own count: golden values, and AdamW's where they agree") {
  // Python 3.11, in double: one row, updated in global steps 1, 40 and 41
  const CountedAdam optimizer{.weight_decay = 0.5f};
  float weight = 1, state[2] = {0, 0}, count[1] = {0};
  const float gradients[] = {0.5f, -0.25f, 0.125f};
  const std::int64_t steps[] = {1, 40, 41};
  const double golden[] = {0.849999999764826, 0.780866296759043, 0.707780068088735};
  for (int i = 0; i < 3; ++i) {
    const auto step = optimizer.at(0.1f, steps[i]);
    const auto row = step.row(count, 0);
    weight = step.element(weight, gradients[i], state, row);
    CHECK(weight == doctest::Approx(golden[i]).epsilon(1e-6));
  }
  CHECK(count[0] == 3);
  // a row of every step is AdamW's; one that rests is not
  for (const bool rests : {false, true}) {
    float counted = 1, global = 1, a[2] = {0, 0}, b[2] = {0, 0}, updates[1] = {0};
    double apart = 0;
    for (std::int64_t t = 1; t <= 200; ++t) {
      if (rests && t % 50 != 0) continue;
      const float gradient = static_cast<float>(t % 7) / 3 - 1;
      const auto one = CountedAdam{}.at(0.01f, t);
      const auto other = AdamW{.weight_decay = 0}.at(0.01f, t);
      const auto row = one.row(updates, 0);
      counted = one.element(counted, gradient, a, row);
      global = other.element(global, gradient, b, {});
      apart = std::max(apart, std::abs(static_cast<double>(counted) - global));
    }
    CHECK((rests ? apart > 1e-3 : apart < 1e-5));
  }
}
