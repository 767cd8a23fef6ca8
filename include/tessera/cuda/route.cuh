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

namespace tessera { inline namespace v0 {
namespace gpu::detail {

/// One block of rows of one feature's bags, of a whole job for count_tiles and write_tiles. Bags
/// are taken in tiles, a thread each; `first_tile` counts through all groups.
template <IdType Id>
struct PackGroup {
  static constexpr int launch_bytes = 31'000;
  op::Bags<Id> bags;
  typename op::PackBags<Id>::Block block;
  std::int64_t first_tile;
  std::int32_t number;
  bool whole;

  __device__ bool holds(std::int64_t row) const {
    return row >= block.row_begin && row < block.row_end;
  }
  TESSERA_HOST_DEVICE std::int64_t tiles() const {
    return (bags.bags + sum_threads - 1) / sum_threads;
  }
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
  return std::uint64_t{1} << entry_bits |
         static_cast<std::uint64_t>(group.bags.end(bag) - group.bags.begin(bag));
}
__device__ inline PackCount unpack_word(std::uint64_t word) {
  return {static_cast<std::int64_t>(word >> entry_bits),
          static_cast<std::int64_t>(word & ((std::uint64_t{1} << entry_bits) - 1))};
}

template <IdType Id>
__global__ void __launch_bounds__(sum_threads)
    count_tiles(PackCount* tiles, const GroupBatch<PackGroup<Id>> __grid_constant__ batch) {
  const int g = batch.find(blockIdx.x);
  const PackGroup<Id>& group = batch.groups[g];
  const std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) - batch.first_block[g];
  std::uint64_t total;
  sum_before(tile_word(group, tile * sum_threads + threadIdx.x), total);
  if (threadIdx.x == 0) tiles[group.first_tile + tile] = unpack_word(total);
}

/// Sums tiles: a block replaces the counts of a group's tiles by the sums of those before, and
/// writes the group's sum.
template <IdType Id>
__global__ void __launch_bounds__(sum_threads)
    sum_tiles(PackCount* tiles, PackCount* totals,
              const GroupBatch<PackGroup<Id>> __grid_constant__ batch) {
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

/// Writes tiles: a thread writes a bag and its entries where the sums say. More entries than the
/// block has room for, which op::AdmitIds has noted (they are more than their feature's bound), are
/// left out.
template <IdType Id>
__global__ void __launch_bounds__(sum_threads)
    write_tiles(const PackCount* tiles, const GroupBatch<PackGroup<Id>> __grid_constant__ batch) {
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
    block.ids[to] = group.holds(static_cast<std::int64_t>(id)) ? id : Id{-1};
    if (block.weights != nullptr) block.weights[to] = group.bags.weights[i];
    if (block.positions != nullptr) block.positions[to] = i;
    ++to;
  }
}

inline constexpr int split_blocks = 8;  ///< blocks of rows that one pass over the ids serves

/// Neighbouring blocks of rows of one feature's bags. Their counts are those of the groups packed
/// from `first_tile` on.
template <IdType Id>
struct SplitGroup {
  static constexpr int launch_bytes = 31'000;
  op::Bags<Id> bags;
  typename op::PackBags<Id>::Block blocks[split_blocks];
  std::int64_t first_tile;
  int count;

