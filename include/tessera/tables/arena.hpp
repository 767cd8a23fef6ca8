// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/pod_vector.hpp>
#include <tessera/op/update.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera/tables/initializers.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Owns the weights and the optimizer state of rectangles of one width, one after another. Which
/// optimizer's, and the type of the elements, is known to the caller. Move-only.
template <class Backend>
class Arena {
 public:
  /// Makes room for rows. `row_bytes`: of a row's weights, then of each of its states.
  Arena(const Backend& backend, std::int64_t rows, int width,
        std::span<const std::int64_t> row_bytes, Tier tier)
      : rows_(rows), width_(width), weights_(tier) {
    const auto bytes = [&](std::int64_t of_row) {
      return static_cast<std::size_t>(rows) * static_cast<std::size_t>(of_row);
    };
    weights_.resize(backend, bytes(row_bytes[0]));
    for (const std::int64_t of_row : row_bytes.subspan(1))
      states_.emplace_back(tier).resize(backend, bytes(of_row));
  }

  int width() const { return width_; }
  /// Returns the weights; T: as when it was made.
  template <Element T>
  T* weights() const {
    return reinterpret_cast<T*>(weights_.data());
  }
  /// Returns a state, as in O::state_names: those of elements, of StateElement<O>, then those of
  /// rows, floats.
  template <Element T>
  T* optimizer_state(int i) const {
    return reinterpret_cast<T*>(states_[static_cast<std::size_t>(i)].data());
  }

  /// Returns where the weights begin, and each state.
  PodVector<std::byte*> fields() const {
    PodVector<std::byte*> all{weights_.data()};
    for (const Buffer<std::byte, Backend>& state : states_) all.push_back(state.data());
    return all;
  }

  /// Makes the optimizer state of rows [first, first + count) that of rows that were never updated.
  template <Optimizer O>
  void reset_state(const Backend& backend, std::int64_t first, std::int64_t count,
                   const O& optimizer) const {
    const auto fill = [&]<class S>(S* state, int i, std::int64_t values) {
      op::run<op::Initialize<S, Constant>>(
          backend,
          {state + first * values, count * values, 1, {}, Constant{optimizer.initial_state(i)}});
    };
    for (int i = 0; i < O::element_states; ++i)
      fill(optimizer_state<StateElement<O>>(i), i, width_);
    for (int i = O::element_states; i < O::element_states + O::row_states; ++i)
      fill(optimizer_state<float>(i), i, 1);
  }

  /// Returns the arena as updates see it: op::ArenaState<T, O>, which nvcc does not deduce from the
  /// declaration.
  template <class T, class O>
  auto state(std::span<const op::ArenaSegment> segments, std::uint64_t rounding_seed) const {
    op::ArenaState<T, O> state;
    state.arena = weights<T>();
    state.rows = rows_;
    state.width = width_;
    for (int i = 0; i < O::element_states; ++i)
      state.element_state[i] = optimizer_state<StateElement<O>>(i);
    for (int i = 0; i < O::row_states; ++i)
      state.row_state[i] = optimizer_state<float>(O::element_states + i);
    state.segments = segments;
    state.rounding_seed = rounding_seed;
    return state;
  }

 private:
  std::int64_t rows_;
  int width_;
  Buffer<std::byte, Backend> weights_;
  std::vector<Buffer<std::byte, Backend>> states_;
};

}}}  // namespace tessera::v0::detail
