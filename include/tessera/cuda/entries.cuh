// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/groups.cuh>
#include <tessera/cuda/row_lanes.cuh>
#include <tessera/cuda/small_tables.cuh>
#include <tessera/cuda/sort.cuh>
#include <tessera/cuda/sorted_entries.cuh>
#include <tessera/op/update.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::inline v0::gpu {

inline constexpr int entry_threads = 256;

/// Writes row and payload of every entry. A warp takes 32 neighbouring bags and deals their
/// entries, which lie side by side, out to its lanes; a lane finds its entry's bag by bisecting the
/// 32 offsets.
template <IdType Id, class Payload>
__global__ void __launch_bounds__(entry_threads)
    list_entries(std::uint32_t* rows, Payload* payloads,
                 const __grid_constant__ GroupBatch<EntryGroup<Id>> batch) {
  const unsigned full = 0xffffffffu;
  const int g = batch.find(blockIdx.x), lane = static_cast<int>(threadIdx.x) % 32;
  const EntryGroup<Id>& group = batch.groups[g];
  const op::Bags<Id>& bags = group.source.bags;
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) - batch.first_block[g]) * entry_threads +
      threadIdx.x / 32 * 32;
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
    // More ids than the bound, which op::AdmitIds has noted.
    if (bags.offsets != nullptr &&
        static_cast<std::uint64_t>(i - start) >= static_cast<std::uint64_t>(bags.entry_bound))
      continue;
    const std::int64_t id = bags.ids[i];
    rows[place] = id < 0 ? no_row : static_cast<std::uint32_t>(id + bags.row_bias);
    payloads[place] =
        make_payload<Payload>(static_cast<std::uint32_t>(group.first_bag + first + bag),
                              bags.weights == nullptr ? 1.0f : bags.weights[i]);
  }
}

template <IdType Id>
bool any_weights(std::span<const op::GradientGroup<Id>> groups) {
  return std::any_of(groups.begin(), groups.end(), [](const op::GradientGroup<Id>& group) {
    return group.bags.weights != nullptr;
  });
}

/// Says where each group's entries begin, and answers how many places they take.
template <IdType Id>
std::int64_t line_up(std::span<EntryGroup<Id>> groups) {
  // where the entries of a batch begin whose parts come one by one
  std::int64_t places = 0, batch = -1;
  for (EntryGroup<Id>& group : groups) {
    const op::Bags<Id>& bags = group.source.bags;
    const bool begun = bags.of_batch() && batch >= 0;
    if (bags.of_batch() && !begun) batch = places;
    group.first_entry = begun ? batch : places;
    if (!begun) places += bags.offsets == nullptr ? bags.bags : bags.entry_bound;
  }
  return places;
}

/// Lists the entries of all groups and sorts them by row. Those of small tables stand behind the
/// others, or among them where rows must be `ascending`.
template <class Payload, IdType Id>
SortedEntries<Payload> sort_entries(const Cuda& backend,
                                    std::span<const op::GradientGroup<Id>> groups,
                                    std::int64_t arena_rows, bool ascending = false) {
  require(arena_rows < no_row,
          "update: {} rows in one arena; a GPU's holds less than 2^32 - 1: cut the tables by rows",
          arena_rows);
  std::vector<EntryGroup<Id>> listed;
  std::vector<GradientSource> sources;
  std::int64_t bags = 0;
  bool aligned = true;
  for (const op::GradientGroup<Id>& group : groups) {
    if (group.bags.bags == 0) continue;
    listed.push_back({group, bags, 0});
    sources.push_back({group.gradient, group.gradient_stride,
                       group.bags.weights == nullptr ? group.bags.bag_scale : nullptr, bags});
    bags += group.bags.bags;
    aligned &= rows_aligned(group.gradient, group.gradient_stride);
  }
  if (listed.empty()) return {};
  const std::int64_t each = listed.front().source.bags.bags;
  const bool equal = std::all_of(listed.begin(), listed.end(), [&](const EntryGroup<Id>& g) {
    return g.source.bags.bags == each;
  });

  const SmallTables<Id> small(listed, ascending);
  std::size_t others = 0;
  for (std::size_t g = 0; g < listed.size(); ++g)
    if (!small.has(g)) listed[others++] = listed[g];
  listed.resize(others);
  const std::int64_t to_sort = line_up<Id>(listed), places = to_sort + small.places();
  require(places <= INT32_MAX && bags <= INT32_MAX,
          "update: {} ids in {} bags in one call; at most 2^31 - 1 on a GPU", places, bags);
  if (places == 0) return {};

  // Rows, then payloads; and as much again to sort both into, where small tables are counted after
  // it. All memory grows with the number of places alone, however it is divided: a captured graph's
  // stays where it is as long as no larger batch comes.
  const std::int64_t row_bytes = ceil_divide(places * 4, 256) * 256,
                     payload_bytes = places * static_cast<std::int64_t>(sizeof(Payload)),
                     half = row_bytes + ceil_divide(payload_bytes, 256) * 256;
  const int bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(arena_rows))),
            all = static_cast<int>(places);
  backend.scratch(ScratchSlot::cub, std::max(sort_bytes<Payload>(backend, all, bits),
                                             sum_bytes<std::uint32_t>(backend, all)));
  auto* const memory = backend.scratch_for<std::byte>(ScratchSlot::entries, 2 * half);
  const auto rows_at = [&](std::int64_t at) {
    return reinterpret_cast<std::uint32_t*>(memory + at);
  };
  const auto payloads_at = [&](std::int64_t at) {
    return reinterpret_cast<Payload*>(memory + at + row_bytes);
  };
  SortBuffers<Payload> entries{rows_at(0), payloads_at(0), rows_at(half), payloads_at(half)};
  if (to_sort > 0) {
    // Payloads of no entry mean nothing, but the sort moves them: compute-sanitizer would tell of
    // reads of unwritten memory.
    const auto clear = [&](auto* array) {
      check(cudaMemsetAsync(array, 0xff, static_cast<std::size_t>(to_sort) * sizeof(*array),
                            backend.stream()),
            "clearing entries");
    };
    if (std::any_of(listed.begin(), listed.end(), [](const EntryGroup<Id>& group) {
          return group.source.bags.offsets != nullptr;
        }))
      clear(entries.keys), clear(entries.values);
    launch_by_group<EntryGroup<Id>>(
        backend, "list_entries", entry_threads, listed,
        [](const EntryGroup<Id>& group) {
          return ceil_divide(group.source.bags.bags, entry_threads);
        },
        list_entries<Id, Payload>, entries.keys, entries.values);
    entries = sort_pairs<Payload>(backend, entries, static_cast<int>(to_sort), bits);
  }
  small.place(backend, entries.keys + to_sort, entries.values + to_sort, entries.other_keys);

  auto* device_sources =
      backend.scratch_for<GradientSource>(ScratchSlot::sources, std::ssize(sources));
  upload<GradientSource>(backend, sources, device_sources);
  return {entries.keys,
          entries.values,
          static_cast<std::uint32_t>(places),
          device_sources,
          static_cast<int>(sources.size()),
          equal ? static_cast<std::uint32_t>(each) : 0,
          aligned,
          0};
}

}  // namespace tessera::inline v0::gpu
