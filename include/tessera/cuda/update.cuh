// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/merge.cuh>

#include <algorithm>
#include <cstdint>

namespace tessera::inline v0 {
namespace gpu {

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
  sink.apply(row, lane, loaded, part, mean_square == nullptr ? 0.0f : mean_square[k]);
}

/// Which places begin a row: a word of bits per window, and how many bits.
template <class Payload>
__global__ void __launch_bounds__(merge_threads) mark_rows(const SortedEntries<Payload> in, std::uint32_t* marks, std::uint32_t* counts) {
  const std::uint32_t place = blockIdx.x * merge_threads + threadIdx.x, window = place / merge_window;
  const std::uint32_t row = place < in.count ? in.rows[place] : no_row;
  const bool begins = row != no_row && (place == 0 || in.rows[place - 1] != row);
  const unsigned mark = __ballot_sync(0xffffffffu, begins);
  if (threadIdx.x % 32 != 0 || window * merge_window >= in.count) return;
  marks[window] = mark;
  counts[window] = static_cast<std::uint32_t>(__popc(mark));
}

/// What becomes of a merged gradient: it is handed out, in the order of rows.
template <int Width>
struct HandOut {
  using Lanes = RowLanes<float, Width>;
  static constexpr int width = Width;
  struct Loaded {};

  std::int64_t* rows;
  float* gradients;
  const std::uint32_t* marks;
  const std::uint32_t* before;  ///< per window: rows that begin in earlier ones

  __device__ Loaded load(std::int64_t, int) const { return {}; }
  __device__ void store(std::int64_t row, std::uint32_t place, int lane, Loaded&, const RowPart<Lanes>& gradient) const {
    const std::uint32_t window = place / merge_window, earlier = marks[window] & ((1u << place % merge_window) - 1u);
    const std::int64_t index = before[window] + static_cast<std::uint32_t>(__popc(earlier));
    if (lane == 0) rows[index] = row;
    store_float_row(gradients + index * Width, Width % 4 == 0, lane, gradient);
  }
};

}  // namespace gpu

/// Sorts the entries by row, sums each row's gradients and applies the optimizer in registers.
template <Element T, IdType Id, int Width, Optimizer O>
struct Kernel<Update<T, Id, Width, O>, Cuda> {
  static void run(const Cuda& backend, const typename Update<T, Id, Width, O>::Parameters& p) {
    const gpu::ApplyOptimizer<T, Width, O> sink{gpu::to_device(backend, p.state), p.step};
    const bool weighted =
        std::any_of(p.groups.begin(), p.groups.end(), [](const GradientGroup<Id>& group) { return group.bags.weights != nullptr; });
    if (weighted)
      gpu::merge_rows(backend, gpu::sort_entries<gpu::WeightedPayload>(backend, p.groups, p.state.rows), sink);
    else
      gpu::merge_rows(backend, gpu::sort_entries<gpu::BagPayload>(backend, p.groups, p.state.rows), sink);
  }
};

template <Element T, int Width, Optimizer O>
struct Kernel<Apply<T, Width, O>, Cuda> {
  static void run(const Cuda& backend, const typename Apply<T, Width, O>::Parameters& p) {
    const gpu::ApplyOptimizer<T, Width, O> sink{gpu::to_device(backend, p.state), p.step};
    const std::int64_t rows_per_block = gpu::merge_threads / gpu::RowLanes<T, Width>::lanes;
    backend.launch("apply_rows", gpu::ceil_divide(p.merged.count, rows_per_block), gpu::merge_threads,
                   gpu::apply_rows<gpu::ApplyOptimizer<T, Width, O>>, sink, p.merged, p.mean_square);
  }
};

/// As Update, but the sums are handed out. The host waits: it must know how many rows there are.
template <IdType Id, int Width>
struct Kernel<Merge<Id, Width>, Cuda> {
  static void run(const Cuda& backend, const typename Merge<Id, Width>::Parameters& p) {
    p.merged->count = 0;
    if (std::any_of(p.groups.begin(), p.groups.end(), [](const GradientGroup<Id>& group) { return group.bags.weights != nullptr; }))
      hand_out(backend, gpu::sort_entries<gpu::WeightedPayload>(backend, p.groups, p.arena_rows), *p.merged);
    else
      hand_out(backend, gpu::sort_entries<gpu::BagPayload>(backend, p.groups, p.arena_rows), *p.merged);
  }

 private:
  template <class Payload>
  static void hand_out(const Cuda& backend, const gpu::SortedEntries<Payload>& sorted, MergedGradients& merged) {
    if (sorted.count == 0) return;
    const std::int64_t windows = gpu::ceil_divide(sorted.count, gpu::merge_window);
    auto* marks = backend.scratch_for<std::uint32_t>(6, 2 * windows + 1);
    auto* counts = marks + windows;  // one more than windows: the last becomes the number of rows
    backend.fill_zero(counts + windows, sizeof(*counts));
    backend.launch("mark_rows", gpu::ceil_divide(sorted.count, gpu::merge_threads), gpu::merge_threads, gpu::mark_rows<Payload>, sorted,
                   marks, counts);
    gpu::exclusive_sum(backend, counts, static_cast<int>(windows + 1), 2);
    gpu::merge_rows(backend, sorted, gpu::HandOut<Width>{merged.rows, merged.gradients, marks, counts});
    std::uint32_t rows = 0;
    gpu::copy(&rows, static_cast<const std::uint32_t*>(counts + windows), 1, backend.stream());
    gpu::check(cudaStreamSynchronize(backend.stream()), "merging gradients");
    merged.count = rows;
  }
};

}  // namespace tessera::inline v0
