// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/planner/auto_plan.hpp>
#include <tessera/planner/explain_plan.hpp>
#include <tessera/planner/keep_on_host.hpp>

#include <sharding/random_model.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

using namespace tessera;

namespace {

Cluster host(int ranks, int per_node = 0) {
  return {.ranks = ranks,
          .ranks_per_node = per_node,
          .stream_bandwidth = 1e10,
          .gather_bandwidth = 8e9,
          .cache_bandwidth = 3e10,
          .lookup_seconds = 2e-9,
          .route_seconds = 3e-9,
          .merge_seconds = 1e-8,
          .launch_seconds = 1e-5,
          .node_bandwidth = 5e9,
          .node_latency = 2e-6,
          .network_bandwidth = 1e9,
          .network_latency = 1e-5};
}

}  // namespace

TEST_CASE("plans are sound, fit, and are never slower than a plain strategy that fits") {
  int fitting = 0;
  for (unsigned seed = 0; seed < 24; ++seed) {
    const RandomModel model(seed, 5 + seed % 30);
    const int ranks = static_cast<int>(1 + seed * 7 % 16), per_node = seed % 3 == 0 ? 4 : 0;
    Workload workload{.batch = 4096, .sorted_ids = seed % 2 == 1};
    std::int64_t total = 0;
    for (const TableSpec& t : model.tables) total += workload.memory.of({0, t.rows, 0, t.width});
    for (const double room : {0.0, 1.2, 3.0}) {
      CAPTURE(seed);
      CAPTURE(room);
      Cluster cluster = seed % 4 == 0 ? dgx_a100(ranks) : host(ranks, per_node);
      cluster.memory_per_rank =
          static_cast<std::int64_t>(room * static_cast<double>(total) / ranks);
      const Layout layout =
          plan_layout(model.tables, model.features, cluster, workload, {.effort = 2'000'000});
      Layout plain = uncut_layout(cluster.topology(), model.tables, model.features);
      const double planned =
          layout.fault.ok() ? predict(layout, cluster, workload).step_seconds : 1e300;
      if (layout.fault.ok()) {
        ++fitting;
        CHECK(describe(detail::check_cover(layout)) == "no fault");
        // few, wide shards: no part of fewer than 4 columns, none of a table that is small already
        std::vector<std::int64_t> parts(layout.tables.size(), 0);
        for (const Shard& s : layout.shards) {
          CHECK(s.rectangle.width() >= 4);
          ++parts[static_cast<std::size_t>(s.table)];
        }
        for (std::size_t t = 0; t < parts.size(); ++t)
          CHECK((parts[t] == 1 || model.tables[t].rows * model.tables[t].width >= 512 * parts[t]));
        if (cluster.memory_per_rank > 0)
          CHECK(describe(detail::check_memory(layout, workload.memory, cluster.memory_per_rank)) ==
                "no fault");
      } else {
        CHECK(layout.fault.kind == PlanFault::Kind::no_plan_fits);
      }
      for (const Strategy s : detail::all_strategies) {
        plain.shards = shards_of(strategy_choice(s, plain), plain);
        CHECK(describe(detail::check_cover(plain)) == "no fault");
        if (cluster.memory_per_rank > 0 &&
            !detail::check_memory(plain, workload.memory, cluster.memory_per_rank).ok())
          continue;
        CAPTURE(to_string(s));
        CHECK(planned <= predict(plain, cluster, workload).step_seconds);
      }
    }
  }
  CHECK(fitting > 60);
}

TEST_CASE("Merlin's strategies, by hand") {
  Layout layout =
      uncut_layout({2}, {{"a", 10, 1}, {"b", 40, 1}, {"c", 20, 1}, {"d", 30, 1}, {"e", 30, 1}});
  const auto ranks = [&](Strategy s) {
    std::vector<int> all;
    for (const Shard& shard : shards_of(strategy_choice(s, layout), layout))
      all.push_back(shard.rank);
    return all;
  };
  CHECK(ranks(Strategy::round_robin) == std::vector<int>{0, 1, 0, 1, 0});
  // Largest first: b, e, d, c, a (of equal ones the later first). There and back: 0 1 1 0 0. Least
  // loaded: b 0, e 1, d 1, c 0, a 0 or 1.
  CHECK(ranks(Strategy::memory_balanced) == std::vector<int>{0, 0, 0, 1, 1});
  CHECK(ranks(Strategy::memory_optimized) == std::vector<int>{0, 0, 0, 1, 1});
}

TEST_CASE("constraints hold: pins, forbidden cuts, reserve") {
  const RandomModel model(3, 20);
  const Cluster cluster = host(8, 4);
  const Workload workload{.batch = 4096};
  const auto plan = [&](detail::PlanConstraints c) {
    c.effort = 2'000'000;
    return plan_layout(model.tables, model.features, cluster, workload, c);
  };
  std::size_t large = 0;
  for (std::size_t t = 0; t < model.tables.size(); ++t)
    if (model.tables[t].rows > model.tables[large].rows) large = t;
  const std::string name(model.tables[large].name);
  for (const Cut cut :
       {Cut::replicated, Cut::table_wise, Cut::column_wise, Cut::row_wise, Cut::grid}) {
    const Layout layout =
        plan({.pins = {{.table = name,
                        .cut = cut,
                        .parts = cut == Cut::column_wise || cut == Cut::grid ? 2 : 0}}});
    REQUIRE(layout.fault.ok());
    const char* expected[] = {"replicated", "1x1", "1x2", "8x1", "4x2"};
    CHECK(cut_of_table(layout, name) == expected[static_cast<int>(cut)]);
  }
  const Layout on5 = plan({.pins = {{.table = name, .cut = Cut::table_wise, .rank = 5}}});
  for (const Shard& s : on5.shards)
    if (on5.tables[s.table].name == name) CHECK(s.rank == 5);
  const Layout whole =
      plan({.forbidden = {Cut::replicated, Cut::column_wise, Cut::row_wise, Cut::grid}});
  for (const TableSpec& t : model.tables) CHECK(cut_of_table(whole, t.name) == "1x1");
  const Layout columns = plan({.forbidden = {Cut::replicated, Cut::row_wise, Cut::grid}});
  for (const TableSpec& t : model.tables) CHECK(cut_of_table(columns, t.name).substr(0, 2) == "1x");
  CHECK(describe(plan({.pins = {{.table = "nobody", .cut = Cut::row_wise}}}).fault) ==
        "AutoPlan: a pin names table 'nobody', which the plan does not hold");
  Cluster full = cluster;
  full.memory_per_rank = predict(plan({}), cluster, workload).most_bytes();
  const std::int64_t reserve = full.memory_per_rank / 20;
  const Layout tight =
      plan_layout(model.tables, model.features, full, workload, {.reserve = reserve});
  if (tight.fault.ok())
    CHECK(predict(tight, full, workload).most_bytes() <= full.memory_per_rank - reserve);
}