  TESSERA_HOST_DEVICE std::int64_t tiles() const {
    return (bags.bags + sum_threads - 1) / sum_threads;
  }
  /// Returns the block that holds a row, or -1. All threads read all blocks' bounds, at the same
  /// time.
  __device__ int block_of(std::int64_t row) const {
    int found = row >= blocks[0].row_begin ? 0 : -1;
    std::int64_t end = blocks[0].row_end;
    for (int b = 1; b < split_blocks; ++b)
      if (b < count && row >= blocks[b].row_begin) found = b, end = blocks[b].row_end;
    return row < end ? found : -1;
  }
};

/// How many threads of each warp have an id in each block of rows.
using WarpVotes = int[sum_threads / 32][split_blocks];

/// Bags of one id each: a tile's ids are found by votes of its warps.
template <IdType Id>
struct OneIdBag {
  std::int64_t bag;
  Id id;
  int block;           ///< of rows, or -1
  int before_of_warp;  ///< threads before this one in its warp whose ids are in the same block
};
/// Counts ids by votes. The whole block calls it; ends behind a barrier.
template <IdType Id>
__device__ OneIdBag<Id> vote(const SplitGroup<Id>& group, std::int64_t tile, WarpVotes& votes) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  OneIdBag<Id> mine{tile * sum_threads + threadIdx.x, Id{-1}, -1, 0};
  if (mine.bag < group.bags.bags) {
    mine.id = group.bags.ids[mine.bag];
    mine.block = group.block_of(static_cast<std::int64_t>(mine.id));
  }
  for (int b = 0; b < split_blocks; ++b) {
    const unsigned here = __ballot_sync(0xffffffffu, mine.block == b);
    if (mine.block == b) mine.before_of_warp = __popc(here & ((1u << lane) - 1u));
    if (lane == b) votes[warp][b] = __popc(here);
  }
  __syncthreads();
  return mine;
}

/// Per block of rows and thread: bags and entries, as in tile_word; once summed, those before
/// the thread, and all at the end.
using SplitCells = std::uint64_t[split_blocks][sum_threads + 1];

/// Counts: a thread counts its bag's entries by block. Returns the bag, which may be behind the
/// last.
template <IdType Id>
__device__ std::int64_t count_bag(const SplitGroup<Id>& group, std::int64_t tile,
                                  SplitCells& cells) {
  const int t = static_cast<int>(threadIdx.x);
  const std::int64_t bag = tile * sum_threads + t;
  for (int b = 0; b < group.count; ++b) cells[b][t] = 0;
  if (bag >= group.bags.bags) return bag;
  for (std::int64_t i = group.bags.begin(bag); i < group.bags.end(bag); ++i)
    if (const int b = group.block_of(static_cast<std::int64_t>(group.bags.ids[i])); b >= 0)
      ++cells[b][t];
  for (int b = 0; b < group.count; ++b)
    if (cells[b][t] != 0) cells[b][t] |= std::uint64_t{1} << entry_bits;
  return bag;
}

/// Sums cells: warp b replaces the cells of block b by the sums of those before, and writes their
/// sum behind the last. The whole block calls it; ends behind a barrier.
__device__ inline void sum_cells(int count, SplitCells& cells) {
  static_assert(sum_threads / 32 >= split_blocks);
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) % 32, b = static_cast<int>(threadIdx.x) / 32;
  if (b < count) {
    std::uint64_t before = 0;
    for (int first = 0; first < sum_threads; first += 32) {
      const std::uint64_t own = cells[b][first + lane];
      std::uint64_t sum = own;
      for (int distance = 1; distance < 32; distance *= 2) {
        const std::uint64_t other = __shfl_up_sync(0xffffffffu, sum, distance);
        if (lane >= distance) sum += other;
      }
      cells[b][first + lane] = before + sum - own;
      before += __shfl_sync(0xffffffffu, sum, 31);
    }
    if (lane == 0) cells[b][sum_threads] = before;
  }
  __syncthreads();
}

/// Counts as count_tiles, for all blocks of a group in one pass over its ids.
template <IdType Id>
__global__ void __launch_bounds__(sum_threads)
    count_split(PackCount* tiles, const GroupBatch<SplitGroup<Id>> __grid_constant__ batch) {
  auto& cells = block_shared<SplitCells>();
  const int g = batch.find(blockIdx.x);
  const SplitGroup<Id>& group = batch.groups[g];
  const std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) - batch.first_block[g];
  if (group.bags.offsets == nullptr) {
    auto& votes = block_shared<WarpVotes>();
    vote(group, tile, votes);
    const int b = static_cast<int>(threadIdx.x);
    if (b >= group.count) return;
    std::int64_t ids = 0;
    for (const auto& of_warp : votes) ids += of_warp[b];
    tiles[group.first_tile + b * group.tiles() + tile] = {ids, ids};
    return;
  }
  count_bag(group, tile, cells);
  sum_cells(group.count, cells);
  if (const int b = static_cast<int>(threadIdx.x); b < group.count)
    tiles[group.first_tile + b * group.tiles() + tile] = unpack_word(cells[b][sum_threads]);
}

