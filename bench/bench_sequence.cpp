// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// An HSTU block, forward and backward, beside one matrix product of oneDNN with as many
// multiplications and additions, interleaved. Counted are the products of the four linear parts
// and, of attention, those of pairs of positions that see each other (2 products forward, 5
// backward). `share`: the block's rate over the product's. `scratch_mb`: memory of attention that
// is no input, output or activation.
#include <tessera/dense/parameters.hpp>
#include <tessera/sequence/hstu.hpp>

#include <benchmark/benchmark.h>
#include <omp.h>
#include <dnnl.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "times.hpp"

using namespace tessera;
using namespace tessera::bench;

namespace {

constexpr int kHeads = 4, kAttention = 32, kHidden = 32;
constexpr std::int64_t kWidth = 128;

void block(benchmark::State& state) {
  const std::int64_t sequences = state.range(0), length = state.range(1);
  const int threads = static_cast<int>(state.range(2));
  const std::int64_t rows = sequences * length;
  HstuLayer<kHeads, kAttention, kHidden> layer(Host({.threads = threads}), kWidth,
                                               {.max_length = length});
  DenseParameters parameters(1, layer);
  std::vector<std::int64_t> offsets;
  for (std::int64_t s = 0; s <= sequences; ++s) offsets.push_back(s * length);
  std::vector<float> x(static_cast<std::size_t>(rows * kWidth)), y(x), dx(x);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) * 0.1f - 0.8f;
  const auto step = [&] {
    layer.forward({x.data(), rows, kWidth}, {offsets}, {y.data(), rows, kWidth});
    layer.backward({x.data(), rows, kWidth}, {dx.data(), rows, kWidth});
  };
  const double linear = 3.0 * 2 * static_cast<double>(rows * kWidth) *
                        (2 * kHeads * (kHidden + kAttention) + kHeads * kHidden);
  const double pairs =
      static_cast<double>(sequences * length) * static_cast<double>(length + 1) / 2;
  const double attention =
      pairs * kHeads * 2 * (kAttention + kHidden + 3.0 * kAttention + 2.0 * kHidden);
  const double flops = linear + attention;

  constexpr std::int64_t n = 1024;
  const auto m = static_cast<std::int64_t>(flops / (2.0 * n * kWidth * 2)) + 1;
  std::vector<float> a(static_cast<std::size_t>(m * kWidth * 2), 0.01f),
      b(static_cast<std::size_t>(kWidth * 2 * n), 0.01f), c(static_cast<std::size_t>(m * n));
  const auto product = [&] {
    omp_set_num_threads(threads);
    dnnl_sgemm('N', 'N', m, n, kWidth * 2, 1, a.data(), kWidth * 2, b.data(), n, 0, c.data(), n);
  };
  step(), product();
  std::vector<double> ours, theirs;
  for (auto _ : state) {
    ours.push_back(seconds(step));
    theirs.push_back(seconds(product));
    state.SetIterationTime(ours.back());
  }
  state.counters["share"] = median(theirs) / median(ours);
  state.counters["gflops"] = flops / median(ours) / 1e9;
  state.counters["product_gflops"] =
      2.0 * static_cast<double>(m) * n * kWidth * 2 / median(theirs) / 1e9;
  state.counters["attention_part"] = attention / flops;
  state.counters["scratch_mb"] =
      2.0 * 4 * static_cast<double>(detail::HstuAttention::scratch()) * threads / (1 << 20);
}

BENCHMARK(block)
    ->Name("hstu/block")
    ->ArgNames({"sequences", "length", "threads"})
    ->ArgsProduct({{1}, {4096}, {1, 2}})
    ->ArgsProduct({{16, 128}, {200}, {1, 2}})
    ->UseManualTime()
    ->Iterations(7);

}  // namespace
BENCHMARK_MAIN();
