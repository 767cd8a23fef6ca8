// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Steps of the embeddings alone, under any layout, on ranks of any communicator: the time of every
// stage, what it sends, and what the cost model predicts for it.
#pragma once

#include "calibration.hpp"

#include <tessera/host/codec.hpp>
#include <tessera/host/copy_rows.hpp>
#include <tessera/host/distinct_ids.hpp>
#include <tessera/host/exchange.hpp>
#include <tessera/host/initialize.hpp>
#include <tessera/host/lookup.hpp>
#include <tessera/host/mark_rows.hpp>
#include <tessera/host/max_pooling.hpp>
#include <tessera/host/non_finite.hpp>
#include <tessera/host/sequence_rows.hpp>
#include <tessera/host/update.hpp>
#include <tessera/host/weight_gradients.hpp>
#include <tessera/measure/measure_steps.hpp>
#include <tessera/optimizer/optimizers.hpp>
#include <tessera/planner/plan_layout.hpp>
#include <tessera/tables/buffer.hpp>
#include <tessera_data/synthetic.hpp>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::bench {

/// Tables of a model to be cut in many ways. Hotness is a whole number: every bag has as many ids.
struct ShardingModel {
  std::string name;
  std::vector<TableSpec> tables;
  Workload workload;  // id_bytes 4, Adagrad
};

inline constexpr std::array<std::string_view, 64> kTableNames{
    "t0",  "t1",  "t2",  "t3",  "t4",  "t5",  "t6",  "t7",  "t8",  "t9",  "t10", "t11", "t12",
    "t13", "t14", "t15", "t16", "t17", "t18", "t19", "t20", "t21", "t22", "t23", "t24", "t25",
    "t26", "t27", "t28", "t29", "t30", "t31", "t32", "t33", "t34", "t35", "t36", "t37", "t38",
    "t39", "t40", "t41", "t42", "t43", "t44", "t45", "t46", "t47", "t48", "t49", "t50", "t51",
    "t52", "t53", "t54", "t55", "t56", "t57", "t58", "t59", "t60", "t61", "t62", "t63"};

struct TableGroup {
  int count;
  std::int64_t rows;
  int width, hotness;
};

inline ShardingModel make_model(std::string name, std::int64_t batch, double skew,
                                std::initializer_list<TableGroup> groups) {
  ShardingModel model{
      std::move(name),
      {},
      {.batch = batch, .skew = skew, .id_bytes = 4, .memory = memory_cost_of<Adagrad>}};
  for (const TableGroup& g : groups)
    for (int i = 0; i < g.count; ++i)
      model.tables.push_back({.name = kTableNames.at(model.tables.size()),
                              .rows = g.rows,
                              .width = g.width,
                              .hotness = static_cast<double>(g.hotness)});
  return model;
}

using Measured = detail::MeasuredSteps;
using detail::Filled;
using detail::median_of;

/// Measures steps of made-up clicks. Collective, as detail::measure_steps.
template <class Inner, class Backend = Host>
Measured measure(Inner& communicator, const Layout& layout, const Workload& workload, int steps,
                 const Backend& backend = Backend(), const TableFiles& files = {}) {
  const std::int64_t n = workload.batch / communicator.size(), first = n * communicator.rank();
  std::vector<SyntheticFeature> features;
  for (std::size_t f = 0; f < layout.features.size(); ++f) {
    const TableSpec& table = layout.tables[layout.feature_table[f]];
    const auto hotness = static_cast<std::int32_t>(
        layout.features[f].hotness > 0 ? layout.features[f].hotness : table.hotness);
    features.push_back({.rows = table.rows,
                        .alpha = table.skew < 0 ? workload.skew : table.skew,
                        .min_hotness = hotness,
                        .max_hotness = hotness});
  }
  const SyntheticClicks clicks(features, {.dense_columns = 0, .scatter_ids = !workload.sorted_ids});
  ClickBatch<std::int32_t> drawn;
  std::vector<Filled<std::int32_t, Backend>> ids;
  std::vector<Filled<std::int64_t, Backend>> offsets;
  std::vector<KeyedJagged<std::int32_t>> batches;
  for (std::int64_t b = 0; b < 4; ++b) {
    clicks.generate(b * workload.batch + first, n, drawn);
    ids.emplace_back(backend, drawn.ids);
    offsets.emplace_back(backend, drawn.offsets);
    batches.push_back({.features = drawn.features,
                       .batch = n,
                       .ids = ids.back().span(),
                       .offsets = offsets.back().span(),
                       .weights = {}});
  }
  return detail::measure_steps<Widths<4, 8, 16, 32, 64, 128>, Adagrad, std::int32_t>(
      communicator, layout, batches, steps, backend, files);
}

