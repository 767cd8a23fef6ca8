// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/sharding/cluster.hpp>
#include <tessera/sharding/placement.hpp>
#include <tessera/sharding/policies.hpp>
#include <tessera/sharding/sound_plan.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tessera { inline namespace v0 {

namespace detail {

/// Rows of a table that the plan leaves open, known when the collection is constructed.
struct TableRows {
  std::string_view table;
  std::int64_t rows = 0;
};

/// Replaces tables' rows; a name that no table has, or that comes twice, is the layout's fault.
constexpr void set_rows(Layout& layout, std::span<const TableRows> rows) {
  if (rows.empty()) return;
  const NameIndex names(layout.tables);
  std::vector<bool> given_before(layout.tables.size());
  for (const TableRows& given : rows) {
    const int table = names.find(layout.tables, given.table);
    if (table < 0) {
      layout.fault = PlanFault::of(PlanFault::Kind::unknown_rows, given.table);
    } else {
      if (given_before[table])
        layout.fault = PlanFault::of(PlanFault::Kind::rows_twice, given.table);
      given_before[table] = true;
      layout.tables[table].rows = given.rows;
    }
  }
}

/// Completes a layout whose tables, features and shards are there: resolves the features, chooses
/// ranks for the requests, and checks that tables are covered. The layout's fault says what is wrong.
constexpr void complete(Layout& layout, const std::vector<PlacementRequest>& requests,
                        bool one_feature_per_table, bool names_checked) {
  resolve_features(layout, one_feature_per_table, names_checked);
  if (!layout.fault.ok()) return;
  const Placement placement(layout, requests);
  if (layout.fault.ok()) layout.fault = check_cover(layout);
}

// The same two for programs that run, compiled once.
void set_rows_at_run_time(Layout& layout, std::span<const TableRows> rows);
void complete_at_run_time(Layout& layout, const std::vector<PlacementRequest>& requests,
                          bool one_feature_per_table, bool names_checked);

#ifdef TESSERA_INLINE
TESSERA_INLINE void set_rows_at_run_time(Layout& layout, std::span<const TableRows> rows) {
  set_rows(layout, rows);
}

TESSERA_INLINE void complete_at_run_time(Layout& layout,
                                         const std::vector<PlacementRequest>& requests,
                                         bool one_feature_per_table, bool names_checked) {
  complete(layout, requests, one_feature_per_table, names_checked);
}
#endif

/// The arithmetic of a plan: its tables, and its layout for any topology.
///
///     using P = Plan<RowWise<Query>, ColumnWise<2, User>, Replicated<Country>>;
///     static_assert(P::layout(Topology{4}).fault.ok());
template <class... Entries>
struct PlanArithmetic {
  static constexpr bool has_features = (FeatureList<Entries> || ...);

  template <class E>
  static constexpr std::size_t tables_of() {
    if constexpr (PlanEntry<E>) return E::tables::count;
    return 0;
  }
  static constexpr std::size_t table_count = (std::size_t{0} + ... + tables_of<Entries>());

  static constexpr std::array<TableSpec, table_count> all_tables() {
    std::array<TableSpec, table_count> all{};
    std::size_t n = 0;
    [[maybe_unused]] const auto append = [&]<class E>(std::type_identity<E>) {
      if constexpr (PlanEntry<E>)
        for (const TableSpec& spec : E::tables::specs) all[n++] = spec;
    };
    (append(std::type_identity<Entries>{}), ...);
    return all;
  }

  static constexpr auto tables = all_tables();

  /// Returns tables and rectangles, before features are resolved and places chosen.
  static constexpr Layout cut(const Topology& topology, std::span<const TableRows> rows,
                              std::vector<PlacementRequest>& requests) {
    Layout layout{.topology = topology};
    layout.tables.reserve(table_count);
    for (const TableSpec& table : tables) layout.tables.push_back(table);
    if (std::is_constant_evaluated())
      set_rows(layout, rows);
    else
      set_rows_at_run_time(layout, rows);
    layout.shards.reserve(table_count);
    requests.reserve(table_count);
    std::size_t first_table = 0;
    int units = 0;
    (add_requests<Entries>(layout, requests, first_table, units), ...);
    return layout;
  }

