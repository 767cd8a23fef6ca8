// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// How good plans are, beside other plans: much computing, for an optimized build.
#include <tessera/planner/auto_plan.hpp>

#include <sharding/random_model.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

using namespace tessera;

/// What tests draw: a model, its ranks and a cluster of each kind.
struct RandomCase {
  std::mt19937 random;
  RandomModel model;
  Cluster cluster;
  Workload workload;

  RandomCase(unsigned seed, int most_tables, int most_ranks)
      : random(seed * 7919 + 1), model(seed, static_cast<std::size_t>(pick(5, most_tables))) {
    static constexpr int counts[] = {1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 256, 1024};
    int kinds = 0;
    while (kinds < 12 && counts[kinds] <= most_ranks) ++kinds;
    const int ranks = counts[pick(0, kinds - 1)], kind = pick(0, 3);
    cluster = kind == 0   ? dgx_a100(ranks)
              : kind == 1 ? hgx_h200(ranks)
                          : cpu_host(ranks, kind == 2 ? 0 : 2);
    workload = {.batch = std::int64_t{256} << pick(0, 9), .sorted_ids = pick(0, 3) == 0};
  }
  int pick(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random); }
  std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const TableSpec& t : model.tables) sum += workload.memory.of({0, t.rows, 0, t.width});
    return sum;
  }
  /// Seconds of the plan's step; none fits: infinity.
  double plan(const detail::PlanConstraints& constraints, std::int64_t memory = 0) const {
    Cluster limited = cluster;
    if (memory > 0) limited.memory_per_rank = memory;
    const Layout layout = plan_layout(model.tables, model.features, limited, workload, constraints);
    return layout.fault.ok() ? predict(layout, limited, workload).step_seconds : INFINITY;
  }
};

TEST_CASE("no restriction, pin or memory makes a plan better than the free one") {
  // TESSERA_PLANNER_MODELS=500 build/release/bin/test_sharding_planner_search -tc="no restriction*":
  // as many models, large ones and many ranks, too; more than an hour. 100-199: those of the 500.
  const char* given = std::getenv("TESSERA_PLANNER_MODELS");
  unsigned first = 0, last = 5;
  if (given != nullptr && std::sscanf(given, "%u-%u", &first, &last) != 2)
    last = std::exchange(first, 0) - 1;
  std::vector<unsigned> seeds(last + 1 - first);
  std::iota(seeds.begin(), seeds.end(), first);
  // of the large ones some that were hard: fixed costs that three tables share, few large parts,
  // and one whose best plan was found under a pin alone
  if (given == nullptr) seeds.insert(seeds.end(), {7, 90, 163});
  int compared = 0, better = 0;
  double most = 0;
  for (const unsigned seed : seeds) {
    const bool large = given != nullptr || seed > last;
    RandomCase c(seed, large ? 80 : 14, large ? 1024 : 8);
    detail::PlanConstraints free{.memory_balance = 0};
    const double seconds = c.plan(free);
    const auto check = [&](const std::string& what, double other, double best) {
      ++compared;
      most = std::max(most, best / other - 1);
      if (best > 1.005 * other) {
        ++better;
        MESSAGE("seed ", seed, ", ", c.model.tables.size(), " tables, ", c.cluster.ranks,
                " ranks: ", what, ": ", 100 * (best / other - 1), " % faster");
      }
    };
    detail::PlanConstraints forbid = free;
    forbid.forbidden = {static_cast<Cut>(c.pick(0, 4))};
    check("a forbidden cut", c.plan(forbid), seconds);
    detail::PlanConstraints pin = free;
    const TableSpec& table = c.model.tables[static_cast<std::size_t>(
        c.pick(0, static_cast<int>(c.model.tables.size()) - 1))];
    // a pin may also cut what is too small for the planner's own cuts
    pin.pins = {{.table = table.name,
                 .cut = detail::worth_cutting(table, 1, c.cluster.ranks)
                            ? static_cast<Cut>(c.pick(0, 3))
                            : static_cast<Cut>(c.pick(0, 1))}};
    check("a pin", c.plan(pin), seconds);
    const std::int64_t room = static_cast<std::int64_t>(
        0.01 * c.pick(120, 400) * static_cast<double>(c.bytes()) / c.cluster.ranks);
    const double less = c.plan(
        free, std::min(room, c.cluster.memory_per_rank > 0 ? c.cluster.memory_per_rank : room));
    check("less memory", less, seconds);
  }
  MESSAGE(compared, " plans, ", better, " better than the free one; most ", 100 * most, " %");
  CHECK(better == 0);
}

