// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What the GPU benchmarks share: device arrays, ids drawn on the GPU, times by events, and for each
// case
//   bytes       algorithmic: every id's row, output and gradient once per use
//   dram_bytes  at least: every distinct row once per direction, outputs and gradients once
//   copy_share  dram_bytes/s over the bytes/s of a device-to-device copy (read + written), measured once in the same run
//   expected    what docs/gpu/README.md expects, by calculation, at the copy's speed of this run
// At the end all cases are listed, those that miss most time first. Options beside Google
// Benchmark's:
//   --markdown=FILE   the list as a table
//   --small           a few samples, rows and columns, once each: whether every case runs
#pragma once

#include <gpu/need_gpu.hpp>

#include <tessera/core/random.hpp>
#include <tessera/tessera.cuh>

#include <benchmark/benchmark.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace tessera;

template <class T>
class DeviceArray {
 public:
  DeviceArray(const Cuda& backend, const std::vector<T>& values)
      : DeviceArray(backend, values.size()) {
    backend.copy(buffer_.data(), values.data(), values.size() * sizeof(T));
    backend.synchronize();
  }
  DeviceArray(const Cuda& backend, std::size_t count) {
    buffer_.resize(backend, count);
    backend.fill_zero(buffer_.data(), count * sizeof(T));
  }
  T* data() const { return buffer_.data(); }
  std::size_t size() const { return buffer_.size(); }
  std::span<T> span() const { return buffer_.span(); }

 private:
  Buffer<T, Cuda> buffer_;
};

/// Seconds between two points of a stream.
class Timer {
 public:
  explicit Timer(cudaStream_t stream) : stream_(stream) {}
  template <class F>
  double seconds(const F& f) {
    begin_.record(stream_);
    f();
    end_.record(stream_);
    return begin_.until(end_) * 1e-3;
  }

 private:
  cudaStream_t stream_;
  gpu::TimedEvent begin_, end_;
};

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

/// Whether --small was given.
inline bool& small_run() {
  static bool small = false;
  return small;
}
/// A size, or the small run's.
inline std::int64_t size_or(std::int64_t size, std::int64_t small) {
  return small_run() ? std::min(size, small) : size;
}

/// Bytes read and written per second by a device-to-device copy of a gigabyte.
inline double copy_bandwidth(const Cuda& backend) {
  static const double measured = [&] {
    const auto bytes = static_cast<std::size_t>(size_or(std::int64_t{1} << 30, 1 << 12));
    const DeviceArray<std::byte> from(backend, bytes), to(backend, bytes);
    Timer timer(backend.stream());
    std::vector<double> times;
    for (int i = 0; i < 10; ++i)
      times.push_back(timer.seconds([&] { backend.copy(to.data(), from.data(), bytes); }));
    return 2.0 * static_cast<double>(bytes) / median(times);
  }();
  return measured;
}

/// Bytes per second of a copy from page-locked memory of the host: what tables OnHost can have.
inline double bus_bandwidth(const Cuda& backend) {
  static const double measured = [&] {
    const auto bytes = static_cast<std::size_t>(size_or(std::int64_t{1} << 28, 1 << 12));
    const DeviceArray<std::byte> to(backend, bytes);
    void* const from = Cuda::allocate_host(bytes);
    Timer timer(backend.stream());
    std::vector<double> times;
    for (int i = 0; i < 5; ++i)
      times.push_back(timer.seconds([&] { backend.copy(to.data(), from, bytes); }));
    Cuda::deallocate_host(from, bytes);
    return static_cast<double>(bytes) / median(times);
  }();
  return measured;
}

/// Ids of a table: uniform (`skew` 0), or Zipf-distributed with exponent `skew` (inverted by its
/// integral), hot rows anywhere in the table unless `sorted`.
struct Draw {
  std::uint64_t seed = 0;
  std::int64_t rows = 1;
  double skew = 0;
  bool sorted = false;

