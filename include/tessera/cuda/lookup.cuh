// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/any_width.cuh>
#include <tessera/cuda/groups.cuh>
#include <tessera/cuda/row_lanes.cuh>
#include <tessera/op/lookup.hpp>

#include <algorithm>
#include <cstdint>

namespace tessera::inline v0 {
namespace gpu {

inline constexpr int lookup_threads = 256;

/// Rows go from table to output unchanged: a group of lanes copies rows_in_flight rows at a time, all loaded before the first is
/// stored. Neighbouring groups take neighbouring bags, so a warp writes one piece of memory:
///
///     warp      rows base + [0, groups)          group g copies rows base + g, base + groups + g, ...
///               rows base + groups + [0, groups)
template <Element T, IdType Id, int Width>
__global__ void __launch_bounds__(lookup_threads)
    copy_rows(const T* __restrict__ arena, const __grid_constant__ GroupBatch<LookupGroup<Id>> batch) {
  using Lanes = RowLanes<T, Width>;
  constexpr int flight = Lanes::rows_in_flight;
  const int g = batch.find(blockIdx.x);
  const LookupGroup<Id>& group = batch.groups[g];
  const int lane = static_cast<int>(threadIdx.x) % Lanes::lanes;
  const std::int64_t warp = (static_cast<std::int64_t>(blockIdx.x) - batch.first_block[g]) * (lookup_threads / 32) + threadIdx.x / 32;
  const std::int64_t first = warp * (Lanes::groups * flight) + static_cast<int>(threadIdx.x) % 32 / Lanes::lanes;
  const bool aligned = rows_aligned(group.output, group.output_stride);
  RowPart<Lanes> rows[flight];
  for (int r = 0; r < flight; ++r) {
    const std::int64_t bag = first + r * Lanes::groups;
    if (bag >= group.bags.bags) continue;
    const std::int64_t id = group.bags.ids[bag];
    rows[r] = id < 0 ? zero_row<Lanes>() : load_row<T, Lanes>(arena + (id + group.bags.row_bias) * Width, lane);
  }
  for (int r = 0; r < flight; ++r) {
    const std::int64_t bag = first + r * Lanes::groups;
    if (bag < group.bags.bags) store_float_row(group.output + bag * group.output_stride, aligned, lane, rows[r]);
  }
}

/// A group of lanes sums a bag in its order; rows_in_flight rows are loaded before the first is added. Lanes do not talk to each other.
template <Element T, IdType Id, int Width>
__global__ void __launch_bounds__(lookup_threads)
    pool_rows(const T* __restrict__ arena, const __grid_constant__ GroupBatch<LookupGroup<Id>> batch) {
  using Lanes = RowLanes<T, Width>;
  constexpr int flight = Lanes::rows_in_flight;
  const int g = batch.find(blockIdx.x);
  const LookupGroup<Id>& group = batch.groups[g];
  const Bags<Id>& bags = group.bags;
  const int lane = static_cast<int>(threadIdx.x) % Lanes::lanes;
  const std::int64_t bag =
      (static_cast<std::int64_t>(blockIdx.x) - batch.first_block[g]) * (lookup_threads / Lanes::lanes) + threadIdx.x / Lanes::lanes;
  if (bag >= bags.bags) return;
  const std::int64_t end = bags.end(bag);
  RowPart<Lanes> sum = zero_row<Lanes>();
  for (std::int64_t i = bags.begin(bag); i < end; i += flight) {
    RowPart<Lanes> rows[flight];
    for (int r = 0; r < flight; ++r) {
      if (i + r >= end) continue;
      const std::int64_t id = bags.ids[i + r];
      rows[r] = id < 0 ? zero_row<Lanes>() : load_row<T, Lanes>(arena + (id + bags.row_bias) * Width, lane);
    }
    for (int r = 0; r < flight; ++r) {
      if (i + r >= end) break;
      if (bags.weights != nullptr)
        multiply_add_row(sum, bags.weights[i + r], rows[r]);
      else
        add_row(sum, rows[r]);
    }
  }
  if (bags.weights == nullptr && bags.bag_scale != nullptr) scale_row(sum, bags.bag_scale[bag]);
  store_float_row(group.output + bag * group.output_stride, rows_aligned(group.output, group.output_stride), lane, sum);
}

}  // namespace gpu

/// Two launches for all groups: rows that are copied, and bags that are pooled.
template <Element T, IdType Id, int Width>
struct Kernel<Lookup<T, Id, Width>, Cuda> {
  static void run(const Cuda& backend, const typename Lookup<T, Id, Width>::Parameters& p) {
    if constexpr (gpu::fits_lanes(Width))
      serve_all(backend, p);
    else
      gpu::lookup_any_width<T, Id>(backend, p.arena, p.width, p.groups);
  }

 private:
  static void serve_all(const Cuda& backend, const typename Lookup<T, Id, Width>::Parameters& p) {
    using Lanes = gpu::RowLanes<T, Width>;
    constexpr int groups_per_block = gpu::lookup_threads / Lanes::lanes;
    const auto serve = [&](const char* name, auto kernel, bool copies, int bags_per_block) {
      const auto blocks_of = [&](const LookupGroup<Id>& group) {
        return is_copy(group.bags) == copies ? gpu::ceil_divide(group.bags.bags, bags_per_block) : 0;
      };
      gpu::launch_by_group<LookupGroup<Id>>(backend, name, gpu::lookup_threads, p.groups, blocks_of, kernel, p.arena);
    };
    serve("copy_rows", gpu::copy_rows<T, Id, Width>, true, groups_per_block * Lanes::rows_in_flight);
    serve("pool_rows", gpu::pool_rows<T, Id, Width>, false, groups_per_block);
  }

  static bool is_copy(const Bags<Id>& bags) { return bags.offsets == nullptr && bags.weights == nullptr && bags.bag_scale == nullptr; }
};

}  // namespace tessera::inline v0
