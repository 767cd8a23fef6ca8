// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/host/bag_parts.hpp>
#include <tessera/host/lanes.hpp>
#include <tessera/op/stochastic_rounding.hpp>
#include <tessera/op/update.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace tessera { inline namespace v0 { namespace detail {

/// Rows that are updated by one call of the optimizer's formulas.
inline constexpr int rows_at_once = 16;

/// An optimizer's formulas, compiled once for all widths and element types: whether a * b + c
/// becomes one fused multiply-add is up to the compiler at each place where it inlines a formula,
/// and a row's new value must not depend on the place. A call works on some rows.
template <Optimizer O>
struct StepMath {
  using Step = typename O::Step;
  using States = std::array<float*, std::max(1, O::element_states)>;
  /// What the formulas read and write for a row.
  struct Operands {
    float* weights;
    const float* gradient;
    States states;
    float* row_state[std::max(1, O::row_states)];
    op::RowMeans means;
    typename Step::Row shared;
  };

  [[gnu::noinline]] static void rows(const Step& caller_step, Operands* rows, int count) {
    const Step step = caller_step;
    for (int i = 0; i < count; ++i) {
      float row_state[std::max(1, O::row_states)] = {};
      for (int k = 0; k < O::row_states; ++k) row_state[k] = *rows[i].row_state[k];
      rows[i].shared = op::shared_by_row<O>(step, row_state, rows[i].means);
      for (int k = 0; k < O::row_states; ++k) *rows[i].row_state[k] = row_state[k];
    }
  }

  /// Computes what the optimizer measures, of `columns` columns; a multiple of Lanes::count.
  [[gnu::noinline]] static void measure(const Step& caller_step, const Operands& row,
                                        std::int64_t columns, float* measured)
    requires MeasuresUpdates<O>
  {
    const Step step = caller_step;
    constexpr int slots = std::max(1, O::element_states);
    if constexpr (requires(Lanes x, Lanes* s) {
                    { step.measured(x, x, s) } -> std::same_as<Lanes>;
                  }) {
      for (std::int64_t column = 0; column < columns; column += Lanes::count) {
        Lanes w, g, state[slots] = {};
        std::memcpy(&w, row.weights + column, sizeof(w));
        std::memcpy(&g, row.gradient + column, sizeof(g));
        unrolled<O::element_states>(
            [&](auto k) { std::memcpy(&state[k()], row.states[k()] + column, sizeof(Lanes)); });
        w = step.measured(w, g, state);
        std::memcpy(measured + column, &w, sizeof(w));
      }
    } else {
      for (std::int64_t column = 0; column < columns; ++column) {
        float state[slots] = {};
        for (int k = 0; k < O::element_states; ++k) state[k] = row.states[k][column];
        measured[column] = step.measured(row.weights[column], row.gradient[column], state);
      }
    }
  }

