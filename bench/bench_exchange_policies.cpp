// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What the collection's exchange policies save and cost: two thread ranks, 8 tables of 200,000 rows
// x 64 cut by rows, 2,048 samples per rank, power-law ids (1.05) in bags of 1 or 10, SGD.
// Milliseconds per step (forward and backward, rank 0's median), and the bytes that a rank sends to
// the other: ids, vectors, gradients. exchange_policies<...>/added_us: every collective sleeps that
// long first, as a network would. traffic<...>/cut: what all of four ranks, two per node, send in
// one step, exactly, with every table (50,000 rows) cut one way: 0 replicated, 1 table-wise, 2
// column-wise, 3 row-wise, 4 grid; the time is that of a first step. route_ahead/...: the same step
// with an MLP, the next batch routed in turn (ahead:0) or meanwhile (ahead:1).
#include <tessera/comm/counting_communicator.hpp>
#include <tessera/dense/mlp.hpp>
#include <tessera/planner/strategies.hpp>
#include <tessera/tessera.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "times.hpp"

using namespace tessera;
using namespace tessera::bench;

namespace {

constexpr int kRanks = 2, kTables = 8, kWidth = 64, kBatches = 4, kSteps = 12;
constexpr std::int64_t kRows = 200'000, kSamples = 2048, kColumns = kTables * kWidth;
constexpr const char* kNames[kTables] = {"a", "b", "c", "d", "e", "f", "g", "h"};

double milliseconds(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

Layout row_wise() {
  std::vector<TableSpec> tables;
  std::vector<Shard> shards;
  for (int t = 0; t < kTables; ++t) {
    tables.push_back({kNames[t], kRows, kWidth});
    for (int r = 0; r < kRanks; ++r)
      shards.push_back(
          {t, {even_cut(kRows, kRanks, r), even_cut(kRows, kRanks, r + 1), 0, kWidth}, r});
  }
  return make_layout({kRanks}, tables, {}, shards);
}

struct Bags10 {
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> offsets;
  KeyedJagged<std::int32_t> view() const { return {kTables, kSamples, ids, offsets, {}}; }
};

Bags10 make_batch(unsigned seed, int bag, std::int64_t rows = kRows) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  const double exponent = 1 - 1.05, span = std::pow(static_cast<double>(rows), exponent) - 1;
  Bags10 batch;
  for (std::int64_t i = 0; i < kTables * kSamples * bag; ++i) {
    const auto rank =
        static_cast<std::int64_t>(std::pow(span * uniform(random) + 1, 1 / exponent)) - 1;
    // Popular rows lie all over the table.
    batch.ids.push_back(
        static_cast<std::int32_t>(std::clamp<std::int64_t>(rank, 0, rows - 1) * 7919 % rows));
  }
  if (bag > 1)
    for (std::int64_t i = 0; i <= kTables * kSamples; ++i) batch.offsets.push_back(i * bag);
  return batch;
}

/// Thread ranks as if over a network: every all-to-all takes a while before it begins.
struct Distant {
  ThreadCommunicator inner;
  std::chrono::microseconds latency{0};
  int rank() const { return inner.rank(); }
  int size() const { return inner.size(); }
  template <Exchangeable T>
  void all_to_all(std::type_identity_t<std::span<const T>> send,
                  std::span<const std::size_t> send_counts, std::span<T> receive,
                  std::span<const std::size_t> receive_counts) {
    if (latency.count() != 0) std::this_thread::sleep_for(latency);
    inner.all_to_all(send, send_counts, receive, receive_counts);
  }
  template <Exchangeable T>
  void all_gather(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                  std::span<const std::size_t> counts) {
    inner.all_gather(send, receive, counts);
  }
  void interrupt(const std::string& text) { inner.interrupt(text); }
};
using Comm = CountingCommunicator<Distant>;

template <bool kDeduplicate, class... Policies>
void exchange_policies(benchmark::State& state) {
  const int bag = static_cast<int>(state.range(0));
  std::vector<double> times;
  double ids = 0, vectors = 0, gradients = 0;
  run_ranks(kRanks, [&](ThreadCommunicator& threads) {
    Distant distant{threads, std::chrono::microseconds(state.range(1))};
    Comm c(distant);
    LayoutCollection<Widths<kWidth>, Sgd, Host, Comm, Policies...> e(
        c, Host{}, row_wise(), {.learning_rate = 1e-3f, .deduplicate = kDeduplicate});
    typename decltype(e)::template StepState<std::int32_t> step;
    std::vector<Bags10> batches;
    for (int b = 0; b < kBatches; ++b)
      batches.push_back(make_batch(static_cast<unsigned>(b * kRanks + c.rank()), bag));
    std::vector<float> output(static_cast<std::size_t>(kSamples * kColumns)),
        gradient(output.size(), 1e-3f);
    const MatrixView<float> out{output.data(), kSamples, kColumns};
    const MatrixView<const float> grad{gradient.data(), kSamples, kColumns};
    for (int s = -3; s < kSteps; ++s) {
      c.reset();
      threads.barrier();
      const auto begin = Clock::now();
      e.route(step, batches[static_cast<std::size_t>(s + 3) % kBatches].view());
      const Traffic routed = c.total();
      e.lookup(step, out);
      e.exchange(step);
      e.assemble(step, out);
      const Traffic forward = c.total();
      e.split(step, grad);
      e.exchange_gradients(step);
      const Traffic backward = c.total();
      e.update(step, grad);
      if (c.rank() != 0 || s < 0) continue;
      times.push_back(milliseconds(begin));
      ids += static_cast<double>(routed.bytes) / kSteps;
      vectors += static_cast<double>((forward - routed).bytes) / kSteps;
      gradients += static_cast<double>((backward - forward).bytes) / kSteps;
    }
  });
  for (auto _ : state) state.SetIterationTime(median(times) * 1e-3);
  state.counters["MB"] = (ids + vectors + gradients) * 1e-6;
  state.counters["ids_MB"] = ids * 1e-6;
  state.counters["vectors_MB"] = vectors * 1e-6;
  state.counters["gradients_MB"] = gradients * 1e-6;
}

template <bool kDeduplicate, class... Policies>
void traffic(benchmark::State& state) {
  constexpr int kFour = 4;
  constexpr std::int64_t kFewRows = 50'000;
  const int bag = static_cast<int>(state.range(0));
  const auto cut = static_cast<Cut>(state.range(1));
  std::vector<TableSpec> tables;
  detail::PlanChoice choice;
  for (int t = 0; t < kTables; ++t) {
    tables.push_back({kNames[t], kFewRows, kWidth});
    const bool columns = cut == Cut::column_wise || cut == Cut::grid;
    choice.tables.push_back(
        {cut, columns ? 2 : 1,
         cut == Cut::grid ? std::vector{0, 1} : std::vector{t % kFour, (t + 2) % kFour}});
  }
  Layout layout = uncut_layout({.ranks = kFour, .ranks_per_node = 2}, tables);
  layout.shards = shards_of(choice, layout);
  // messages; bytes of ids, vectors and gradients, and what the update sends
  std::int64_t sent[4] = {};
  double first_step = 0;
  run_ranks(kFour, [&](ThreadCommunicator& threads) {
    Distant distant{threads};
    Comm c(distant);
    LayoutCollection<Widths<kWidth>, Sgd, Host, Comm, Policies...> e(
        c, Host{}, layout, {.learning_rate = 1e-3f, .deduplicate = kDeduplicate});
    const Bags10 batch = make_batch(static_cast<unsigned>(c.rank()), bag, kFewRows);
    std::vector<float> output(static_cast<std::size_t>(kSamples * kColumns)),
        gradient(output.size(), 1e-3f);
    typename decltype(e)::template StepState<std::int32_t> step;
    c.reset();
    threads.barrier();
    const auto begin = Clock::now();
    e.route(step, batch.view());
    const Traffic routed = c.total();
    const auto pooled = e.forward_routed(step, {output.data(), kSamples, kColumns});
    const Traffic forward = c.total();
    e.backward(pooled, {gradient.data(), kSamples, kColumns});
    if (c.rank() == 0) first_step = milliseconds(begin);
    std::int64_t mine[] = {static_cast<std::int64_t>(c.total().messages),
                           static_cast<std::int64_t>(routed.bytes),
                           static_cast<std::int64_t>((forward - routed).bytes),
                           static_cast<std::int64_t>((c.total() - forward).bytes)};
    threads.all_reduce(std::span<std::int64_t>(mine));
    if (c.rank() == 0) std::copy_n(mine, 4, sent);
  });
  for (auto _ : state) state.SetIterationTime(first_step * 1e-3);
  state.SetLabel(std::string(to_string(cut)));
  state.counters["messages"] = static_cast<double>(sent[0]);
  state.counters["ids_MB"] = static_cast<double>(sent[1]) * 1e-6;
  state.counters["vectors_MB"] = static_cast<double>(sent[2]) * 1e-6;
  state.counters["gradients_MB"] = static_cast<double>(sent[3]) * 1e-6;
}

void route_ahead(benchmark::State& state) {
  const bool overlap = state.range(0) != 0;
  std::vector<double> times;
  run_ranks(kRanks, [&](ThreadCommunicator& threads) {
    const std::chrono::microseconds latency(state.range(1));
    Distant distant{threads, latency}, second_distant{threads.split(0), latency};
    Comm c(distant), second(second_distant);
    using Collection = LayoutCollection<Widths<kWidth>, Sgd, Host, Comm>;
    Collection e(c, Host{}, row_wise(), {.learning_rate = 1e-3f});
    RouteAhead<Collection, std::int32_t, Comm, Host> ahead(e, second, Host{});
    Mlp<> mlp({kColumns, 256, 64, 1}, {});
    DenseParameters parameters(1, mlp);
    std::vector<Bags10> batches;
    for (int b = 0; b < kBatches; ++b)
      batches.push_back(make_batch(static_cast<unsigned>(b * kRanks + c.rank()), 10));
    std::vector<float> output(static_cast<std::size_t>(kSamples * kColumns)),
        gradient(output.size()), y(kSamples), dy(kSamples, 1e-3f);
    const MatrixView<float> out{output.data(), kSamples, kColumns},
        grad{gradient.data(), kSamples, kColumns};
    const auto batch = [&](int s) {
      return batches[static_cast<std::size_t>(s + 3) % kBatches].view();
    };
    if (overlap) ahead.start(batch(-3));
    for (int s = -3; s < kSteps; ++s) {
      threads.barrier();
      const auto begin = Clock::now();
      const auto pooled = overlap ? e.forward_routed(ahead.take(), out) : e.forward(batch(s), out);
      if (overlap && s + 1 < kSteps) ahead.start(batch(s + 1));
      mlp.forward(out, {y.data(), kSamples, 1});
      mlp.backward({dy.data(), kSamples, 1}, grad);
      e.backward(pooled, {gradient.data(), kSamples, kColumns});
      if (c.rank() == 0 && s >= 0) times.push_back(milliseconds(begin));
    }
  });
  for (auto _ : state) state.SetIterationTime(median(times) * 1e-3);
}

void bags(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"bag", "added_us"})
      ->Args({1, 0})
      ->Args({10, 0})
      ->UseManualTime()
      ->Iterations(1)
      ->Unit(benchmark::kMillisecond);
}

