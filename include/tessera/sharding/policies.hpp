// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/sharding_policy.hpp>
#include <tessera/sharding/table.hpp>

#include <array>
#include <cstdint>

namespace tessera { inline namespace v0 {

/// Returns part `i` of `total` cut into `parts` parts whose sizes differ by at most one.
constexpr std::int64_t even_cut(std::int64_t total, std::int64_t parts, std::int64_t i) {
  const std::int64_t quotient = total / parts, remainder = total % parts;
  return quotient * i + (i < remainder ? i : remainder);
}

namespace detail {

/// Returns part `i` of a table cut into `parts` parts side by side, for any rank.
constexpr ShardRequest column_part(const TableSpec& table, int parts, int i) {
  const std::int32_t width = table.width / parts;
  return {{0, table.rows, i * width, (i + 1) * width}, {}};
}

/// Returns rectangle `i` of a table cut into `columns` parts side by side, each of them by rows
/// over the ranks of one node.
constexpr ShardRequest grid_part(const TableSpec& table, const Topology& topology, int columns,
                                 int i) {
  const int size = topology.node_size(), column = i / size, member = i % size;
  const std::int32_t width = table.width / columns;
  return {{even_cut(table.rows, size, member), even_cut(table.rows, size, member + 1),
           column * width, (column + 1) * width},
          {.kind = Place::Kind::node_member, .index = member, .group = column}};
}

/// A policy whose rectangles are all in one tier.
template <class Policy, Tier tier>
struct InTier : Policy {
  static constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int i) {
    ShardRequest request = Policy::shard(table, topology, i);
    request.tier = tier;
    return request;
  }
};

}  // namespace detail

/// A full copy on every rank (data parallel).
///
///     using P = Plan<Replicated<Country>>;
template <class... Sources>
struct Replicated {
  using tables = TableList<Sources...>;
  static constexpr bool whole_rows = true;
  static constexpr int count(const TableSpec&, const Topology&) { return 1; }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology&, int) {
    return {{0, table.rows, 0, table.width}, {.kind = Place::Kind::every}};
  }
};

/// Pins the tables of a policy to one rank: `TableWise<OnRank<2>, Genres>`.
template <int Rank>
struct OnRank {};

/// Each table whole on one rank, which the plan chooses so that memory and lookups are balanced.
///
///     using P = Plan<TableWise<User, Country>>;
template <class... Sources>
struct TableWise {
  using tables = TableList<Sources...>;
  static constexpr bool whole_rows = true;
  static constexpr int count(const TableSpec&, const Topology&) { return 1; }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology&, int) {
    return {{0, table.rows, 0, table.width}, {}};
  }
};
/// The same on a given rank (modulo the number of ranks, so that the plan also runs on fewer).
template <int Rank, class... Sources>
struct TableWise<OnRank<Rank>, Sources...> {
  static_assert(Rank >= 0, "OnRank: ranks count from 0");
  using tables = TableList<Sources...>;
  static constexpr bool whole_rows = true;
  static constexpr int count(const TableSpec&, const Topology&) { return 1; }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int) {
    return {{0, table.rows, 0, table.width},
            {.kind = Place::Kind::rank, .index = Rank % topology.ranks}};
  }
};

/// K parts side by side, on different ranks if there are enough. K must divide every width.
///
///     using P = Plan<ColumnWise<2, User>>;  // 8 of 16 columns each
template <int K, class... Sources>
struct ColumnWise {
  static_assert(K > 0, "ColumnWise: the number of parts must be positive");
  using tables = TableList<Sources...>;
  static constexpr int column_parts = K;
  static constexpr int count(const TableSpec&, const Topology&) { return K; }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology&, int i) {
    return detail::column_part(table, K, i);
  }
};

/// Ranks for the parts of `ColumnWiseOn` (modulo the number of ranks, so that the plan also runs on
/// fewer).
template <int... Ranks>
struct OnRanks {
  static_assert(sizeof...(Ranks) > 0 && ((Ranks >= 0) && ...),
                "OnRanks: give ranks, which count from 0");
};

