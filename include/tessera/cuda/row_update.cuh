// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/row_lanes.cuh>
#include <tessera/op/mean_square.hpp>
#include <tessera/op/stochastic_rounding.hpp>
#include <tessera/op/update.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 { namespace gpu {

/// Returns the lanes that hold the calling lane's row.
template <class Lanes>
__device__ __forceinline__ unsigned row_mask() {
  if constexpr (Lanes::lanes == 32)
    return 0xffffffffu;
  else
    return ((1u << Lanes::lanes) - 1u) << (threadIdx.x % 32 / Lanes::lanes * Lanes::lanes);
}

/// Returns the canonical mean square (op/mean_square.hpp) of a gradient that a group of lanes
/// holds. A block of 16 columns is in 16 / vector neighbouring lanes: the tree's far steps are
/// between lanes, its near ones within a lane.
template <class Lanes, int Width>
__device__ __forceinline__ float mean_square_of(const RowPart<Lanes>& gradient, int lane) {
  constexpr int vector = Lanes::vector, lanes_per_block = op::mean_square_block / vector;
  constexpr int blocks = Lanes::lanes < lanes_per_block ? 1 : Lanes::lanes / lanes_per_block;
  const unsigned mask = row_mask<Lanes>();
  float sum = 0;
  for (int k = 0; k < Lanes::pieces; ++k) {
    double squares[vector];
    for (int i = 0; i < vector; ++i) {
      const double x = Lanes::has(k, lane) ? gradient.x[k][i] : 0.0f;
      squares[i] = x * x;
    }
    for (int distance = lanes_per_block / 2; distance > 0; distance /= 2)
      if (distance < Lanes::lanes)
        for (int i = 0; i < vector; ++i) squares[i] += __shfl_xor_sync(mask, squares[i], distance);
    for (int half = vector / 2; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) squares[i] += squares[i + half];
    const float block = static_cast<float>(squares[0]);
    for (int b = 0; b < blocks; ++b)
      sum += __shfl_sync(mask, block, b * lanes_per_block % Lanes::lanes, Lanes::lanes);
  }
  return sum / static_cast<float>(Width);
}

/// op::ArenaState for kernels: plain pointers.
template <Element T, Optimizer O>
struct DeviceArena {
  static constexpr bool rounds = op::ArenaState<T, O>::rounds;

  T* arena;
  tessera::detail::StateElement<O>* element_state[O::element_states > 0 ? O::element_states : 1];
  float* row_state[O::row_states > 0 ? O::row_states : 1];
  const op::ArenaSegment* segments;
  int segment_count;
  std::uint64_t rounding_seed;
  const std::int64_t* table_rows;  ///< of a cache's slots, else null
  const op::StepValues<O>* now;    ///< or null: what the host gave

  __device__ std::uint64_t seed() const {
    return now != nullptr ? now->rounding_seed : rounding_seed;
  }
  /// Returns what the random bits of a row are drawn from.
  __device__ std::uint64_t key(const op::ArenaSegment& segment, std::int64_t row) const {
    return tessera::detail::rounding_key(seed(), segment.table_key,
                                         table_row(row) - segment.row_offset + segment.row_begin);
  }
  __device__ typename O::Step step(const typename O::Step& given) const {
    return now != nullptr ? now->step : given;
  }

  /// Returns the arena row by which segments know a row of memory.
  __device__ std::int64_t table_row(std::int64_t row) const {
    return table_rows != nullptr ? table_rows[row] : row;
  }

  __device__ const op::ArenaSegment& segment_of(std::int64_t memory_row) const {
    const std::int64_t row = table_row(memory_row);
    int low = 0, high = segment_count - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (segments[middle].row_offset <= row)
        low = middle;
      else
        high = middle - 1;
    }
    return segments[low];
  }
};

/// What becomes of a merged gradient: the optimizer is applied to its row, in registers. `load` may
/// be called before the gradient is known, so that the row's memory is on its way meanwhile.
template <Element T, int Width, Optimizer O>
struct ApplyOptimizer {
  using Lanes = RowLanes<T, Width>;
  using S = tessera::detail::StateElement<O>;
  static constexpr int width = Width, states = O::element_states;
  static constexpr bool narrow_states = !std::is_same_v<S, float>,
                        rounds = DeviceArena<T, O>::rounds;

  struct Loaded {
    RowPart<Lanes> weights;
    RowPart<Lanes> state[states > 0 ? states : 1];
    float row_state[O::row_states > 0 ? O::row_states : 1];
    const op::ArenaSegment* segment;  ///< if anything is stored in 16 bits: rounding goes by it
  };

  DeviceArena<T, O> to;
  typename O::Step step;

  __device__ __forceinline__ void prefetch(std::int64_t row, int lane) const {
    constexpr int lanes = Lanes::lanes;
    for (int s = 0; s < O::row_states; ++s)
      if (lane == 0) prefetch_sector(to.row_state[s] + row);
    prefetch_row<lanes>(to.arena + row * Width, Width * static_cast<int>(sizeof(T)), lane);
    for (int s = 0; s < states; ++s)
      prefetch_row<lanes>(to.element_state[s] + row * Width, Width * static_cast<int>(sizeof(S)),
                          lane);
  }

