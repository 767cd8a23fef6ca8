// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A training step of DLRM's MLPs (forward, backward, SGD) beside the bare sgemm calls that it
// consists of, both on the same buffers' sizes and interleaved. `share` is the step's rate over
// that of the bare products: what bias, ReLU, masks, packing and the update cost.
// `arithmetic_share`: its rate over that of as many multiplications and additions in registers
// (limits.hpp).
#include <tessera/dense/mlp.hpp>
#include <tessera/dense/optimizer.hpp>

#include <benchmark/benchmark.h>
#include <omp.h>
#include <dnnl.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "limits.hpp"

using namespace tessera;
using namespace tessera::bench;

namespace {

void bench_mlp(benchmark::State& state, const std::vector<std::int64_t>& sizes, bool input_gradient,
               DensePrecision precision) {
  const std::int64_t batch = state.range(0);
  const int threads = static_cast<int>(state.range(1));
  const Host host({.threads = threads});
  Mlp<> mlp(host, sizes, {.precision = precision});
  DenseParameters parameters(host, 1, mlp);
  DenseOptimizer sgd(host, Sgd{});
  const auto buffer = [&](std::int64_t columns) {
    return std::vector<float>(static_cast<std::size_t>(batch * columns), 0.01f);
  };
  std::vector<float> x = buffer(sizes.front()), dx = x, y = buffer(sizes.back()), dy = y;
  const MatrixView<float> x_view(x.data(), batch, sizes.front()),
      dx_view(dx.data(), batch, sizes.front()), y_view(y.data(), batch, sizes.back()),
      dy_view(dy.data(), batch, sizes.back());
  const auto step = [&] {
    mlp.forward(x_view, y_view);
    mlp.backward(dy_view, input_gradient ? dx_view : MatrixView<float>{});
    sgd.step(parameters, 1e-6f);
  };

  std::vector<std::vector<float>> activations, weights;
  for (const std::int64_t size : sizes) activations.push_back(buffer(size));
  double flops = 0.0;
  for (std::size_t l = 0; l + 1 < sizes.size(); ++l) {
    weights.emplace_back(static_cast<std::size_t>(sizes[l] * sizes[l + 1]), 0.01f);
    flops += 2.0 * static_cast<double>(batch * sizes[l] * sizes[l + 1]) *
             (l > 0 || input_gradient ? 3 : 2);
  }
  const auto products = [&] {
    omp_set_num_threads(threads);
    for (std::size_t l = 0; l < weights.size(); ++l) {
      const std::int64_t in = sizes[l], out = sizes[l + 1];
      float *a = activations[l].data(), *b = activations[l + 1].data(), *w = weights[l].data();
      dnnl_sgemm('N', 'T', batch, out, in, 1.0f, a, in, w, in, 0.0f, b, out);
      dnnl_sgemm('T', 'N', out, in, batch, 1.0f, b, out, a, in, 0.0f, w, in);
      if (l > 0 || input_gradient)
        dnnl_sgemm('N', 'N', batch, in, out, 1.0f, b, out, w, in, 0.0f, a, in);
      std::fill(activations[l + 1].begin(), activations[l + 1].begin() + 16, 0.01f);
    }
  };

  step();
  products();
  std::vector<double> own, bare, arithmetic;
  for (auto _ : state) {
    arithmetic.push_back(seconds([&] { multiply_add(threads, flops); }));
    bare.push_back(seconds(products));
    own.push_back(seconds(step));
    state.SetIterationTime(own.back());
  }
  const double own_time = median(own), bare_time = median(bare);
  state.counters["gflops"] = flops / own_time * 1e-9;
  state.counters["sgemm_gflops"] = flops / bare_time * 1e-9;
  state.counters["share"] = bare_time / own_time;
  state.counters["arithmetic_share"] = median(arithmetic) / own_time;
  state.counters["samples_per_second"] = static_cast<double>(batch) / own_time;
}

void shapes(benchmark::internal::Benchmark* bench) {
  for (const std::int64_t threads : {1, 2})
    for (const std::int64_t batch : {2048, 8192}) bench->Args({batch, threads});
  bench->ArgNames({"batch", "threads"})->UseManualTime()->Unit(benchmark::kMillisecond);
}

const std::vector<std::int64_t> kBottom{13, 512, 256, 16}, kTop{367, 512, 256, 1},
    kLargeTop{479, 1024, 1024, 512, 256, 1};

}  // namespace

BENCHMARK_CAPTURE(bench_mlp, bottom_13_512_256_16, kBottom, false, DensePrecision::float32)
    ->Apply(shapes);
BENCHMARK_CAPTURE(bench_mlp, top_367_512_256_1, kTop, true, DensePrecision::float32)->Apply(shapes);
BENCHMARK_CAPTURE(bench_mlp, top_479_1024_1024_512_256_1, kLargeTop, true, DensePrecision::float32)
    ->Apply(shapes);
BENCHMARK_CAPTURE(bench_mlp, bfloat16_top_367_512_256_1, kTop, true, DensePrecision::bfloat16)
    ->Apply(shapes);
BENCHMARK_CAPTURE(bench_mlp, bfloat16_top_479_1024_1024_512_256_1, kLargeTop, true,
                  DensePrecision::bfloat16)
    ->Apply(shapes);

BENCHMARK_MAIN();
