// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/groups.cuh>
#include <tessera/cuda/sort.cuh>
#include <tessera/cuda/sorted_entries.cuh>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tessera::inline v0::gpu {

// Entries of small tables are counted instead of sorted: a block counts the rows of a chunk of a
// table's entries in shared memory, one sum over all counts says where each chunk's entries of each
// row belong, and a block puts its chunk there, in order:
//
//     counts    table 0, row 0: chunk 0, 1, ... | row 1: chunk 0, 1, ... | ... | table 1, row 0: ...
//
// Ids are read twice and entries written once, where a radix sort of their rows moves each entry
// once per 8 bits.

/// A group of bags of a small table.
template <IdType Id>
struct SmallTableGroup {
  op::Bags<Id> bags;
  std::int64_t first_bag;  ///< among those of all groups
  std::int64_t first_row;  ///< of the table, in the arena
  std::uint32_t rows;
  std::uint32_t first_count;
  std::uint32_t chunks;       ///< of all groups of the table
  std::uint32_t first_chunk;  ///< of this group
  std::uint32_t chunk_bags;
  /// places; of an update's first group: no_row is to stand up to there behind the last entry
  std::uint32_t fill_to;

  std::int64_t own_chunks() const { return ceil_divide(bags.bags, chunk_bags); }
};

/// A block's part of a group: the entries of some neighbouring bags.
template <IdType Id>
class SmallTableChunk {
 public:
  static constexpr int threads = 256;
  static constexpr std::uint32_t no_entry = 0xffffffffu;

  __device__ SmallTableChunk(const SmallTableGroup<Id>& group, std::int64_t chunk)
      : group_(group), chunk_(chunk) {
    const op::Bags<Id>& bags = group.bags;
    first_ = chunk * group.chunk_bags;
    last_ = first_ + group.chunk_bags < bags.bags ? first_ + group.chunk_bags : bags.bags;
    start_ = bags.of_batch() ? 0 : bags.begin(0);
    begin_ = bags.begin(first_);
    end_ = bags.end(last_ - 1);
  }

  __device__ std::int64_t begin() const { return begin_; }
  __device__ std::int64_t end() const { return end_; }

  /// Where the count of a row of the table is.
  __device__ std::int64_t count_of(std::uint32_t row) const {
    return group_.first_count + std::int64_t{row} * group_.chunks + group_.first_chunk + chunk_;
  }
  /// The row of the table that place i names. None: behind the last place, behind the group's bound
  /// (which op::AdmitIds has noted), or an id that op::AdmitIds took out.
  __device__ std::uint32_t row(std::int64_t i) const {
    const op::Bags<Id>& bags = group_.bags;
    if (i >= end_) return no_entry;
    if (bags.offsets != nullptr &&
        static_cast<std::uint64_t>(i - start_) >= static_cast<std::uint64_t>(bags.entry_bound))
      return no_entry;
    const std::int64_t id = bags.ids[i];
    return id < 0 ? no_entry : static_cast<std::uint32_t>(id + bags.row_bias - group_.first_row);
  }
  /// The bag that holds place i, among those of all groups.
  __device__ std::uint32_t bag(std::int64_t i) const {
    std::int64_t bag = i;
    if (group_.bags.offsets != nullptr) {
      std::int64_t high = last_ - 1;
      for (bag = first_; bag < high;) {
        const std::int64_t middle = (bag + high + 1) / 2;
        if (group_.bags.offsets[middle] <= i)
          bag = middle;
        else
          high = middle - 1;
      }
    }
    return static_cast<std::uint32_t>(group_.first_bag + bag);
  }

 private:
  const SmallTableGroup<Id>& group_;
  std::int64_t chunk_, first_, last_, start_, begin_, end_;
};

template <IdType Id>
__global__ void __launch_bounds__(SmallTableChunk<Id>::threads)
    count_small_tables(std::uint32_t* counts,
                       const __grid_constant__ GroupBatch<SmallTableGroup<Id>> batch) {
  const int g = batch.find(blockIdx.x);
  const SmallTableGroup<Id>& group = batch.groups[g];
  const SmallTableChunk<Id> chunk(group,
                                  static_cast<std::int64_t>(blockIdx.x) - batch.first_block[g]);
  auto* const mine = dynamic_shared<std::uint32_t>();
  for (std::uint32_t row = threadIdx.x; row < group.rows; row += blockDim.x) mine[row] = 0;
  __syncthreads();
  for (std::int64_t i = chunk.begin() + threadIdx.x; i < chunk.end(); i += blockDim.x) {
    const std::uint32_t row = chunk.row(i);
    if (row != chunk.no_entry) atomicAdd(mine + row, 1u);
  }
  __syncthreads();
  for (std::uint32_t row = threadIdx.x; row < group.rows; row += blockDim.x)
    counts[chunk.count_of(row)] = mine[row];
}

