// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/groups.cuh>
#include <tessera/cuda/row_lanes.cuh>
#include <tessera/cuda/sort.cuh>
#include <tessera/cuda/sorted_entries.cuh>
#include <tessera/op/update.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera { inline namespace v0 { namespace gpu {

inline constexpr int entry_threads = 256;

/// Writes row and payload of every entry. A warp takes 32 neighbouring bags and deals their
/// entries, which are side by side, out to its lanes; a lane finds its entry's bag by bisecting the
/// 32 offsets.
template <IdType Id, class Payload>
__global__ void __launch_bounds__(entry_threads)
    list_entries(std::uint32_t* rows, Payload* payloads,
                 const GroupBatch<EntryGroup<Id>> __grid_constant__ batch) {
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

template <IdType Id, Element G>
bool any_weights(std::span<const op::GradientGroup<Id, G>> groups) {
  return std::any_of(groups.begin(), groups.end(), [](const op::GradientGroup<Id, G>& group) {
    return group.bags.weights != nullptr;
  });
}

/// Says where each group's entries begin, and returns how many places they take.
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

/// Entries in the order of their rows, and how many bags they come from.
template <class Payload>
struct PlacedEntries {
  const std::uint32_t* rows = nullptr;
  const Payload* payloads = nullptr;
  std::int64_t places = 0, bags = 0;
  bool in_second_half = false;  ///< of the memory
};

/// Rows, then payloads; and as much again to sort both into. All memory grows with the number of
/// places alone: a captured graph's stays where it is as long as no larger batch comes.
template <class Payload>
struct EntryMemory {
  std::int64_t row_bytes = 0, half = 0;

  explicit EntryMemory(std::int64_t places)
      : row_bytes(ceil_divide(places * 4, 256) * 256),
        half(row_bytes +
             ceil_divide(places * static_cast<std::int64_t>(sizeof(Payload)), 256) * 256) {}
  std::uint32_t* rows(void* memory, bool second) const {
    return reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(memory) + (second ? half : 0));
  }
  Payload* payloads(void* memory, bool second) const {
    return reinterpret_cast<Payload*>(static_cast<std::byte*>(memory) + (second ? half : 0) +
                                      row_bytes);
  }
};

/// Lists the entries of all groups and sorts them by row, in `memory_of(bytes)`.
template <class Payload, IdType Id, Element G, class MemoryOf>
PlacedEntries<Payload> place_entries(const Cuda& backend,
                                     std::span<const op::GradientGroup<Id, G>> groups,
                                     std::int64_t arena_rows, const MemoryOf& memory_of) {
  require(arena_rows < no_row,
          "update: {} rows in one arena; a GPU's holds less than 2^32 - 1: cut the tables by rows",
          arena_rows);
  std::vector<EntryGroup<Id>> listed;
  std::int64_t bags = 0;
  for (const op::GradientGroup<Id, G>& group : groups) {
    if (group.bags.bags == 0) continue;
    listed.push_back({{group.bags, nullptr, 0, group.rows}, bags, 0});
    bags += group.bags.bags;
  }
  const std::int64_t places = line_up<Id>(listed);
  require(places <= INT32_MAX && bags <= INT32_MAX,
          "update: {} ids in {} bags in one call; at most 2^31 - 1 on a GPU", places, bags);
  if (places == 0) return {};

  const int bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(arena_rows)));
  const EntryMemory<Payload> parts(places);
  void* const memory = memory_of(static_cast<std::size_t>(2 * parts.half));
  SortBuffers<Payload> entries{parts.rows(memory, false), parts.payloads(memory, false),
                               parts.rows(memory, true), parts.payloads(memory, true)};
  // Payloads of no entry mean nothing, but the sort moves them: compute-sanitizer would tell of
  // reads of unwritten memory.
  const auto clear = [&](auto* array) {
    check(cudaMemsetAsync(array, 0xff, static_cast<std::size_t>(places) * sizeof(*array),
                          backend.stream()),
          "clearing entries");
  };
  if (std::any_of(listed.begin(), listed.end(),
                  [](const EntryGroup<Id>& group) { return group.source.bags.offsets != nullptr; }))
    clear(entries.keys), clear(entries.values);
  launch_by_group<EntryGroup<Id>>(
      backend, "list_entries", entry_threads, listed,
      [](const EntryGroup<Id>& group) {
        return ceil_divide(group.source.bags.bags, entry_threads);
      },
      list_entries<Id, Payload>, entries.keys, entries.values);
  entries = sort_pairs<Payload>(backend, entries, static_cast<int>(places), bits);
  return {entries.keys, entries.values, places, bags, entries.keys != parts.rows(memory, false)};
}

/// Returns the same with the gradients of the groups. `vector`: as rows_aligned_for's.
template <class Payload, IdType Id, Element G>
SortedEntries<Payload, G> with_gradients(const Cuda& backend, const PlacedEntries<Payload>& placed,
                                         std::span<const op::GradientGroup<Id, G>> groups,
                                         int vector) {
  if (placed.places == 0) return {};
  std::vector<GradientSource<G>> sources;
  std::int64_t bags = 0, each = 0;
  bool aligned = true, equal = true;
  for (const op::GradientGroup<Id, G>& group : groups) {
    if (group.bags.bags == 0) continue;
    sources.push_back({group.gradient, group.gradient_stride,
                       group.bags.weights == nullptr ? group.bags.bag_scale : nullptr, bags});
    if (bags == 0) each = group.bags.bags;
    equal &= group.bags.bags == each;
    bags += group.bags.bags;
    aligned &= rows_aligned_for(group.gradient, group.gradient_stride, vector);
  }
  require<Error>(bags == placed.bags, "update: entries of {} bags were sorted, it has {}",
                 placed.bags, bags);
  auto* device_sources =
      backend.scratch_for<GradientSource<G>>(ScratchSlot::sources, std::ssize(sources));
  upload<GradientSource<G>>(backend, sources, device_sources);
  return {placed.rows,
          placed.payloads,
          static_cast<std::uint32_t>(placed.places),
          device_sources,
          static_cast<int>(sources.size()),
          equal ? static_cast<std::uint32_t>(each) : 0,
          aligned,
          0};
}

/// Returns both, in scratch memory.
template <class Payload, IdType Id, Element G>
SortedEntries<Payload, G> sort_entries(const Cuda& backend,
                                       std::span<const op::GradientGroup<Id, G>> groups,
                                       std::int64_t arena_rows, int vector) {
  return with_gradients(
      backend,
      place_entries<Payload>(
          backend, groups, arena_rows,
          [&](std::size_t bytes) { return backend.scratch(ScratchSlot::entries, bytes); }),
      groups, vector);
}

}}}  // namespace tessera::v0::gpu