  TESSERA_HOST_DEVICE std::int64_t operator()(std::uint64_t counter) const {
    const std::uint64_t word = random_word(seed, counter);
    if (skew == 0) return static_cast<std::int64_t>(word % static_cast<std::uint64_t>(rows));
    const double u = static_cast<double>(word >> 11) * 0x1p-53;
    const auto rank = static_cast<std::int64_t>(
        pow(1 + u * (pow(static_cast<double>(rows) + 1, 1 - skew) - 1), 1 / (1 - skew)) - 1);
    if (sorted) return rank < rows - 1 ? rank : rows - 1;
    return static_cast<std::int64_t>(mix64(static_cast<std::uint64_t>(rank)) %
                                     static_cast<std::uint64_t>(rows));
  }
};

inline constexpr int draw_threads = 256;

/// Draws `count` ids, and counts the rows that nobody has set in `seen`, a bit per row.
template <class Id>
__global__ void __launch_bounds__(draw_threads)
    draw_ids(Id* ids, const std::int64_t count, const Draw draw, unsigned* seen,
             unsigned long long* distinct) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * draw_threads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t row = draw(static_cast<std::uint64_t>(i));
  ids[i] = static_cast<Id>(row);
  const unsigned bit = 1u << (row % 32);
  if ((atomicOr(seen + row / 32, bit) & bit) == 0) atomicAdd(distinct, 1ull);
}

/// Numbers between -1 and 1: products of zeros take less power, and so less time, than those of
/// data.
template <class T>
__global__ void __launch_bounds__(draw_threads)
    draw_values(T* values, const std::int64_t count, const std::uint64_t seed) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * draw_threads + threadIdx.x;
  if (i < count) values[i] = from_float<T>(2 * unit_float(random_word(seed, i)) - 1);
}

template <class T>
DeviceArray<T> drawn_values(const Cuda& backend, std::int64_t count, std::uint64_t seed) {
  DeviceArray<T> values(backend, static_cast<std::size_t>(count));
  backend.launch("draw_values", gpu::ceil_divide(count, draw_threads), draw_threads, draw_values<T>,
                 values.data(), count, seed);
  return values;
}

/// Draws ids and answers how many distinct rows they name. The host waits.
template <class Id>
std::int64_t draw(const Cuda& backend, Id* ids, std::int64_t count, const Draw& how) {
  const DeviceArray<unsigned> seen(backend, static_cast<std::size_t>(how.rows / 32 + 1));
  const DeviceArray<unsigned long long> distinct(backend, 1);
  backend.launch("draw_ids", gpu::ceil_divide(count, draw_threads), draw_threads, draw_ids<Id>, ids,
                 count, how, seen.data(), distinct.data());
  unsigned long long rows = 0;
  backend.copy(&rows, distinct.data(), sizeof(rows));
  backend.synchronize();
  return static_cast<std::int64_t>(rows);
}

/// What docs/gpu/README.md expects of a case.
struct Expected {
  double share = 0;  ///< of a copy's speed, for the least bytes; 0: the sum below
  /// rows that are read again come from the second-level cache, at no more than `cache_speed`
  bool from_cache = false;
  bool over_bus =
      false;             ///< the least bytes cross the bus, whose copy counts in place of the GPU's
  double memory_us = 0;  ///< of a step on an H200, whose copy is taken to move 4.3 TB/s
  double products_us = 0;  ///< of a step
  double host_us = 0;      ///< that the host works beside it

  static constexpr double cache_speed = 5.5e12, h200_copy = 4.3e12;

  /// In microseconds; 0: nothing is expected.
  double time(double bytes, double dram_bytes, double copy) const {
    if (share == 0) return memory_us * h200_copy / copy + products_us;
    const double from_memory = dram_bytes / (share * copy);
    return std::max(1e6 * (from_cache ? std::max(from_memory, bytes / cache_speed) : from_memory),
                    host_us);
  }
};

struct Result {
  std::string name;
  double us = 0, expected_us = 0, bytes = 0, dram_bytes = 0, copy_share = 0;
  std::string error{};

  double missing() const { return expected_us == 0 ? 0 : us - expected_us; }
};
inline std::vector<Result>& results() {
  static std::vector<Result> all;
  return all;
}