/// `places`: the sums before the counts, `entries` that of all. Warps take turns, so that entries
/// of a row keep their order; ids of the next round are on their way meanwhile.
template <IdType Id, class Payload>
__global__ void __launch_bounds__(SmallTableChunk<Id>::threads)
    place_small_tables(const std::uint32_t* places, const std::uint32_t* entries,
                       std::uint32_t* rows, Payload* payloads,
                       const __grid_constant__ GroupBatch<SmallTableGroup<Id>> batch) {
  constexpr unsigned full = 0xffffffffu;
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const int g = batch.find(blockIdx.x);
  const SmallTableGroup<Id>& group = batch.groups[g];
  const SmallTableChunk<Id> chunk(group,
                                  static_cast<std::int64_t>(blockIdx.x) - batch.first_block[g]);
  auto* const next = dynamic_shared<std::uint32_t>();
  for (std::uint32_t row = threadIdx.x; row < group.rows; row += blockDim.x)
    next[row] = places[chunk.count_of(row)];
  __syncthreads();

  std::uint32_t coming = chunk.row(chunk.begin() + threadIdx.x);
  for (std::int64_t base = chunk.begin(); base < chunk.end(); base += blockDim.x) {
    const std::int64_t i = base + threadIdx.x;
    const std::uint32_t row = coming;
    coming = chunk.row(i + blockDim.x);
    const unsigned same = __match_any_sync(full, row);
    const auto earlier = static_cast<std::uint32_t>(__popc(same & ((1u << lane) - 1u)));
    std::uint32_t place = 0;
    for (unsigned turn = 0; turn < warps; ++turn) {
      if (turn == warp) {
        if (row != chunk.no_entry) place = next[row];
        __syncwarp();
        if (row != chunk.no_entry && earlier == 0)
          next[row] = place + static_cast<std::uint32_t>(__popc(same));
      }
      __syncthreads();
    }
    if (row == chunk.no_entry) continue;
    rows[place + earlier] = static_cast<std::uint32_t>(group.first_row + row);
    payloads[place + earlier] = make_payload<Payload>(
        chunk.bag(i), group.bags.weights == nullptr ? 1.0f : group.bags.weights[i]);
  }

  const std::int64_t fill_to = batch.groups[0].fill_to,
                     threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t place = *entries + std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
       place < fill_to; place += threads)
    rows[place] = no_row;
}

/// Which groups of an update are of small tables, and where their entries belong.
template <IdType Id>
class SmallTables {
 public:
  /// So many rows have their counts in 44 KiB of shared memory.
  static constexpr std::int64_t most_rows = 11 * 1024;

