// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What the GPU benchmarks share: device arrays, ids, times by events, and the counters
//   bytes/s      algorithmic: every id's row, output and gradient once per use
//   dram_bytes/s at least: every distinct row once per direction, outputs and gradients once
//   copy_share   dram_bytes/s over the bytes/s of a device-to-device copy (read + written) measured in the same run
#pragma once

#include <gpu/need_gpu.hpp>

#include <tessera/core/random.hpp>
#include <tessera/tessera.cuh>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <vector>

namespace {

using namespace tessera;

template <class T>
class DeviceArray {
 public:
  DeviceArray(const Cuda& backend, const std::vector<T>& values) : DeviceArray(backend, values.size()) {
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
  explicit Timer(cudaStream_t stream) : stream_(stream) {
    gpu::check(cudaEventCreate(&begin_), "creating an event");
    gpu::check(cudaEventCreate(&end_), "creating an event");
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  template <class F>
  double seconds(const F& f) {
    gpu::check(cudaEventRecord(begin_, stream_), "recording");
    f();
    gpu::check(cudaEventRecord(end_, stream_), "recording");
    gpu::check(cudaEventSynchronize(end_), "waiting");
    float milliseconds = 0;
    gpu::check(cudaEventElapsedTime(&milliseconds, begin_, end_), "reading a time");
    return milliseconds * 1e-3;
  }

 private:
  cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

inline double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

/// Bytes read and written per second by a device-to-device copy of a gigabyte.
inline double copy_bandwidth(const Cuda& backend) {
  constexpr std::size_t bytes = std::size_t{1} << 30;
  const DeviceArray<std::byte> from(backend, bytes), to(backend, bytes);
  Timer timer(backend.stream());
  std::vector<double> times;
  for (int i = 0; i < 10; ++i) times.push_back(timer.seconds([&] { backend.copy(to.data(), from.data(), bytes); }));
  return 2.0 * static_cast<double>(bytes) / median(times);
}

/// Ids of a table: uniform, or Zipf-distributed with exponent `skew` (inverted by its integral), hot rows anywhere in the table unless
/// `sorted`.
inline std::int64_t draw_id(std::uint64_t seed, std::uint64_t counter, std::int64_t rows, double skew, bool sorted = false) {
  const std::uint64_t word = random_word(seed, counter);
  if (skew == 0) return static_cast<std::int64_t>(word % static_cast<std::uint64_t>(rows));
  const double u = static_cast<double>(word >> 11) * 0x1p-53;
  const auto rank =
      static_cast<std::int64_t>(std::pow(1 + u * (std::pow(static_cast<double>(rows) + 1, 1 - skew) - 1), 1 / (1 - skew)) - 1);
  if (sorted) return std::min(rank, rows - 1);
  return static_cast<std::int64_t>(mix64(static_cast<std::uint64_t>(rank)) % static_cast<std::uint64_t>(rows));
}

/// Runs `body(i)` for every iteration with another input of `inputs`, and sets the counters.
template <class Body>
void measure(benchmark::State& state, const Cuda& backend, std::size_t inputs, double bytes, double dram_bytes, const Body& body) {
  const double copy = copy_bandwidth(backend);
  Timer timer(backend.stream());
  for (std::size_t i = 0; i < 3; ++i) body(i % inputs);
  std::vector<double> times;
  std::size_t turn = 0;
  for (auto _ : state) {
    times.push_back(timer.seconds([&] { body(turn++ % inputs); }));
    state.SetIterationTime(times.back());
  }
  const double time = median(times);
  state.counters["us"] = time * 1e6;
  state.counters["bytes/s"] = bytes / time;
  state.counters["dram_bytes/s"] = dram_bytes / time;
  state.counters["copy_bytes/s"] = copy;
  state.counters["copy_share"] = dram_bytes / time / copy;
}

}  // namespace