/// Writes bags of one id each into their blocks: as many bags as entries, so that one sum says
/// where both go.
template <IdType Id>
__device__ void write_one_id_bags(const SplitGroup<Id>& group, std::int64_t tile,
                                  const PackCount* tiles) {
  // Of a thread's own block, by an index of its own: from shared memory, not from parameters.
  struct Target {
    std::int64_t entries;
    std::int32_t* samples;
    std::uint32_t* lengths;
    Id* ids;
    float* weights;
    float* bag_scale;
    std::int64_t* positions;
  };
  auto& votes = block_shared<WarpVotes>();
  auto& targets = block_shared<Target[split_blocks]>();
  if (const int b = static_cast<int>(threadIdx.x); b < group.count) {
    const auto& to = group.blocks[b];
    targets[b] = {to.entries, to.samples,   to.lengths,  to.ids,
                  to.weights, to.bag_scale, to.positions};
  }
  const OneIdBag<Id> mine = vote(group, tile, votes);
  if (mine.block < 0) return;
  const Target& block = targets[mine.block];
  std::int64_t at =
      tiles[group.first_tile + mine.block * group.tiles() + tile].entries + mine.before_of_warp;
  for (int w = 0; w < static_cast<int>(threadIdx.x) / 32; ++w) at += votes[w][mine.block];
  const bool fits = at < block.entries;
  if (block.samples != nullptr) block.samples[at] = static_cast<std::int32_t>(mine.bag);
  if (block.lengths != nullptr) block.lengths[at] = fits ? 1 : 0;
  if (block.bag_scale != nullptr) block.bag_scale[at] = group.bags.bag_scale[mine.bag];
  if (!fits) return;
  block.ids[at] = mine.id;
  if (block.weights != nullptr) block.weights[at] = group.bags.weights[mine.bag];
  if (block.positions != nullptr) block.positions[at] = mine.bag;
}

/// Writes as write_tiles, for all blocks of a group: a thread puts its bag's entries where each
/// block's sums say.
template <IdType Id>
__global__ void __launch_bounds__(sum_threads)
    write_split(const PackCount* tiles, const GroupBatch<SplitGroup<Id>> __grid_constant__ batch) {
  auto& cells = block_shared<SplitCells>();
  const int g = batch.find(blockIdx.x), t = static_cast<int>(threadIdx.x);
  const SplitGroup<Id>& group = batch.groups[g];
  const std::int64_t tile = static_cast<std::int64_t>(blockIdx.x) - batch.first_block[g];
  if (group.bags.offsets == nullptr) return write_one_id_bags(group, tile, tiles);
  const std::int64_t bag = count_bag(group, tile, cells);
  sum_cells(group.count, cells);
  std::int64_t to[split_blocks];
  for (int b = 0; b < split_blocks; ++b) {
    if (b >= group.count) continue;  // no break: unrolled, `to` stays in registers
    const auto& block = group.blocks[b];
    const PackCount before = tiles[group.first_tile + b * group.tiles() + tile],
                    within = unpack_word(cells[b][t]),
                    own = unpack_word(cells[b][t + 1] - cells[b][t]);
    to[b] = before.entries + within.entries;
    if (own.entries == 0) continue;
    const std::int64_t at = before.bags + within.bags, room = block.entries - to[b];
    if (block.samples != nullptr) block.samples[at] = static_cast<std::int32_t>(bag);
    if (block.lengths != nullptr)
      block.lengths[at] = static_cast<std::uint32_t>(room < 0             ? 0
                                                     : room < own.entries ? room
                                                                          : own.entries);
    if (block.bag_scale != nullptr) block.bag_scale[at] = group.bags.bag_scale[bag];
  }
  __syncthreads();  // cells have been read; now they say where a thread's next entry goes
  for (int b = 0; b < split_blocks; ++b)
    if (b < group.count) cells[b][t] = static_cast<std::uint64_t>(to[b]);
  if (bag >= group.bags.bags) return;
  for (std::int64_t i = group.bags.begin(bag); i < group.bags.end(bag); ++i) {
    const Id id = group.bags.ids[i];
    const int b = group.block_of(static_cast<std::int64_t>(id));
    if (b < 0) continue;
    const auto& block = group.blocks[b];
    const auto at = static_cast<std::int64_t>(cells[b][t]++);
    if (at >= block.entries) continue;
    block.ids[at] = id;
    if (block.weights != nullptr) block.weights[at] = group.bags.weights[i];
    if (block.positions != nullptr) block.positions[at] = i;
  }
}