/// The shortest step of all options and places of a small model.
double shortest(const Layout& uncut, const detail::CostModel& model) {
  std::vector<detail::CutOption> options;
  std::vector<std::size_t> first;
  for (std::size_t t = 0; t < uncut.tables.size(); ++t) {
    first.push_back(options.size());
    detail::append_cut_options(uncut, static_cast<int>(t), model, {}, options);
  }
  first.push_back(options.size());
  const int ranks = uncut.ranks();
  double best = INFINITY;
  Layout layout = uncut;
  const auto go = [&](const auto& self, std::size_t t) -> void {
    if (t == uncut.tables.size()) {
      best = std::min(best, predict(layout, model).step_seconds);
      return;
    }
    for (std::size_t o = first[t]; o < first[t + 1]; ++o) {
      detail::TableCut cut{.cut = options[o].cut, .parts = options[o].parts};
      const bool placed = cut.cut == Cut::table_wise || cut.cut == Cut::column_wise;
      const std::size_t shards = layout.shards.size();
      for (int set = 0; set < (placed ? 1 << ranks : 1); ++set) {  // parts on unlike ranks
        cut.places.clear();
        for (int r = 0; r < ranks; ++r)
          if ((set >> r & 1) != 0) cut.places.push_back(r);
        if (placed && std::ssize(cut.places) != cut.parts) continue;
        detail::append_shards(layout.shards, static_cast<int>(t), uncut.tables[t], cut,
                              uncut.topology);
        self(self, t + 1);
        layout.shards.resize(shards);
      }
    }
  };
  go(go, 0);
  return best;
}

TEST_CASE("plans of small models are within a hundredth of the best of all plans") {
  for (unsigned seed = 0; seed < 12; ++seed) {
    CAPTURE(seed);
    const int ranks = seed % 3 == 2 ? 3 : 2;
    RandomCase c(seed, 6, 2);
    const RandomModel model(seed, ranks == 3 ? 4 : 5 + seed % 2);
    c.cluster = seed % 2 == 0 ? dgx_a100(ranks) : cpu_host(ranks, seed % 4 == 1 ? 0 : 2);
    const Layout uncut = uncut_layout(c.cluster.topology(), model.tables, model.features);
    const detail::CostModel costs(uncut.tables, uncut.features, uncut.feature_table, c.cluster,
                                  c.workload);
    Layout layout = uncut;
    layout.shards = shards_of(detail::Planner(uncut, costs, {.memory_balance = 0}).search(), uncut);
    const double best = shortest(uncut, costs), planned = predict(layout, costs).step_seconds;
    CHECK(planned <= 1.01 * best);
    CHECK(planned >= best * (1 - 1e-9));
  }
}

// ---- large models, in rounds ----

/// Sizes and widths of all kinds, without a random number.
inline constexpr auto kManyNames = [] {
  std::array<std::array<char, 3>, 30> names{};
  for (int i = 0; i < 30; ++i)
    names[i] = {'t', static_cast<char>('0' + i / 10), static_cast<char>('0' + i % 10)};
  return names;
}();
inline constexpr auto kManySpecs = [] {
  std::array<TableSpec, 30> specs{};
  for (std::size_t i = 0; i < specs.size(); ++i)
    specs[i] = {.name = std::string_view(kManyNames[i].data(), 3),
                .rows = i % 3 == 0 ? 50 + static_cast<int>(i) : 1000 * static_cast<int>(1 + i * i),
                .width = 8 << i % 5,
                .hotness = i % 4 == 0 ? 10.0 : 1.0};
  return specs;
}();
constexpr Cluster kTight{.ranks = 8, .ranks_per_node = 4, .memory_per_rank = 300_MiB};
using ManyFree = AutoPlan<Tables<kManySpecs>, dgx_a100(8), Workload{}>;
using ManyTight = AutoPlan<Tables<kManySpecs>, kTight, Workload{}, BalanceMemory<105>,
                           Forbid<Cut::grid>, Pin<"t01", Cut::row_wise>>;

