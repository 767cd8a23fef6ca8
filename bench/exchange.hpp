// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The all-to-all of any communicator against its limit: as many ranks that copy the same bytes with one memcpy each, timed in turn
// with the collective so that both see the same machine. Times are rank 0's, from a barrier until it is through.
#pragma once

#include <tessera/concepts/communicator.hpp>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tessera::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct ExchangeTimes {
  std::size_t bytes = 0;  // of all ranks, each once
  std::vector<double> copy_seconds, exchange_seconds;
};

/// Every rank sends blocks of uneven sizes, `bytes_per_rank` in all.
template <Communicator C>
ExchangeTimes time_all_to_all(C& c, std::size_t bytes_per_rank, int iterations) {
  const auto ranks = static_cast<std::size_t>(c.size());
  const std::size_t mean = bytes_per_rank / sizeof(float) / ranks;
  const auto count = [&](std::size_t from, std::size_t to) { return mean * (1 + 2 * ((from + to) % ranks)) / ranks; };
  ExchangeTimes times;
  for (std::size_t from = 0; from < ranks; ++from)
    for (std::size_t to = 0; to < ranks; ++to) times.bytes += count(from, to) * sizeof(float);
  std::vector<std::size_t> send_counts, receive_counts;
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    send_counts.push_back(count(static_cast<std::size_t>(c.rank()), peer));
    receive_counts.push_back(count(peer, static_cast<std::size_t>(c.rank())));
  }
  std::vector<float> send(std::accumulate(send_counts.begin(), send_counts.end(), std::size_t{0}), 1.0f);
  std::vector<float> receive(std::accumulate(receive_counts.begin(), receive_counts.end(), std::size_t{0}), 2.0f);
  for (int i = -1; i < iterations; ++i) {  // the first round warms up
    c.barrier();
    const auto begin = Clock::now();
    std::memcpy(receive.data(), send.data(), std::min(send.size(), receive.size()) * sizeof(float));
    benchmark::ClobberMemory();
    c.barrier();
    const double copied = seconds_since(begin);
    c.barrier();
    const auto middle = Clock::now();
    c.all_to_all(send, send_counts, std::span(receive), receive_counts);
    if (i < 0) continue;
    times.exchange_seconds.push_back(seconds_since(middle));
    times.copy_seconds.push_back(copied);
  }
  return times;
}

/// `of_memcpy` is the median of (memcpy's time / the all-to-all's time).
inline void report(benchmark::State& state, const ExchangeTimes& times) {
  std::vector<double> shares;
  for (std::size_t i = 0; i < times.copy_seconds.size(); ++i) shares.push_back(times.copy_seconds[i] / times.exchange_seconds[i]);
  state.counters["of_memcpy"] = median(shares);
  state.counters["exchange_GB/s"] = static_cast<double>(times.bytes) / median(times.exchange_seconds) * 1e-9;
  state.counters["memcpy_GB/s"] = static_cast<double>(times.bytes) / median(times.copy_seconds) * 1e-9;
  for (const double seconds : times.exchange_seconds) {
    state.KeepRunning();
    state.SetIterationTime(seconds);
  }
  state.KeepRunning();
}

/// Registers `run(state, bytes_per_rank, iterations)` for blocks from what fits a core's cache to what fits none.
template <class Run>
void register_sizes(const std::string& name, Run run) {
  for (const auto& [kib, iterations] : {std::pair{16, 3000}, {256, 1000}, {4096, 150}, {65536, 10}})
    benchmark::RegisterBenchmark(
        fmt::format("{}/KiB_per_rank:{}", name, kib).c_str(),
        [run, bytes = static_cast<std::size_t>(kib) * 1024, times = iterations](benchmark::State& state) { run(state, bytes, times); })
        ->Iterations(iterations)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
}

}  // namespace tessera::bench
