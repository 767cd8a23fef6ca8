// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/stochastic_rounding.hpp>
#include <tessera/host/bag_parts.hpp>
#include <tessera/host/lanes.hpp>
#include <tessera/op/update.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tessera::inline v0 {

namespace detail {

/// An optimizer's formulas, compiled once for all widths and element types: whether a * b + c becomes one fused multiply-add is up to
/// the compiler at each place where it inlines a formula, and a row's new value must not depend on the place.
template <Optimizer O>
struct StepMath {
  using Step = typename O::Step;
  using States = std::array<float*, std::max(1, O::element_states)>;

  [[gnu::noinline]] static typename Step::Row row(const Step& step, float* row_state, float mean_square_of_row) {
    return step.row(row_state, mean_square_of_row);
  }

  /// `columns`: a multiple of 16.
  [[gnu::noinline]] static void elements(const Step& caller_step, float* __restrict weights, const float* __restrict gradient,
                                         const States& states, const typename Step::Row& caller_shared, std::int64_t columns) {
    const Step step = caller_step;
    const typename Step::Row shared = caller_shared;
    constexpr int slots = std::max(1, O::element_states);
    if constexpr (requires(Lanes x, Lanes * s) {
                    { step.element(x, x, s, shared) } -> std::same_as<Lanes>;
                  }) {
      for (std::int64_t column = 0; column < columns; column += Lanes::count) {
        Lanes w, g, state[slots] = {};
        std::memcpy(&w, weights + column, sizeof(w));
        std::memcpy(&g, gradient + column, sizeof(g));
        unrolled<O::element_states>([&](auto k) { std::memcpy(&state[k()], states[k()] + column, sizeof(Lanes)); });
        w = step.element(w, g, state, shared);
        std::memcpy(weights + column, &w, sizeof(w));
        unrolled<O::element_states>([&](auto k) { std::memcpy(states[k()] + column, &state[k()], sizeof(Lanes)); });
      }
    } else {
      for (std::int64_t column = 0; column < columns; ++column) {
        float state[slots] = {};
        for (int k = 0; k < O::element_states; ++k) state[k] = states[k][column];
        weights[column] = step.element(weights[column], gradient[column], state, shared);
        for (int k = 0; k < O::element_states; ++k) states[k][column] = state[k];
      }
    }
  }
};

/// Applies one optimizer step to single rows of an arena. One per thread: it remembers the segment of the last row.
template <Element T, int Width, Optimizer O>
class RowUpdate {
 public:
  using Step = typename O::Step;

  RowUpdate(const ArenaState<T, O>& state, const Step& step) : state_(state), step_(step) {}

  [[gnu::always_inline]] void prefetch(std::int64_t row) const {
    const std::int64_t width = this->width();
    detail::prefetch<true>(state_.arena + row * width, width * static_cast<std::int64_t>(sizeof(T)));
    for (int k = 0; k < O::element_states; ++k) detail::prefetch<true>(state_.element_state[k] + row * width, width * 4);
    for (int k = 0; k < O::row_states; ++k) detail::prefetch<true>(state_.row_state[k] + row, 4);
  }

  /// `gradient`: the row's merged gradient, width() floats.
  [[gnu::always_inline]] void apply(std::int64_t row, const float* gradient, float mean_square_of_row) {
    float row_state[std::max(1, O::row_states)] = {};
    for (int k = 0; k < O::row_states; ++k) row_state[k] = state_.row_state[k][row];
    const typename Step::Row shared = StepMath<O>::row(step_, row_state, mean_square_of_row);
    for (int k = 0; k < O::row_states; ++k) state_.row_state[k][row] = row_state[k];

    const std::int64_t width = this->width();
    T* weights = state_.arena + row * width;
    States states{};
    for (int k = 0; k < O::element_states; ++k) states[k] = state_.element_state[k] + row * width;
    if constexpr (std::is_same_v<T, float>) {
      apply_floats(weights, gradient, states, width, shared, step_);
    } else {
      find_segment(row);
      // A panel at once: widening, random bits and rounding are loops over many columns, and the formulas are called once.
      float widened[panel];
      for (std::int64_t column = 0; column < width; column += panel) {
        const std::int64_t columns = std::min(panel, width - column);
        for (std::int64_t i = 0; i < columns; ++i) widened[i] = to_float(weights[column + i]);
        States panel_states{};
        for (int k = 0; k < O::element_states; ++k) panel_states[k] = states[k] + column;
        apply_floats(widened, gradient + column, panel_states, columns, shared, step_);
        draw_bits(column, columns);
        const std::uint16_t* const bits = bits_ + ((segment_.column_begin + column) & 3);
        for (std::int64_t i = 0; i < columns; ++i) weights[column + i] = round_stochastic<T>(widened[i], bits[i]);
      }
    }
  }

 private:
  using States = typename StepMath<O>::States;
  static constexpr int block = Lanes::count;
  static constexpr std::int64_t panel = 256;
  std::int64_t width() const { return Width != dynamic_width ? Width : state_.width; }

  static void apply_floats(float* __restrict weights, const float* __restrict gradient, const States& states, std::int64_t columns,
                           const typename Step::Row& shared, const Step& step) {
    const std::int64_t whole = columns / block * block;
    if (whole != 0) StepMath<O>::elements(step, weights, gradient, states, shared, whole);
    if (whole == columns) return;
    // The last columns through copies that are filled up with zeros.
    const std::int64_t rest = columns - whole;
    float last_weights[block] = {}, last_gradient[block] = {}, last_states[std::max(1, O::element_states)][block] = {};
    States copies{};
    std::copy_n(weights + whole, rest, last_weights);
    std::copy_n(gradient + whole, rest, last_gradient);
    for (int k = 0; k < O::element_states; ++k) {
      copies[k] = last_states[k];
      std::copy_n(states[k] + whole, rest, last_states[k]);
    }
    StepMath<O>::elements(step, last_weights, last_gradient, copies, shared, block);
    std::copy_n(last_weights, rest, weights + whole);
    for (int k = 0; k < O::element_states; ++k) std::copy_n(last_states[k], rest, states[k] + whole);
  }

  /// The rounding_bits of columns [column, column + columns), behind those of the up to 3 columns that share their first word.
  void draw_bits(std::int64_t column, std::int64_t columns) {
    const std::int64_t first_word = (segment_.column_begin + column) >> 2;
    const std::int64_t words = ((segment_.column_begin + column + columns - 1) >> 2) - first_word + 1;
    std::uint64_t drawn[panel / 4 + 1];
    for (std::int64_t i = 0; i < words; ++i) drawn[i] = rounding_word(rounding_key_, (first_word + i) * 4);
    static_assert(std::endian::native == std::endian::little, "the lowest 16 bits of a word come first");
    std::memcpy(bits_, drawn, static_cast<std::size_t>(words) * sizeof(std::uint64_t));
  }

  void find_segment(std::int64_t row) {
    if (row < segment_.row_offset || row >= segment_.row_offset + segment_.rows) {
      const auto after = std::upper_bound(state_.segments.begin(), state_.segments.end(), row,
                                          [](std::int64_t r, const ArenaSegment& segment) { return r < segment.row_offset; });
      segment_ = *(after - 1);
    }
    rounding_key_ = rounding_key(state_.rounding_seed, segment_.table_key, row - segment_.row_offset + segment_.row_begin);
  }

  ArenaState<T, O> state_;
  Step step_;
  ArenaSegment segment_;
  std::uint64_t rounding_key_ = 0;
  std::uint16_t bits_[std::is_same_v<T, float> ? 1 : panel + 4];
};

}  // namespace detail

}  // namespace tessera::inline v0