TEST_CASE("what does not fit is explained") {
  // 516,068,000 bytes with 4 a row
  const std::vector<TableSpec> tables{{"small", 1000, 16}, {"query", 1'000'000, 128}};
  const auto fault = [&](std::int64_t memory, const detail::PlanConstraints& c = {}) {
    Cluster cluster = host(4);
    cluster.memory_per_rank = memory;
    return describe(plan_layout(tables, {}, cluster, {}, c).fault);
  };
  CHECK(fault(130'000'000) == "no fault");
  CHECK(fault(120'000'000) ==
        "AutoPlan: no plan fits: table 'query' has 492.1 MiB, and with the others it exceeds ranks "
        "of "
        "114.4 MiB; with tables of 16-bit elements it would fit");
  CHECK(fault(60'000'000).find("with 9 ranks it would fit") != std::string::npos);
  CHECK(fault(130'000'000, {.forbidden = {Cut::row_wise, Cut::column_wise, Cut::grid}})
            .find("without the pins and forbidden") != std::string::npos);
  CHECK(fault(130'000'000, {.reserve = 20'000'000}).find("without the reserve of 19.1 MiB") !=
        std::string::npos);
  CHECK(fault(0).find("no fault") == 0);  // 0: no limit
}

TEST_CASE("the step with another cut of a table is what the model says of that plan") {
  for (const bool sorted : {false, true}) {
    const RandomModel model(5, 12);
    Cluster cluster = host(8, 4);
    cluster.concurrent_ranks = sorted ? 2 : 0;
    const Workload workload{
        .batch = 4096, .sorted_ids = sorted, .dense_flops = 1e6, .dense_parameters = 1000};
    const Layout layout =
        plan_layout(model.tables, model.features, cluster, workload, {.effort = 2'000'000});
    const detail::CostModel costs(layout.tables, layout.features, layout.feature_table, cluster,
                                  workload);
    std::vector<int> tables;
    for (int t = 0; t < 12; ++t) tables.push_back(t);
    for (const detail::CutReason& r : detail::explain_cuts(layout, costs, {}, tables)) {
      CAPTURE(r.table);
      CHECK(r.step_seconds == predict(layout, costs).step_seconds);
      REQUIRE(r.best.step_seconds > 0);
      Layout other = layout;
      std::erase_if(other.shards, [&](const Shard& s) { return s.table == r.table; });
      detail::append_shards(other.shards, r.table, layout.tables[r.table], r.best.cut,
                            layout.topology);
      const detail::Prediction p = predict(other, costs);
      CHECK(std::abs(p.step_seconds / r.best.step_seconds - 1) < 1e-9);
      CHECK(p.most_bytes() == r.best.most_bytes);
      CHECK(describe(r).find(describe(r.best.cut)) != std::string::npos);
    }
    const detail::RunnerUp next = detail::runner_up(layout, costs, {});
    CHECK(next.seconds >= predict(layout, costs).step_seconds);
  }
}

TEST_CASE("a reason says what is true of its numbers") {
  const std::int64_t mib = std::int64_t{1} << 20, gib = 1024 * mib;
  const detail::CutReason::Other none;
  const auto other = [&](Cut cut, double milliseconds, std::int64_t bytes, int rectangles = 1) {
    return detail::CutReason::Other{{.cut = cut}, 1e-3 * milliseconds, bytes, "update", rectangles};
  };
  const auto text = [&](const detail::CutReason::Other& best,
                        const detail::CutReason::Other& full = {}, Cut cut = Cut::table_wise,
                        std::int64_t bytes = 1 << 20, bool pinned = false, int ranks = 8) {
    return describe(detail::CutReason{.cut = {.cut = cut},
                                      .pinned = pinned,
                                      .ranks = ranks,
                                      .step_seconds = 1e-3,
                                      .bytes = bytes,
                                      .most_bytes = 10 * gib,
                                      .room = 80 * gib,
                                      .best = best,
                                      .without_room = full});
  };
  const detail::CutReason::Other slower = other(Cut::row_wise, 1.2, 10 * gib);
  CHECK(text(none, none, Cut::row_wise, mib, true) == "pinned");
  CHECK(text(none, none, Cut::row_wise, mib, false, 1) == "there is one rank");
  CHECK(text(none) == "no other cut is allowed");
  CHECK(text(none, other(Cut::replicated, 2, 90 * gib)) == "no other cut fits");
  CHECK(text(slower) ==
        "the next best, row-wise, makes the step 0.200 ms (20.0 %) longer, mostly in update");
  CHECK(text(slower, none, Cut::grid, 90 * gib)
            .find("larger than a rank's memory (90.0 GiB of 80.0 GiB); ") == 0);
  CHECK(text(slower, none, Cut::replicated)
            .find("a copy on every rank (1.0 MiB) needs no exchange; ") == 0);
  CHECK(
      text(slower, other(Cut::replicated, 0.9, 90 * gib))
          .find(
              "replicated would be 10.0 % faster, but a rank would hold 90.0 GiB of 80.0 GiB; ") ==
      0);
  CHECK(text(slower, other(Cut::replicated, 1.1, 90 * gib)) == text(slower));
  CHECK(text(other(Cut::row_wise, 1.0005, 10 * gib)) == "row-wise would take as long");
  CHECK(text(other(Cut::row_wise, 0.9, 20 * gib)) ==
        "row-wise would be 10.0 % faster, but the fullest rank would hold 20.0 GiB of 80.0 GiB "
        "instead of 10.0 GiB");
  // no memory that is hardly more, and no rectangles, explain a tenth of a step
  for (const int rectangles : {1, 8})
    CHECK(text(other(Cut::row_wise, 0.9, 10 * gib + mib / 5, rectangles)) ==
          "row-wise would be 10.0 % faster, but the search does not try every plan");
  CHECK(text(other(Cut::row_wise, 0.998, 10 * gib, 8)) ==
        "row-wise would be 0.2 % faster, but it needs 8 rectangles instead of 1");
}