void cuts(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"bag", "cut"})->UseManualTime()->Iterations(1)->Unit(benchmark::kMillisecond);
  for (const int bag : {1, 10})
    for (const Cut cut :
         {Cut::table_wise, Cut::column_wise, Cut::row_wise, Cut::grid, Cut::replicated})
      bench->Args({bag, static_cast<int>(cut)});
}

}  // namespace

BENCHMARK(exchange_policies<false>)->Apply(bags);
BENCHMARK(exchange_policies<false, EncodeWith<Bf16>>)->Apply(bags);
BENCHMARK(exchange_policies<false, EncodeWith<Int8, Bf16>>)->Apply(bags);
BENCHMARK(exchange_policies<true>)->Apply(bags);
BENCHMARK(exchange_policies<true, EncodeWith<Bf16>>)->Apply(bags);
BENCHMARK(traffic<false>)->Apply(cuts);
BENCHMARK(traffic<false, EncodeWith<Bf16>>)->Apply(cuts);
BENCHMARK(traffic<false, EncodeWith<Int8, Bf16>>)->Apply(cuts);
BENCHMARK(traffic<true>)->Apply(cuts);
BENCHMARK(route_ahead)
    ->ArgNames({"ahead", "added_us"})
    ->Args({0, 0})
    ->Args({1, 0})
    ->Args({0, 10000})
    ->Args({1, 10000})
    ->UseManualTime()
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

BENCHMARK_MAIN();
