// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/optimizer.hpp>
#include <tessera/laws/faults.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

/// The laws of an optimizer, for any optimizer and any test framework: `optimizer_laws(optimizer)`
/// returns what it found wrong, repeated faults counted.
namespace tessera { inline namespace v0 { namespace laws {

/// Which of the optimizer_laws a formula keeps.
struct OptimizerLawOptions {
  std::uint32_t seed = 1;
  int rows = 50;
  int steps = 20;
  float learning_rate = 0.01f;
  bool zero_gradient_keeps_weight = true;  ///< false for one with weight decay
  bool zero_rate_keeps_weight = true;      ///< false for one that divides by the learning rate
  /// Weights start from zero, not from random values: for an optimizer whose states define the
  /// weight (FTRL), whatever it was before.
  bool start_from_zero = false;
};

namespace detail {

/// A row of a few columns with its state, and the optimizer applied to it as a backend does.
template <Optimizer O>
struct LawRow {
  static constexpr int width = 5;
  std::array<float, width> weights{};
  std::array<std::array<float, std::max(1, O::element_states)>, width> element_states{};
  std::array<float, std::max(1, O::row_states)> row_states{};

  explicit LawRow(const O& optimizer) {
    for (auto& states : element_states)
      for (int k = 0; k < O::element_states; ++k)
        states[static_cast<std::size_t>(k)] = optimizer.initial_state(k);
    for (int k = 0; k < O::row_states; ++k)
      row_states[static_cast<std::size_t>(k)] = optimizer.initial_state(O::element_states + k);
  }
  void step(const typename O::Step& step, const std::array<float, width>& gradient) {
    float mean_square = 0, weight_mean_square = 0;
    for (std::size_t c = 0; c < width; ++c) {
      float x = gradient[c];
      if constexpr (tessera::detail::MeasuresUpdates<O>) {
        auto states = element_states[c];  // a copy
        x = step.measured(weights[c], gradient[c], states.data());
      }
      mean_square += x * x / width;
      weight_mean_square += weights[c] * weights[c] / width;
    }
    if (!O::needs_mean_square) mean_square = std::nanf("");
    const auto shared = [&] {
      if constexpr (tessera::detail::MeasuresWeights<O>)
        return step.row(row_states.data(), mean_square, weight_mean_square);
      else
        return step.row(row_states.data(), mean_square);
    }();
    for (std::size_t c = 0; c < width; ++c)
      weights[c] = step.element(weights[c], gradient[c], element_states[c].data(), shared);
  }
  friend bool operator==(const LawRow& a, const LawRow& b) {
    return std::bit_cast<Bits>(a) == std::bit_cast<Bits>(b);
  }

 private:
  using Bits = std::array<std::uint32_t, (width + width * std::max(1, O::element_states) +
                                          std::max(1, O::row_states))>;
};

}  // namespace detail

/// Checks these laws, and returns one line for each fault:
/// - Finite gradients give finite weights and states, also in the first step and with a gradient of
///   zero.
/// - The same steps give the same bits; a row depends on its own gradients alone; without
///   `needs_mean_square` the mean is not read.
/// - A learning rate of zero changes no weight; a gradient of zero neither (unless the options say
///   otherwise).
/// - The first step goes against the gradient.
/// - Every state has a name, and names differ.
template <Optimizer O>
std::vector<std::string> optimizer_laws(const O& optimizer,
                                        const OptimizerLawOptions& options = {}) {
  using Row = detail::LawRow<O>;
  detail::Faults faults;
  std::mt19937 random(options.seed);
  std::normal_distribution<float> normal;
  const auto random_row = [&] {
    std::array<float, Row::width> values;
    for (float& value : values) value = normal(random);
    return values;
  };

  for (int r = 0; r < options.rows; ++r) {
    Row row(optimizer);
    if (!options.start_from_zero) row.weights = random_row();
    Row twin = row, frozen = row;
    const auto start = row.weights;
    std::array<float, Row::width> gradient{};
    for (int t = 1; t <= options.steps; ++t) {
      gradient = random_row();
      for (float& g : gradient) g *= std::ldexp(1.0f, static_cast<int>(random() % 21) - 10);
      const typename O::Step step = optimizer.at(options.learning_rate, t);
      const auto before = row.weights;
      row.step(step, gradient);
      twin.step(optimizer.at(options.learning_rate, t), gradient);
      frozen.step(optimizer.at(0, t), gradient);
      for (std::size_t c = 0; c < Row::width; ++c) {
        faults.expect(std::isfinite(row.weights[c]),
                      "row {}, step {}: weight {} is {} after a finite gradient {}", r, t, c,
                      row.weights[c], gradient[c]);
        for (const float state : row.element_states[c])
          faults.expect(std::isfinite(state), "row {}, step {}: an element state is {}", r, t,
                        state);
        if (t == 1)
          faults.expect(
              (row.weights[c] - before[c]) * gradient[c] <= 0,
              "row {}: the first step takes weight {} from {} to {}, along its gradient {}", r, c,
              before[c], row.weights[c], gradient[c]);
      }
      for (const float state : row.row_states)
        faults.expect(std::isfinite(state), "row {}, step {}: a row state is {}", r, t, state);
    }
    faults.expect(row == twin, "row {}: the same steps gave other bits", r);
    if (options.zero_rate_keeps_weight)
      faults.expect(frozen.weights == start, "row {}: a learning rate of 0 changed a weight", r);

    Row still(optimizer);
    still.weights = start;
    still.step(optimizer.at(options.learning_rate, 1), {});
    for (const float weight : still.weights)
      faults.expect(std::isfinite(weight),
                    "a gradient of zero in the first step gives the weight {}", weight);
    const auto finite = [&](float state, const char* what) {
      faults.expect(std::isfinite(state),
                    "a gradient of zero in the first step gives the {} state {}", what, state);
    };
    for (const auto& states : still.element_states)
      for (const float state : states) finite(state, "element");
    for (const float state : still.row_states) finite(state, "row");
    if (options.zero_gradient_keeps_weight)
      faults.expect(still.weights == start, "row {}: a gradient of zero changed a weight", r);
  }
  if constexpr (O::element_states + O::row_states > 0) {
    std::vector<std::string> names(std::begin(O::state_names), std::end(O::state_names));
    faults.expect(std::ssize(names) == O::element_states + O::row_states,
                  "{} state names for {} states", names.size(), O::element_states + O::row_states);
    std::ranges::sort(names);
    faults.expect(std::ranges::adjacent_find(names) == names.end(),
                  "two states have the same name");
    faults.expect(std::ranges::find(names, "") == names.end(), "a state has no name");
  }
  return faults.take();
}

}}}  // namespace tessera::v0::laws
