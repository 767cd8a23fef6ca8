// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/op/update.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/initializers.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera::inline v0 {

/// Owns the weights and the optimizer state of rectangles of one width, one after another.
/// Move-only.
template <Element T, Optimizer O, class Backend>
class Arena {
 public:
  Arena(const Backend& backend, std::int64_t rows, int width, const O& optimizer,
        Tier tier = Tier::device)
      : rows_(rows), width_(width), weights_(tier) {
    for (auto& state : element_state_) state = Buffer<float, Backend>(tier);
    for (auto& state : row_state_) state = Buffer<float, Backend>(tier);
    const std::size_t elements = static_cast<std::size_t>(rows) * static_cast<std::size_t>(width);
    weights_.resize(backend, elements);
    for (int i = 0; i < O::element_states; ++i)
      fill(backend, element_state_[i].resize(backend, elements), optimizer.initial_state(i));
    for (int i = 0; i < O::row_states; ++i)
      fill(backend, row_state_[i].resize(backend, static_cast<std::size_t>(rows)),
           optimizer.initial_state(O::element_states + i));
  }

  std::int64_t rows() const { return rows_; }
  int width() const { return width_; }
  T* weights() const { return weights_.data(); }
  float* element_state(int i) const { return element_state_[i].data(); }
  float* row_state(int i) const { return row_state_[i].data(); }

  /// The optimizer state of rows [first, first + count) becomes that of rows that were never
  /// updated.
  void reset_state(const Backend& backend, std::int64_t first, std::int64_t count,
                   const O& optimizer) const {
    const auto at = static_cast<std::size_t>(first), n = static_cast<std::size_t>(count),
               width = static_cast<std::size_t>(width_);
    for (int i = 0; i < O::element_states; ++i)
      fill(backend, element_state_[i].span().subspan(at * width, n * width),
           optimizer.initial_state(i));
    for (int i = 0; i < O::row_states; ++i)
      fill(backend, row_state_[i].span().subspan(at, n),
           optimizer.initial_state(O::element_states + i));
  }

  /// As updates see it.
  op::ArenaState<T, O> state(std::span<const op::ArenaSegment> segments,
                             std::uint64_t rounding_seed) const {
    op::ArenaState<T, O> state;
    state.arena = weights_.data();
    state.rows = rows_;
    state.width = width_;
    for (int i = 0; i < O::element_states; ++i) state.element_state[i] = element_state_[i].data();
    for (int i = 0; i < O::row_states; ++i) state.row_state[i] = row_state_[i].data();
    state.segments = segments;
    state.rounding_seed = rounding_seed;
    return state;
  }

 private:
  static void fill(const Backend& backend, std::span<float> values, float value) {
    op::run<op::Initialize<float, Constant>>(
        backend, {values.data(), static_cast<std::int64_t>(values.size()), 1, {}, Constant{value}});
  }

  std::int64_t rows_;
  int width_;
  Buffer<T, Backend> weights_;
  std::array<Buffer<float, Backend>, O::element_states> element_state_;
  std::array<Buffer<float, Backend>, O::row_states> row_state_;
};

}  // namespace tessera::inline v0
