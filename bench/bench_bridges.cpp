// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What a call through the C library costs beside the collection it is made of: a step (lookup and
// update) of 26 tables of width 16 under row-wise Adagrad on one rank, one id a sample, by samples a
// batch. Both take turns step by step; times are medians, `ratio` is C++'s over C's. The type of the
// C library's collection holds all optimizers and precisions, so that the difference is both the
// calls' and that type's. bench/torch_step.py is the same from Python.
#include <tessera/tessera.h>
#include <tessera/tessera.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "times.hpp"

namespace {

namespace ts = tessera;
using namespace tessera::bench;

constexpr int kTables = 26, kWidth = 16, kColumns = kTables * kWidth;
constexpr std::int64_t kRows = 100'000;

void ok(tessera_status status) {
  if (status != TESSERA_OK) throw std::runtime_error(tessera_last_error());
}

void step(benchmark::State& state) {
  const std::int64_t samples = state.range(0);
  std::vector<std::string> names;
  for (int t = 0; t < kTables; ++t) names.push_back("t" + std::to_string(t));
  std::vector<ts::TableSpec> specs;
  std::vector<tessera_table> tables;
  for (const std::string& name : names) {
    specs.push_back({.name = name, .rows = kRows, .width = kWidth});
    tables.push_back({name.c_str(), kRows, kWidth, "table-wise"});
  }
  std::vector<ts::Shard> shards;
  for (int t = 0; t < kTables; ++t) shards.push_back({t, {0, kRows, 0, kWidth}, 0});
  ts::SelfCommunicator self;
  ts::LayoutCollection<ts::Widths<kWidth>, ts::RowWiseAdagrad, ts::Host, ts::SelfCommunicator> cpp(
      self, ts::Host(), ts::make_layout({1}, specs, {}, shards), {.learning_rate = 0.01f});
  tessera_communicator* communicator = nullptr;
  tessera_layout* layout = nullptr;
  tessera_collection* collection = nullptr;
  tessera_step* of_c = nullptr;
  tessera_collection_options options;
  ok(tessera_communicator_self(&communicator));
  ok(tessera_layout_create(tables.data(), kTables, nullptr, 0, 1, 0, nullptr, &layout));
  ok(tessera_collection_defaults(&options));
  options.optimizer = "rowwise-adagrad";
  ok(tessera_collection_create(communicator, layout, &options, &collection));
  ok(tessera_step_create(collection, &of_c));

  std::mt19937_64 random(1);
  std::vector<std::vector<std::int64_t>> batches(8);
  for (auto& ids : batches)
    for (std::int64_t i = 0; i < kTables * samples; ++i)
      ids.push_back(static_cast<std::int64_t>(random() % kRows));
  std::vector<float> output(static_cast<std::size_t>(samples * kColumns)),
      gradient(output.size(), 1e-3f);
  std::vector<double> in_cpp, in_c;
  std::size_t n = 0;
  const auto timed = [](std::vector<double>& to, auto&& f) {
    const auto begin = Clock::now();
    f();
    to.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  };
  for ([[maybe_unused]] auto _ : state) {
    const std::vector<std::int64_t>& ids = batches[n++ % batches.size()];
    timed(in_cpp, [&] {
      const auto pooled = cpp.forward(ts::KeyedJagged<std::int64_t>{kTables, samples, ids, {}, {}},
                                      {output.data(), samples, kColumns});
      cpp.backward(pooled, {gradient.data(), samples, kColumns});
    });
    timed(in_c, [&] {
      const tessera_batch batch{kTables, samples, ids.data(), ids.size(), 64, nullptr, nullptr};
      const tessera_gradients gradients{gradient.data(), kColumns, nullptr, 0, nullptr};
      ok(tessera_route(of_c, &batch));
      ok(tessera_lookup(of_c, output.data(), kColumns));
      ok(tessera_update(of_c, &gradients));
    });
  }
  tessera_step_destroy(of_c);
  tessera_collection_destroy(collection);
  tessera_layout_destroy(layout);
  tessera_communicator_destroy(communicator);
  state.counters["cpp_us"] = median(in_cpp);
  state.counters["c_us"] = median(in_c);
  state.counters["ratio"] = median(in_cpp) / median(in_c);
}
BENCHMARK(step)->Arg(1)->Arg(64)->Arg(2048)->Iterations(200)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