/// As many parts side by side as ranks are given, each on its rank: `ColumnWiseOn<OnRanks<3, 0>,
/// User>`.
template <class Ranks, class... Sources>
struct ColumnWiseOn;
template <int... Ranks, class... Sources>
struct ColumnWiseOn<OnRanks<Ranks...>, Sources...> {
  using tables = TableList<Sources...>;
  static constexpr int column_parts = sizeof...(Ranks);
  static constexpr int count(const TableSpec&, const Topology&) { return sizeof...(Ranks); }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int i) {
    constexpr std::array<int, sizeof...(Ranks)> ranks{Ranks...};
    return {detail::column_part(table, column_parts, i).rectangle,
            {.kind = Place::Kind::rank, .index = ranks[i] % topology.ranks}};
  }
};

/// Relative sizes of the row blocks of ranks 0, 1, ... (a rank without a share gets nothing):
/// `RowWise<Shares<3, 1>, Query>`.
template <int... Parts>
struct Shares {
  static_assert(sizeof...(Parts) > 0 && ((Parts >= 0) && ...) && (0 + ... + Parts) > 0,
                "Shares: parts are not negative, and one is positive");
};

/// One block of rows per rank, of equal sizes (plus or minus one row).
///
///     using P = Plan<RowWise<Query>>;
template <class... Sources>
struct RowWise {
  using tables = TableList<Sources...>;
  static constexpr bool whole_rows = true;
  static constexpr int count(const TableSpec&, const Topology& topology) { return topology.ranks; }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int i) {
    return {{even_cut(table.rows, topology.ranks, i), even_cut(table.rows, topology.ranks, i + 1),
             0, table.width},
            {.kind = Place::Kind::rank, .index = i}};
  }
};
/// Uneven blocks. Shares beyond the number of ranks fall to rank (share modulo ranks).
template <int... Parts, class... Sources>
struct RowWise<Shares<Parts...>, Sources...> {
  using tables = TableList<Sources...>;
  static constexpr bool whole_rows = true;
  static constexpr int count(const TableSpec&, const Topology&) { return sizeof...(Parts); }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int i) {
    constexpr std::array<int, sizeof...(Parts)> parts{Parts...};
    std::int64_t before = 0, total = 0;
    for (int k = 0; k < static_cast<int>(parts.size()); ++k) {
      if (k < i) before += parts[k];
      total += parts[k];
    }
    return {
        {cut(table.rows, before, total), cut(table.rows, before + parts[i], total), 0, table.width},
        {.kind = Place::Kind::rank, .index = i % topology.ranks}};
  }

 private:
  /// Returns rows * numerator / denominator, without overflow.
  static constexpr std::int64_t cut(std::int64_t rows, std::int64_t numerator,
                                    std::int64_t denominator) {
    return rows / denominator * numerator + rows % denominator * numerator / denominator;
  }
};

/// Deals out rows whose frequent ones come first: `RowWise<Interleaved, Query>`.
struct Interleaved {};

namespace detail {

/// The blocks of RowWise<Interleaved>, of the rows from `first` on: bands that halve from the last
/// row towards row 0, each cut into a block for each rank.
struct DealtRows {
  std::int64_t first = 0;

  constexpr int bands(const TableSpec& table, const Topology& topology) const {
    int all = 1;
    while (topology.ranks > 1 && (table.rows >> all) - first >= topology.ranks) ++all;
    return all;
  }
  constexpr int count(const TableSpec& table, const Topology& topology) const {
    return bands(table, topology) * topology.ranks;
  }
  constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int i) const {
    const int ranks = topology.ranks, block = i % ranks, all = bands(table, topology),
              band = all - 1 - i / ranks;  // from the last rows
    const std::int64_t begin = band + 1 < all ? table.rows >> (band + 1) : first,
                       rows = (table.rows >> band) - begin;
    // Within a band the first block is asked for most. Over four bands each rank has blocks at four
    // places, whose sum, and sum of squares, are nearly the same for all (Prouhet 1851).
    int rank = band % 2 == 0 ? block : ranks - 1 - block;
    if (band / 2 % 2 == 1) rank = (rank + ranks / 2) % ranks;
    return {{begin + even_cut(rows, ranks, block), begin + even_cut(rows, ranks, block + 1), 0,
             table.width},
            {.kind = Place::Kind::rank, .index = rank}};
  }
};