TEST_CASE("times that are not zero do not look like zero") {
  CHECK(detail::milliseconds_text(0) == "0");
  CHECK(detail::milliseconds_text(5.183e-3) == "5.183");
  for (double seconds = 1.001e-9; seconds < 10; seconds *= 1.7)
    for (const double sign : {1.0, -1.0}) {
      CAPTURE(seconds);
      const double read = 1e-3 * std::stod(detail::milliseconds_text(sign * seconds));
      CHECK(std::abs(read / (sign * seconds) - 1) < (seconds > 1e-7 ? 0.01 : 0.5));
    }
}

TEST_CASE("a little memory of much costs no part of a step that shows") {
  const Cluster cluster = dgx_a100(8);
  const Layout layout = uncut_layout(cluster.topology(), {{"a", 100, 8}});
  const detail::CostModel costs(layout.tables, layout.features, layout.feature_table, cluster, {});
  const std::vector<detail::CutOption> options;
  detail::PartPlacement placement(layout, costs, options);
  placement.limits().balance = 1;
  const double mib = 1 << 20, room = static_cast<double>(cluster.memory_per_rank);
  placement.limits().room.device = cluster.memory_per_rank;
  // the fullest rank has three even shares and 0.2 MiB more than one, of 80 GB
  placement.limits().even = 0.1 * mib;
  CHECK(placement.memory_price(0.3 * mib) < 1.0021);
  CHECK(placement.memory_price(0.3 * mib) > 1);
  CHECK(placement.memory_price(0.1 * mib) == 1);
  // a tenth of all there is beyond level memory costs a tenth
  placement.limits().even = room / 10;
  CHECK(std::abs(placement.memory_price(0.205 * room) - 1.1) < 0.0021);
}

TEST_CASE("the runner-up keeps pins and forbidden cuts, and a faster one is said to be faster") {
  const RandomModel model(7, 12);
  const Cluster cluster = host(8, 4);
  const Workload workload{.batch = 4096};
  const std::string pinned = model.names[4];
  const detail::PlanConstraints constraints{
      .pins = {{.table = pinned, .cut = Cut::table_wise, .rank = 5}},
      .forbidden = {Cut::replicated, Cut::column_wise},
      .effort = 2'000'000};
  const Layout layout = plan_layout(model.tables, model.features, cluster, workload, constraints);
  const detail::CostModel costs(layout.tables, layout.features, layout.feature_table, cluster,
                                workload);
  const double step = predict(layout, costs).step_seconds;
  // of the strategies that are allowed, with the pinned table on its rank
  double least = INFINITY;
  for (const Strategy s : detail::all_strategies) {
    if (s == Strategy::replicated || s == Strategy::column_wise) continue;
    detail::PlanChoice choice = strategy_choice(s, layout);
    choice.tables[4] = {.cut = Cut::table_wise, .places = {5}};
    Layout other = layout;
    other.shards = shards_of(choice, layout);
    least = std::min(least, predict(other, costs).step_seconds);
  }
  const detail::RunnerUp next = detail::runner_up(layout, costs, constraints);
  CHECK(next.seconds == doctest::Approx(least).epsilon(1e-12));
  CHECK(next.name != "replicated");
  CHECK(next.name != "column-wise");
  CHECK(detail::describe_margin(next, step, true).find("runner-up: ") == 0);
  // a plan that is worse than a plain one
  Layout poor = layout;
  poor.shards.clear();
  for (int t = 0; t < 12; ++t)
    detail::append_shards(poor.shards, t, poor.tables[static_cast<std::size_t>(t)],
                          {.cut = Cut::table_wise, .places = {0}}, poor.topology);
  const double slow = predict(poor, costs).step_seconds;
  const detail::RunnerUp faster = detail::runner_up(poor, costs, {});
  REQUIRE(faster.seconds < slow);
  CHECK(detail::describe_margin(faster, slow, true)
            .find("a plain strategy is faster than this plan: " + std::string(faster.name)) == 0);
}

TEST_CASE("hundreds of tables on many ranks: memory is level") {
  const RandomModel model(11, 600);
  const Cluster cluster = host(32, 8);
  const Workload workload{.batch = 65536};
  const Layout layout = plan_layout(model.tables, model.features, cluster, workload);
  REQUIRE(layout.fault.ok());
  CHECK(predict(layout, cluster, workload).memory_imbalance() < 1.1);
}

