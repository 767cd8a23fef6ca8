// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/any_width.cuh>
#include <tessera/cuda/hand_out.cuh>

#include <algorithm>
#include <cstdint>

namespace tessera { inline namespace v0 {
namespace gpu {

/// Applies: a group of lanes takes a merged row.
template <class Sink>
__global__ void __launch_bounds__(merge_threads)
    apply_rows(const Sink sink, const op::MergedGradients merged, const float* mean_square,
               const float* weight_mean_square) {
  using Lanes = typename Sink::Lanes;
  const std::int64_t k =
      (static_cast<std::int64_t>(blockIdx.x) * merge_threads + threadIdx.x) / Lanes::lanes;
  const int lane = static_cast<int>(threadIdx.x) % Lanes::lanes;
  if (k >= merged.count) return;
  const std::int64_t row = merged.rows[k];
  if (row < 0) return;
  auto loaded = sink.load(row, lane);
  const float* gradient = merged.gradients + k * Sink::width;
  const RowPart<Lanes> part = load_float_row<Lanes>(gradient, Sink::width % 4 == 0, lane);
  sink.apply(row, lane, loaded, part,
             {mean_square == nullptr ? 0.0f : mean_square[k],
              weight_mean_square == nullptr ? 0.0f : weight_mean_square[k]});
}

/// Elements that a lane reads of a bag's gradient at once; of panels of rows, those of the widest.
template <class T, int Width>
inline constexpr int gradient_vector = [] {
  if constexpr (fits_lanes(Width))
    return RowLanes<T, Width>::vector;
  else
    return RowLanes<float, 128>::vector;
}();

/// Adds the number of distinct rows.
template <class Payload>
__global__ void __launch_bounds__(merge_threads)
    count_rows(const SortedEntries<Payload> in, std::int64_t* rows) {
  const std::uint32_t place = blockIdx.x * merge_threads + threadIdx.x;
  const std::uint32_t row = place < in.count ? in.rows[place] : no_row;
  const unsigned begins =
      __ballot_sync(0xffffffffu, row != no_row && (place == 0 || in.rows[place - 1] != row));
  if (threadIdx.x % 32 == 0 && begins != 0)
    atomicAdd(reinterpret_cast<unsigned long long*>(rows),
              static_cast<unsigned long long>(__popc(begins)));
}

}  // namespace gpu

/// The entries of an update, sorted in memory that is not its scratch.
template <IdType Id>
struct op::Kernel<op::SortEntries<Id>, Cuda> {
  static void run(const Cuda& backend, const typename op::SortEntries<Id>::Parameters& p) {
    if (gpu::any_weights(p.groups))
      sort<gpu::WeightedPayload>(backend, p);
    else
      sort<gpu::BagPayload>(backend, p);
  }

 private:
  template <class Payload>
  static void sort(const Cuda& backend, const typename op::SortEntries<Id>::Parameters& p) {
    void* memory = nullptr;
    const gpu::PlacedEntries<Payload> placed = gpu::place_entries<Payload>(
        backend, p.groups, p.arena_rows,
        [&](std::size_t bytes) { return memory = p.room->make(bytes); });
    *p.sorted = {memory, placed.places, placed.bags, placed.in_second_half};
  }
};

/// Sorts the entries by row, sums each row's gradients and applies the optimizer in registers. Rows
/// wider than a warp's registers, or of a width known at run time only, are merged in memory first.
template <Element T, IdType Id, int Width, Optimizer O, Element G>
struct op::Kernel<op::Update<T, Id, Width, O, G>, Cuda> {
  using Parameters = typename op::Update<T, Id, Width, O, G>::Parameters;

  static void run(const Cuda& backend, const Parameters& p) {
    if (gpu::any_weights(p.groups))
      apply(backend, sorted<gpu::WeightedPayload>(backend, p), p);
    else
      apply(backend, sorted<gpu::BagPayload>(backend, p), p);
  }

 private:
  static constexpr int vector = gpu::gradient_vector<T, Width>;

  template <class Payload>
  static gpu::SortedEntries<Payload, G> sorted(const Cuda& backend, const Parameters& p) {
    if (p.sorted.places == 0)
      return gpu::sort_entries<Payload>(backend, p.groups, p.state.rows, vector);
    const gpu::EntryMemory<Payload> parts(p.sorted.places);
    const bool second = p.sorted.in_second_half;
    return gpu::with_gradients<Payload>(
        backend,
        {parts.rows(p.sorted.memory, second), parts.payloads(p.sorted.memory, second),
         p.sorted.places, p.sorted.bags, second},
        p.groups, vector);
  }