  static constexpr Layout layout(const Topology& topology, std::span<const TableRows> rows) {
    std::vector<PlacementRequest> requests;
    if (const PlanFault fault = check_ranks(topology); !fault.ok())
      return {.topology = topology, .feature_column = {0}, .fault = fault};
    Layout layout = cut(topology, rows, requests);
    add_features(layout);
    if (std::is_constant_evaluated())
      complete(layout, requests, !has_features, name_fault.ok());
    else
      complete_at_run_time(layout, requests, !has_features, name_fault.ok());
    return layout;
  }

  static constexpr void add_features(Layout& layout) {
    if constexpr (has_features) {
      [[maybe_unused]] const auto append = [&]<class E>(std::type_identity<E>) {
        if constexpr (FeatureList<E>)
          for (const FeatureSpec& feature : E::features) layout.features.push_back(feature);
      };
      (append(std::type_identity<Entries>{}), ...);
    } else {
      layout.features.reserve(table_count);
      for (const TableSpec& table : layout.tables)
        layout.features.push_back({table.name, table.name, table.pooling});
    }
  }

  template <class E>
  static constexpr void add_requests(Layout& layout, std::vector<PlacementRequest>& requests,
                                     std::size_t& first_table, int& units) {
    if constexpr (PlanEntry<E>) {
      std::vector<int> first_unit;
      for (std::size_t t = 0; t < E::tables::count; ++t) {
        const TableSpec& table = layout.tables[first_table + t];
        const int count = table.rows > 0 ? static_cast<int>(E::count(table, layout.topology)) : 0;
        const std::size_t leader = E::tables::fused_with[t];
        first_unit.push_back(leader == t ? units : first_unit[leader]);
        for (int i = 0; i < count; ++i) {
          const ShardRequest request = E::shard(table, layout.topology, i);
          if (request.rectangle.empty()) continue;
          const int unit =
              first_unit[t] +
              (request.place.kind == Place::Kind::node_member ? request.place.group : i);
          if (unit >= units) units = unit + 1;
          const int index = static_cast<int>(first_table + t);
          requests.push_back({index, request, unit});
          layout.shards.push_back(
              {index, request.rectangle, unplaced_rank, request.tier, request.cache_rows});
        }
      }
      first_table += E::tables::count;
    }
  }

  // Checks while compiling. Each is a constant expression of its own and none chooses places, so
  // that plans of hundreds of tables stay within compilers' limits. Tables whose rows are unknown
  // take part with 4096 rows: their cut is checked again when the rows are known.

  static constexpr Layout cut_for_check(int ranks) {
    Layout layout{.topology = Topology{ranks}};
    layout.tables.reserve(table_count);
    for (const TableSpec& table : tables) {
      layout.tables.push_back(table);
      if (table.rows == dynamic_rows) layout.tables.back().rows = 4096;
    }
    std::vector<PlacementRequest> requests;
    std::size_t first_table = 0;
    int units = 0;
    (add_requests<Entries>(layout, requests, first_table, units), ...);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const Place& place = requests[i].request.place;
      layout.shards[i].rank = place.kind == Place::Kind::every  ? every_rank
                              : place.kind == Place::Kind::rank ? place.index
                                                                : 0;
    }
    return layout;
  }

  /// Returns no fault if the names have one: a plan is blamed once.
  static constexpr PlanFault check_shards(int ranks) {
    return name_fault.ok() ? check_cover(cut_for_check(ranks)) : PlanFault{};
  }

  /// Returns tables and features alone.
  static constexpr Layout uncut() {
    Layout layout;
    layout.tables.reserve(table_count);
    for (const TableSpec& table : tables) {
      layout.tables.push_back(table);
      if (table.rows == dynamic_rows) layout.tables.back().rows = 4096;
    }
    add_features(layout);
    resolve_features(layout, !has_features);
    return layout;
  }

  static constexpr PlanFault check_names() {
    Layout layout = uncut();
    (check_columns<Entries>(layout), ...);
    return layout.fault;
  }

  template <class E>
  static constexpr void check_columns(Layout& layout) {
    if constexpr (PlanEntry<E> && requires { E::column_parts; })
      for (const TableSpec& table : E::tables::specs)
        if (layout.fault.ok() && table.width % E::column_parts != 0)
          layout.fault = PlanFault::of(PlanFault::Kind::uneven_columns, table.name, E::column_parts,
                                       table.width);
  }

  static constexpr PlanFault name_fault = check_names();

