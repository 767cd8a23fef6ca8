// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The all-to-all of any communicator against its limit: as many ranks that copy the same bytes with
// one memcpy each, timed in turn with the collective so that both see the same machine. Times begin
// with the first rank and end with the last: those of one rank alone would leave out what it waits
// for another to begin, in the copy only.
#pragma once

#include <tessera/concepts/communicator.hpp>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "times.hpp"

namespace tessera::bench {

/// Processor time of the calling thread.
inline double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct ExchangeTimes {
  std::size_t bytes = 0;  // of all ranks, each once
  // from the first rank's start to the last rank's end
  std::vector<double> copy_seconds, exchange_seconds;
  std::vector<double> copy_work, exchange_work;  // processor time of this rank alone
};

/// When a rank was at work, in wall time and in its own processor time.
struct Stretch {
  double begin = 0, end = 0, work = 0;
};

template <class Function>
Stretch time_stretch(Function&& function) {
  const double work = thread_seconds();
  const double begin = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
  function();
  const double end = std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
  return {begin, end, thread_seconds() - work};
}

/// Seconds from the first rank's begin to the last rank's end, for each of the rounds. Ranks are on
/// one machine, with one clock.
template <Communicator C>
std::vector<double> over_ranks(C& c, const std::vector<Stretch>& mine) {
  const auto ranks = static_cast<std::size_t>(c.size());
  std::vector<Stretch> all(mine.size() * ranks);
  c.all_gather(std::span<const Stretch>(mine), std::span<Stretch>(all),
               std::vector<std::size_t>(ranks, mine.size()));
  std::vector<double> seconds;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    Stretch whole = mine[i];
    for (std::size_t r = 0; r < ranks; ++r) {
      whole.begin = std::min(whole.begin, all[r * mine.size() + i].begin);
      whole.end = std::max(whole.end, all[r * mine.size() + i].end);
    }
    seconds.push_back(whole.end - whole.begin);
  }
  return seconds;
}

/// Every rank sends blocks of uneven sizes, `bytes_per_rank` in all.
template <Communicator C>
ExchangeTimes time_all_to_all(C& c, std::size_t bytes_per_rank, int iterations) {
  const auto ranks = static_cast<std::size_t>(c.size());
  const std::size_t mean = bytes_per_rank / sizeof(float) / ranks;
  const auto count = [&](std::size_t from, std::size_t to) {
    return mean * (1 + 2 * ((from + to) % ranks)) / ranks;
  };
  ExchangeTimes times;
  for (std::size_t from = 0; from < ranks; ++from)
    for (std::size_t to = 0; to < ranks; ++to) times.bytes += count(from, to) * sizeof(float);
  std::vector<std::size_t> send_counts, receive_counts;
  for (std::size_t peer = 0; peer < ranks; ++peer) {
    send_counts.push_back(count(static_cast<std::size_t>(c.rank()), peer));
    receive_counts.push_back(count(peer, static_cast<std::size_t>(c.rank())));
  }
  // Both at the begin of a page: how buffers lie to each other decides how fast memcpy is on some
  // machines.
  const auto pages = [](std::vector<float>& buffer, std::span<const std::size_t> counts,
                        float value) {
    const std::size_t count = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
    buffer.assign(count + 1024, value);
    return std::span(buffer).subspan(
        (4096 - reinterpret_cast<std::uintptr_t>(buffer.data()) % 4096) / sizeof(float), count);
  };
  std::vector<float> send_buffer, receive_buffer;
  const std::span<float> send = pages(send_buffer, send_counts, 1.0f),
                         receive = pages(receive_buffer, receive_counts, 2.0f);
  std::vector<Stretch> copies, exchanges;
  for (int i = -1; i < iterations; ++i) {  // the first round warms up
    c.barrier();
    const Stretch copy = time_stretch([&] {
      std::memcpy(receive.data(), send.data(), std::min(send.size_bytes(), receive.size_bytes()));
      benchmark::ClobberMemory();
    });
    c.barrier();
    const Stretch exchange =
        time_stretch([&] { c.all_to_all(send, send_counts, receive, receive_counts); });
    if (i < 0) continue;
    copies.push_back(copy);
    exchanges.push_back(exchange);
    times.copy_work.push_back(copy.work);
    times.exchange_work.push_back(exchange.work);
  }
  times.copy_seconds = over_ranks(c, copies);
  times.exchange_seconds = over_ranks(c, exchanges);
  return times;
}

/// Median of (memcpy's time / the all-to-all's time), of pairs measured one after the other.
inline double share(const std::vector<double>& copies, const std::vector<double>& exchanges) {
  std::vector<double> shares;
  for (std::size_t i = 0; i < copies.size(); ++i) shares.push_back(copies[i] / exchanges[i]);
  return median(shares);
}

/// `of_memcpy`: share in wall time; `work_of_memcpy`: in rank 0's processor time, which other
/// programs on the machine disturb less, and which counts spinning but not sleeping.
inline void report(benchmark::State& state, const ExchangeTimes& times) {
  state.counters["of_memcpy"] = share(times.copy_seconds, times.exchange_seconds);
  state.counters["work_of_memcpy"] = share(times.copy_work, times.exchange_work);
  state.counters["exchange_GB/s"] =
      static_cast<double>(times.bytes) / median(times.exchange_seconds) * 1e-9;
  state.counters["memcpy_GB/s"] =
      static_cast<double>(times.bytes) / median(times.copy_seconds) * 1e-9;
  for (const double seconds : times.exchange_seconds) {
    state.KeepRunning();
    state.SetIterationTime(seconds);
  }
  state.KeepRunning();
}

/// Registers `run(state, bytes_per_rank, iterations)` for blocks from what fits a core's cache to
/// what fits none.
template <class Run>
void register_sizes(const std::string& name, Run run) {
  for (const auto& [kib, iterations] : {std::pair{16, 3000}, {256, 1000}, {4096, 150}, {65536, 10}})
    benchmark::RegisterBenchmark(
        fmt::format("{}/KiB_per_rank:{}", name, kib).c_str(),
        [run, bytes = static_cast<std::size_t>(kib) * 1024,
         times = iterations](benchmark::State& state) { run(state, bytes, times); })
        ->Iterations(iterations)
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
}

/// Runs the benchmarks on ranks that are processes, of which rank 0 reports.
template <Communicator C>
void run_on_processes(C& c, const std::string& engine) {
  struct Silent : benchmark::BenchmarkReporter {
    bool ReportContext(const Context&) override { return true; }
    void ReportRuns(const std::vector<Run>&) override {}
  };
  register_sizes(fmt::format("{}_all_to_all/ranks:{}", engine, c.size()),
                 [&c](benchmark::State& state, std::size_t bytes, int iterations) {
                   report(state, time_all_to_all(c, bytes, iterations));
                 });
  Silent silent;
  benchmark::ConsoleReporter console;
  benchmark::RunSpecifiedBenchmarks(
      c.rank() == 0 ? static_cast<benchmark::BenchmarkReporter*>(&console) : &silent);
}

}  // namespace tessera::bench
