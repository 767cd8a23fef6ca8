// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Thread ranks: the all-to-all as a share of memcpy (see exchange.hpp), and what agreeing costs.
#include "exchange.hpp"

#include <tessera/comm/thread_communicator.hpp>

#include <benchmark/benchmark.h>

namespace ts = tessera;

namespace {

/// A collective without data, a hundred in a row.
void barrier(benchmark::State& state) {
  constexpr int kRepeats = 100;
  std::vector<double> seconds;
  ts::run_ranks(static_cast<int>(state.range(0)), [&](ts::ThreadCommunicator& c) {
    for (benchmark::IterationCount i = 0; i < state.max_iterations; ++i) {
      const auto begin = ts::bench::Clock::now();
      for (int repeat = 0; repeat < kRepeats; ++repeat) c.barrier();
      if (c.rank() == 0) seconds.push_back(ts::bench::seconds_since(begin) / kRepeats);
    }
  });
  for (const double each : seconds) {
    state.KeepRunning();
    state.SetIterationTime(each);
  }
  state.KeepRunning();
}
BENCHMARK(barrier)->ArgName("ranks")->Arg(1)->Arg(2)->Arg(4)->Arg(8)->UseManualTime()->Iterations(50)->Unit(benchmark::kMicrosecond);

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (const int ranks : {1, 2, 4}) {
    ts::bench::register_sizes(fmt::format("all_to_all/ranks:{}", ranks), [=](benchmark::State& state, std::size_t bytes, int iterations) {
      ts::bench::ExchangeTimes times;
      ts::run_ranks(ranks, [&](ts::ThreadCommunicator& c) {
        auto mine = ts::bench::time_all_to_all(c, bytes, iterations);
        if (c.rank() == 0) times = std::move(mine);
      });
      ts::bench::report(state, times);
    });
  }
  benchmark::RunSpecifiedBenchmarks();
}