  /// Returns whether `found(table, request)` holds for a rectangle. Without a Layout, and so
  /// without memory: what the compiler asks of every plan costs it little.
  template <class Found>
  static constexpr bool any_request(int ranks, const Found& found) {
    return (any_request_of<Entries>(Topology{ranks}, found) || ...);
  }
  template <class E, class Found>
  static constexpr bool any_request_of(const Topology& topology, const Found& found) {
    if constexpr (PlanEntry<E>)
      for (const TableSpec& spec : E::tables::specs)
        // a policy may cut few rows otherwise than many
        for (const std::int64_t rows : {std::int64_t{1} << 12, std::int64_t{1} << 24}) {
          TableSpec table = spec;
          if (spec.rows == dynamic_rows) table.rows = rows;
          const int count = table.rows > 0 ? static_cast<int>(E::count(table, topology)) : 0;
          for (int i = 0; i < count; ++i)
            if (const ShardRequest request = E::shard(table, topology, i);
                !request.rectangle.empty() && found(table, request))
              return true;
          if (spec.rows != dynamic_rows) break;
        }
    return false;
  }

  static constexpr std::vector<int> shard_widths() {
    std::vector<int> widths;
    for (const int ranks : {1, 2, 4})
      any_request(ranks, [&](const TableSpec&, const ShardRequest& request) {
        const int width = request.rectangle.width();
        if (std::find(widths.begin(), widths.end(), width) == widths.end()) widths.push_back(width);
        return false;
      });
    std::sort(widths.begin(), widths.end());
    return widths;
  }
  static constexpr bool replicates() {
    return any_request(2, [](const TableSpec&, const ShardRequest& request) {
      return request.place.kind == Place::Kind::every;
    });
  }
  static constexpr bool uses_tiers() {
    const auto elsewhere = [](const TableSpec&, const ShardRequest& request) {
      return request.tier != Tier::device;
    };
    return any_request(1, elsewhere) || any_request(2, elsewhere) || any_request(4, elsewhere);
  }
  static constexpr bool exchanges() {
    return any_request(2, [](const TableSpec& table, const ShardRequest& request) {
      return request.place.kind != Place::Kind::every || request.rectangle.rows() != table.rows;
    });
  }
  static constexpr std::vector<int> row_widths() {
    std::vector<int> widths;
    for (const TableSpec& table : tables)
      if (std::find(widths.begin(), widths.end(), table.width) == widths.end())
        widths.push_back(table.width);
    std::sort(widths.begin(), widths.end());
    return widths;
  }

  template <class E>
  static constexpr bool keeps_rows_whole() {
    if constexpr (requires { E::whole_rows; })
      return E::whole_rows;
    else
      return FeatureList<E>;
  }
  template <class E>
  static constexpr bool tells_widths() {
    return keeps_rows_whole<E>() || requires { E::column_parts; };
  }
};

/// Returns what `widths()` returns, as an array.
template <auto Found>
constexpr auto array_of() {
  constexpr std::size_t size = Found().size();
  std::array<int, size> result{};
  const std::vector<int> found = Found();
  std::copy(found.begin(), found.end(), result.begin());
  return result;
}

}  // namespace detail

/// The tables of a model, each with the policy that cuts it: `Plan<RowWise<Query>, ColumnWise<4,
/// User>, TableWise<Fused<A, B>>>`. An entry `Features<...>` lists the features (several may read
/// one table) in output order; without it every table has one.
template <class... Entries>
class Plan {
  static_assert((detail::CheckedEntry<Entries>::value && ...));
  static_assert((0 + ... + int{detail::FeatureList<Entries>}) <= 1,
                "Plan: give one Features<...> that lists all features");
  using Arithmetic = detail::PlanArithmetic<Entries...>;
  static_assert(SoundPlan<Arithmetic::name_fault, Entries...>::value);
  static_assert(SoundPlan<Arithmetic::check_shards(1), Entries...>::value &&
                SoundPlan<Arithmetic::check_shards(2), Entries...>::value &&
                SoundPlan<Arithmetic::check_shards(4), Entries...>::value);

 public:
  static constexpr std::size_t table_count = Arithmetic::table_count;

  /// All tables, in the order of the plan.
  static constexpr std::array<TableSpec, table_count> tables = Arithmetic::tables;

  /// Number of features, and the width of their vectors if it is the same for all: what a dot
  /// interaction takes (DotFor).
  static constexpr detail::FeatureShape feature_shape =
      detail::shape_of_features(Arithmetic::uncut());

