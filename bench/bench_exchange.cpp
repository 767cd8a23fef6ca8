// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Thread ranks: the all-to-all as a share of memcpy (see exchange.hpp), flat and by two nodes that
// are made up, and what agreeing costs.
#include "exchange.hpp"

#include <tessera/comm/counting_communicator.hpp>
#include <tessera/comm/hierarchical_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

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
BENCHMARK(barrier)
    ->ArgName("ranks")
    ->Arg(1)
    ->Arg(2)
    ->Arg(4)
    ->Arg(8)
    ->UseManualTime()
    ->Iterations(50)
    ->Unit(benchmark::kMicrosecond);

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (const int ranks : {1, 2, 4}) {
    ts::bench::register_sizes(fmt::format("all_to_all/ranks:{}", ranks),
                              [=](benchmark::State& state, std::size_t bytes, int iterations) {
                                ts::bench::ExchangeTimes times;
                                ts::run_ranks(ranks, [&](ts::ThreadCommunicator& c) {
                                  auto mine = ts::bench::time_all_to_all(c, bytes, iterations);
                                  if (c.rank() == 0) times = std::move(mine);
                                });
                                ts::bench::report(state, times);
                                state.counters["messages_across"] = 0;
                              });
  }
  // Eight ranks as two nodes of four: `across` is what one rank sends to the other node in one
  // exchange.
  for (const bool two_stage : {false, true}) {
    const std::string name = two_stage ? "by_node/ranks:8" : "all_to_all/ranks:8";
    ts::bench::register_sizes(name, [=](benchmark::State& state, std::size_t bytes,
                                        int iterations) {
      using Counting = ts::CountingCommunicator<ts::ThreadCommunicator>;
      ts::bench::ExchangeTimes times;
      double messages = 4;
      ts::run_ranks(8, [&](ts::ThreadCommunicator& c) {
        ts::ThreadCommunicator local = c.split(c.rank() / 4), cross = c.split(c.rank() % 4);
        ts::HierarchicalCommunicator<Counting> by_node{Counting(local), Counting(cross)};
        auto mine = two_stage ? ts::bench::time_all_to_all(by_node, bytes, iterations)
                              : ts::bench::time_all_to_all(c, bytes, iterations);
        if (c.rank() != 0) return;
        times = std::move(mine);
        if (two_stage)
          messages =
              static_cast<double>(by_node.cross().traffic(ts::Collective::all_to_all).messages) /
              (iterations + 1);
      });
      ts::bench::report(state, times);
      state.counters["messages_across"] = messages;
    });
  }
  benchmark::RunSpecifiedBenchmarks();
}