/// Runs `body(i)` for every iteration with another input of `inputs`, and sets the counters. What
/// takes less than 0.2 ms is repeated between two events, so that the time of a launch does not
/// count.
template <class Body>
void measure(benchmark::State& state, const Cuda& backend, std::size_t inputs, double bytes,
             double dram_bytes, const Expected& expected, const Body& body) {
  const double copy = expected.over_bus ? bus_bandwidth(backend) : copy_bandwidth(backend);
  Timer timer(backend.stream());
  std::size_t turn = 0;
  const auto next = [&] { body(turn++ % inputs); };
  double once = 0;
  for (int warm_up = 0; warm_up < (small_run() ? 1 : 3); ++warm_up) once = timer.seconds(next);
  const int repeats =
      small_run() ? 1 : std::clamp(static_cast<int>(2e-4 / std::max(once, 1e-9)), 1, 16);
  std::vector<double> times;
  for (auto _ : state) {
    times.push_back(timer.seconds([&] {
      for (int i = 0; i < repeats; ++i) next();
    }) / repeats);
    state.SetIterationTime(times.back());
  }
  const double time = median(times);
  Result& result = results().back();
  result.us = time * 1e6;
  result.expected_us = expected.time(bytes, dram_bytes, copy);
  result.bytes = bytes;
  result.dram_bytes = dram_bytes;
  result.copy_share = dram_bytes / time / copy;
  state.counters["us"] = result.us;
  state.counters["expected_us"] = result.expected_us;
  state.counters["bytes/s"] = bytes / time;
  state.counters["dram_bytes/s"] = dram_bytes / time;
  state.counters["copy_bytes/s"] = copy;
  state.counters["copy_share"] = result.copy_share;
}

/// Registers a case. A fixed number of iterations: Google Benchmark would otherwise call `f`, with
/// all that it prepares, several times.
template <class F>
void add(const std::string& name, const F& f) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [name, f](benchmark::State& state) {
                                 results().push_back({.name = name});
                                 try {
                                   f(state);
                                 } catch (const std::exception& error) {
                                   results().back().error = error.what();
                                   state.SkipWithError(error.what());
                                 }
                               })
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond)
      ->Iterations(small_run() ? 1 : 30);
}

/// Takes this file's options out of the command line, before cases are registered; answers
/// --markdown's file.
inline std::string take_options(int& argc, char** argv) {
  std::string markdown;
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--small")
      small_run() = true;
    else if (option.starts_with("--markdown="))
      markdown = option.substr(option.find('=') + 1);
    else
      argv[kept++] = argv[i];
  }
  argc = kept;
  return markdown;
}

/// Runs the cases and lists them, those that miss most time first. Answers the program's exit code.
inline int run_cases(int argc, char** argv, const std::string& markdown) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  std::stable_sort(results().begin(), results().end(),
                   [](const Result& a, const Result& b) { return a.missing() > b.missing(); });
  std::FILE* const file = markdown.empty() ? nullptr : std::fopen(markdown.c_str(), "w");
  const auto in_table = [&](const std::string& line) {
    if (file != nullptr) std::fputs(line.c_str(), file);
  };
  in_table(
      "| case | microseconds | expected | missing | MB, at least | MB, each use | share of a copy "
      "|\n|---|---|---|---|---|---|---|\n");
  std::puts("== missing us, us, expected us, MB at least, MB each use, share of a copy, case");
  int failed = 0;
  for (const Result& r : results()) {
    if (!r.error.empty()) {
      ++failed;
      std::puts(fmt::format("FAILED {}: {}", r.name, r.error).c_str());
      in_table(fmt::format("| {} | failed | | | | | |\n", r.name));
      continue;
    }
    const std::string expected = r.expected_us == 0 ? "-" : fmt::format("{:.0f}", r.expected_us);
    std::puts(fmt::format("{:8.0f} {:8.1f} {:>8} {:7.0f} {:7.0f} {:4.0f}% {}", r.missing(), r.us,
                          expected, r.dram_bytes * 1e-6, r.bytes * 1e-6, r.copy_share * 100, r.name)
                  .c_str());
    in_table(fmt::format("| {} | {:.1f} | {} | {:.0f} | {:.0f} | {:.0f} | {:.0f} % |\n", r.name,
                         r.us, expected, r.missing(), r.dram_bytes * 1e-6, r.bytes * 1e-6,
                         r.copy_share * 100));
  }
  if (file != nullptr) std::fclose(file);
  return failed == 0 ? 0 : 1;
}

}  // namespace
