// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Codecs on one thread: encoding and decoding 64 MiB of rows, as a share of copying them (counter
// of_memcpy: time of a memcpy of the floats / time of the operation); bytes on the wire as a share
// of floats; root mean square and largest error, relative to the largest element of a row, of rows
// with normally distributed elements.
#include <tessera/codec/codecs.hpp>
#include <tessera/host/codec.hpp>

#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "times.hpp"

using namespace tessera;
using namespace tessera::bench;

namespace {

template <class C>
void bench_codec(benchmark::State& state) {
  const int width = static_cast<int>(state.range(0));
  const std::int64_t rows = (std::int64_t{64} << 20) / 4 / width;
  std::vector<float> floats(static_cast<std::size_t>(rows * width)), decoded(floats.size());
  std::minstd_rand random(3);
  std::normal_distribution<float> normal(0, 0.01f);
  std::generate_n(floats.begin(), 1 << 20, [&] { return normal(random); });
  for (std::size_t i = 1 << 20; i < floats.size(); ++i) floats[i] = floats[i - (1 << 20)];
  std::vector<std::byte> encoded(static_cast<std::size_t>(rows) * C::bytes(width));
  const Host host;
  std::vector<double> copies, encodes, decodes;
  for (auto _ : state) {
    copies.push_back(seconds([&] {
      std::memcpy(decoded.data(), floats.data(), floats.size() * sizeof(float));
      benchmark::ClobberMemory();
    }));
    const typename op::EncodeRows<C>::Job encode[] = {
        {floats.data(), width, encoded.data(), rows, width, nullptr}};
    encodes.push_back(seconds([&] { op::run<op::EncodeRows<C>>(host, {encode}); }));
    const typename op::DecodeRows<C>::Job decode[] = {
        {encoded.data(), decoded.data(), width, rows, width, nullptr, false}};
    decodes.push_back(seconds([&] { op::run<op::DecodeRows<C>>(host, {decode}); }));
    state.SetIterationTime(encodes.back() + decodes.back());
  }
  const double copy = median(copies);
  state.counters["encode_of_memcpy"] = copy / median(encodes);
  state.counters["decode_of_memcpy"] = copy / median(decodes);
  state.counters["bytes_share"] =
      static_cast<double>(encoded.size()) / static_cast<double>(floats.size() * sizeof(float));
  double squares = 0, most = 0;
  const std::int64_t measured = std::min<std::int64_t>(rows, 20'000);
  for (std::int64_t r = 0; r < measured; ++r) {
    float largest = 0;
    for (std::int64_t i = r * width; i < (r + 1) * width; ++i)
      largest = std::max(largest, std::abs(floats[static_cast<std::size_t>(i)]));
    for (std::int64_t i = r * width; i < (r + 1) * width; ++i) {
      const double error = std::abs(static_cast<double>(decoded[static_cast<std::size_t>(i)]) -
                                    floats[static_cast<std::size_t>(i)]) /
                           largest;
      squares += error * error;
      most = std::max(most, error);
    }
  }
  state.counters["rms_error"] = std::sqrt(squares / static_cast<double>(measured * width));
  state.counters["max_error"] = most;
}

void widths(benchmark::internal::Benchmark* bench) {
  for (const int width : {16, 64, 128}) bench->Arg(width);
  bench->ArgName("width")->UseManualTime()->Iterations(15)->Unit(benchmark::kMillisecond);
}

}  // namespace

BENCHMARK(bench_codec<Bf16>)->Apply(widths);
BENCHMARK(bench_codec<Fp16>)->Apply(widths);
BENCHMARK(bench_codec<Int8>)->Apply(widths);

BENCHMARK_MAIN();
