// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/merge.cuh>

#include <algorithm>
#include <cstdint>

namespace tessera::inline v0 {
namespace cuda {

/// ArenaState with its segments in device memory (scratch slot 6).
template <Element T, Optimizer O>
DeviceArena<T, O> to_device(const Cuda& backend, const ArenaState<T, O>& state) {
  DeviceArena<T, O> arena{};
  arena.arena = state.arena;
  for (int s = 0; s < O::element_states; ++s) arena.element_state[s] = state.element_state[s];
  for (int s = 0; s < O::row_states; ++s) arena.row_state[s] = state.row_state[s];
  if constexpr (!std::is_same_v<T, float>) {
    auto* segments = backend.scratch_for<ArenaSegment>(6, std::ssize(state.segments));
    upload<ArenaSegment>(backend, state.segments, segments);
    arena.segments = segments;
    arena.segment_count = static_cast<int>(state.segments.size());
    arena.rounding_seed = state.rounding_seed;
  }
  return arena;
}

/// A group of lanes takes a merged row.
template <class Sink>
__global__ void __launch_bounds__(merge_threads) apply_rows(const Sink sink, const MergedGradients merged, const float* mean_square) {
  using Lanes = typename Sink::Lanes;
  const std::int64_t k = (static_cast<std::int64_t>(blockIdx.x) * merge_threads + threadIdx.x) / Lanes::lanes;
  const int lane = static_cast<int>(threadIdx.x) % Lanes::lanes;
  if (k >= merged.count) return;
  const std::int64_t row = merged.rows[k];
  auto loaded = sink.load(row, lane);
  const float* gradient = merged.gradients + k * Sink::width;
  const RowPart<Lanes> part = load_float_row<Lanes>(gradient, Sink::width % 4 == 0, lane);
  sink.store(row, lane, loaded, part, mean_square == nullptr ? 0.0f : mean_square[k]);
}

}  // namespace cuda

/// Sorts the entries by row, sums each row's gradients and applies the optimizer in registers.
template <Element T, IdType Id, int Width, Optimizer O>
struct Kernel<Update<T, Id, Width, O>, Cuda> {
  static void run(const Cuda& backend, const typename Update<T, Id, Width, O>::Parameters& p) {
    const cuda::ApplyOptimizer<T, Width, O> sink{cuda::to_device(backend, p.state), p.step};
    const bool weighted =
        std::any_of(p.groups.begin(), p.groups.end(), [](const GradientGroup<Id>& group) { return group.bags.weights != nullptr; });
    if (weighted)
      cuda::merge_rows(backend, cuda::sort_entries<cuda::WeightedPayload>(backend, p.groups, p.state.rows), sink);
    else
      cuda::merge_rows(backend, cuda::sort_entries<cuda::BagPayload>(backend, p.groups, p.state.rows), sink);
  }
};

template <Element T, int Width, Optimizer O>
struct Kernel<Apply<T, Width, O>, Cuda> {
  static void run(const Cuda& backend, const typename Apply<T, Width, O>::Parameters& p) {
    const cuda::ApplyOptimizer<T, Width, O> sink{cuda::to_device(backend, p.state), p.step};
    const std::int64_t rows_per_block = cuda::merge_threads / cuda::RowLanes<T, Width>::lanes;
    backend.launch("apply_rows", cuda::ceil_divide(p.merged.count, rows_per_block), cuda::merge_threads,
                   cuda::apply_rows<cuda::ApplyOptimizer<T, Width, O>>, sink, p.merged, p.mean_square);
  }
};

}  // namespace tessera::inline v0
