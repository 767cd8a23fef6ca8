// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What training groups cost and save: forward and backward on thread ranks, 8 tables of 100,000 rows
// x 64 cut by rows under row-wise Adagrad, 2,048 samples per rank, power-law ids (1.05) in bags of 4.
// Collections take turns step by step; times are rank 0's medians, ratios are to one group of all
// tables. two_groups: half of the tables in each of two groups. half_frozen: half of the tables are
// frozen. two_collections: the same tables in two collections of four.
// clipping: a step with `backward` in a program whose collection may clip beside one that cannot
// (unused), and what `accumulate` with `apply()` and with each way to clip costs beside it.
// reports: what ReportSteps costs, turned on and off, beside a collection without the policy.
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/tessera.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "times.hpp"

using namespace tessera;
using namespace tessera::bench;

namespace {

constexpr int kTables = 8, kWidth = 64, kBag = 4, kSteps = 30, kBatches = 4;
constexpr std::int64_t kRows = 100'000, kSamples = 2048;
constexpr const char* kNames[kTables] = {"a", "b", "c", "d", "e", "f", "g", "h"};

using Comm = CountingCommunicator<ThreadCommunicator>;

Layout row_wise(int ranks, int tables) {
  std::vector<TableSpec> specs;
  std::vector<Shard> shards;
  for (int t = 0; t < tables; ++t) {
    specs.push_back({kNames[t], kRows, kWidth});
    for (int r = 0; r < ranks; ++r)
      shards.push_back(
          {t, {even_cut(kRows, ranks, r), even_cut(kRows, ranks, r + 1), 0, kWidth}, r});
  }
  return make_layout({ranks}, specs, {}, shards);
}

/// Ids of all tables.
std::vector<std::int32_t> draw(unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(kTables * kSamples * kBag));
  // the inverse of a power law's distribution function, spread over the table
  for (std::int32_t& id : ids) {
    const double x = std::pow(uniform(random), -1 / 0.05) - 1;
    const auto rank = static_cast<std::uint64_t>(std::min(x, 1e15)) % kRows;
    id = static_cast<std::int32_t>(rank * 48271 % kRows);
  }
  return ids;
}

/// A collection, or several, and its samples; `step` runs forward and backward of some tables.
template <class Trained, class... Policies>
struct Model {
  using E = LayoutCollection<Widths<kWidth>, Trained, Host, Comm, Policies...>;
  E e;
  std::vector<std::int64_t> offsets;
  std::vector<float> gradient;

  static typename E::Options options(const Trained& training) {
    typename E::Options options;
    options.optimizer = training;
    return options;
  }
  Model(Comm& c, int tables, const Trained& training)
      : e(c, Host{}, row_wise(c.size(), tables), options(training)),
        gradient(static_cast<std::size_t>(kSamples * e.columns()), 1e-3f) {
    for (std::int64_t b = 0; b <= tables * kSamples; ++b) offsets.push_back(b * kBag);
  }
  auto look_up(std::span<const std::int32_t> ids) {
    return e.forward(
        KeyedJagged<std::int32_t>{std::ssize(e.layout().features), kSamples, ids, offsets, {}});
  }
  MatrixView<const float> gradients() const { return {gradient.data(), kSamples, e.columns()}; }
  void step(std::span<const std::int32_t> ids) { e.backward(look_up(ids), gradients()); }
  template <class Clip>
  void step(std::span<const std::int32_t> ids, const Clip& clip) {
    e.accumulate(look_up(ids), gradients());
    benchmark::DoNotOptimize(e.apply(clip));
  }
};

/// Of pairs of neighbours in time.
double median_ratio(const std::vector<double>& times, const std::vector<double>& of) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < times.size(); ++i) ratios.push_back(times[i] / of[i]);
  return median(ratios);
}

void reports(benchmark::State& state) {
  enum Kind { without, off, on, kinds };
  std::array<std::vector<double>, kinds> times;
  run_ranks(static_cast<int>(state.range(0)), [&](ThreadCommunicator& threads) {
    Comm c(threads);
    Model<RowWiseAdagrad> plain(c, kTables, {});
    // one each, so that none finds its rows in the caches
    Model<RowWiseAdagrad, ReportSteps> silent(c, kTables, {}), reported(c, kTables, {});
    silent.e.report_steps(false);
    const auto ids = draw(static_cast<unsigned>(c.rank()));
    for (int s = -kBatches; s < 10 * kSteps; ++s)
      for (int turn = 0; turn < kinds; ++turn) {
        const auto kind = static_cast<Kind>((turn + s + kBatches) % kinds);
        threads.barrier();
        const auto begin = Clock::now();
        if (kind == without) plain.step(ids);
        if (kind == off) silent.step(ids);
        if (kind == on) {
          reported.step(ids);
          benchmark::DoNotOptimize(reported.e.step_report());
        }
        threads.barrier();
        if (c.rank() == 0 && s >= 0) times[kind].push_back(seconds_since(begin));
      }
  });
  for (auto _ : state) state.SetIterationTime(median(times[without]));
  // of the fastest steps, too: where other work disturbs the medians
  const auto best_ratio = [&](Kind kind) {
    return std::ranges::min(times[kind]) / std::ranges::min(times[without]);
  };
  state.counters["off"] = median_ratio(times[off], times[without]);
  state.counters["on"] = median_ratio(times[on], times[without]);
  state.counters["off_best"] = best_ratio(off);
  state.counters["on_best"] = best_ratio(on);
}