/// Sums lengths: a block goes through a job's lengths, a few per thread at a time.
template <int = 0>
__global__ void __launch_bounds__(sum_threads)
    offsets_from_lengths(const GroupBatch<op::OffsetsFromLengths::Job> __grid_constant__ batch) {
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

}  // namespace gpu::detail

/// Counts per tile of bags, sums of them, and a pass that writes. Where a feature is cut by rows,
/// its ids are read once for eight blocks to count, and once to write.
template <IdType Id>
struct op::Kernel<op::PackBags<Id>, Cuda> {
  using Group = gpu::detail::PackGroup<Id>;
  using Split = gpu::detail::SplitGroup<Id>;

  static void run(const Cuda& backend, const typename op::PackBags<Id>::Parameters& p) {
    const bool known =
        std::all_of(p.jobs.begin(), p.jobs.end(), [](const auto& job) { return job.whole; });
    if (p.count_only && known) {
      for (const auto& job : p.jobs)
        for (auto& block : job.blocks) {
          block.bags = job.bags.bags;
          block.entries = job.bags.bags == 0 ? 0 : job.bags.entry_bound;
        }
      return;
    }
    std::vector<Group> groups;
    std::vector<Split> splits;
    std::int64_t tiles = 0;
    for (const auto& job : p.jobs)
      for (std::size_t b = 0; b < job.blocks.size(); ++b) {
        groups.push_back(
            {job.bags, job.blocks[b], tiles, static_cast<std::int32_t>(groups.size()), job.whole});
        if (!job.whole) {
          if (b % gpu::detail::split_blocks == 0) splits.push_back({job.bags, {}, tiles, 0});
          splits.back().blocks[splits.back().count++] = job.blocks[b];
        }
        tiles += groups.back().tiles();
      }
    auto* const totals = backend.scratch_for<gpu::detail::PackCount>(gpu::ScratchSlot::pack_counts,
                                                                     std::ssize(groups) + tiles);
    auto* const counts = totals + groups.size();
    const auto whole_tiles = [](const Group& group) { return group.whole ? group.tiles() : 0; };
    const auto split_tiles = [](const Split& split) { return split.tiles(); };
    if (!p.counted || known) {
      gpu::launch_by_group<Group>(backend, "count_tiles", gpu::sum_threads, groups, whole_tiles,
                                  gpu::detail::count_tiles<Id>, counts);
      gpu::launch_by_group<Split>(backend, "count_split", gpu::sum_threads, splits, split_tiles,
                                  gpu::detail::count_split<Id>, counts);
      gpu::launch_by_group<Group>(
          backend, "sum_tiles", gpu::sum_threads, groups, [](const Group&) { return 1; },
          gpu::detail::sum_tiles<Id>, counts, totals);
    }
    if (p.count_only) return read_totals(backend, p, totals, groups.size());
    gpu::launch_by_group<Group>(backend, "write_tiles", gpu::sum_threads, groups, whole_tiles,
                                gpu::detail::write_tiles<Id>, counts);
    gpu::launch_by_group<Split>(backend, "write_split", gpu::sum_threads, splits, split_tiles,
                                gpu::detail::write_split<Id>, counts);
  }

 private:
  static void read_totals(const Cuda& backend, const typename op::PackBags<Id>::Parameters& p,
                          const gpu::detail::PackCount* totals, std::size_t count) {
    std::vector<gpu::detail::PackCount> read(count);
    backend.copy(read.data(), totals, count * sizeof(gpu::detail::PackCount));
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
        [](const op::OffsetsFromLengths::Job&) { return 1; }, gpu::detail::offsets_from_lengths<>);
  }
};

}}  // namespace tessera::v0
