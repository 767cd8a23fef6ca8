// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/planner/planner.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

namespace detail {

/// Returns the bytes of a rank with every table cut by rows, which needs least memory. `others`: of
/// tables that say nothing of their own.
constexpr std::int64_t bytes_by_rows(const Layout& tables, const MemoryCost& others,
                                     std::int64_t ranks) {
  std::int64_t bytes = 0;
  for (const TableSpec& t : tables.tables)
    bytes += memory_cost(t, others).of({0, (t.rows + ranks - 1) / ranks, 0, t.width});
  return bytes;
}

/// Returns the fewest ranks, more than `ranks`, on which tables cut by rows take no more than
/// `capacity` bytes each; 0: no number does.
constexpr std::int64_t ranks_that_fit(const Layout& tables, const MemoryCost& cost,
                                      std::int64_t ranks, std::int64_t capacity) {
  std::int64_t low = ranks, high = 32767;  // bytes never grow with the ranks
  if (low >= high || bytes_by_rows(tables, cost, high) > capacity) return 0;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (bytes_by_rows(tables, cost, middle) <= capacity ? high : low) = middle;
  }
  return high;
}

/// Returns why nothing fits: the largest table, and the cheapest change that would help.
constexpr PlanFault explain_no_fit(const Layout& tables, const Cluster& cluster,
                                   const Workload& workload, const PlanConstraints& constraints) {
  const std::int64_t capacity =
      std::max<std::int64_t>(cluster.memory_per_rank - constraints.reserve, 0) +
      cluster.host_memory_per_rank + cluster.file_memory_per_rank;
  std::size_t largest = 0;
  std::int64_t most = -1;
  for (std::size_t t = 0; t < tables.tables.size(); ++t)
    if (const std::int64_t bytes = memory_cost(tables.tables[t], workload.memory)
                                       .of({0, tables.tables[t].rows, 0, tables.tables[t].width});
        bytes > most) {
      most = bytes;
      largest = t;
    }
  PlanFault fault =
      PlanFault::of(PlanFault::Kind::no_plan_fits, tables.tables[largest].name, most, capacity);
  const MemoryCost half{.per_element = workload.memory.per_element - 2,
                        .per_row = workload.memory.per_row};
  Layout halved = tables;
  for (TableSpec& table : halved.tables)
    if (table.bytes_per_element >= 0) table.bytes_per_element -= 2;
  const std::int64_t least = bytes_by_rows(tables, workload.memory, cluster.ranks);
  if (least <= capacity && constraints.pins.empty() && constraints.forbidden.empty()) {
    // caches of rows in host memory or files do not fit
  } else if (least <= capacity) {
    fault.remedy = PlanFault::Remedy::lift_constraints;
  } else if (least <= cluster.memory_per_rank + cluster.host_memory_per_rank +
                          cluster.file_memory_per_rank) {
    fault.remedy = PlanFault::Remedy::free_reserve;
    fault.remedy_amount = constraints.reserve;
  } else if (workload.element_bytes == 4 &&
             bytes_by_rows(halved, half, cluster.ranks) <= capacity) {
    fault.remedy = PlanFault::Remedy::store_16_bit;
  } else if (const std::int64_t ranks =
                 ranks_that_fit(tables, workload.memory, cluster.ranks, capacity);
             ranks > 0) {
    fault.remedy = PlanFault::Remedy::more_ranks;
    fault.remedy_amount = ranks;
  }
  return fault;
}

/// Returns what is wrong with the rectangles of the user's policies for the tables that they may
/// cut: gaps, overlaps, ranks that there are not.
constexpr PlanFault check_policies(Layout tables, const PlanConstraints& constraints) {
  const Topology& topology = tables.topology;
  const auto check = [&](std::size_t t, const PlannedPolicy& policy) {
    const TableSpec& table = tables.tables[t];
    Layout one{.topology = topology, .tables = {table}};
    const int count = policy.count(table, topology);
    for (int i = 0; i < count; ++i) {
      const auto [rectangle, place, tier, cache_rows] = policy.shard(table, topology, i);
      if (rectangle.empty()) continue;
      const bool member = place.kind == Place::Kind::node_member;
      if (member && place.index >= topology.node_size())
        return PlanFault::of(PlanFault::Kind::node_too_small, table.name, place.index,
                             topology.node_size());
      const bool placed = member || place.kind == Place::Kind::rank;
      one.shards.push_back({0, rectangle,
                            place.kind == Place::Kind::every ? every_rank
                            : placed                         ? place.index
                                                             : 0,
                            tier, cache_rows});
    }
    return check_cover(one);
  };
  for (std::size_t t = 0; t < tables.tables.size(); ++t) {
    const TablePin* pin = constraints.pin_of(tables.tables[t].name);
    if (pin != nullptr) {
      if (pin->cut != Cut::own) continue;
      if (!pin->policy.given())
        return PlanFault::of(PlanFault::Kind::no_policy, tables.tables[t].name);
      if (const PlanFault fault = check(t, pin->policy); !fault.ok()) return fault;
      continue;
    }
    for (const PlannedPolicy& policy : constraints.policies)
      if (const PlanFault fault = check(t, policy); !fault.ok()) return fault;
  }
  return {};
}

}  // namespace detail

/// Plans a model: rectangles and ranks for `LayoutCollection`. At run time and in constant
/// expressions. Its `fault` is `no_plan_fits` if no allowed plan fits, or says what is wrong
/// with the tables; pins of unknown tables are `unknown_pin`.
constexpr Layout plan_layout(Layout layout, const Cluster& cluster, const Workload& workload,
                             const detail::PlanConstraints& constraints = {}) {
  if (layout.fault.ok()) layout.fault = detail::check_ranks(layout.topology);
  if (!layout.fault.ok() || layout.tables.empty()) return layout;
  const detail::NameIndex names(layout.tables);
  for (const detail::TablePin& pin : constraints.pins)
    if (names.find(layout.tables, pin.table) < 0)
      layout.fault = PlanFault::of(PlanFault::Kind::unknown_pin, pin.table);
  if (layout.fault.ok()) layout.fault = detail::check_policies(layout, constraints);
  if (!layout.fault.ok()) return layout;
  const detail::CostModel model(layout.tables, layout.features, layout.feature_table, cluster,
                                workload);
  const detail::PlanChoice choice = detail::Planner(layout, model, constraints).search();
  layout.shards = shards_of(choice, layout);
  layout.fault = choice.fits ? detail::check_cover(layout)
                             : detail::explain_no_fit(layout, cluster, workload, constraints);
  return layout;
}
constexpr Layout plan_layout(std::vector<TableSpec> tables, std::vector<FeatureSpec> features,
                             const Cluster& cluster, const Workload& workload,
                             const detail::PlanConstraints& constraints = {}) {
  return plan_layout(uncut_layout(cluster.topology(), std::move(tables), std::move(features)),
                     cluster, workload, constraints);
}

}}  // namespace tessera::v0