TEST_CASE("the compiler's rounds choose what they choose at run time, near the whole search") {
  const auto check = [&]<class P>(std::type_identity<P>, const Cluster& cluster,
                                  const detail::PlanConstraints& constraints) {
    const Workload workload{};
    static_assert(P::table_count > detail::tables_at_once);
    Layout uncut = uncut_layout(cluster.topology(), {kManySpecs.begin(), kManySpecs.end()});
    const Layout compiled = P::layout({8});
    CHECK(describe(detail::check_cover(compiled)) == "no fault");
    const detail::PlanChoice again = detail::plan_in_rounds(uncut, cluster, workload, constraints);
    CHECK(again.fits);
    const std::vector<Shard> shards = shards_of(again, uncut);
    REQUIRE(shards.size() == compiled.shards.size());
    for (std::size_t i = 0; i < shards.size(); ++i) {
      CHECK(shards[i].table == compiled.shards[i].table);
      CHECK(shards[i].rank == compiled.shards[i].rank);
      CHECK(shards[i].rectangle == compiled.shards[i].rectangle);
    }
    const Layout best = plan_layout(uncut, cluster, workload, constraints);
    CHECK(predict(compiled, cluster, workload).step_seconds <
          1.3 * predict(best, cluster, workload).step_seconds);
    CHECK(describe(detail::check_memory(compiled, workload.memory, cluster.memory_per_rank)) ==
          "no fault");
    return compiled;
  };
  check(std::type_identity<ManyFree>{}, dgx_a100(8), {});
  const Layout tight = check(std::type_identity<ManyTight>{}, kTight,
                             {.pins = {{.table = "t01", .cut = Cut::row_wise}},
                              .forbidden = {Cut::grid},
                              .memory_share = 1.05});
  CHECK(cut_of_table(tight, "t01") == "8x1");
}

TEST_CASE("rounds plan with the rates that caches leave the whole model, not each round alone") {
  const Workload workload{.batch = 4096};
  for (const int ranks : {2, 8}) {
    const RandomModel model(static_cast<unsigned>(ranks), 60);
    Cluster cluster = cpu_host(ranks, 2);
    cluster.cached_bytes = 20e6, cluster.beyond_cache = 4;
    const Layout uncut = uncut_layout(cluster.topology(), model.tables, model.features);
    const auto shards = [&](const Cluster& c) {
      std::string all;
      for (const Shard& s : shards_of(detail::plan_in_rounds(uncut, c, workload, {}), uncut))
        all += std::to_string(s.table) + " " + std::to_string(s.rank) + " " +
               std::to_string(s.rectangle.row_begin) + " " +
               std::to_string(s.rectangle.column_begin) + "\n";
      return all;
    };
    // The same rates, written down: one that has no caches needs none of the model's bytes.
    double bytes = 0;
    for (const FeatureSpec& feature : model.features) {
      const auto table = std::find_if(model.tables.begin(), model.tables.end(),
                                      [&](const TableSpec& t) { return t.name == feature.table; });
      const double hotness = feature.hotness > 0 ? feature.hotness : table->hotness;
      bytes += 4096 * (hotness * 8 + table->width * 4.0);
    }
    REQUIRE(bytes > 2 * cluster.cached_bytes);
    const double longer = 1 + 3 * (1 - cluster.cached_bytes / bytes);
    Cluster written = cluster;
    written.cached_bytes = 0, written.beyond_cache = 1;
    for (double* rate : {&written.stream_bandwidth, &written.gather_bandwidth}) *rate /= longer;
    for (double* time : {&written.lookup_seconds, &written.check_seconds, &written.route_seconds,
                         &written.vector_seconds, &written.merge_seconds})
      *time *= longer;
    CHECK(shards(cluster) == shards(written));
    CHECK(shards(cluster) != shards(cpu_host(ranks, 2)));  // the rates matter here
  }
}
