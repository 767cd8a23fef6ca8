// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/groups.cuh>
#include <tessera/cuda/row_lanes.cuh>
#include <tessera/cuda/sort.cuh>
#include <tessera/op/update.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::inline v0::gpu {

/// A group's gradients, and where its bags and entries begin among those of all groups.
template <IdType Id>
struct EntryGroup {
  GradientGroup<Id> source;
  std::int64_t first_bag;
  std::int64_t first_entry;
};

/// Where kernels find the gradients of a group's bags; bags of all groups are numbered through.
struct GradientSource {
  const float* gradient;
  std::int64_t stride;
  const float* bag_scale;
  std::int64_t first_bag;
};

/// Where an entry's gradient lies and what it is multiplied by.
struct GradientEntry {
  const float* gradient;
  float coefficient;
};

/// A sorted entry names its bag; where ids have weights it carries the weight, too, so that nothing is looked up by entry.
using BagPayload = std::uint32_t;
using WeightedPayload = std::uint64_t;
__device__ __forceinline__ std::uint32_t bag_of(BagPayload payload) { return payload; }
__device__ __forceinline__ std::uint32_t bag_of(WeightedPayload payload) { return static_cast<std::uint32_t>(payload); }
__device__ __forceinline__ float weight_of(BagPayload) { return 1.0f; }
__device__ __forceinline__ float weight_of(WeightedPayload payload) { return __uint_as_float(static_cast<std::uint32_t>(payload >> 32)); }
template <class Payload>
__device__ __forceinline__ Payload make_payload(std::uint32_t bag, float weight) {
  if constexpr (std::is_same_v<Payload, WeightedPayload>)
    return static_cast<WeightedPayload>(__float_as_uint(weight)) << 32 | bag;
  else
    return bag;
}

/// The key of places that hold no entry; it sorts behind every row.
inline constexpr std::uint32_t no_row = 0xffffffffu;

/// Entries sorted by row, stably: the order within a row is (group, bag, position). Kernels take it by value.
template <class Payload>
struct SortedEntries {
  const std::uint32_t* rows;
  const Payload* payloads;
  std::uint32_t count;  ///< places; those behind the last entry hold no_row
  const GradientSource* sources;
  int source_count;
  std::uint32_t bags_per_source;  ///< if all have equally many, else 0
  bool aligned;                   ///< every bag's gradient begins at a multiple of 16 bytes
  int column;                     ///< of the gradients that is wanted first

  __device__ bool is_row(std::uint64_t place, std::uint32_t row) const { return place < count && rows[place] == row; }

  __device__ GradientEntry entry(std::uint32_t place) const {
    const Payload payload = payloads[place];
    const std::uint32_t bag = bag_of(payload);
    const GradientSource& source = sources[source_of(bag)];
    const std::int64_t local = bag - source.first_bag;
    return {source.gradient + local * source.stride + column, source.bag_scale == nullptr ? weight_of(payload) : source.bag_scale[local]};
  }

 private:
  __device__ int source_of(std::uint32_t bag) const {
    if (bags_per_source != 0) return static_cast<int>(bag / bags_per_source);
    int low = 0, high = source_count - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (sources[middle].first_bag <= bag)
        low = middle;
      else
        high = middle - 1;
    }
    return low;
  }
};

inline constexpr int entry_threads = 256;

/// Writes row and payload of every entry. A warp takes 32 neighbouring bags and deals their entries, which lie side by side, out to its
/// lanes; a lane finds its entry's bag by bisecting the 32 offsets.
template <IdType Id, class Payload>
__global__ void __launch_bounds__(entry_threads)
    list_entries(std::uint32_t* rows, Payload* payloads, const __grid_constant__ GroupBatch<EntryGroup<Id>> batch) {
  const unsigned full = 0xffffffffu;
  const int g = batch.find(blockIdx.x), lane = static_cast<int>(threadIdx.x) % 32;
  const EntryGroup<Id>& group = batch.groups[g];
  const Bags<Id>& bags = group.source.bags;
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) - batch.first_block[g]) * entry_threads + threadIdx.x / 32 * 32;
  if (first >= bags.bags) return;
  const std::int64_t start = bags.of_batch() ? 0 : bags.begin(0);
  const std::int64_t my_bag = first + lane < bags.bags ? first + lane : bags.bags;
  const std::int64_t my_begin = my_bag < bags.bags ? bags.begin(my_bag) : bags.end(bags.bags - 1);
  const std::int64_t last = first + 32 < bags.bags ? first + 32 : bags.bags;
  const std::int64_t begin = __shfl_sync(full, my_begin, 0), end = bags.end(last - 1);
  for (std::int64_t base = begin; base < end; base += 32) {
    const std::int64_t i = base + lane;
    int bag = 0;  // the last of the 32 that begins at i or before
    for (int step = 16; step > 0; step /= 2)
      if (__shfl_sync(full, my_begin, bag + step) <= i) bag += step;
    if (i >= end) continue;
    const std::int64_t place = group.first_entry + (i - start);
    // More ids than the bound, which AdmitIds has noted.
    if (bags.offsets != nullptr && static_cast<std::uint64_t>(i - start) >= static_cast<std::uint64_t>(bags.entry_bound)) continue;
    const std::int64_t id = bags.ids[i];
    rows[place] = id < 0 ? no_row : static_cast<std::uint32_t>(id + bags.row_bias);
    payloads[place] =
        make_payload<Payload>(static_cast<std::uint32_t>(group.first_bag + first + bag), bags.weights == nullptr ? 1.0f : bags.weights[i]);
  }
}