/// Seconds of an all-to-all with next to no data. Collective.
template <class Comm, class Backend = Host>
double collective_seconds(Comm& communicator, const Backend& backend = Backend()) {
  const std::vector<std::size_t> ones(static_cast<std::size_t>(communicator.size()), 1);
  const std::vector<float> some(ones.size());
  const Filled<float, Backend> send(backend, some), receive(backend, some);
  std::vector<double> rounds;
  for (int round = 0; round < 21; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 100; ++i)
      communicator.template all_to_all<float>(send.span(), ones, receive.span(), ones);
    backend.synchronize();
    rounds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / 100);
  }
  return median_of(rounds);
}

struct NamedLayout {
  std::string name;
  Layout layout;
};

/// The planner's layout and those of the plain strategies, a grid too.
inline std::vector<NamedLayout> layouts_of(const ShardingModel& model, const Cluster& cluster) {
  Layout uncut = uncut_layout(cluster.topology(), model.tables);
  std::vector<NamedLayout> all{{"planned", plan_layout(uncut, cluster, model.workload)}};
  if (cluster.ranks == 1) return all;
  for (const Strategy s : detail::all_strategies) {
    uncut.shards = shards_of(strategy_choice(s, uncut), uncut);
    all.push_back({std::string(to_string(s)), uncut});
  }
  detail::PlanChoice grid;
  for (std::size_t t = 0; t < model.tables.size(); ++t)
    grid.tables.push_back({Cut::grid, 2, {0, 0}});
  uncut.shards = shards_of(grid, uncut);
  all.push_back({"grid of 2 columns", uncut});
  return all;
}