/// Returns how many of a table's first rows have copies, of `rows` that should: on one rank all, so
/// that the table is whole.
constexpr std::int64_t hot_rows(const TableSpec& table, const Topology& topology,
                                std::int64_t rows) {
  return topology.ranks > 1 && rows < table.rows ? rows : table.rows;
}
constexpr ShardRequest hot_copy(const TableSpec& table, std::int64_t hot) {
  return {{0, hot, 0, table.width}, {.kind = Place::Kind::every}};
}

/// HotRows<N, RowWise<Interleaved>>, with N at run time.
struct HotAndDealtRows {
  std::int64_t rows = 0;

  constexpr int count(const TableSpec& table, const Topology& topology) const {
    return 1 + DealtRows{hot_rows(table, topology, rows)}.count(table, topology);
  }
  constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int i) const {
    const std::int64_t hot = hot_rows(table, topology, rows);
    return i == 0 ? hot_copy(table, hot) : DealtRows{hot}.shard(table, topology, i - 1);
  }
};

}  // namespace detail

/// Blocks of rows of many sizes, so that every rank has as many frequent and rare rows as the
/// others. The rows' last half is cut into a block for each rank, so is the half of what is before
/// it, and so on; the order of the ranks changes from band to band. A rank holds as many rows as
/// under RowWise, give or take one a band, in about log2(rows / ranks) blocks.
template <class... Sources>
struct RowWise<Interleaved, Sources...> {
  using tables = TableList<Sources...>;
  static constexpr bool whole_rows = true;
  static constexpr int count(const TableSpec& table, const Topology& topology) {
    return detail::DealtRows{}.count(table, topology);
  }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int i) {
    return detail::DealtRows{}.shard(table, topology, i);
  }
};

/// Copies the first N rows of each table to every rank, and cuts the others as Policy does:
/// `HotRows<10'000, RowWise<Interleaved, Query>>`. For tables whose frequent rows come first: their
/// ids stay on the rank that asks. Tables of N rows or fewer have copies alone, on one rank all
/// have.
template <std::int64_t N, class Policy>
  requires(ShardingPolicy<Policy> || explain_sharding_policy<Policy>())
struct HotRows {
  static_assert(N > 0, "HotRows: copies of no rows; give a positive number");
  static_assert(
      requires { Policy::whole_rows; },
      "HotRows: the other rows' policy must keep rows whole, as RowWise and TableWise do");
  using tables = typename Policy::tables;
  static constexpr bool whole_rows = true;
  static constexpr int count(const TableSpec& table, const Topology& topology) {
    return 1 + Policy::count(others(table, topology), topology);
  }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int i) {
    const std::int64_t hot = detail::hot_rows(table, topology, N);
    if (i == 0) return detail::hot_copy(table, hot);
    ShardRequest request = Policy::shard(others(table, topology), topology, i - 1);
    request.rectangle.row_begin += hot;
    request.rectangle.row_end += hot;
    return request;
  }

 private:
  static constexpr TableSpec others(TableSpec table, const Topology& topology) {
    table.rows -= detail::hot_rows(table, topology, N);
    return table;
  }
};
/// Deals the other rows out in bands as if no row was copied, of which the first are left out.
template <std::int64_t N, class... Sources>
struct HotRows<N, RowWise<Interleaved, Sources...>> {
  static_assert(N > 0, "HotRows: copies of no rows; give a positive number");
  using tables = TableList<Sources...>;
  static constexpr bool whole_rows = true;
  static constexpr int count(const TableSpec& table, const Topology& topology) {
    return detail::HotAndDealtRows{N}.count(table, topology);
  }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int i) {
    return detail::HotAndDealtRows{N}.shard(table, topology, i);
  }
};

/// K columns, each cut by rows over the ranks of one node (table-row-wise, hierarchical). K must
/// divide every width.
///
///     using P = Plan<Grid<2, Query>>;
template <int K, class... Sources>
struct Grid {
  static_assert(K > 0, "Grid: the number of columns must be positive");
  using tables = TableList<Sources...>;
  static constexpr int column_parts = K;
  static constexpr int count(const TableSpec&, const Topology& topology) {
    return K * topology.node_size();
  }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int i) {
    return detail::grid_part(table, topology, K, i);
  }
};

