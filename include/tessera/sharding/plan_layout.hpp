// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/sharding/planner.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera::inline v0 {

/// Tables and features on some ranks, before anything is cut. `features` empty: one per table. Its `fault` says what is wrong with them.
constexpr Layout uncut_layout(const Topology& topology, std::vector<TableSpec> tables, std::vector<FeatureSpec> features = {}) {
  Layout layout{.topology = topology, .tables = std::move(tables), .features = std::move(features)};
  const bool one_feature_per_table = layout.features.empty();
  if (one_feature_per_table)
    for (const TableSpec& table : layout.tables) layout.features.push_back({table.name, table.name, table.pooling});
  resolve_features(layout, one_feature_per_table);
  return layout;
}

/// Why nothing fits: the largest table, and the cheapest change that would help. Cutting every table by rows is what needs least memory.
constexpr PlanFault explain_no_fit(const Layout& tables, const Cluster& cluster, const Workload& workload,
                                   const PlanConstraints& constraints) {
  const auto least = [&](std::int64_t ranks, std::int64_t per_element) {
    std::int64_t bytes = 0;
    for (const TableSpec& t : tables.tables) bytes += (t.rows + ranks - 1) / ranks * (t.width * per_element + workload.memory.per_row);
    return bytes;
  };
  const std::int64_t capacity = std::max<std::int64_t>(cluster.memory_per_rank - constraints.reserve, 0);
  std::size_t largest = 0;
  std::int64_t most = -1;
  for (std::size_t t = 0; t < tables.tables.size(); ++t)
    if (const std::int64_t bytes = workload.memory.of({0, tables.tables[t].rows, 0, tables.tables[t].width}); bytes > most) {
      most = bytes;
      largest = t;
    }
  PlanFault fault = PlanFault::of(PlanFault::Kind::no_plan_fits, tables.tables[largest].name, most, capacity);
  const std::int64_t per_element = workload.memory.per_element;
  if (least(cluster.ranks, per_element) <= capacity) {
    fault.remedy = PlanFault::Remedy::lift_constraints;
  } else if (least(cluster.ranks, per_element) <= cluster.memory_per_rank) {
    fault.remedy = PlanFault::Remedy::free_reserve;
    fault.remedy_amount = constraints.reserve;
  } else if (workload.element_bytes == 4 && least(cluster.ranks, per_element - 2) <= capacity) {
    fault.remedy = PlanFault::Remedy::store_16_bit;
  } else if (capacity > 0) {
    std::int64_t ranks = std::max<std::int64_t>(cluster.ranks + 1, least(1, per_element) / capacity);
    const std::int64_t stop = 2 * ranks + 16;
    while (ranks < stop && least(ranks, per_element) > capacity) ++ranks;
    if (ranks < stop) {
      fault.remedy = PlanFault::Remedy::more_ranks;
      fault.remedy_amount = ranks;
    }
  }
  return fault;
}

/// Plans a model: rectangles and ranks for `ShardedCollection`. At run time and in constant expressions. Its `fault` is `no_plan_fits`
/// where no allowed plan fits, or says what is wrong with the tables; pins of unknown tables are `unknown_table`.
constexpr Layout plan_layout(Layout layout, const Cluster& cluster, const Workload& workload, const PlanConstraints& constraints = {}) {
  if (layout.fault.ok()) layout.fault = check_ranks(layout.topology);
  if (!layout.fault.ok()) return layout;
  const NameIndex names(layout.tables);
  for (const TablePin& pin : constraints.pins)
    if (names.find(layout.tables, pin.table) < 0) layout.fault = PlanFault::of(PlanFault::Kind::unknown_table, pin.table);
  if (!layout.fault.ok()) return layout;
  const CostModel model(layout.tables, layout.features, layout.feature_table, cluster, workload);
  const PlanChoice choice = Planner(layout, model, constraints).search();
  layout.shards = shards_of(choice, layout);
  layout.fault = choice.fits ? check_cover(layout) : explain_no_fit(layout, cluster, workload, constraints);
  return layout;
}
constexpr Layout plan_layout(std::vector<TableSpec> tables, std::vector<FeatureSpec> features, const Cluster& cluster,
                             const Workload& workload, const PlanConstraints& constraints = {}) {
  return plan_layout(uncut_layout(cluster.topology(), std::move(tables), std::move(features)), cluster, workload, constraints);
}

}  // namespace tessera::inline v0