TEST_CASE("memory shared out evenly, where it can be") {
  int level = 0;
  for (unsigned seed = 40; seed < 46; ++seed) {
    CAPTURE(seed);
    const RandomModel model(seed, 12);
    const Cluster cluster = host(8, 4);
    const Workload workload{.batch = 4096};
    const Layout layout = plan_layout(model.tables, model.features, cluster, workload,
                                      {.memory_share = 1.05, .effort = 500'000});
    REQUIRE(layout.fault.ok());
    CHECK(describe(detail::check_cover(layout)) == "no fault");
    double even = 0;
    for (const TableSpec& t : model.tables)
      even += static_cast<double>(workload.memory.of({0, t.rows, 0, t.width})) / 8;
    Layout rows = uncut_layout(cluster.topology(), model.tables, model.features);
    rows.shards = shards_of(strategy_choice(Strategy::row_wise, rows), rows);
    if (static_cast<double>(predict(rows, cluster, workload).most_bytes()) > 1.05 * even) continue;
    ++level;
    CHECK(static_cast<double>(predict(layout, cluster, workload).most_bytes()) <= 1.05 * even);
  }
  CHECK(level > 3);
  // One row cannot be shared out: there is a plan all the same.
  const Layout one = plan_layout({{"one", 1, 4}, {"two", 1, 4}, {"three", 1, 4}}, {}, host(2),
                                 {.batch = 64}, {.memory_share = 1.05});
  CHECK(one.fault.ok());
}

// What the compiler chooses.
using Query = Table<"query", 40'000'000, 128>;
using User = Table<"user", 3'000'000, 64>;
using Item = Table<"item", 200'000, 64>;
using Country = Table<"country", 250, 16>;
using Model = TableList<Query, User, Item, Country>;
constexpr Cluster kCluster{.ranks = 8, .ranks_per_node = 4, .memory_per_rank = 6_GiB};
using Auto = AutoPlan<Model, kCluster, Workload{.batch = 8192}>;
static_assert(Auto::layout({8}).fault.ok());
static_assert(detail::check_cover(Auto::layout({8})).ok());
static_assert(detail::check_memory(Auto::layout({8}), {4, 4}, 6_GiB).ok());
static_assert(Auto::layout({8}).columns() == 128 + 64 + 64 + 16);
static_assert(Auto::table_count == 4 && Auto::replicates);

using Pinned = AutoPlan<Model, kCluster, Workload{.batch = 8192}, Pin<"user", Cut::column_wise, 4>,
                        Pin<"item", Cut::table_wise, 0, 6>, Forbid<Cut::replicated>, Reserve<1_GiB>,
                        BalanceMemory<150>,
                        Features<Feature<"q", "query">, Feature<"u", "user">, Feature<"v", "user">,
                                 Feature<"i", "item">, Feature<"c", "country">>>;
static_assert(!Pinned::replicates &&
              std::find(Pinned::widths.begin(), Pinned::widths.end(), 16) != Pinned::widths.end());

TEST_CASE("the compiler's plan is the one that runs") {
  const Layout layout = Auto::layout({8});
  const Layout again = Auto::layout({8, 4});
  CHECK(layout.topology == Topology{8, 4});
  REQUIRE(layout.shards.size() == again.shards.size());
  constexpr std::size_t shards = Auto::layout({8}).shards.size();
  CHECK(layout.shards.size() == shards);
  const Layout pinned = Pinned::layout({8});
  CHECK(cut_of_table(pinned, "user") == "1x4");
  CHECK(pinned.features.size() == 5);
  for (const Shard& s : pinned.shards)
    if (pinned.tables[s.table].name == "item") CHECK(s.rank == 6);
  // Other ranks, other rows: chosen when it runs.
  for (const int ranks : {1, 3, 16})
    CHECK(describe(detail::check_cover(Auto::layout({ranks}))) == "no fault");
  const detail::TableRows rows[] = {{"country", 300}};
  CHECK(Auto::layout({8}, rows).tables[3].rows == 300);
  const detail::TableRows wrong[] = {{"nobody", 300}};
  CHECK(Auto::layout({8}, wrong).fault.kind == PlanFault::Kind::unknown_rows);
  const detail::TableRows twice[] = {{"country", 300}, {"user", 300}, {"country", 300}};
  CHECK(describe(Auto::layout({8}, twice).fault) ==
        "Plan: rows are given twice for table 'country'");
  using Dynamic = AutoPlan<TableList<Table<"a", dynamic_rows, 8>, Country>, kCluster, Workload{}>;
  const detail::TableRows given[] = {{"a", 1000}};
  CHECK(Dynamic::layout({4}, given).fault.ok());
  CHECK(Dynamic::layout({4}).fault.kind == PlanFault::Kind::no_rows);
}

TEST_CASE("rounds keep memory for the tables that come later") {
  for (const int ranks : {2, 8, 32}) {
    const RandomModel model(static_cast<unsigned>(ranks), 120);
    Cluster cluster = dgx_a100(ranks);
    const Workload workload{};
    std::int64_t total = 0;
    for (const TableSpec& t : model.tables) total += workload.memory.of({0, t.rows, 0, t.width});
    cluster.memory_per_rank = total / ranks * 13 / 10;
    Layout layout = uncut_layout(cluster.topology(), model.tables, model.features);
    const detail::PlanChoice choice = detail::plan_in_rounds(layout, cluster, workload, {});
    CHECK(choice.fits);
    layout.shards = shards_of(choice, layout);
    CHECK(describe(detail::check_cover(layout)) == "no fault");
    CHECK(predict(layout, cluster, workload).most_bytes() <= cluster.memory_per_rank);
  }
}

// ---- policies of the user's ----

namespace {

/// A copy of the first rows everywhere, the others by rows.
template <std::int64_t HotRows>
struct HotRowsReplicated {
  static constexpr int count(const TableSpec&, const Topology& topology) {
    return 1 + topology.ranks;
  }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int i) {
    const std::int64_t hot = std::min(HotRows, table.rows), rest = table.rows - hot;
    if (i == 0) return {{0, hot, 0, table.width}, {.kind = Place::Kind::every}};
    return {{hot + even_cut(rest, topology.ranks, i - 1), hot + even_cut(rest, topology.ranks, i),
             0, table.width},
            {.kind = Place::Kind::rank, .index = i - 1}};
  }
};

/// A third of the rows on any rank, the others in two columns over the ranks of a node each, the
/// columns' rectangles in turn.
struct AllPlaces {
  static constexpr int count(const TableSpec&, const Topology& topology) {
    return 1 + 2 * topology.node_size();
  }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int i) {
    const std::int64_t first = table.rows / 3, rest = table.rows - first;
    if (i == 0) return {{0, first, 0, table.width}, {}};
    const int member = (i - 1) / 2, column = (i - 1) % 2, size = topology.node_size();
    return {{first + even_cut(rest, size, member), first + even_cut(rest, size, member + 1),
             column * (table.width / 2), column == 0 ? table.width / 2 : table.width},
            {.kind = Place::Kind::node_member, .index = member, .group = 7 - column}};
  }
};

/// Leaves the last row out.
struct LastRowMissing {
  static constexpr int count(const TableSpec&, const Topology&) { return 1; }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology&, int) {
    return {{0, table.rows - 1, 0, table.width}, {}};
  }
};