  __device__ __forceinline__ Loaded load(std::int64_t row, int lane) const {
    Loaded loaded;
    for (int s = 0; s < O::row_states; ++s) loaded.row_state[s] = to.row_state[s][row];
    loaded.weights = load_row<T, Lanes>(to.arena + row * Width, lane);
    for (int s = 0; s < states; ++s)
      if constexpr (narrow_states)
        loaded.state[s] = load_row<S, Lanes>(to.element_state[s] + row * Width, lane);
      else
        loaded.state[s] =
            load_float_row<Lanes>(to.element_state[s] + row * Width, Width % 4 == 0, lane);
    // found while the rest is on its way
    if constexpr (rounds) loaded.segment = &to.segment_of(row);
    return loaded;
  }

  /// Stores a row. `place`: of the row's first sorted entry.
  __device__ __forceinline__ void store(std::int64_t row, [[maybe_unused]] std::uint32_t place,
                                        int lane, Loaded& loaded,
                                        const RowPart<Lanes>& gradient) const {
    op::RowMeans means;
    if constexpr (tessera::detail::MeasuresUpdates<O>)
      means.square = mean_square_of<Lanes, Width>(measured(loaded, gradient, lane), lane);
    else if constexpr (O::needs_mean_square)
      means.square = mean_square_of<Lanes, Width>(gradient, lane);
    if constexpr (tessera::detail::MeasuresWeights<O>)
      means.weight_square = mean_square_of<Lanes, Width>(loaded.weights, lane);
    apply(row, lane, loaded, gradient, means);
  }

  __device__ __forceinline__ void apply(std::int64_t row, int lane, Loaded& loaded,
                                        const RowPart<Lanes>& gradient,
                                        const op::RowMeans& means) const {
    // all lanes have read before one writes
    if constexpr (O::row_states > 0) __syncwarp(row_mask<Lanes>());
    const typename O::Step now = to.step(step);
    const typename O::Step::Row shared = op::shared_by_row<O>(now, loaded.row_state, means);
    for (int s = 0; s < O::row_states; ++s)
      if (lane == 0) to.row_state[s][row] = loaded.row_state[s];

    for (int k = 0; k < Lanes::pieces; ++k) {
      if (!Lanes::has(k, lane)) continue;
      for (int i = 0; i < Lanes::vector; ++i) {
        float state[states > 0 ? states : 1];
        for (int s = 0; s < states; ++s) state[s] = loaded.state[s].x[k][i];
        loaded.weights.x[k][i] =
            now.element(loaded.weights.x[k][i], gradient.x[k][i], state, shared);
        for (int s = 0; s < states; ++s) loaded.state[s].x[k][i] = state[s];
      }
    }
    std::uint64_t key = 0;
    if constexpr (rounds) key = to.key(*loaded.segment, row);
    store_rounded(to.arena + row * Width, key, lane, loaded, loaded.weights);
    for (int s = 0; s < states; ++s)
      if constexpr (narrow_states)
        store_rounded(to.element_state[s] + row * Width,
                      tessera::detail::rounding_state_key(key, s), lane, loaded, loaded.state[s]);
      else
        store_float_row(to.element_state[s] + row * Width, Width % 4 == 0, lane, loaded.state[s]);
  }

 private:
  __device__ __forceinline__ RowPart<Lanes> measured(const Loaded& loaded,
                                                     const RowPart<Lanes>& gradient,
                                                     int lane) const {
    RowPart<Lanes> values;
    for (int k = 0; k < Lanes::pieces; ++k) {
      if (!Lanes::has(k, lane)) continue;
      for (int i = 0; i < Lanes::vector; ++i) {
        float state[states > 0 ? states : 1];
        for (int s = 0; s < states; ++s) state[s] = loaded.state[s].x[k][i];
        values.x[k][i] = to.step(step).measured(loaded.weights.x[k][i], gradient.x[k][i], state);
      }
    }
    return values;
  }

  /// Draws rounding_bits of neighbouring columns. Four share a word: where they begin at a multiple
  /// of four, as all but oddly cut ones do, it is hashed once.
  __device__ __forceinline__ static void draw_bits(std::uint64_t key, std::int64_t column,
                                                   std::uint32_t (&bits)[Lanes::vector]) {
    if (Lanes::vector % 4 == 0 && column % 4 == 0) {
      for (int q = 0; q + 4 <= Lanes::vector; q += 4) {
        const std::uint64_t word = tessera::detail::rounding_word(key, column + q);
        for (int i = 0; i < 4; ++i)
          bits[q + i] = static_cast<std::uint32_t>(word >> (16 * i)) & 0xffffu;
      }
    } else {
      for (int i = 0; i < Lanes::vector; ++i)
        bits[i] = tessera::detail::rounding_bits(key, column + i);
    }
  }

  /// Stores a row, rounded. `key`: of the random bits, if E has 16.
  template <Element E>
  __device__ __forceinline__ static void store_rounded(E* row, [[maybe_unused]] std::uint64_t key,
                                                       int lane,
                                                       [[maybe_unused]] const Loaded& loaded,
                                                       const RowPart<Lanes>& values) {
    for (int k = 0; k < Lanes::pieces; ++k) {
      if (!Lanes::has(k, lane)) continue;
      const int column = Lanes::column(k, lane);
      std::uint32_t bits[Lanes::vector] = {};
      if constexpr (!std::is_same_v<E, float>)
        draw_bits(key, loaded.segment->column_begin + column, bits);
      Packed<E, Lanes::vector> packed;
      for (int i = 0; i < Lanes::vector; ++i)
        packed.x[i] = tessera::detail::round_stochastic<E>(values.x[k][i], bits[i]);
      *reinterpret_cast<Packed<E, Lanes::vector>*>(row + column) = packed;
    }
  }
};

}}}  // namespace tessera::v0::gpu