  /// Updates elements. `columns`: a multiple of Lanes::count.
  [[gnu::noinline]] static void elements(const Step& caller_step, const Operands* rows, int count,
                                         std::int64_t columns) {
    const Step step = caller_step;
    constexpr int slots = std::max(1, O::element_states);
    for (int i = 0; i < count; ++i) {
      float* const __restrict weights = rows[i].weights;
      const float* const __restrict gradient = rows[i].gradient;
      const States states = rows[i].states;
      const typename Step::Row shared = rows[i].shared;
      if constexpr (requires(Lanes x, Lanes* s) {
                      { step.element(x, x, s, shared) } -> std::same_as<Lanes>;
                    }) {
        for (std::int64_t column = 0; column < columns; column += Lanes::count) {
          Lanes w, g, state[slots] = {};
          std::memcpy(&w, weights + column, sizeof(w));
          std::memcpy(&g, gradient + column, sizeof(g));
          unrolled<O::element_states>(
              [&](auto k) { std::memcpy(&state[k()], states[k()] + column, sizeof(Lanes)); });
          w = step.element(w, g, state, shared);
          std::memcpy(weights + column, &w, sizeof(w));
          unrolled<O::element_states>(
              [&](auto k) { std::memcpy(states[k()] + column, &state[k()], sizeof(Lanes)); });
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
  }
};

/// Applies one optimizer step to rows of an arena, some at a time. One per thread: it remembers the
/// segment of the last row.
template <Element T, int Width, Optimizer O>
class RowUpdate {
 public:
  using Step = typename O::Step;

  RowUpdate(const op::ArenaState<T, O>& state, const Step& step) : state_(state), step_(step) {}

  [[gnu::always_inline]] void prefetch(std::int64_t row) const {
    const std::int64_t width = this->width();
    detail::prefetch<true>(state_.arena + row * width,
                           width * static_cast<std::int64_t>(sizeof(T)));
    for (int k = 0; k < O::element_states; ++k)
      detail::prefetch<true>(state_.element_state[k] + row * width,
                             width * static_cast<std::int64_t>(sizeof(S)));
    for (int k = 0; k < O::row_states; ++k) detail::prefetch<true>(state_.row_state[k] + row, 4);
  }

  /// Computes what the optimizer measures of a row's columns, and the weights: `width` floats each,
  /// or null.
  void measure(std::int64_t row, const float* gradient, float* measured, float* weights) const {
    const std::int64_t width = this->width();
    for (std::int64_t column = 0; column < width; column += panel) {
      const std::int64_t columns = std::min(panel, width - column),
                         filled = (columns + block - 1) / block * block, at = row * width + column;
      float w[panel], g[panel], out[panel], states[std::max(1, O::element_states)][panel];
      typename Math::Operands operands{};
      const auto fill = [&](const auto* from, float* to) {
        widen(from, columns, to);
        std::fill(to + columns, to + filled, 0.0f);
        return to;
      };
      operands.weights = fill(state_.arena + at, w);
      if (weights != nullptr) std::copy_n(w, columns, weights + column);
      if constexpr (MeasuresUpdates<O>) {
        operands.gradient = fill(gradient + column, g);
        for (int k = 0; k < O::element_states; ++k)
          operands.states[k] = fill(state_.element_state[k] + at, states[k]);
        Math::measure(step_, operands, filled, out);
        std::copy_n(out, columns, measured + column);
      }
    }
  }

  /// Returns the means of a row that the arena holds whole. `buffer`: room for two rows, where the
  /// optimizer measures rows.
  [[gnu::always_inline]] op::RowMeans means(std::int64_t row, const float* gradient,
                                            float* buffer) const {
    const int width = static_cast<int>(this->width());
    if constexpr (MeasuresUpdates<O> && is_float && !narrow_states && Width % block == 0 &&
                  Width != op::dynamic_width) {
      // rows of 16-bit elements and those with a tail are copied first
      typename Math::Operands operands{};
      operands.weights = state_.arena + row * width;
      operands.gradient = gradient;
      for (int k = 0; k < O::element_states; ++k)
        operands.states[k] = state_.element_state[k] + row * width;
      Math::measure(step_, operands, width, buffer);
      return {fast_mean_square(buffer, width),
              MeasuresWeights<O> ? fast_mean_square(operands.weights, width) : 0.0f};
    } else if constexpr (op::measures_rows<O>) {
      measure(row, gradient, buffer, buffer + width);
      return {fast_mean_square(MeasuresUpdates<O> ? buffer : gradient, width),
              MeasuresWeights<O> ? fast_mean_square(buffer + width, width) : 0.0f};
    } else {
      return {fast_mean_square(gradient, width)};
    }
  }
  /// Returns the floats that `means` needs in its buffer.
  static constexpr std::int64_t means_buffer(std::int64_t width) {
    return op::measures_rows<O> ? 2 * width : 0;
  }

  /// Applies the step to `count` distinct rows, `Most` at most: row_of(i), with the merged gradient
  /// at gradient_of(i) and its op::RowMeans means_of(i). ask(i) is called before a row is read
  /// and written: the place for prefetches, behind the arithmetic that needs the gradients only. An
  /// optimizer that measures rows reads them in means_of: asked after it, L2's update took a fifth
  /// longer.
  template <int Most, class RowOf, class GradientOf, class MeansOf, class Ask>
  [[gnu::always_inline]] void apply(int count, const RowOf& row_of, const GradientOf& gradient_of,
                                    const MeansOf& means_of, const Ask& ask) {
    const std::int64_t width = this->width();
    typename Math::Operands rows[Most] = {};
    const auto ask_unless_measured = [&](int i) __attribute__((always_inline)) {
      if constexpr (!op::measures_rows<O>) ask(i);
    };
    for (int i = 0; i < count; ++i) {
      const std::int64_t row = row_of(i);
      typename Math::Operands& operands = rows[i];
      if constexpr (is_float) operands.weights = state_.arena + row * width;
      operands.gradient = gradient_of(i);
      if constexpr (op::measures_rows<O>) ask(i);
      if constexpr (!narrow_states)
        for (int k = 0; k < O::element_states; ++k)
          operands.states[k] = state_.element_state[k] + row * width;
      for (int k = 0; k < O::row_states; ++k) operands.row_state[k] = state_.row_state[k] + row;
      if constexpr (O::needs_mean_square) operands.means = means_of(i);
    }
    Math::rows(step_, rows, count);
    if constexpr (is_float && !narrow_states) {
      const std::int64_t whole = width / block * block;
      if constexpr (wide) {
        for (int i = 0; i < count; ++i) {
          ask_unless_measured(i);
          Math::elements(step_, rows + i, 1, whole);
        }
      } else {
        for (int i = 0; i < count; ++i) ask_unless_measured(i);
        if (whole != 0) Math::elements(step_, rows, count, whole);
      }
      if (whole != width)
        for (int i = 0; i < count; ++i) apply_tail(after(rows[i], whole), width - whole);
    } else if constexpr (!narrow_states && Width != op::dynamic_width && Width % block == 0 &&
                         Width <= panel) {
      float widened[Most * Width];
      for (int i = 0; i < count; ++i) {
        ask_unless_measured(i);
        rows[i].weights = widened + i * Width;
        widen(state_.arena + row_of(i) * width, width, rows[i].weights);
      }
      Math::elements(step_, rows, count, width);
      for (int i = 0; i < count; ++i) {
        find_segment(row_of(i));
        round(rounding_key_, rows[i].weights, 0, width, state_.arena + row_of(i) * width);
      }
    } else {
      for (int i = 0; i < count; ++i) {
        ask_unless_measured(i);
        apply_in_panels(row_of(i), rows[i]);
      }
    }
  }

 private:
  using Math = StepMath<O>;
  using S = StateElement<O>;
  static constexpr bool is_float = std::is_same_v<T, float>,
                        narrow_states = O::element_states > 0 && !std::is_same_v<S, float>;
  static constexpr int block = Lanes::count;
  static constexpr std::int64_t panel = 256;
  /// Rows that are worth a call of their own.
  static constexpr bool wide = Width >= 64;
  std::int64_t width() const { return Width != op::dynamic_width ? Width : state_.width; }

  static typename Math::Operands after(typename Math::Operands row, std::int64_t columns) {
    row.weights += columns;
    row.gradient += columns;
    for (int k = 0; k < O::element_states; ++k) row.states[k] += columns;
    return row;
  }

  /// Applies to fewer columns than a block: through copies that are filled up with zeros.
  void apply_tail(const typename Math::Operands& row, std::int64_t columns) const {
    float weights[block] = {}, gradient[block] = {},
          states[std::max(1, O::element_states)][block] = {};
    typename Math::Operands copies = row;
    copies.weights = weights;
    copies.gradient = gradient;
    std::copy_n(row.weights, columns, weights);
    std::copy_n(row.gradient, columns, gradient);
    for (int k = 0; k < O::element_states; ++k) {
      copies.states[k] = states[k];
      std::copy_n(row.states[k], columns, states[k]);
    }
    Math::elements(step_, &copies, 1, block);
    std::copy_n(weights, columns, row.weights);
    for (int k = 0; k < O::element_states; ++k) std::copy_n(states[k], columns, row.states[k]);
  }

  /// Applies to wide rows of 16-bit elements, tails, and 16-bit states: a panel of columns at once.
  void apply_in_panels(std::int64_t row_index, typename Math::Operands row) {
    find_segment(row_index);
    const std::int64_t width = this->width();
    float weights[is_float ? 1 : panel], states[narrow_states ? O::element_states : 1][panel];
    for (std::int64_t column = 0; column < width; column += panel) {
      const std::int64_t columns = std::min(panel, width - column), whole = columns / block * block,
                         at = row_index * width + column;
      if constexpr (is_float)
        row.weights = state_.arena + at;
      else
        widen(state_.arena + at, columns, row.weights = weights);
      if constexpr (narrow_states)
        for (int k = 0; k < O::element_states; ++k)
          widen(state_.element_state[k] + at, columns, row.states[k] = states[k]);
      if (whole != 0) Math::elements(step_, &row, 1, whole);
      if (whole != columns) apply_tail(after(row, whole), columns - whole);
      if constexpr (!is_float) round(rounding_key_, weights, column, columns, state_.arena + at);
      if constexpr (narrow_states)
        for (int k = 0; k < O::element_states; ++k)
          round(rounding_state_key(rounding_key_, k), states[k], column, columns,
                state_.element_state[k] + at);
      row = after(row, columns);
    }
  }

  template <Element E>
  [[gnu::always_inline]] static void widen(const E* from, std::int64_t columns, float* to) {
    for (std::int64_t i = 0; i < columns; ++i) to[i] = to_float(from[i]);
  }
  /// Rounds columns [column, column + columns) of the row that find_segment was called for; `key`:
  /// the row's, or one of its states'.
  template <Element E>
  [[gnu::always_inline]] void round(std::uint64_t key, const float* from, std::int64_t column,
                                    std::int64_t columns, E* to) {
    draw_bits(key, column, columns);
    const std::uint16_t* const bits = bits_ + ((segment_.column_begin + column) & 3);
    for (std::int64_t i = 0; i < columns; ++i) to[i] = round_stochastic<E>(from[i], bits[i]);
  }

  /// Draws the rounding_bits of columns [column, column + columns), behind those of the up to 3
  /// columns that share their first word.
  [[gnu::always_inline]] void draw_bits(std::uint64_t key, std::int64_t column,
                                        std::int64_t columns) {
    static_assert(std::endian::native == std::endian::little,
                  "the lowest 16 bits of a word come first");
    const std::int64_t first_word = (segment_.column_begin + column) >> 2;
    const std::int64_t words = (columns + 3) >> 2;
    const auto draw = [&](std::int64_t i) {
      const std::uint64_t word = rounding_word(key, (first_word + i) * 4);
      std::memcpy(bits_ + 4 * i, &word, sizeof(word));
    };
    for (std::int64_t i = 0; i < words; ++i) draw(i);
    if (((segment_.column_begin + column) & 3) != 0) draw(words);
  }

  void find_segment(std::int64_t row) {
    if (state_.table_rows != nullptr) row = state_.table_rows[row];
    if (row < segment_.row_offset || row >= segment_.row_offset + segment_.rows) {
      const auto after = std::upper_bound(
          state_.segments.begin(), state_.segments.end(), row,
          [](std::int64_t r, const op::ArenaSegment& segment) { return r < segment.row_offset; });
      segment_ = *(after - 1);
      table_word_ = rounding_table_word(state_.rounding_seed, segment_.table_key);
    }
    rounding_key_ = rounding_key(table_word_, row - segment_.row_offset + segment_.row_begin);
  }

  op::ArenaState<T, O> state_;
  Step step_;
  op::ArenaSegment segment_;
  std::uint64_t table_word_ = 0, rounding_key_ = 0;
  std::uint16_t bits_[op::ArenaState<T, O>::rounds ? panel + 4 : 1];
};

}  // namespace detail

}}  // namespace tessera::v0
