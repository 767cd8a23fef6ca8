// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/planner/planned_policy.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/sharding/policies.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// How one table is cut; the names of the policies. `interleaved`: RowWise<Interleaved>.
/// `hot_rows`: HotRows<N, RowWise<Interleaved>>. `own`: by a policy of the user's.
enum class Cut : std::uint8_t {
  replicated,
  table_wise,
  column_wise,
  row_wise,
  grid,
  interleaved,
  hot_rows,
  own
};

constexpr std::string_view to_string(Cut cut) {
  constexpr std::array<std::string_view, 8> names{"replicated", "table-wise", "column-wise",
                                                  "row-wise",   "grid",       "interleaved",
                                                  "hot-rows",   "own policy"};
  return names[static_cast<std::size_t>(cut)];
}

namespace detail {

/// Returns whether each rank has rows of the table.
constexpr bool by_rows(Cut cut) {
  return cut == Cut::row_wise || cut == Cut::interleaved || cut == Cut::hot_rows;
}

/// The cut of one table and where its parts are: the ranks of rectangles that may be on any rank,
/// the nodes of groups of node members, in the order of the policy's rectangles.
struct TableCut {
  Cut cut = Cut::table_wise;
  int parts = 1;  ///< columns; of hot_rows: rows that are copied
  std::vector<int> places{};
  PlannedPolicy policy{};       ///< of Cut::own
  Tier tier = Tier::device;     ///< of the other cuts
  std::int64_t cache_rows = 0;  ///< the same: of each rectangle in a file
};

/// Returns whether a table has enough for parts of so many columns and rows: smaller ones save no
/// time that a prediction could see, and each is a block more in every exchange.
constexpr bool worth_cutting(const TableSpec& table, int columns, int rows) {
  constexpr int least_columns = 4;
  constexpr std::int64_t least_elements = 512;
  return (columns == 1 || table.width / columns >= least_columns) &&
         table.rows * table.width >= least_elements * columns * rows;
}

/// Returns how many rectangles a cut asks for; the answer of its policy.
constexpr int shard_count(const TableCut& cut, const TableSpec& table, const Topology& topology) {
  switch (cut.cut) {
    case Cut::column_wise:
      return cut.parts;
    case Cut::row_wise:
      return RowWise<>::count(table, topology);
    case Cut::interleaved:
      return RowWise<Interleaved>::count(table, topology);
    case Cut::hot_rows:
      return HotAndDealtRows{cut.parts}.count(table, topology);
    case Cut::grid:
      return cut.parts * topology.node_size();
    case Cut::own:
      return cut.policy.count(table, topology);
    default:
      return 1;
  }
}

/// Returns rectangle `i` of a cut, and its place; the answer of its policy.
constexpr ShardRequest shard_request(const TableCut& cut, const TableSpec& table,
                                     const Topology& topology, int i) {
  if (cut.cut == Cut::own) return cut.policy.shard(table, topology, i);
  ShardRequest request =
      cut.cut == Cut::replicated    ? Replicated<>::shard(table, topology, i)
      : cut.cut == Cut::column_wise ? column_part(table, cut.parts, i)
      : cut.cut == Cut::row_wise    ? RowWise<>::shard(table, topology, i)
      : cut.cut == Cut::interleaved ? RowWise<Interleaved>::shard(table, topology, i)
      : cut.cut == Cut::hot_rows    ? HotAndDealtRows{cut.parts}.shard(table, topology, i)
      : cut.cut == Cut::grid        ? grid_part(table, topology, cut.parts, i)
                                    : TableWise<>::shard(table, topology, i);
  request.tier = cut.tier;
  request.cache_rows = std::min(cut.cache_rows, request.rectangle.rows());
  return request;
}

/// A whole plan as data: one cut per table.
struct PlanChoice {
  std::vector<TableCut> tables{};
  bool fits = true;
};

/// Appends the rectangles of one table under a cut to `shards`, in the order of its policy.
constexpr void append_shards(std::vector<Shard>& shards, int table, const TableSpec& spec,
                             const TableCut& cut, const Topology& topology) {
  PlaceNumbers numbers;
  const int count = shard_count(cut, spec, topology);
  for (int i = 0; i < count; ++i) {
    const ShardRequest request = shard_request(cut, spec, topology, i);
    if (request.rectangle.empty()) continue;
    const Place& place = request.place;
    const int number = numbers.next(place);
    const int rank = place.kind == Place::Kind::every  ? every_rank
                     : place.kind == Place::Kind::rank ? place.index
                     : place.kind == Place::Kind::any
                         ? cut.places[number]
                         : cut.places[number] * topology.node_size() + place.index;
    shards.push_back({table, request.rectangle, rank, request.tier, request.cache_rows});
  }
}

}  // namespace detail