  template <class Payload>
  static void apply(const Cuda& backend, const gpu::SortedEntries<Payload, G>& sorted,
                    const Parameters& p) {
    if (sorted.count == 0) return;
    if (p.merged_rows != nullptr)
      backend.launch("count_rows", gpu::ceil_divide(sorted.count, gpu::merge_threads),
                     gpu::merge_threads, gpu::count_rows<Payload>, sorted.without_gradients(),
                     p.merged_rows);
    if constexpr (gpu::fits_lanes(Width)) {
      gpu::merge_rows(backend, sorted,
                      gpu::ApplyOptimizer<T, Width, O>{gpu::to_device(backend, p.state), p.step});
    } else {
      const std::int64_t bound = std::min<std::int64_t>(sorted.count, p.state.rows);
      auto* rows = backend.scratch_for<std::int64_t>(gpu::ScratchSlot::merged_rows, bound);
      auto* gradients =
          backend.scratch_for<float>(gpu::ScratchSlot::merged_gradients, bound * p.state.width);
      const op::MergedGradients room{bound, rows, gradients};
      const std::uint32_t* count = gpu::hand_out<op::dynamic_width>(
          backend, sorted, p.state.width, [&](const std::uint32_t*) { return room; });
      gpu::apply_any_width<T, O>(backend, p.state, p.step, {bound, rows, gradients}, count,
                                 nullptr);
    }
  }
};

template <Element T, int Width, Optimizer O>
struct op::Kernel<op::Apply<T, Width, O>, Cuda> {
  static void run(const Cuda& backend, const typename op::Apply<T, Width, O>::Parameters& p) {
    if constexpr (gpu::fits_lanes(Width)) {
      const gpu::ApplyOptimizer<T, Width, O> sink{gpu::to_device(backend, p.state), p.step};
      const std::int64_t rows_per_block = gpu::merge_threads / gpu::RowLanes<T, Width>::lanes;
      backend.launch("apply_rows", gpu::ceil_divide(p.merged.count, rows_per_block),
                     gpu::merge_threads, gpu::apply_rows<gpu::ApplyOptimizer<T, Width, O>>, sink,
                     p.merged, p.mean_square, p.weight_mean_square);
    } else {
      gpu::apply_any_width<T, O>(backend, p.state, p.step, p.merged, nullptr, p.mean_square,
                                 p.weight_mean_square);
    }
  }
};

template <Element T, Optimizer O>
struct op::Kernel<op::Measure<T, O>, Cuda> {
  static void run(const Cuda& backend, const typename op::Measure<T, O>::Parameters& p) {
    backend.launch(
        "measure_rows", gpu::ceil_divide(p.merged.count * p.state.width, gpu::any_width_threads),
        gpu::any_width_threads, gpu::measure_rows<T, O>, gpu::to_device(backend, p.state), p.step,
        p.merged, p.state.width, p.measured, p.weights);
  }
};

/// As Update, but the sums are handed out. The host waits to know how many rows there are, unless
/// the result is padded.
template <IdType Id, int Width, Element G>
struct op::Kernel<op::Merge<Id, Width, G>, Cuda> {
  using Parameters = typename op::Merge<Id, Width, G>::Parameters;

  static void run(const Cuda& backend, const Parameters& p) {
    p.merged->count = 0;
    if (gpu::any_weights(p.groups))
      sort<gpu::WeightedPayload>(backend, p);
    else
      sort<gpu::BagPayload>(backend, p);
  }

 private:
  template <class Payload>
  static void sort(const Cuda& backend, const Parameters& p) {
    merge(backend,
          gpu::sort_entries<Payload>(backend, p.groups, p.arena_rows,
                                     gpu::gradient_vector<float, Width>),
          p);
  }
  template <class Payload>
  static void merge(const Cuda& backend, const gpu::SortedEntries<Payload, G>& sorted,
                    const Parameters& p) {
    if (sorted.count == 0) return;
    const std::int64_t room = std::min<std::int64_t>(sorted.count, p.arena_rows);
    if (p.padded)
      gpu::check(
          cudaMemsetAsync(p.merged->rows, 0xff,
                          static_cast<std::size_t>(room) * sizeof(std::int64_t), backend.stream()),
          "clearing rows");
    p.merged->count = room;
    gpu::hand_out<Width>(
        backend, sorted, Width != op::dynamic_width ? Width : p.width,
        [&](const std::uint32_t* count) {
          if (p.padded) return *p.merged;
          std::uint32_t rows = 0;
          backend.copy(&rows, count, sizeof(rows));
          backend.synchronize();
          if (p.room != nullptr) *p.merged = p.room->make(rows);
          p.merged->count = rows;
          return *p.merged;
        },
        p.sums);
  }
};

}}  // namespace tessera::v0
