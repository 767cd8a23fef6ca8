// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Dot interaction against the two limits that it can meet, measured in the same run and
// interleaved: oneDNN's sgemm rate for its useful arithmetic (the triangle's products alone), and a
// plain copy for its bytes (input read, output written; backward: both inputs read, gradient
// written). `share` is the slower of the two limits' time over the time taken.
#include <tessera/host/backend.hpp>
#include <tessera/interaction/dot.hpp>
#include <tessera/tables/buffer.hpp>

#include <benchmark/benchmark.h>
#include <omp.h>
#include <dnnl.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "times.hpp"

using namespace tessera;
using namespace tessera::bench;

namespace {

template <class Dot, class T>
void bench_dot(benchmark::State& state, std::int64_t vectors, std::int64_t width, bool backward) {
  const std::int64_t batch = state.range(0);
  const int threads = static_cast<int>(state.range(1));
  const Host host({.threads = threads});
  const auto buffer = [&](std::int64_t columns) {
    Buffer<T, Host> made;
    std::ranges::fill(made.resize(Host(), static_cast<std::size_t>(batch * columns)),
                      from_float<T>(0.5f));
    return made;
  };
  const Buffer<T, Host> x = buffer(Dot::input_columns()), dx = buffer(Dot::input_columns()),
                        z = buffer(Dot::columns());
  const MatrixView<T> x_view(x.data(), batch, Dot::input_columns()),
      dx_view(dx.data(), batch, Dot::input_columns()), z_view(z.data(), batch, Dot::columns());
  const auto run = [&] {
    if (backward) {
      Dot::backward(host, x_view, z_view, dx_view);
    } else {
      Dot::forward(host, x_view, z_view);
    }
  };
  const double flops =
      static_cast<double>(batch * vectors * (vectors - 1) * width) * (backward ? 2.0 : 1.0);
  const double bytes =
      static_cast<double>(batch * (Dot::input_columns() * (backward ? 2 : 1) + Dot::columns())) *
      sizeof(T);

  constexpr std::int64_t m = 1024, n = 512, k = 512;
  std::vector<float> a(m * k, 0.5f), b(k * n, 0.5f), c(m * n);
  const auto product = [&] {
    omp_set_num_threads(threads);
    dnnl_sgemm('N', 'T', m, n, k, 1.0f, a.data(), k, b.data(), k, 0.0f, c.data(), n);
  };
  const std::int64_t half = static_cast<std::int64_t>(bytes / 2);
  Buffer<char, Host> from, to;
  for (Buffer<char, Host>* side : {&from, &to})
    std::ranges::fill(side->resize(Host(), static_cast<std::size_t>(half)), 1);
  const auto copy = [&] {
    detail::over_samples(half, threads, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to.data() + begin, from.data() + begin, static_cast<std::size_t>(end - begin));
    });
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  };

  run();
  std::vector<double> own, product_times, copy_times;
  for (auto _ : state) {
    product_times.push_back(seconds(product));
    copy_times.push_back(seconds(copy));
    own.push_back(seconds(run));
    state.SetIterationTime(own.back());
  }
  const double time = median(own), gemm_rate = 2.0 * m * n * k / median(product_times),
               copy_time = median(copy_times);
  state.counters["gflops"] = flops / time * 1e-9;
  state.counters["sgemm_gflops"] = gemm_rate * 1e-9;
  state.counters["GB_per_second"] = bytes / time * 1e-9;
  state.counters["copy_GB_per_second"] = bytes / copy_time * 1e-9;
  state.counters["of_sgemm"] = flops / time / gemm_rate;
  state.counters["of_copy"] = copy_time / time;
  state.counters["share"] = std::max(flops / gemm_rate, copy_time) / time;
}

void shapes(benchmark::internal::Benchmark* bench) {
  for (const std::int64_t threads : {1, 2})
    for (const std::int64_t batch : {256, 2048, 8192}) bench->Args({batch, threads});
  bench->ArgNames({"batch", "threads"})->UseManualTime()->Unit(benchmark::kMillisecond);
}

template <int Vectors, int Width, class T>
void forward(benchmark::State& state) {
  bench_dot<DotInteraction<Vectors, Width, 1, T>, T>(state, Vectors, Width, false);
}

template <int Vectors, int Width, class T>
void backward(benchmark::State& state) {
  bench_dot<DotInteraction<Vectors, Width, 1, T>, T>(state, Vectors, Width, true);
}

}  // namespace

BENCHMARK(forward<27, 16, float>)->Apply(shapes);
BENCHMARK(forward<27, 64, float>)->Apply(shapes);
BENCHMARK(forward<27, 128, float>)->Apply(shapes);
BENCHMARK(forward<27, 128, BFloat16>)->Apply(shapes);
BENCHMARK(backward<27, 16, float>)->Apply(shapes);
BENCHMARK(backward<27, 64, float>)->Apply(shapes);
BENCHMARK(backward<27, 128, float>)->Apply(shapes);
BENCHMARK(backward<27, 128, BFloat16>)->Apply(shapes);

BENCHMARK_MAIN();