/// Returns the rectangles of a choice of cuts, and their ranks.
constexpr std::vector<Shard> shards_of(const detail::PlanChoice& choice, const Layout& layout) {
  std::vector<Shard> shards;
  for (std::size_t t = 0; t < choice.tables.size(); ++t)
    detail::append_shards(shards, static_cast<int>(t), layout.tables[t], choice.tables[t],
                          layout.topology);
  return shards;
}

/// Plans that need no model. The first three are those of NVIDIA Merlin's distributed-embeddings
/// (DistEmbeddingStrategy): tables in turn (`basic`); largest first, there and back over the ranks
/// (`memory_balanced`); largest first, each to the rank that holds least (`memory_optimized`). The
/// others cut every table alike.
enum class Strategy : std::uint8_t {
  round_robin,
  memory_balanced,
  memory_optimized,
  column_wise,
  row_wise,
  replicated
};

namespace detail {

inline constexpr std::array<Strategy, 6> all_strategies{
    Strategy::round_robin, Strategy::memory_balanced, Strategy::memory_optimized,
    Strategy::column_wise, Strategy::row_wise,        Strategy::replicated};

}  // namespace detail

constexpr std::string_view to_string(Strategy strategy) {
  constexpr std::array<std::string_view, 6> names{"table-wise, round robin",
                                                  "memory balanced",
                                                  "memory optimized",
                                                  "column-wise",
                                                  "row-wise",
                                                  "replicated"};
  return names[static_cast<std::size_t>(strategy)];
}

namespace detail {

constexpr Cut cut_of(Strategy strategy) {
  return strategy == Strategy::column_wise  ? Cut::column_wise
         : strategy == Strategy::row_wise   ? Cut::row_wise
         : strategy == Strategy::replicated ? Cut::replicated
                                            : Cut::table_wise;
}

/// Returns Merlin's order: by size, then by index, both falling.
constexpr std::vector<int> largest_first(const Layout& layout) {
  std::vector<std::pair<std::int64_t, int>> sizes;
  for (std::size_t t = 0; t < layout.tables.size(); ++t)
    sizes.push_back({-layout.tables[t].rows * layout.tables[t].width, -static_cast<int>(t)});
  std::sort(sizes.begin(), sizes.end());
  std::vector<int> order;
  for (const auto& [size, t] : sizes) order.push_back(-t);
  return order;
}

constexpr void place_whole_tables(Strategy strategy, const Layout& layout, PlanChoice& choice) {
  const int ranks = layout.ranks();
  const std::vector<int> order = largest_first(layout);
  std::vector<std::int64_t> load(static_cast<std::size_t>(ranks), 0);
  for (std::size_t i = 0; i < order.size(); ++i) {
    const int turn = static_cast<int>(i % static_cast<std::size_t>(2 * ranks)), t = order[i];
    int rank = turn < ranks ? turn : 2 * ranks - 1 - turn;
    if (strategy == Strategy::memory_optimized)
      rank = static_cast<int>(std::min_element(load.begin(), load.end()) - load.begin());
    load[rank] += layout.tables[t].rows * layout.tables[t].width;
    choice.tables[t].places = std::vector<int>{rank};
  }
}

}  // namespace detail

/// Returns a strategy's plan for the layout's tables and ranks. Columns: the most parts that divide
/// the width, of at least 4 columns, up to the ranks, dealt out in turn. Tables that are too small
/// to be cut stay whole, in turn.
constexpr detail::PlanChoice strategy_choice(Strategy strategy, const Layout& layout) {
  detail::PlanChoice choice;
  int next = 0;
  for (const TableSpec& table : layout.tables) {
    detail::TableCut cut{.cut = detail::cut_of(strategy)};
    if (strategy == Strategy::column_wise)
      for (int k = 2; k <= layout.ranks() && k <= table.width; ++k)
        if (table.width % k == 0 && detail::worth_cutting(table, k, 1)) cut.parts = k;
    if ((strategy == Strategy::column_wise && cut.parts == 1) ||
        (strategy == Strategy::row_wise && !detail::worth_cutting(table, 1, layout.ranks())))
      cut.cut = Cut::table_wise;
    if (cut.cut == Cut::column_wise || cut.cut == Cut::table_wise)
      for (int k = 0; k < cut.parts; ++k) cut.places.push_back(next++ % layout.ranks());
    choice.tables.push_back(std::move(cut));
  }
  if (strategy == Strategy::memory_balanced || strategy == Strategy::memory_optimized)
    detail::place_whole_tables(strategy, layout, choice);
  return choice;
}

}}  // namespace tessera::v0
