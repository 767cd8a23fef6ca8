// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Planning with an optimizer per table: each is priced by its own states.
#include <tessera/optimizer/optimizers.hpp>
#include <tessera/planner/auto_plan.hpp>
#include <tessera/planner/keep_on_host.hpp>
#include <tessera/tables/training_groups.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

using namespace tessera;

namespace {

using Wide = Table<"wide", 1'000'000, 16>;
using Item = Table<"item", 200'000, 64>;
using Text = Table<"text", 300'000, 32>;
using Model = TableList<Wide, Item, Text>;
constexpr Workload kWorkload{.batch = 8192, .memory = memory_cost_of<RowWiseAdagrad>};
// 12 bytes an element of wide; 4 and 4 a row of item; 4 of text
constexpr std::int64_t kBytes = 12'000'000 * std::int64_t{16} + 200'000 * 260 + 300'000 * 128;
template <std::int64_t Memory>
using PlanIn = AutoPlan<Model, Cluster{.ranks = 1, .memory_per_rank = Memory}, kWorkload,
                        Train<Adam, Wide>, Train<RowWiseAdagrad>, Frozen<Text>>;

}  // namespace

TEST_CASE("AutoPlan: training groups say what their tables keep") {
  constexpr auto tables = PlanIn<kBytes>::tables;
  static_assert(tables[0].bytes_per_element == 12 && tables[0].bytes_per_row == 0);
  static_assert(tables[1].bytes_per_element == 4 && tables[1].bytes_per_row == 4);
  static_assert(tables[2].bytes_per_element == 4 && tables[2].bytes_per_row == 0);
  const Layout layout = PlanIn<kBytes>::layout({1});
  CHECK(layout.fault.ok());
  CHECK(predict(layout, Cluster{.ranks = 1, .memory_per_rank = kBytes}, kWorkload).bytes ==
        std::vector<std::int64_t>{kBytes});
  CHECK(detail::check_memory(layout, kWorkload.memory, kBytes).ok());
  CHECK(detail::check_memory(layout, kWorkload.memory, kBytes - 1).found == kBytes);
}

TEST_CASE("the planner weighs each table's own optimizer, in memory and in time") {
  std::vector<TableSpec> tables{{"a", 100'000, 16}, {"b", 100'000, 16}};
  const auto layout_of = [&](std::vector<TableSpec> of) {
    return make_layout({2}, std::move(of), {},
                       {{0, {0, 100'000, 0, 16}, 0}, {1, {0, 100'000, 0, 16}, 1}});
  };
  const Cluster cluster{.ranks = 2};
  const detail::Prediction even = predict(layout_of(tables), cluster, kWorkload);
  CHECK(even.ranks[0].update == even.ranks[1].update);
  tables[1].bytes_per_element = 12;
  tables[1].bytes_per_row = 0;
  const detail::Prediction own = predict(layout_of(tables), cluster, kWorkload);
  CHECK(own.bytes == std::vector<std::int64_t>{100'000 * 68, 100'000 * 192});
  CHECK(own.ranks[0].update == even.ranks[0].update);
  CHECK(own.ranks[1].update > even.ranks[1].update);

  // what does not fit by the dearest fits by each table's own
  Layout start{.topology = {2}, .tables = tables};
  start.features = {{"a", "a"}, {"b", "b"}};
  detail::resolve_features(start, false);
  Cluster small = cluster;
  small.memory_per_rank = 100'000 * (68 + 192) / 2 + 1000;
  CHECK(plan_layout(start, small, kWorkload, {}).fault.ok());
  Layout dearest = start;
  for (TableSpec& table : dearest.tables) table.bytes_per_element = 12, table.bytes_per_row = 4;
  CHECK(plan_layout(dearest, small, kWorkload, {}).fault.kind == PlanFault::Kind::no_plan_fits);

  // tables with more state per use go to the host's memory first
  const Layout kept = detail::keep_on_host(layout_of(tables), kWorkload.memory, 100'000 * 70);
  CHECK(kept.fault.ok());
  CHECK(kept.shards[0].tier == Tier::device);
  CHECK(kept.shards[1].tier == Tier::host);
}