  /// `groups` are in their order, none is empty. `all_or_none`: entries of other tables must not
  /// stand beside them.
  SmallTables(std::span<const EntryGroup<Id>> groups, bool all_or_none) : table_of_(groups.size()) {
    if (!find_tables(groups)) return;
    for (std::size_t g = 0; g < groups.size(); ++g)
      tables_[table_of_[g]].entries += expected_entries(groups[g].source.bags);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      Table& table = tables_[table_of_[g]];
      table.chunks +=
          ceil_divide(groups[g].source.bags.bags, chunk_bags(table, groups[g].source.bags));
    }
    choose(all_or_none);
    std::int64_t batch = 0;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      Table& table = tables_[table_of_[g]];
      if (!table.small) continue;
      const op::Bags<Id>& bags = groups[g].source.bags;
      const std::int64_t per_chunk = chunk_bags(table, bags);
      groups_.push_back(
          {bags, groups[g].first_bag, table.rows.begin, static_cast<std::uint32_t>(table.size()),
           static_cast<std::uint32_t>(table.first_count), static_cast<std::uint32_t>(table.chunks),
           static_cast<std::uint32_t>(table.listed_chunks), static_cast<std::uint32_t>(per_chunk),
           0});
      table.listed_chunks += ceil_divide(bags.bags, per_chunk);
      if (bags.of_batch())
        batch = bags.entry_bound;
      else
        places_ += bags.offsets == nullptr ? bags.bags : bags.entry_bound;
    }
    places_ += batch;
    if (!groups_.empty()) groups_.front().fill_to = static_cast<std::uint32_t>(places_);
  }

  bool has(std::size_t group) const { return !groups_.empty() && tables_[table_of_[group]].small; }
  /// Places for their entries; more than there are where bags have bounds or ids were taken out.
  std::int64_t places() const { return places_; }

  /// Writes rows and payloads [places] of their entries, sorted by row, and no_row behind them.
  /// `counts`: room for as many as places.
  template <class Payload>
  void place(const Cuda& backend, std::uint32_t* rows, Payload* payloads,
             std::uint32_t* counts) const {
    if (groups_.empty()) return;
    backend.fill_zero(counts + counts_, sizeof(*counts));
    launch(backend, "count_small_tables", count_small_tables<Id>, counts);
    exclusive_sum(backend, counts, static_cast<int>(counts_ + 1));
    launch(backend, "place_small_tables", place_small_tables<Id, Payload>,
           static_cast<const std::uint32_t*>(counts),
           static_cast<const std::uint32_t*>(counts + counts_), rows, payloads);
  }

 private:
  /// Rows that some groups share with nobody else.
  struct Table {
    op::RowRange rows;
    std::int64_t entries = 0, chunks = 0, first_count = 0, listed_chunks = 0;
    bool small = false;

    std::int64_t size() const { return rows.end - rows.begin; }
    std::int64_t counts() const { return size() * chunks; }
  };

  /// The union of the groups' rows as tables, ascending. Nothing to find where a group does not say
  /// what its rows are.
  bool find_tables(std::span<const EntryGroup<Id>> groups) {
    for (const EntryGroup<Id>& group : groups) {
      const op::RowRange& rows = group.source.rows;
      if (rows.empty()) return false;
      batch_parts_ += group.source.bags.of_batch() ? 1 : 0;
      if (tables_.empty() || tables_.back().rows.begin != rows.begin ||
          tables_.back().rows.end != rows.end)
        tables_.push_back({rows});
    }
    if (tables_.empty()) return false;
    std::sort(tables_.begin(), tables_.end(),
              [](const Table& a, const Table& b) { return a.rows.begin < b.rows.begin; });
    std::size_t last = 0;
    for (std::size_t t = 1; t < tables_.size(); ++t) {
      if (tables_[t].rows.begin < tables_[last].rows.end)
        tables_[last].rows.end = std::max(tables_[last].rows.end, tables_[t].rows.end);
      else
        tables_[++last] = tables_[t];
    }
    tables_.resize(last + 1);
    for (std::size_t g = 0; g < groups.size(); ++g) {
      const auto above = std::upper_bound(
          tables_.begin(), tables_.end(), groups[g].source.rows.begin,
          [](std::int64_t row, const Table& table) { return row < table.rows.begin; });
      table_of_[g] = static_cast<std::size_t>(above - tables_.begin()) - 1;
    }
    return true;
  }

  std::int64_t expected_entries(const op::Bags<Id>& bags) const {
    return bags.offsets == nullptr ? bags.bags
           : bags.of_batch()       ? bags.entry_bound / batch_parts_
                                   : bags.entry_bound;
  }
  /// Bags of a chunk: enough entries that counting is worth it, and few enough that there are
  /// blocks for a GPU.
  std::int64_t chunk_bags(const Table& table, const op::Bags<Id>& bags) const {
    const std::int64_t entries = std::max<std::int64_t>(4096, 2 * table.size());
    return std::max<std::int64_t>(
        1, entries * bags.bags / std::max(bags.bags, expected_entries(bags)));
  }

  /// Tables of few rows with more entries than counts are small. Beside others they have launches
  /// of their own, for which they must be worth it.
  void choose(bool all_or_none) {
    std::int64_t entries = 0;
    bool all = true;
    for (Table& table : tables_) {
      table.small = table.size() <= most_rows && table.counts() < table.entries;
      all &= table.small;
      if (!table.small) continue;
      table.first_count = counts_;
      counts_ += table.counts();
      entries += table.entries;
      largest_ = std::max(largest_, table.size());
    }
    if (all || (!all_or_none && batch_parts_ == 0 && entries >= 32768)) return;
    for (Table& table : tables_) table.small = false;
  }

  template <class Function, class... Arguments>
  void launch(const Cuda& backend, std::string_view name, Function kernel,
              const Arguments&... arguments) const {
    launch_by_group<SmallTableGroup<Id>>(
        backend, name,
        {SmallTableChunk<Id>::threads, static_cast<std::size_t>(largest_) * sizeof(std::uint32_t)},
        groups_, [](const SmallTableGroup<Id>& group) { return group.own_chunks(); }, kernel,
        arguments...);
  }

  std::vector<Table> tables_;
  std::vector<std::size_t> table_of_;
  std::vector<SmallTableGroup<Id>> groups_;
  std::int64_t batch_parts_ = 0, counts_ = 0, largest_ = 0, places_ = 0;
};

}  // namespace tessera::inline v0::gpu