struct OnRank99 {
  static constexpr int count(const TableSpec&, const Topology&) { return 1; }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology&, int) {
    return {{0, table.rows, 0, table.width}, {.kind = Place::Kind::rank, .index = 99}};
  }
};

}  // namespace

TEST_CASE("a policy asked for its rectangles costs what the plain cut of its name costs") {
  const RandomModel model(7, 12);
  for (const bool sorted : {false, true}) {
    const Cluster cluster = host(8, 4);
    const Workload workload{.batch = 4096, .sorted_ids = sorted};
    const Layout layout = uncut_layout(cluster.topology(), model.tables, model.features);
    const detail::CostModel costs(layout.tables, layout.features, layout.feature_table, cluster,
                                  workload);
    const auto same = [&](int t, Cut cut, int parts, const detail::PlannedPolicy& policy) {
      // even blocks: of equal rows, which the plain cut's price supposes
      if (layout.tables[t].rows % 8 != 0 && !sorted) return;
      const detail::CutOption plain = detail::cut_option(layout, t, costs, cut, parts);
      const detail::CutOption asked =
          detail::option_of_pieces(layout, t, costs, {.cut = Cut::own, .policy = policy});
      CAPTURE(to_string(cut));
      CAPTURE(layout.tables[t].rows);
      CHECK(asked.total == doctest::Approx(plain.total).epsilon(1e-9));
      CHECK(asked.seconds == doctest::Approx(plain.seconds).epsilon(1e-9));
      CHECK(asked.bytes == plain.bytes);
      if (cut != Cut::replicated)
        CHECK(asked.shared == doctest::Approx(plain.shared).epsilon(1e-9));
    };
    for (int t = 0; t < 12; ++t) {
      same(t, Cut::table_wise, 1, planned_policy<TableWise<>>("whole"));
      same(t, Cut::replicated, 1, planned_policy<Replicated<>>("copies"));
      same(t, Cut::row_wise, 1, planned_policy<RowWise<>>("rows"));
      if (layout.tables[t].width % 2 == 0)
        same(t, Cut::column_wise, 2, planned_policy<ColumnWise<2>>("columns"));
      same(t, Cut::grid, 1, planned_policy<Grid<1>>("grid"));
    }
  }
}

