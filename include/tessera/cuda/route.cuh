// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/block_sum.cuh>
#include <tessera/cuda/groups.cuh>
#include <tessera/op/exchange.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::inline v0 {
namespace gpu {

/// One block of rows of one feature's bags. Bags are taken in tiles, a thread each; `first_tile`
/// counts through all groups.
template <IdType Id>
struct PackGroup {
  op::Bags<Id> bags;
  typename op::PackBags<Id>::Block block;
  std::int64_t first_tile;
  std::int32_t number;
  bool whole;

  __device__ bool holds(std::int64_t row) const {
    return row >= block.row_begin && row < block.row_end;
  }
  __device__ bool takes(std::int64_t row) const { return whole || holds(row); }
  /// Entries of a bag that belong to the block.
  __device__ std::uint64_t count(std::int64_t bag) const {
    const std::int64_t begin = bags.begin(bag), end = bags.end(bag);
    if (whole) return static_cast<std::uint64_t>(end - begin);
    std::uint64_t entries = 0;
    for (std::int64_t i = begin; i < end; ++i)
      entries += takes(static_cast<std::int64_t>(bags.ids[i]));
    return entries;
  }
  __device__ std::int64_t tiles() const { return (bags.bags + sum_threads - 1) / sum_threads; }
};

/// Bags and entries of a tile or of a group.
struct PackCount {
  std::int64_t bags;
  std::int64_t entries;
};

// A tile's bags and entries in one sum: 256 bags hold less than 2^40 entries.
inline constexpr int entry_bits = 40;
template <IdType Id>
__device__ std::uint64_t tile_word(const PackGroup<Id>& group, std::int64_t bag) {
  if (bag >= group.bags.bags) return 0;
  const std::uint64_t entries = group.count(bag);
  return (group.whole || entries != 0 ? std::uint64_t{1} << entry_bits : 0) | entries;
}
__device__ inline PackCount unpack_word(std::uint64_t word) {
  return {static_cast<std::int64_t>(word >> entry_bits),
          static_cast<std::int64_t>(word & ((std::uint64_t{1} << entry_bits) - 1))};
}

template <IdType Id>
__global__ void __launch_bounds__(sum_threads)
    count_tiles(PackCount* tiles, const __grid_constant__ GroupBatch<PackGroup<Id>> batch) {
  const int g = batch.find(blockIdx.x);
  const PackGroup<Id>& group = batch.groups[g];
  const std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) - batch.first_block[g];
  std::uint64_t total;
  sum_before(tile_word(group, tile * sum_threads + threadIdx.x), total);
  if (threadIdx.x == 0) tiles[group.first_tile + tile] = unpack_word(total);
}

/// A block replaces the counts of a group's tiles by the sums of those before, and writes the
/// group's sum.
template <IdType Id>
__global__ void __launch_bounds__(sum_threads)
    sum_tiles(PackCount* tiles, PackCount* totals,
              const __grid_constant__ GroupBatch<PackGroup<Id>> batch) {
  const PackGroup<Id>& group = batch.groups[blockIdx.x];
  PackCount before{0, 0};
  for (std::int64_t first = 0; first < group.tiles(); first += sum_threads) {
    const std::int64_t tile = first + threadIdx.x;
    PackCount* at = tiles + group.first_tile + tile;
    const PackCount own = tile < group.tiles() ? *at : PackCount{0, 0};
    std::uint64_t bags, entries;
    const std::uint64_t bags_before = sum_before(static_cast<std::uint64_t>(own.bags), bags);
    const std::uint64_t entries_before =
        sum_before(static_cast<std::uint64_t>(own.entries), entries);
    if (tile < group.tiles())
      *at = {before.bags + static_cast<std::int64_t>(bags_before),
             before.entries + static_cast<std::int64_t>(entries_before)};
    before.bags += static_cast<std::int64_t>(bags);
    before.entries += static_cast<std::int64_t>(entries);
  }
  if (threadIdx.x == 0) totals[group.number] = before;
}

/// A thread writes a bag and its entries where the sums say. More entries than the block has room
/// for, which op::AdmitIds has noted (they are more than their feature's bound), are left out.
template <IdType Id>
__global__ void __launch_bounds__(sum_threads)
    write_tiles(const PackCount* tiles, const __grid_constant__ GroupBatch<PackGroup<Id>> batch) {
  const int g = batch.find(blockIdx.x);
  const PackGroup<Id>& group = batch.groups[g];
  const auto& block = group.block;
  const std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) - batch.first_block[g],
                     bag = tile * sum_threads + threadIdx.x;
  const std::uint64_t word = tile_word(group, bag);
  std::uint64_t total;
  const PackCount before = tiles[group.first_tile + tile],
                  within = unpack_word(sum_before(word, total));
  if (word == 0) return;
  const std::int64_t at = before.bags + within.bags;
  std::int64_t to = before.entries + within.entries;
  const std::int64_t entries = unpack_word(word).entries, room = block.entries - to;
  const std::int64_t end = to + (room < 0 ? 0 : room < entries ? room : entries);
  if (block.samples != nullptr) block.samples[at] = static_cast<std::int32_t>(bag);
  if (block.lengths != nullptr) block.lengths[at] = static_cast<std::uint32_t>(end - to);
  if (block.bag_scale != nullptr) block.bag_scale[at] = group.bags.bag_scale[bag];
  for (std::int64_t i = group.bags.begin(bag); to < end; ++i) {
    const Id id = group.bags.ids[i];
    if (!group.takes(static_cast<std::int64_t>(id))) continue;
    block.ids[to] = group.holds(static_cast<std::int64_t>(id)) ? id : Id{-1};
    if (block.weights != nullptr) block.weights[to] = group.bags.weights[i];
    if (block.positions != nullptr) block.positions[to] = i;
    ++to;
  }
}