template <IdType Id>
bool any_weights(std::span<const GradientGroup<Id>> groups) {
  return std::any_of(groups.begin(), groups.end(), [](const GradientGroup<Id>& group) { return group.bags.weights != nullptr; });
}

/// Lists the entries of all groups and sorts them by row. Uses scratch slots 0, 2 and 3.
template <class Payload, IdType Id>
SortedEntries<Payload> sort_entries(const Cuda& backend, std::span<const GradientGroup<Id>> groups, std::int64_t arena_rows) {
  require(arena_rows < no_row, "update: {} rows in one arena; a GPU's holds less than 2^32 - 1: cut the tables by rows", arena_rows);
  std::vector<EntryGroup<Id>> listed;
  std::vector<GradientSource> sources;
  std::int64_t bags = 0, entries = 0;
  bool padded = false, aligned = true;
  std::int64_t batch = -1;  // where the entries of a batch begin whose parts come one by one
  for (const GradientGroup<Id>& group : groups) {
    if (group.bags.bags == 0) continue;
    const bool begun = group.bags.of_batch() && batch >= 0;
    if (group.bags.of_batch() && !begun) batch = entries;
    listed.push_back({group, bags, begun ? batch : entries});
    sources.push_back({group.gradient, group.gradient_stride, group.bags.weights == nullptr ? group.bags.bag_scale : nullptr, bags});
    bags += group.bags.bags;
    if (!begun) entries += group.bags.offsets == nullptr ? group.bags.bags : group.bags.entry_bound;
    padded |= group.bags.offsets != nullptr;
    aligned &= rows_aligned(group.gradient, group.gradient_stride);
  }
  require(entries <= INT32_MAX && bags <= INT32_MAX, "update: {} ids in {} bags in one call; at most 2^31 - 1 on a GPU", entries, bags);
  if (entries == 0) return {};

  // Rows, then payloads, then room to sort both into. Payloads of no entry mean nothing, but the sort moves them: compute-sanitizer would
  // tell of reads of unwritten memory.
  const std::int64_t row_bytes = ceil_divide(entries * 4, 256) * 256, payload_bytes = entries * static_cast<std::int64_t>(sizeof(Payload)),
                     half = row_bytes + ceil_divide(payload_bytes, 256) * 256;
  auto* const memory = backend.scratch_for<std::byte>(0, 2 * half);
  const auto rows_at = [&](std::int64_t at) { return reinterpret_cast<std::uint32_t*>(memory + at); };
  const auto payloads_at = [&](std::int64_t at) { return reinterpret_cast<Payload*>(memory + at + row_bytes); };
  std::uint32_t* const rows = rows_at(0);
  Payload* const payloads = payloads_at(0);
  if (padded) check(cudaMemsetAsync(memory, 0xff, static_cast<std::size_t>(row_bytes + payload_bytes), backend.stream()), "clearing rows");
  launch_by_group<EntryGroup<Id>>(
      backend, "list_entries", entry_threads, listed,
      [](const EntryGroup<Id>& group) { return ceil_divide(group.source.bags.bags, entry_threads); }, list_entries<Id, Payload>, rows,
      payloads);
  const int bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(arena_rows)));
  const SortBuffers<Payload> sorted =
      sort_pairs<Payload>(backend, {rows, payloads, rows_at(half), payloads_at(half)}, static_cast<int>(entries), bits, 2);

  auto* device_sources = backend.scratch_for<GradientSource>(3, std::ssize(sources));
  upload<GradientSource>(backend, sources, device_sources);
  const std::int64_t each = listed.front().source.bags.bags;
  const bool equal = std::all_of(listed.begin(), listed.end(), [&](const EntryGroup<Id>& g) { return g.source.bags.bags == each; });
  return {sorted.keys,
          sorted.values,
          static_cast<std::uint32_t>(entries),
          device_sources,
          static_cast<int>(sources.size()),
          equal ? static_cast<std::uint32_t>(each) : 0,
          aligned,
          0};
}

}  // namespace tessera::inline v0::gpu