TEST_CASE("a pinned policy's rectangles are in the plan, on ranks that the plan chose") {
  for (unsigned seed = 0; seed < 6; ++seed) {
    CAPTURE(seed);
    const RandomModel model(seed, 9);
    const Cluster cluster = host(8, 4);
    const Workload workload{.batch = 4096, .sorted_ids = seed % 2 == 0};
    for (std::size_t pinned = 0; pinned < 9; pinned += 4) {
      const TableSpec& table = model.tables[pinned];
      const detail::PlannedPolicy policy = seed % 3 == 0
                                               ? planned_policy<HotRowsReplicated<5>>("hot")
                                               : planned_policy<AllPlaces>("all places");
      const detail::PlanConstraints constraints{
          .pins = {{.table = table.name, .cut = Cut::own, .policy = policy}}, .effort = 100'000};
      const Layout layout =
          plan_layout(model.tables, model.features, cluster, workload, constraints);
      REQUIRE(describe(layout.fault) == "no fault");
      CHECK(describe(detail::check_cover(layout)) == "no fault");
      std::vector<Shard> own;
      for (const Shard& s : layout.shards)
        if (layout.tables[s.table].name == table.name) own.push_back(s);
      CHECK(detail::cuts_into(policy, table, layout.topology, own));
      const detail::CostModel costs(layout.tables, layout.features, layout.feature_table, cluster,
                                    workload);
      const detail::CutReason reason =
          detail::explain_cuts(layout, costs, constraints, {static_cast<int>(pinned)}).front();
      CHECK(reason.pinned);
      if (own.size() > 1) CHECK(describe(reason.cut) == policy.name);
      if (seed % 3 == 0) continue;
      // A column's members: consecutive ranks of one node.
      for (const Shard& s : own)
        for (const Shard& other : own)
          if (s.rectangle.row_begin > 0 && other.rectangle.row_begin > 0 &&
              s.rectangle.column_begin == other.rectangle.column_begin)
            CHECK(s.rank / 4 == other.rank / 4);
    }
  }
}

TEST_CASE("a policy that may be considered is chosen where it is fastest") {
  // A few rows take most lookups of a table that is too large for copies.
  const std::vector<TableSpec> tables{
      {.name = "query", .rows = 40'000'000, .width = 64, .hotness = 20, .skew = 1.4},
      {.name = "country", .rows = 250, .width = 64}};
  Cluster cluster = host(8);
  cluster.memory_per_rank = 3'000'000'000;
  const Workload workload{.batch = 16384, .sorted_ids = true};
  const detail::PlannedPolicy hot = planned_policy<HotRowsReplicated<100'000>>("hot rows");
  const detail::PlanConstraints without{.forbidden = {Cut::hot_rows}},
      with{.forbidden = {Cut::hot_rows}, .policies = {hot}};
  const Layout plain = plan_layout(tables, {}, cluster, workload, without);
  const Layout chosen = plan_layout(tables, {}, cluster, workload, with);
  REQUIRE(describe(chosen.fault) == "no fault");
  const detail::CostModel costs(chosen.tables, chosen.features, chosen.feature_table, cluster,
                                workload);
  CHECK(predict(chosen, costs).step_seconds < predict(plain, costs).step_seconds);
  std::vector<Shard> query;
  for (const Shard& s : chosen.shards)
    if (s.table == 0) query.push_back(s);
  CHECK(detail::cuts_into(hot, tables[0], chosen.topology, query));
  CHECK(predict(chosen, costs).most_bytes() <= cluster.memory_per_rank);
  const std::vector<detail::CutReason> reasons = detail::explain_cuts(chosen, costs, with, {0, 1});
  CHECK(describe(reasons[0].cut) == "hot rows");
  CHECK(describe(reasons[0].best.cut) != "hot rows");
  CHECK(reasons[0].best.step_seconds > 0);
}

TEST_CASE("rows are dealt out where blocks of them are uneven, and that is said") {
  const std::vector<TableSpec> tables{{.name = "query", .rows = 40'000'000, .width = 64},
                                      {.name = "country", .rows = 250, .width = 64}};
  Cluster cluster = host(8);
  cluster.memory_per_rank = 3'000'000'000;
  const detail::PlanConstraints constraints{.forbidden = {Cut::column_wise, Cut::hot_rows}};
  for (const bool sorted : {false, true}) {
    const Workload workload{.batch = 524'288, .skew = 1.05, .sorted_ids = sorted};
    const Layout chosen = plan_layout(tables, {}, cluster, workload, constraints);
    REQUIRE(describe(chosen.fault) == "no fault");
    const detail::CostModel costs(chosen.tables, chosen.features, chosen.feature_table, cluster,
                                  workload);
    const std::vector<detail::CutReason> reasons =
        detail::explain_cuts(chosen, costs, constraints, {0, 1});
    CHECK(describe(reasons[0].cut) == (sorted ? "interleaved" : "row-wise"));
    if (sorted) CHECK(describe(reasons[0].best.cut) == "row-wise");
    detail::PlanConstraints blocks = constraints;
    blocks.forbidden.push_back(Cut::interleaved);
    const detail::Prediction with = predict(chosen, costs),
                             without =
                                 predict(plan_layout(tables, {}, cluster, workload, blocks), costs);
    CHECK(with.step_seconds <= without.step_seconds);
    if (sorted) {
      CHECK(with.step_seconds < 0.8 * without.step_seconds);
      CHECK(with.time_imbalance() < 1.2);
      CHECK(without.time_imbalance() > 1.5);
    }
    // a pin asks for it anywhere
    const Layout pinned = plan_layout(tables, {}, cluster, workload,
                                      {.pins = {{.table = "country", .cut = Cut::interleaved}}});
    CHECK(std::count_if(pinned.shards.begin(), pinned.shards.end(),
                        [](const Shard& s) { return s.table == 1; }) == 5 * 8);
  }
}

TEST_CASE("hot rows are copied where a few have most ids, and that is said") {
  // as measured: 1,000 rows have nine tenths of the ids
  const detail::RowFrequencies measured{{{1'000, 0.9}, {4'000'000, 0.1}}};
  for (const bool as_measured : {false, true}) {
    const std::vector<TableSpec> tables{{.name = "query",
                                         .rows = 40'000'000,
                                         .width = 64,
                                         .skew = 1.2,
                                         .frequencies = as_measured ? &measured : nullptr}};
    Cluster cluster = host(8);
    cluster.memory_per_rank = 3'000'000'000;
    for (const bool sorted : {false, true}) {
      const Workload workload{.batch = 524'288, .sorted_ids = sorted};
      const Layout chosen = plan_layout(tables, {}, cluster, workload);
      REQUIRE(describe(chosen.fault) == "no fault");
      const detail::CostModel costs(chosen.tables, chosen.features, chosen.feature_table, cluster,
                                    workload);
      const detail::CutReason reason = detail::explain_cuts(chosen, costs, {}, {0}).front();
      CAPTURE(describe(reason.cut));
      CHECK((reason.cut.cut == Cut::hot_rows) == sorted);
      if (!sorted) continue;
      if (as_measured) CHECK(describe(reason.cut) == "hot-rows 1000");
      const detail::Prediction with = predict(chosen, costs),
                               without = predict(plan_layout(tables, {}, cluster, workload,
                                                             {.forbidden = {Cut::hot_rows}}),
                                                 costs);
      CHECK(with.step_seconds < 0.9 * without.step_seconds);
    }
    // a pin asks for it anywhere, for so many rows if it says
    for (const int rows : {0, 700}) {
      const Layout pinned =
          plan_layout(tables, {}, cluster, {.batch = 512},
                      {.pins = {{.table = "query", .cut = Cut::hot_rows, .parts = rows}}});
      REQUIRE(pinned.fault.ok());
      CHECK(pinned.shards.front().rank == every_rank);
      CHECK(pinned.shards.front().rectangle.row_end > 0);
      if (rows > 0) CHECK(pinned.shards.front().rectangle.row_end == rows);
      CHECK(pinned.shards.size() > 8);
    }
  }
}
using Hot = AutoPlan<TableList<Table<"query", 40'000, 64>>, kCluster, Workload{.batch = 8192},
                     Pin<"query", Cut::hot_rows, 100>>;
static_assert(Hot::replicates && Hot::layout({8}).shards.size() == 1 + 9 * 8);
using Dealt = AutoPlan<TableList<Table<"query", 40'000, 64>>, kCluster,
                       Workload{.batch = 8192, .sorted_ids = true}, Pin<"query", Cut::interleaved>>;
static_assert(Dealt::layout({8}).shards.size() == 13 * 8);

TEST_CASE("what is wrong with a policy is said before anything is planned") {
  const std::vector<TableSpec> tables{{"a", 100, 8}, {"b", 50, 8}};
  const auto fault = [&](const detail::PlanConstraints& c) {
    return describe(plan_layout(tables, {}, host(4), {.batch = 64}, c).fault);
  };
  CHECK(fault({.policies = {planned_policy<LastRowMissing>("x")}}).find("'a'") !=
        std::string::npos);
  CHECK(fault({.pins = {{.table = "b",
                         .cut = Cut::own,
                         .policy = planned_policy<LastRowMissing>("x")}}}) ==
        "Plan: the shards of table 'b' cover 392 of its 400 elements; a column policy's parts must "
        "divide the width");
  CHECK(fault({.policies = {planned_policy<OnRank99>("x")}}).find("rank 99") != std::string::npos);
  CHECK(fault({.pins = {{.table = "b", .cut = Cut::own}}}) ==
        "AutoPlan: table 'b' is pinned to Cut::own without a policy; give one as "
        "`policy` of its pin (planned_policy<P>(name))");
}

using WithPolicies =
    AutoPlan<Model, kCluster, Workload{.batch = 8192}, PinTo<"user", AllPlaces, "all places">,
             Consider<HotRowsReplicated<1000>>>;
static_assert(detail::check_cover(WithPolicies::layout({8})).ok() && WithPolicies::replicates);

TEST_CASE("the compiler plans with policies of the user's") {
  constexpr std::size_t shards = WithPolicies::layout({8}).shards.size();
  const Layout layout = WithPolicies::layout({8});
  CHECK(layout.shards.size() == shards);
  for (const int ranks : {1, 3, 8, 16}) {
    const Layout other = WithPolicies::layout({ranks});
    CHECK(describe(detail::check_cover(other)) == "no fault");
    std::vector<Shard> user;
    for (const Shard& s : other.shards)
      if (other.tables[s.table].name == "user") user.push_back(s);
    CHECK(detail::cuts_into(planned_policy<AllPlaces>("x"), other.tables[1], other.topology, user));
  }
  CHECK(std::find(WithPolicies::widths.begin(), WithPolicies::widths.end(), 32) !=
        WithPolicies::widths.end());
}

TEST_CASE("what does not fit the devices goes to their hosts, the least used first") {
  int caches_chosen = 0;
  for (unsigned seed = 60; seed < 66; ++seed) {
    CAPTURE(seed);
    const RandomModel model(seed, 14);
    Cluster cluster = host(4);
    const Workload workload{.batch = 8192, .sorted_ids = seed % 2 == 1};
    std::int64_t total = 0;
    for (const TableSpec& t : model.tables) total += workload.memory.of({0, t.rows, 0, t.width});
    cluster.bus_bandwidth = 1e9;
    cluster.memory_per_rank = total / 4 / 3;
    const detail::PlanConstraints constraints{.effort = 500'000};
    const auto plan = [&] {
      return plan_layout(model.tables, model.features, cluster, workload, constraints);
    };
    CHECK(plan().fault.kind == PlanFault::Kind::no_plan_fits);
    cluster.host_memory_per_rank = total / 4;
    const Layout layout = plan();
    REQUIRE(describe(layout.fault) == "no fault");
    CHECK(describe(detail::check_cover(layout)) == "no fault");
    CHECK(describe(detail::check_memory(layout, workload.memory, cluster.memory_per_rank,
                                        cluster.host_memory_per_rank)) == "no fault");
    const detail::CostModel costs(layout.tables, layout.features, layout.feature_table, cluster,
                                  workload);
    const detail::Prediction p = predict(layout, costs);
    std::int64_t device = 0, on_host = 0, caches = 0;
    for (const Shard& s : layout.shards) {
      const std::int64_t copies = s.rank == every_rank ? 4 : 1;
      (s.tier == Tier::host ? on_host : device) += workload.memory.of(s.rectangle) * copies;
      if (s.tier == Tier::host)
        caches += detail::bytes_in(s, workload.memory, Tier::device) * copies;
    }
    CHECK(on_host > 0);
    CHECK(device > 0);
    CHECK(std::accumulate(p.bytes.begin(), p.bytes.end(), std::int64_t{0}) == device + caches);
    CHECK(std::accumulate(p.host_bytes.begin(), p.host_bytes.end(), std::int64_t{0}) == on_host);
    // Caches where the model says that they pay, and it says so in words.
    std::vector<int> all(layout.tables.size());
    std::iota(all.begin(), all.end(), 0);
    for (const detail::CutReason& reason : detail::explain_cuts(layout, costs, constraints, all))
      CHECK((describe(reason).find("caches of this table ") != std::string::npos) ==
            !reason.cache.empty());
    for (const double directory : {0.0, 1.0}) {
      cluster.directory_seconds = directory;
      const Layout other = plan();
      REQUIRE(describe(other.fault) == "no fault");
      const detail::CostModel prices(other.tables, other.features, other.feature_table, cluster,
                                     workload);
      bool cached = false;
      for (const Shard& s : other.shards) cached |= s.tier == Tier::host && s.cache_rows != 0;
      CHECK((directory == 0 || !cached));
      caches_chosen += cached;
      Layout changed = other;  // the same without caches: no faster where a look is free
      for (Shard& s : changed.shards)
        if (s.tier == Tier::host) s.cache_rows = 0;
      CHECK(predict(changed, prices).step_seconds >= predict(other, prices).step_seconds);
    }
    cluster.directory_seconds = costs.cluster().directory_seconds;
    // All tables on the hosts: the bus makes that slower.
    Layout far = layout;
    for (Shard& s : far.shards) s.tier = Tier::host;
    CHECK(p.step_seconds < predict(far, costs).step_seconds);
    cluster.host_memory_per_rank = total / 4 / 3;
    CHECK(plan().fault.kind == PlanFault::Kind::no_plan_fits);
  }
  CHECK(caches_chosen >= 4);
}

TEST_CASE("what does not fit the hosts goes to files, behind caches that do") {
  for (unsigned seed = 60; seed < 66; ++seed) {
    CAPTURE(seed);
    const RandomModel model(seed, 14);
    Cluster cluster = host(4);
    const Workload workload{.batch = 64, .sorted_ids = seed % 2 == 1};
    std::int64_t total = 0;
    for (const TableSpec& t : model.tables) total += workload.memory.of({0, t.rows, 0, t.width});
    cluster.memory_per_rank = total / 4 / 2;
    const detail::PlanConstraints constraints{.effort = 500'000};
    const auto plan = [&] {
      return plan_layout(model.tables, model.features, cluster, workload, constraints);
    };
    CHECK(plan().fault.kind == PlanFault::Kind::no_plan_fits);
    cluster.file_memory_per_rank = total;
    const Layout layout = plan();
    REQUIRE(describe(layout.fault) == "no fault");
    CHECK(describe(detail::check_cover(layout)) == "no fault");
    CHECK(describe(detail::check_memory(layout, workload.memory, cluster.memory_per_rank)) ==
          "no fault");
    const detail::CostModel costs(layout.tables, layout.features, layout.feature_table, cluster,
                                  workload);
    const detail::Prediction p = predict(layout, costs);
    for (int rank = 0; rank < 4; ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      CHECK(p.bytes[r] == detail::bytes_in(layout, workload.memory, rank, Tier::device));
      CHECK(p.file_bytes[r] == detail::bytes_in(layout, workload.memory, rank, Tier::file));
    }
    int in_files = 0;
    for (const Shard& s : layout.shards) {
      if (s.tier != Tier::file) continue;
      ++in_files;
      CHECK(s.cache_rows > 0);
      const double rows = static_cast<double>(s.rectangle.rows()),
                   share = rows / static_cast<double>(layout.tables[s.table].rows);
      if (!workload.sorted_ids)  // two batches at least
        CHECK(static_cast<double>(s.cache_rows) >=
              std::min(rows, 2 * share * costs.distinct_of(s.table)));
    }
    CHECK(in_files > 0);
    CHECK(in_files < std::ssize(layout.shards));
    // All tables in files, or a slower disk: no faster. A larger cache: no slower.
    Layout far = layout, cached = layout;
    for (Shard& s : far.shards) s.tier = Tier::file;
    for (Shard& s : cached.shards)
      if (s.tier == Tier::file) s.cache_rows = s.rectangle.rows();
    CHECK(p.step_seconds < predict(far, costs).step_seconds);
    CHECK(p.step_seconds > predict(cached, costs).step_seconds);
    Cluster slow = cluster;
    slow.file_bandwidth /= 2;
    const detail::CostModel of_slow(layout.tables, layout.features, layout.feature_table, slow,
                                    workload);
    CHECK(p.stages.route < predict(layout, of_slow).stages.route);
    CHECK(predict(cached, costs).stages.route ==
          doctest::Approx(predict(cached, of_slow).stages.route).epsilon(1e-6));
    cluster.file_memory_per_rank = total / 40;
    CHECK(plan().fault.kind == PlanFault::Kind::no_plan_fits);
  }
}

TEST_CASE("a layout's least used tables are kept on the hosts until the others fit") {
  // ids per byte: often 2/4000, seldom 1/40000, large 5/100000
  const std::vector<TableSpec> tables{{.name = "often", .rows = 100, .width = 10, .hotness = 2},
                                      {.name = "seldom", .rows = 1000, .width = 10},
                                      {.name = "large", .rows = 2500, .width = 10, .hotness = 5}};
  const Layout layout = make_layout({2}, tables, {},
                                    {{0, {0, 100, 0, 10}, every_rank},
                                     {1, {0, 1000, 0, 10}, 1},
                                     {2, {0, 1250, 0, 10}, 0},
                                     {2, {1250, 2500, 0, 10}, 1}});
  REQUIRE(layout.fault.ok());
  const auto on_host = [&](std::int64_t device, std::int64_t host = 0) {
    const Layout kept = detail::keep_on_host(layout, {4, 0}, device, host);
    std::string names;
    for (const Shard& s : kept.shards)
      if (s.tier == Tier::host) names += std::to_string(s.table);
    return kept.fault.ok() ? names : describe(kept.fault);
  };
  CHECK(on_host(94'000) == "");  // rank 1: 4,000 + 40,000 + 50,000
  CHECK(on_host(93'999) == "1");
  CHECK(on_host(54'000) == "1");
  CHECK(on_host(53'999) == "122");
  CHECK(on_host(0) == "0122");
  CHECK(on_host(54'000, 40'000) == "1");
  CHECK(on_host(54'000, 39'999).find("table 'seldom' a rank needs 40000 bytes of host memory") !=
        std::string::npos);
  static_assert(detail::keep_on_host(WithPolicies::layout({8}), {4, 4}, 100_MiB).fault.ok());
}

constexpr Cluster kSmall{.ranks = 8,
                         .ranks_per_node = 4,
                         .memory_per_rank = 512_MiB,
                         .host_memory_per_rank = 16_GiB,
                         .directory_seconds = 1e-9};
using Tiered = AutoPlan<Model, kSmall, Workload{.batch = 8192}>;
static_assert(detail::check_memory(Tiered::layout({8}), {4, 4}, 512_MiB, 16_GiB).ok());

TEST_CASE("the compiler's plan over both memories, in words") {
  const Layout layout = Tiered::layout({8});
  const Workload workload{.batch = 8192};
  const detail::CostModel costs(layout.tables, layout.features, layout.feature_table, kSmall,
                                workload);
  const std::vector<detail::CutReason> reasons =
      detail::explain_cuts(layout, costs, {}, {0, 1, 2, 3});
  CHECK(describe(reasons[0].cut).find("on the host, behind a cache") != std::string::npos);
  CHECK(describe(reasons[0]).find("caches of this table pay ") != std::string::npos);
  CHECK(describe(reasons[3].cut).find("on the host") == std::string::npos);
}

constexpr Cluster kSmallHosts{
    .ranks = 8, .ranks_per_node = 4, .memory_per_rank = 512_MiB, .file_memory_per_rank = 16_GiB};
using Filed = AutoPlan<Model, kSmallHosts, Workload{.batch = 8192}>;
static_assert(detail::check_memory(Filed::layout({8}), {4, 4}, 512_MiB).ok());
static_assert(detail::bytes_in(Filed::layout({8}), {4, 4}, 0, Tier::file) > 0);

TEST_CASE("the compiler's plan over memory and files, in words") {
  const Layout layout = Filed::layout({8});
  const detail::CostModel costs(layout.tables, layout.features, layout.feature_table, kSmallHosts,
                                Workload{.batch = 8192});
  const std::vector<detail::CutReason> reasons =
      detail::explain_cuts(layout, costs, {}, {0, 1, 2, 3});
  CHECK(describe(reasons[0].cut).find("in a file") != std::string::npos);
  CHECK(describe(reasons[3].cut).find("in a file") == std::string::npos);
}