/// A block goes through a job's lengths, a few per thread at a time.
template <int = 0>
__global__ void __launch_bounds__(sum_threads)
    offsets_from_lengths(const __grid_constant__ GroupBatch<op::OffsetsFromLengths::Job> batch) {
  constexpr int per_thread = 8;
  const op::OffsetsFromLengths::Job& job = batch.groups[blockIdx.x];
  std::uint64_t before = 0;
  for (std::int64_t first = 0; first < job.count; first += sum_threads * per_thread) {
    const std::int64_t begin = first + threadIdx.x * per_thread;
    std::uint64_t own = 0, total;
    for (int i = 0; i < per_thread; ++i) own += begin + i < job.count ? job.lengths[begin + i] : 0;
    std::uint64_t sum = before + sum_before(own, total);
    for (int i = 0; i < per_thread; ++i) {
      if (begin + i >= job.count) break;
      job.offsets[begin + i] = static_cast<std::int64_t>(sum);
      sum += job.lengths[begin + i];
    }
    before += total;
  }
  if (threadIdx.x == 0) job.offsets[job.count] = static_cast<std::int64_t>(before);
}

}  // namespace gpu

/// Counts per tile of bags, sums of them, and a pass that writes; ids are read once per block of
/// rows. Scratch slots 0 and 1.
template <IdType Id>
struct op::Kernel<op::PackBags<Id>, Cuda> {
  using Group = gpu::PackGroup<Id>;

  static void run(const Cuda& backend, const typename op::PackBags<Id>::Parameters& p) {
    const bool known =
        std::all_of(p.jobs.begin(), p.jobs.end(), [](const auto& job) { return job.whole; });
    std::vector<Group> groups;
    std::int64_t tiles = 0;
    for (const auto& job : p.jobs)
      for (const auto& block : job.blocks) {
        groups.push_back(
            {job.bags, block, tiles, static_cast<std::int32_t>(groups.size()), job.whole});
        tiles += tiles_of(groups.back());
      }
    if (p.count_only && known) {
      for (const auto& job : p.jobs)
        for (auto& block : job.blocks) {
          block.bags = job.bags.bags;
          block.entries = job.bags.bags == 0 ? 0 : job.bags.entry_bound;
        }
      return;
    }
    auto* counts = backend.scratch_for<gpu::PackCount>(0, tiles);
    auto* totals = backend.scratch_for<gpu::PackCount>(1, std::ssize(groups));
    gpu::launch_by_group<Group>(backend, "count_tiles", gpu::sum_threads, groups, tiles_of,
                                gpu::count_tiles<Id>, counts);
    gpu::launch_by_group<Group>(
        backend, "sum_tiles", gpu::sum_threads, groups, [](const Group&) { return 1; },
        gpu::sum_tiles<Id>, counts, totals);
    if (p.count_only)
      read_totals(backend, p, totals, groups.size());
    else
      gpu::launch_by_group<Group>(backend, "write_tiles", gpu::sum_threads, groups, tiles_of,
                                  gpu::write_tiles<Id>, counts);
  }

 private:
  static std::int64_t tiles_of(const Group& group) {
    return gpu::ceil_divide(group.bags.bags, gpu::sum_threads);
  }

  static void read_totals(const Cuda& backend, const typename op::PackBags<Id>::Parameters& p,
                          const gpu::PackCount* totals, std::size_t count) {
    std::vector<gpu::PackCount> read(count);
    backend.copy(read.data(), totals, count * sizeof(gpu::PackCount));
    backend.synchronize();
    auto next = read.begin();
    for (const auto& job : p.jobs)
      for (auto& block : job.blocks) {
        block.bags = next->bags;
        block.entries = next++->entries;
      }
  }
};

template <>
struct op::Kernel<op::OffsetsFromLengths, Cuda> {
  static void run(const Cuda& backend, const op::OffsetsFromLengths::Parameters& p) {
    gpu::launch_by_group<op::OffsetsFromLengths::Job>(
        backend, "offsets_from_lengths", gpu::sum_threads, p.jobs,
        [](const op::OffsetsFromLengths::Job&) { return 1; }, gpu::offsets_from_lengths<>);
  }
};

}  // namespace tessera::inline v0