/// Nodes for the columns of `GridOn` (modulo the number of nodes).
template <int... Nodes>
struct OnNodes {
  static_assert(sizeof...(Nodes) > 0 && ((Nodes >= 0) && ...),
                "OnNodes: give nodes, which count from 0");
};

/// A grid with a column for each node given: `GridOn<OnNodes<1, 0>, Query>`.
template <class Nodes, class... Sources>
struct GridOn;
template <int... Nodes, class... Sources>
struct GridOn<OnNodes<Nodes...>, Sources...> {
  using tables = TableList<Sources...>;
  static constexpr int column_parts = sizeof...(Nodes);
  static constexpr int count(const TableSpec&, const Topology& topology) {
    return sizeof...(Nodes) * topology.node_size();
  }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int i) {
    constexpr std::array<int, sizeof...(Nodes)> nodes{Nodes...};
    const int size = topology.node_size(),
              rank = nodes[i / size] % topology.nodes() * size + i % size;
    return {detail::grid_part(table, topology, column_parts, i).rectangle,
            {.kind = Place::Kind::rank, .index = rank % topology.ranks}};
  }
};

/// Keeps the rows and the optimizer state of a policy's tables in the memory of the rank's host,
/// page-locked: `OnHost<RowWise<Query>>`. Kernels read and write them there, over the bus. On the
/// host itself as without it.
template <class Policy>
  requires(ShardingPolicy<Policy> || explain_sharding_policy<Policy>())
struct OnHost : detail::InTier<Policy, Tier::host> {};
/// As without it: in the device's memory. To say so where other tables are OnHost.
template <class Policy>
  requires(ShardingPolicy<Policy> || explain_sharding_policy<Policy>())
struct OnDevice : detail::InTier<Policy, Tier::device> {};

/// Keeps the rows and the optimizer state of a policy's tables in files (TableFiles), behind a
/// cache in memory: `OnFile<RowWise<Query>>`. The model's bits are those of tables in memory.
template <class Policy>
  requires(ShardingPolicy<Policy> || explain_sharding_policy<Policy>())
struct OnFile : detail::InTier<Policy, Tier::file> {};
/// Gives each rectangle of a policy's tables a cache of so many rows: of tables OnFile in memory,
/// `Cached<1'000'000, OnFile<RowWise<Query>>>`; of others, which are OnHost then, in the device's
/// (nothing if the host itself works). It must hold the rows of two batches.
///
///     using P = Plan<Cached<2'000, TableWise<Query>>>;
template <std::int64_t Rows, class Policy>
  requires(ShardingPolicy<Policy> || explain_sharding_policy<Policy>())
struct Cached : Policy {
  static_assert(Rows > 0, "Cached: a cache of no rows; give a positive number");
  static constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int i) {
    ShardRequest request = Policy::shard(table, topology, i);
    if (request.tier == Tier::device) request.tier = Tier::host;
    request.cache_rows = Rows;
    return request;
  }
};

static_assert(ShardingPolicy<OnHost<RowWise<>>> && ShardingPolicy<OnFile<RowWise<>>> &&
              ShardingPolicy<Cached<1, OnFile<TableWise<>>>> &&
              ShardingPolicy<OnDevice<TableWise<>>>);
static_assert(ShardingPolicy<Replicated<>> && ShardingPolicy<TableWise<>> &&
              ShardingPolicy<TableWise<OnRank<1>>>);
static_assert(ShardingPolicy<ColumnWise<2>> && ShardingPolicy<RowWise<>> &&
              ShardingPolicy<RowWise<Shares<2, 1>>> && ShardingPolicy<RowWise<Interleaved>> &&
              ShardingPolicy<HotRows<1, RowWise<>>> &&
              ShardingPolicy<HotRows<1, RowWise<Interleaved>>> && ShardingPolicy<Grid<2>> &&
              ShardingPolicy<ColumnWiseOn<OnRanks<0, 1>>> && ShardingPolicy<GridOn<OnNodes<0>>>);

}}  // namespace tessera::v0
