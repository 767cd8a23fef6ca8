// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A whole training step of DLRM: 26 tables of 100,000 rows, one id each (power law, 1.05), bottom
// 13-512-256-width, dot interaction, top 512-256-1 or 1024-1024-512-256-1, SGD; one rank of one or
// two threads, or four thread ranks. Rank 0 stops the time at every stage, so that the stages add
// up to the step: counters in milliseconds per step. Lookup includes the routing of ids; on several
// ranks waiting for others counts as exchange (of vectors, gradients, and the sum of dense
// gradients) or, for ids, as lookup.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "dlrm.hpp"

using namespace tessera;
using namespace tessera::bench;

namespace {

template <int Width>
void bench_step(benchmark::State& state) {
  const std::int64_t batch = state.range(0);
  const int ranks = static_cast<int>(state.range(1)), threads = static_cast<int>(state.range(2));
  const bool large_top = state.range(3) != 0;
  constexpr int kWarm = 3, kSteps = 15;
  std::vector<Laps> laps(kSteps);
  run_ranks(ranks, [&](ThreadCommunicator& communicator) {
    DlrmRank<Width> rank(communicator, threads, batch, large_top);
    Laps ignored;
    for (int i = 0; i < kWarm; ++i) rank.step(i, ignored);
    for (int i = 0; i < kSteps; ++i)
      rank.step(i, communicator.rank() == 0 ? laps[static_cast<std::size_t>(i)] : ignored);
  });
  // The median step, whose stages are shown: the machine may have other work.
  std::nth_element(laps.begin(), laps.begin() + kSteps / 2, laps.end(),
                   [](const Laps& a, const Laps& b) { return a.total() < b.total(); });
  const Laps& median = laps[kSteps / 2];
  for (auto _ : state) state.SetIterationTime(median.total());
  for (std::size_t s = 0; s < stages; ++s)
    state.counters[kStageNames[s]] = 1e3 * median.seconds()[s];
  state.counters["samples_per_second"] = static_cast<double>(batch) / median.total();
}

void configurations(benchmark::internal::Benchmark* bench) {
  for (const std::int64_t large_top : {0, 1})
    for (const std::int64_t batch : {2048, 8192})
      for (const auto& [ranks, threads] :
           {std::pair<std::int64_t, std::int64_t>{1, 1}, {1, 2}, {4, 1}})
        bench->Args({batch, ranks, threads, large_top});
  bench->ArgNames({"batch", "ranks", "threads", "large_top"})
      ->UseManualTime()
      ->Iterations(1)
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

BENCHMARK(bench_step<16>)->Apply(configurations);
BENCHMARK(bench_step<64>)->Apply(configurations);
BENCHMARK(bench_step<128>)->Apply(configurations);

BENCHMARK_MAIN();