inline std::vector<ShardingModel> calibration_models() {
  return {make_model("", 8192, 1.05, {{8, 200'000, 16, 1}}),
          make_model("", 8192, 1.05, {{4, 200'000, 16, 10}}),
          make_model("", 8192, 0, {{4, 500'000, 16, 8}}),
          make_model("", 8192, 0, {{8, 200'000, 64, 1}}),
          make_model("", 4096, 1.05, {{4, 200'000, 64, 10}}),
          make_model("", 4096, 0, {{2, 400'000, 128, 4}}),
          make_model("", 2048, 1.05, {{32, 20'000, 32, 1}}),
          make_model("", 512, 1.05, {{32, 1000, 16, 1}}),
          // whose vectors no cache keeps
          make_model("", 8192, 1.05, {{24, 50'000, 32, 4}}),
          make_model("", 4096, 1.05, {{48, 10'000, 64, 1}}),
          make_model("", 8192, 0, {{12, 100'000, 128, 1}})};
}

/// The same plan measured several times, in turn with others: medians of the stages; of the steps
/// the fastest round, since other work on the machine, or on the one it is a part of, only ever
/// adds to the time.
inline Measured joined(const std::vector<Measured>& rounds) {
  const auto median = [&](auto&& value) {
    std::vector<double> values;
    for (const Measured& m : rounds) values.push_back(value(m));
    return median_of(std::move(values));
  };
  Measured m = rounds.front();
  for (const Measured& r : rounds) m.step_seconds = std::min(m.step_seconds, r.step_seconds);
  for (const StageMember stage : kStages) {
    m.stages.*stage = median([&](const Measured& r) { return r.stages.*stage; });
    m.work.*stage = median([&](const Measured& r) { return r.work.*stage; });
  }
  return m;
}

/// Cluster::directory_seconds, by what route takes longer where all rows of a table are in the cache
/// before a tier than where they are in the device's memory.
template <class Run>
double directory_seconds(Tier tier, std::int64_t rows, std::int64_t batch, Run run) {
  constexpr int width = 16, bag = 10;
  const ShardingModel model = make_model("", batch, 1.05, {{1, rows, width, bag}});
  Layout layout = layouts_of(model, {}).front().layout;
  const double near = run(layout, model.workload, 20).work.route;
  for (Shard& shard : layout.shards) shard.tier = tier, shard.cache_rows = rows;
  const double behind = run(layout, model.workload, 20).work.route;
  return std::max(0.0, behind - near) / static_cast<double>(batch * bag);
}

struct Case {
  std::string model;
  NamedLayout plan;
  Workload workload;
  std::vector<Measured> rounds{};
};

inline constexpr int kRounds = 3;

template <class Run>
void measure_in_turn(std::vector<Case>& cases, Run run) {
  for (int round = 0; round < kRounds; ++round)
    for (Case& c : cases) c.rounds.push_back(run(c.plan.layout, c.workload, 5));
}

/// Layouts of every model on every number of ranks but what says the same twice.
inline std::vector<Case> cases_of(const std::vector<ShardingModel>& models,
                                  std::initializer_list<int> ranks, Cluster cluster) {
  std::vector<Case> cases;
  for (const int r : ranks)
    for (const ShardingModel& model : models) {
      cluster.ranks = r;
      cluster.ranks_per_node = 0;
      for (NamedLayout& plan : layouts_of(model, cluster))
        if (plan.name.rfind("memory", 0) != 0)
          cases.push_back(
              {model.name, std::move(plan), model.workload});  // whole tables once is enough
    }
  return cases;
}

/// Predicted over measured work of every stage.
inline void print_stages(const std::vector<Case>& cases, const Cluster& constants) {
  for (std::size_t s = 0; s < kStages.size(); ++s) {
    std::vector<double> ratios;
    for (const Case& c : cases) {
      Cluster cluster = constants;
      cluster.ranks = c.plan.layout.ranks();
      const double measured = joined(c.rounds).work.*kStages[s];
      if (cluster.ranks > 1 || measured > 0)
        ratios.push_back(work_of(predict(c.plan.layout, cluster, c.workload)).*kStages[s] /
                         measured);
    }
    std::sort(ratios.begin(), ratios.end());
    fmt::print("{:<20} predicted/measured: 10 % below {:.2f}, median {:.2f}, 10 % above {:.2f}\n",
               kStageNames[s], ratios[ratios.size() / 10], ratios[ratios.size() / 2],
               ratios[ratios.size() - 1 - ratios.size() / 10]);
  }
}

inline std::vector<Observation> observations_of(const std::vector<Case>& cases) {
  std::vector<Observation> all;
  for (const Case& c : cases) all.push_back({c.plan.layout, c.workload, joined(c.rounds).work});
  return all;
}

/// "16 tables: 2 of 400000 rows, ...; 16 columns, 1 id per sample; batch 8192, ids by a power law
/// of 1.05".
inline std::string describe(const ShardingModel& model) {
  std::string groups;
  for (std::size_t t = 0, end = 0; t < model.tables.size(); t = end) {
    for (end = t; end < model.tables.size() && model.tables[end].rows == model.tables[t].rows;)
      ++end;
    groups +=
        fmt::format("{}{} of {} rows", groups.empty() ? "" : ", ", end - t, model.tables[t].rows);
  }
  const TableSpec& first = model.tables.front();
  return fmt::format(
      "{} tables ({}) of {} columns, {} id{} per sample and table, batch {}, ids by a power law of "
      "{}",
      model.tables.size(), groups, first.width, first.hotness, first.hotness == 1 ? "" : "s",
      model.workload.batch, model.workload.skew);
}

/// Registers policies x widths x hotness for `ranks` ranks; run(layout, workload, steps) measures
/// one.
template <class Run>
void register_plans(const std::string& prefix, int ranks, const Cluster& constants, Run run) {
  for (const int width : {16, 64})
    for (const int hotness : {1, 10}) {
      const ShardingModel model = make_model(
          "", 8192, 1.05,
          {{2, 400'000, width, hotness}, {6, 100'000, width, hotness}, {8, 1000, width, hotness}});
      Cluster cluster = constants;
      cluster.ranks = ranks;
      const std::string what = fmt::format("{} ranks ({}): {}", ranks, prefix, describe(model));
      for (const NamedLayout& plan : layouts_of(model, cluster)) {
        const detail::Prediction p = predict(plan.layout, cluster, model.workload);
        const auto body = [=](benchmark::State& state) {
          const Measured m = run(plan.layout, model.workload, 10);
          for (auto _ : state) state.SetIterationTime(m.step_seconds);
          state.SetLabel(what);
          for (std::size_t s = 0; s < kStages.size(); ++s)
            state.counters[fmt::format("{}_ms", kStageNames[s])] = 1e3 * m.stages.*kStages[s];
          state.counters["predicted_ms"] = 1e3 * p.step_seconds;
          state.counters["bytes_per_rank"] = static_cast<double>(m.traffic.bytes);
          state.counters["messages_per_rank"] = static_cast<double>(m.traffic.messages);
          state.counters["memory_balance"] = p.memory_imbalance();
          state.counters["time_balance"] = m.time_imbalance;
        };
        benchmark::RegisterBenchmark(fmt::format("{}/ranks:{}/width:{}/hotness:{}/{}", prefix,
                                                 ranks, width, hotness, plan.name)
                                         .c_str(),
                                     body)
            ->Iterations(1)
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
}

}  // namespace tessera::bench
