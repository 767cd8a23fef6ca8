// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Lookup against the limit with the same traffic (limits.hpp), run in turn. Counters: limit_share =
// median limit time / median time; ids/s; bytes/s of rows read and pooled vectors written.
#include <tessera/host/lookup.hpp>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <memory>

#include "limits.hpp"

using namespace tessera;
using namespace tessera::bench;

namespace {

struct Shape {
  std::int64_t bag = 10;
  double skew = 0;
  std::int64_t batch = 65536;
  int tables = 1;
  int threads = 2;
  std::int64_t rows = 4'000'000;  ///< of all tables together
};

template <Element T, int Width>
void lookup(benchmark::State& state, Shape shape) {
  constexpr int row_bytes = Width * static_cast<int>(sizeof(T));
  const std::int64_t entries = shape.batch * shape.bag * shape.tables;
  // other ids every time, as in training
  const std::int64_t batches = std::clamp<std::int64_t>(4'000'000 / entries, 2, 64);
  const std::int64_t rows_of_table = shape.rows / shape.tables;
  HugeArray<T> arena(shape.rows * Width);
  HugeArray<float> output(shape.batch * shape.tables * Width);
  HugeArray<std::int32_t> ids(entries * batches), arena_rows(entries * batches);
  std::vector<std::int64_t> offsets;
  for (std::int64_t b = 0; b <= shape.batch * shape.tables; ++b) offsets.push_back(b * shape.bag);
  for (std::int64_t i = 0; i < ids.size(); ++i) {
    const std::int64_t table = i % entries / (shape.batch * shape.bag);
    ids.data()[i] = static_cast<std::int32_t>(
        draw_id(1, static_cast<std::uint64_t>(i), rows_of_table, shape.skew));
    arena_rows.data()[i] = static_cast<std::int32_t>(ids.data()[i] + table * rows_of_table);
  }

  const Host host({.threads = shape.threads});
  std::vector<op::LookupGroup<std::int32_t>> groups(static_cast<std::size_t>(shape.tables));
  const auto ours = [&](std::int64_t batch) {
    for (int t = 0; t < shape.tables; ++t)
      groups[static_cast<std::size_t>(t)] = {
          .bags = {.ids = ids.data() + batch * entries,
                   .offsets = shape.bag == 1 ? nullptr : offsets.data() + t * shape.batch,
                   .bags = shape.batch,
                   .row_bias = t * rows_of_table},
          .output = output.data() + t * Width,
          .output_stride = std::int64_t{Width} * shape.tables};
    if (shape.bag == 1)
      for (int t = 0; t < shape.tables; ++t)
        groups[static_cast<std::size_t>(t)].bags.ids += t * shape.batch;
    op::run<op::Lookup<T, std::int32_t, Width>>(host, {.arena = arena.data(), .groups = groups});
  };
  const auto limit = [&](std::int64_t batch, int distance) {
    gather<row_bytes, Width>(shape.threads, reinterpret_cast<const char*>(arena.data()),
                             std::span<const std::int32_t>(arena_rows.data() + batch * entries,
                                                           static_cast<std::size_t>(entries)),
                             shape.bag, output.data(), distance);
  };
  run_beside_limit(state, batches, entries,
                   entries * row_bytes + shape.batch * shape.tables * Width * 4, ours, limit);
}

template <Element T, int Width>
void add(std::string_view element, Shape shape) {
  const std::string name = fmt::format(
      "lookup{}/{}/width:{}/bag:{}/{}/batch:{}/tables:{}/threads:{}",
      shape.rows == Shape{}.rows ? "" : fmt::format("_of/rows:{}", shape.rows), element, Width,
      shape.bag, shape.skew == 0 ? "uniform" : fmt::format("zipf:{}", shape.skew), shape.batch,
      shape.tables, shape.threads);
  benchmark::RegisterBenchmark(name.c_str(),
                               [shape](benchmark::State& state) { lookup<T, Width>(state, shape); })
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond)
      ->MinTime(0.15);
}

/// Tables that fit into a core's cache, into the last one, and 8 GiB.
template <int Width>
void add_sizes() {
  for (const std::int64_t bytes :
       {std::int64_t{256} << 10, std::int64_t{16} << 20, std::int64_t{8} << 30})
    for (const std::int64_t bag : {1, 10})
      add<float, Width>("fp32", {.bag = bag, .rows = bytes / (Width * 4)});
}

template <int Width>
void add_width() {
  for (const int threads : {1, 2})
    for (const std::int64_t bag : {1, 10, 40})
      for (const double skew : {0.0, 1.05})
        add<float, Width>("fp32", {.bag = bag, .skew = skew, .threads = threads});
  for (const std::int64_t batch : {2048, 8192}) add<float, Width>("fp32", {.batch = batch});
  for (const std::int64_t bag : {1, 10}) add<BFloat16, Width>("bf16", {.bag = bag});
}

}  // namespace

int main(int argc, char** argv) {
  add_width<4>();
  add_width<16>();
  add_width<32>();
  add_width<64>();
  add_width<128>();
  add_width<256>();
  add_sizes<16>();
  add_sizes<128>();
  for (const int tables : {1, 26, 600}) {
    // The same number of ids, and of rows, in one table, in 26 and in 600 small ones.
    const std::int64_t bags = 26 * 8192;
    add<float, 16>("fp32", {.bag = 1, .batch = bags / tables, .tables = tables});
    add<float, 128>("fp32", {.bag = 1, .batch = bags / tables, .tables = tables});
    add<float, 128>("fp32", {.bag = 10, .batch = bags / tables / 10, .tables = tables});
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