  /// Whether some rectangle has a copy on every rank.
  static constexpr bool replicates = Arithmetic::replicates();
  /// Whether some rectangle is kept out of the device's memory (OnHost, OnFile).
  static constexpr bool uses_tiers = Arithmetic::uses_tiers();
  /// Whether ids and vectors pass between ranks: not if every rank has all tables whole.
  static constexpr bool exchanges = Arithmetic::exchanges();

  /// Whether some feature is a sequence or pooled by max: code for those is compiled.
  static constexpr bool keeps_rows = tessera::detail::keeps_rows(Arithmetic::uncut());

  /// Whether every policy says that it cuts no columns (docs/concepts/sharding_policy.md): code for
  /// cut ones is not compiled.
  static constexpr bool whole_rows = (Arithmetic::template keeps_rows_whole<Entries>() && ...);

  /// Works the plan out for a number of ranks. Runs at compile time and at run time alike; never
  /// throws for a bad plan: the result's `fault` says what is wrong. `rows` fills in (or replaces)
  /// tables' rows.
  static constexpr Layout layout(const Topology& topology,
                                 std::span<const detail::TableRows> rows = {}) {
    return Arithmetic::layout(topology, rows);
  }

  /// Whether every policy says which columns it cuts, by whole_rows or column_parts: `widths` are all
  /// that there are.
  static constexpr bool known_widths = (Arithmetic::template tells_widths<Entries>() && ...);

  /// Distinct shard widths, seen at 1, 2 and 4 ranks, in ascending order. Kernels are instantiated
  /// for these; any other width that a policy may produce is served by the kernels for widths known
  /// at run time, which a plan of known_widths does not compile.
  static constexpr auto widths = detail::array_of<Arithmetic::shard_widths>();
  /// Distinct widths of the tables.
  static constexpr auto table_widths = detail::array_of<Arithmetic::row_widths>();
};

namespace detail {

/// Returns bytes of a rank's tables in a tier's memory; a cache is in the device's. `cost`: of
/// tables that say none.
constexpr std::int64_t bytes_in(const Layout& layout, const MemoryCost& cost, int rank, Tier tier) {
  std::int64_t bytes = 0;
  for (const Shard& shard : layout.shards)
    if (shard.held_by(rank))
      bytes += bytes_in(shard, memory_cost(layout.tables[shard.table], cost), tier);
  return bytes;
}

/// Returns no fault if every rank's tables, and the caches of others, fit into its memory, and
/// those OnHost into its share of the host's (0: no limit there); else names the largest table of
/// the fullest rank, what is needed and what is there. `costs`: by table.
constexpr PlanFault check_memory(const Layout& layout, std::span<const MemoryCost> costs,
                                 std::int64_t memory_per_rank,
                                 std::int64_t host_memory_per_rank = 0) {
  if (!layout.fault.ok()) return layout.fault;
  PlanFault fault;
  for (const Tier tier : {Tier::device, Tier::host}) {
    const std::int64_t room = tier == Tier::device ? memory_per_rank : host_memory_per_rank;
    if (!fault.ok() || (tier == Tier::host && room == 0)) continue;
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      std::int64_t need = 0;
      const Shard* largest = nullptr;
      for (const Shard& shard : layout.shards) {
        if (!shard.held_by(rank)) continue;
        if (shard.rows_in(tier).empty()) continue;
        need += bytes_in(shard, costs[static_cast<std::size_t>(shard.table)], tier);
        if (largest == nullptr || shard.rectangle.elements() > largest->rectangle.elements())
          largest = &shard;
      }
      if (need <= room || need <= fault.found) continue;
      fault = PlanFault::of(
          tier == Tier::device ? PlanFault::Kind::does_not_fit : PlanFault::Kind::does_not_fit_host,
          layout.tables[largest->table].name, need, room);
    }
  }
  return fault;
}

/// Does the same if all tables cost as much, but those that say what they cost.
constexpr PlanFault check_memory(const Layout& layout, const MemoryCost& cost,
                                 std::int64_t memory_per_rank,
                                 std::int64_t host_memory_per_rank = 0) {
  std::vector<MemoryCost> costs;
  for (const TableSpec& table : layout.tables) costs.push_back(memory_cost(table, cost));
  return check_memory(layout, costs, memory_per_rank, host_memory_per_rank);
}

}  // namespace detail

}}  // namespace tessera::v0
