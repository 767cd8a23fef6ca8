// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The exchanges of thread ranks against their limit: as many threads that copy the same bytes with one memcpy each, timed in
// turn with the collective so that both see the same machine. `of_memcpy` is the median over the iterations of
// (memcpy's time / the collective's time), as rank 0's clock sees them; `bytes_per_second` counts every byte once.
#include <tessera/comm/thread_communicator.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

namespace ts = tessera;

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Every rank sends blocks of uneven sizes, `state.range(1)` KiB in all on average.
void all_to_all(benchmark::State& state) {
  const int ranks = static_cast<int>(state.range(0));
  const auto mean = static_cast<std::size_t>(state.range(1)) * 1024 / sizeof(float) / static_cast<std::size_t>(ranks);
  const auto count = [&](int from, int to) {
    return mean * static_cast<std::size_t>(1 + 2 * ((from + to) % ranks)) / static_cast<std::size_t>(ranks);
  };
  std::size_t bytes = 0;
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to) bytes += count(from, to) * sizeof(float);

  std::vector<double> copy_seconds, exchange_seconds;
  ts::run_ranks(ranks, [&](ts::ThreadCommunicator& c) {
    std::vector<std::size_t> send_counts, receive_counts;
    for (int peer = 0; peer < ranks; ++peer) {
      send_counts.push_back(count(c.rank(), peer));
      receive_counts.push_back(count(peer, c.rank()));
    }
    std::vector<float> send(std::accumulate(send_counts.begin(), send_counts.end(), std::size_t{0}), 1.0f);
    std::vector<float> receive(std::accumulate(receive_counts.begin(), receive_counts.end(), std::size_t{0}), 2.0f);
    const auto copy = [&] {
      std::memcpy(receive.data(), send.data(), std::min(send.size(), receive.size()) * sizeof(float));
      benchmark::ClobberMemory();
      c.barrier();
    };
    const auto exchange = [&] { c.all_to_all(send, send_counts, std::span(receive), receive_counts); };
    copy();
    exchange();
    bool more = true;
    while (true) {
      if (c.rank() == 0) more = state.KeepRunning();
      c.broadcast(std::span(&more, 1), 0);
      if (!more) break;
      const auto begin = Clock::now();
      copy();
      const double copied = seconds_since(begin);
      c.barrier();
      const auto middle = Clock::now();
      exchange();
      if (c.rank() == 0) {
        exchange_seconds.push_back(seconds_since(middle));
        copy_seconds.push_back(copied);
        state.SetIterationTime(exchange_seconds.back());
      }
    }
  });
  std::vector<double> shares;
  for (std::size_t i = 0; i < copy_seconds.size(); ++i) shares.push_back(copy_seconds[i] / exchange_seconds[i]);
  state.counters["of_memcpy"] = median(shares);
  state.counters["exchange_GB/s"] = static_cast<double>(bytes) / median(exchange_seconds) * 1e-9;
  state.counters["memcpy_GB/s"] = static_cast<double>(bytes) / median(copy_seconds) * 1e-9;
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes) * state.iterations());
}
BENCHMARK(all_to_all)
    ->ArgNames({"ranks", "KiB_per_rank"})
    ->ArgsProduct({{1, 2, 4}, {16, 256, 4096, 65536}})
    ->UseManualTime()
    ->MinTime(0.3)
    ->Unit(benchmark::kMicrosecond);

/// A collective without data: what agreeing costs.
void barrier(benchmark::State& state) {
  const int ranks = static_cast<int>(state.range(0));
  ts::run_ranks(ranks, [&](ts::ThreadCommunicator& c) {
    bool more = true;
    while (true) {
      if (c.rank() == 0) more = state.KeepRunning();
      c.broadcast(std::span(&more, 1), 0);
      if (!more) break;
      const auto begin = Clock::now();
      for (int i = 0; i < 100; ++i) c.barrier();
      if (c.rank() == 0) state.SetIterationTime(seconds_since(begin) / 100);
    }
  });
}
BENCHMARK(barrier)->ArgName("ranks")->Arg(1)->Arg(2)->Arg(4)->Arg(8)->UseManualTime()->Iterations(50)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