/// Of which no collection is asked to clip: its code is compiled apart.
struct NeverClipped : RowWiseAdagrad {};

void clipping(benchmark::State& state) {
  enum Kind { never, unused, applied, by_norm, by_value, by_row, kinds };
  std::array<std::vector<double>, kinds> times;
  run_ranks(static_cast<int>(state.range(0)), [&](ThreadCommunicator& threads) {
    Comm c(threads);
    Model<NeverClipped> plain(c, kTables, {});
    Model<RowWiseAdagrad> model(c, kTables, {}), other(c, kTables, {});
    const auto ids = draw(static_cast<unsigned>(c.rank()));
    for (int s = -kBatches; s < 2 * kSteps; ++s)
      for (int turn = 0; turn < kinds; ++turn) {
        const auto kind = static_cast<Kind>((turn + s + kBatches) % kinds);
        threads.barrier();
        const auto begin = Clock::now();
        if (kind == never) plain.step(ids);
        if (kind == unused) model.step(ids);
        if (kind == applied) other.step(ids, KeepGradients{});
        if (kind == by_norm) other.step(ids, ClipByGlobalNorm{1e-3f});
        if (kind == by_value) other.step(ids, ClipByValue{1e-3f});
        if (kind == by_row) other.step(ids, ClipByRowNorm{1e-3f});
        threads.barrier();
        if (c.rank() == 0 && s >= 0) times[kind].push_back(seconds_since(begin));
      }
  });
  for (auto _ : state) state.SetIterationTime(median(times[never]));
  for (const auto& [kind, name] :
       {std::pair(unused, "unused"), std::pair(applied, "apply"), std::pair(by_norm, "norm"),
        std::pair(by_value, "value"), std::pair(by_row, "row_norm")})
    state.counters[name] = median_ratio(times[kind], times[never]);
}

void groups(benchmark::State& state) {
  enum Kind { one, two, frozen, apart, kinds };
  std::array<std::vector<double>, kinds> times;
  std::array<std::uint64_t, kinds> calls{}, bytes{};
  run_ranks(static_cast<int>(state.range(0)), [&](ThreadCommunicator& threads) {
    Comm c(threads);
    using Two = TrainingGroups<Train<RowWiseAdagrad>, Train<RowWiseAdagrad, Table<"a", 1, 1>>>;
    using Half = TrainingGroups<Train<RowWiseAdagrad>, Frozen<>>;
    const std::vector<int> halves{0, 1, 0, 1, 0, 1, 0, 1};
    Model<RowWiseAdagrad> of_one(c, kTables, {});
    Model<Two> of_two(c, kTables, {.group_of_table = halves});
    Model<Half> of_frozen(c, kTables, {.group_of_table = halves});
    Model<RowWiseAdagrad> first(c, kTables / 2, {}), second(c, kTables / 2, {});
    std::vector<std::vector<std::int32_t>> batches;
    for (int b = 0; b < kBatches; ++b)
      batches.push_back(draw(static_cast<unsigned>(b * c.size() + c.rank())));
    for (int s = -kBatches; s < kSteps; ++s) {
      const std::span<const std::int32_t> ids =
          batches[static_cast<std::size_t>(s + kBatches) % kBatches];
      const auto time = [&](Kind kind, const auto& run) {
        c.reset();
        threads.barrier();
        const auto begin = Clock::now();
        run();
        threads.barrier();
        if (c.rank() != 0 || s < 0) return;
        times[kind].push_back(seconds_since(begin));
        calls[kind] = c.total().calls;
        bytes[kind] = c.total().bytes;
      };
      time(one, [&] { of_one.step(ids); });
      time(two, [&] { of_two.step(ids); });
      time(frozen, [&] { of_frozen.step(ids); });
      time(apart, [&] {
        first.step(ids.first(ids.size() / 2));
        second.step(ids.last(ids.size() / 2));
      });
    }
  });
  std::array<double, kinds> of{};
  for (int k = 0; k < kinds; ++k) of[k] = median_ratio(times[k], times[one]);
  for (auto _ : state) state.SetIterationTime(median(times[one]));
  state.counters["two_groups"] = of[two];
  state.counters["half_frozen"] = of[frozen];
  state.counters["two_collections"] = of[apart];
  state.counters["calls"] = static_cast<double>(calls[one]);
  state.counters["calls_two_groups"] = static_cast<double>(calls[two]);
  state.counters["calls_two_collections"] = static_cast<double>(calls[apart]);
  state.counters["MB"] = static_cast<double>(bytes[one]) * 1e-6;
  state.counters["MB_half_frozen"] = static_cast<double>(bytes[frozen]) * 1e-6;
}

}  // namespace

BENCHMARK(groups)->ArgName("ranks")->Arg(1)->Arg(2)->Iterations(1)->UseManualTime()->Unit(
    benchmark::kMillisecond);
BENCHMARK(clipping)->ArgName("ranks")->Arg(1)->Arg(2)->Iterations(1)->UseManualTime()->Unit(
    benchmark::kMillisecond);
BENCHMARK(reports)->ArgName("ranks")->Arg(1)->Arg(2)->Iterations(1)->UseManualTime()->Unit(
    benchmark::kMillisecond);
BENCHMARK_MAIN();
