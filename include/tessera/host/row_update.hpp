// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/stochastic_rounding.hpp>
#include <tessera/host/bag_parts.hpp>
#include <tessera/op/update.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

namespace tessera::inline v0 {

namespace detail {

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
    for (int k = 0; k < O::row_states; ++k) __builtin_prefetch(state_.row_state[k] + row, 1);
  }

  /// `gradient`: the row's merged gradient, width() floats.
  [[gnu::always_inline]] void apply(std::int64_t row, const float* __restrict gradient, float mean_square_of_row) {
    float row_state[std::max(1, O::row_states)];
    for (int k = 0; k < O::row_states; ++k) row_state[k] = state_.row_state[k][row];
    const typename Step::Row shared = step_.row(row_state, mean_square_of_row);
    for (int k = 0; k < O::row_states; ++k) state_.row_state[k][row] = row_state[k];

    const int width = this->width();
    T* __restrict weights = state_.arena + row * width;
    std::array<float*, O::element_states> states;
    for (int k = 0; k < O::element_states; ++k) states[k] = state_.element_state[k] + row * width;
    if constexpr (!std::is_same_v<T, float>) find_segment(row);
    int column = 0;
    for (; column + block <= width; column += block) apply_block<block>(weights, gradient, states, column, shared, block);
    if (column < width) apply_block<0>(weights, gradient, states, column, shared, width - column);
  }

 private:
  static constexpr int block = 16;
  int width() const { return Width != dynamic_width ? Width : state_.width; }

  template <int Columns>
  [[gnu::always_inline]] void apply_block(T* __restrict weights, const float* __restrict gradient,
                                          const std::array<float*, O::element_states>& states, int column, const typename Step::Row& shared,
                                          int columns) {
    if constexpr (Columns != 0) columns = Columns;
    float weight[block];
    for (int i = 0; i < columns; ++i) {
      float element_state[std::max(1, O::element_states)];
      for (int k = 0; k < O::element_states; ++k) element_state[k] = states[k][column + i];
      weight[i] = step_.element(to_float(weights[column + i]), gradient[column + i], element_state, shared);
      for (int k = 0; k < O::element_states; ++k) states[k][column + i] = element_state[k];
    }
    if constexpr (std::is_same_v<T, float>) {
      for (int i = 0; i < columns; ++i) weights[column + i] = weight[i];
    } else {
      const std::int64_t table_column = segment_.column_begin + column;
      std::uint16_t bits[block + 4];
      for (std::int64_t c = 0; c < block + 4; c += 4) {
        const std::uint64_t word = rounding_word(rounding_key_, table_column + c);
        for (int i = 0; i < 4; ++i) bits[c + i] = static_cast<std::uint16_t>(word >> (16 * i));
      }
      const int first = static_cast<int>(table_column & 3);
      for (int i = 0; i < columns; ++i) weights[column + i] = round_stochastic<T>(weight[i], bits[first + i]);
    }
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
};

}  // namespace detail

}  // namespace tessera::inline v0
