// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/groups.cuh>
#include <tessera/cuda/row_update.cuh>
#include <tessera/op/lookup.hpp>

#include <algorithm>
#include <cstdint>
#include <span>

namespace tessera { inline namespace v0 { namespace gpu {

// Rows whose width is known at run time only, or that are wider than a warp holds in registers: a
// warp takes a row, its lanes take neighbouring columns, 32 at a time.

inline constexpr int any_width_threads = 256;

template <Element T, IdType Id, Element Out = float>
__global__ void __launch_bounds__(any_width_threads)
    pool_any_width(const T* __restrict__ arena, const int width,
                   const GroupBatch<op::LookupGroup<Id, Out>> __grid_constant__ batch) {
  const int g = batch.find(blockIdx.x), lane = static_cast<int>(threadIdx.x) % 32;
  const op::LookupGroup<Id, Out>& group = batch.groups[g];
  const op::Bags<Id>& bags = group.bags;
  const std::int64_t bag =
      (static_cast<std::int64_t>(blockIdx.x) - batch.first_block[g]) * (any_width_threads / 32) +
      threadIdx.x / 32;
  if (bag >= bags.bags) return;
  const std::int64_t begin = bags.begin(bag), end = bags.end(bag);
  for (int column = lane; column < width; column += 32) {
    float sum = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t id = bags.ids[i];
      if (id < 0) continue;
      const float x = to_float(arena[(id + bags.row_bias) * width + column]);
      sum = bags.weights != nullptr ? fmaf(bags.weights[i], x, sum) : sum + x;
    }
    if (bags.weights == nullptr && bags.bag_scale != nullptr) sum *= bags.bag_scale[bag];
    group.output[bag * group.output_stride + column] = from_float<Out>(sum);
  }
}

template <Element T, IdType Id, Element Out>
void lookup_any_width(const Cuda& backend, const T* arena, int width,
                      std::span<const op::LookupGroup<Id, Out>> groups) {
  launch_by_group<op::LookupGroup<Id, Out>>(
      backend, "pool_any_width", any_width_threads, groups,
      [](const op::LookupGroup<Id, Out>& group) {
        return ceil_divide(group.bags.bags, any_width_threads / 32);
      },
      pool_any_width<T, Id, Out>, arena, width);
}

/// Returns the canonical mean square (op/mean_square.hpp) of a row of `width` values, value(column)
/// each: a lane per block of columns, blocks added in order.
template <class Value>
__device__ float mean_square_any_width(const Value& value, int width, int lane) {
  const int blocks = (width + op::mean_square_block - 1) / op::mean_square_block;
  float sum = 0;
  for (int first = 0; first < blocks; first += 32) {
    const int column = (first + lane) * op::mean_square_block;
    float block = 0;
    if (column < width) {
      const int columns =
          width - column < op::mean_square_block ? width - column : op::mean_square_block;
      float values[op::mean_square_block];
      for (int i = 0; i < columns; ++i) values[i] = value(column + i);
      block = op::block_square_sum(values, columns);
    }
    for (int b = 0; b < 32; ++b) {
      const float next = __shfl_sync(0xffffffffu, block, b);
      if (first + b < blocks) sum += next;
    }
  }
  return sum / static_cast<float>(width);
}

/// Returns what the optimizer measures of one element.
template <Element T, Optimizer O>
__device__ float measured_at(const DeviceArena<T, O>& to, const typename O::Step& step,
                             std::int64_t at, float gradient) {
  constexpr int states = O::element_states;
  float state[states > 0 ? states : 1];
  for (int s = 0; s < states; ++s) state[s] = to_float(to.element_state[s][at]);
  return step.measured(to_float(to.arena[at]), gradient, state);
}

/// Runs op::Measure: a thread takes an element.
template <Element T, Optimizer O>
__global__ void __launch_bounds__(any_width_threads)
    measure_rows(const DeviceArena<T, O> to, const typename O::Step step,
                 const op::MergedGradients merged, const int width, float* measured,
                 float* weights) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * any_width_threads + threadIdx.x;
  if (i >= merged.count * width) return;
  const std::int64_t row = merged.rows[i / width];
  if (row < 0) return;
  const std::int64_t at = row * width + i % width;
  if constexpr (tessera::detail::MeasuresUpdates<O>)
    measured[i] = measured_at<T, O>(to, to.step(step), at, merged.gradients[i]);
  if constexpr (tessera::detail::MeasuresWeights<O>) weights[i] = to_float(to.arena[at]);
}

/// Applies to rows. `count_at`: where the number of rows is, if the host does not know it.
template <Element T, Optimizer O>
__global__ void __launch_bounds__(any_width_threads)
    apply_rows_any_width(const DeviceArena<T, O> to, const typename O::Step given,
                         const op::MergedGradients merged, const int width,
                         const std::uint32_t* count_at, const float* mean_squares,
                         const float* weight_mean_squares) {
  const typename O::Step step = to.step(given);
  constexpr int states = O::element_states;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t k =
      static_cast<std::int64_t>(blockIdx.x) * (any_width_threads / 32) + threadIdx.x / 32;
  if (k >= (count_at != nullptr ? static_cast<std::int64_t>(*count_at) : merged.count)) return;
  const std::int64_t row = merged.rows[k];
  if (row < 0) return;
  const float* gradient = merged.gradients + k * width;
  op::RowMeans means;
  if constexpr (O::needs_mean_square) {
    if (mean_squares != nullptr) {
      means.square = mean_squares[k];
      if constexpr (tessera::detail::MeasuresWeights<O>)
        means.weight_square = weight_mean_squares[k];
    } else {
      means.square = mean_square_any_width(
          [&](int column) {
            if constexpr (tessera::detail::MeasuresUpdates<O>)
              return measured_at<T, O>(to, step, row * width + column, gradient[column]);
            else
              return gradient[column];
          },
          width, lane);
      if constexpr (tessera::detail::MeasuresWeights<O>)
        means.weight_square = mean_square_any_width(
            [&](int column) { return to_float(to.arena[row * width + column]); }, width, lane);
    }
    __syncwarp();  // all lanes have read before one writes
  }
  float row_state[O::row_states > 0 ? O::row_states : 1];
  for (int s = 0; s < O::row_states; ++s) row_state[s] = to.row_state[s][row];
  if constexpr (O::row_states > 0) __syncwarp();  // all lanes have read before one writes
  const typename O::Step::Row shared = op::shared_by_row<O>(step, row_state, means);
  for (int s = 0; s < O::row_states; ++s)
    if (lane == 0) to.row_state[s][row] = row_state[s];
  std::uint64_t key = 0;
  std::int64_t first_column = 0;
  if constexpr (DeviceArena<T, O>::rounds) {
    const op::ArenaSegment& segment = to.segment_of(row);
    key = to.key(segment, row);
    first_column = segment.column_begin;
  }
  for (int column = lane; column < width; column += 32) {
    const std::int64_t at = row * width + column;
    float state[states > 0 ? states : 1];
    for (int s = 0; s < states; ++s) state[s] = to_float(to.element_state[s][at]);
    const float weight = step.element(to_float(to.arena[at]), gradient[column], state, shared);
    to.arena[at] = tessera::detail::round_stochastic<T>(
        weight,
        std::is_same_v<T, float> ? 0u : tessera::detail::rounding_bits(key, first_column + column));
    for (int s = 0; s < states; ++s)
      to.element_state[s][at] = tessera::detail::round_stochastic<tessera::detail::StateElement<O>>(
          state[s], std::is_same_v<tessera::detail::StateElement<O>, float>
                        ? 0u
                        : tessera::detail::rounding_bits(
                              tessera::detail::rounding_state_key(key, s), first_column + column));
  }
}

/// Returns op::ArenaState with its segments in device memory.
template <Element T, Optimizer O>
DeviceArena<T, O> to_device(const Cuda& backend, const op::ArenaState<T, O>& state) {
  DeviceArena<T, O> arena{};
  arena.arena = state.arena;
  for (int s = 0; s < O::element_states; ++s) arena.element_state[s] = state.element_state[s];
  for (int s = 0; s < O::row_states; ++s) arena.row_state[s] = state.row_state[s];
  arena.now = state.now;
  if constexpr (DeviceArena<T, O>::rounds) {
    auto* segments =
        backend.scratch_for<op::ArenaSegment>(ScratchSlot::parts, std::ssize(state.segments));
    upload<op::ArenaSegment>(backend, state.segments, segments);
    arena.segments = segments;
    arena.segment_count = static_cast<int>(state.segments.size());
    arena.rounding_seed = state.rounding_seed;
    arena.table_rows = state.table_rows;
  }
  return arena;
}

template <Element T, Optimizer O>
void apply_any_width(const Cuda& backend, const op::ArenaState<T, O>& state,
                     const typename O::Step& step, const op::MergedGradients& merged,
                     const std::uint32_t* count_at, const float* mean_squares,
                     const float* weight_mean_squares = nullptr) {
  backend.launch("apply_rows_any_width", ceil_divide(merged.count, any_width_threads / 32),
                 any_width_threads, apply_rows_any_width<T, O>, to_device(backend, state), step,
                 merged, state.width, count_at, mean_squares, weight_mean_squares);
}

}}}  // namespace tessera::v0::gpu
