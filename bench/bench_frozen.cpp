// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Pooled lookups in frozen rows of every format against the limit with the same traffic
// (limits.hpp), run in turn. Counters: limit_share = median limit time / median time; ids/s;
// bytes/s of rows read and pooled vectors written.
#include <tessera/host/parallel.hpp>
#include <tessera_serving/pool_rows.hpp>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "limits.hpp"

using namespace tessera;
using namespace tessera::bench;

namespace {

struct Shape {
  std::int64_t bag = 10;
  double skew = 0;
  int threads = 2;
};

template <class Row, int Width>
void lookup(benchmark::State& state, Shape shape) {
  constexpr int row_bytes = static_cast<int>(Row::bytes(Width));
  constexpr std::int64_t table_rows = 4'000'000, bags = 32768;
  const std::int64_t entries = bags * shape.bag;
  const std::int64_t batches = std::clamp<std::int64_t>(4'000'000 / entries, 2, 64);
  HugeArray<char> rows(table_rows * row_bytes + 64);
  HugeArray<float> output(bags * Width + 256);  // `gather` stores whole rows of bytes
  HugeArray<std::int32_t> ids(entries * batches);
  // Any bytes: what is measured does not depend on them. 0x3c: floats and halves of moderate size.
  std::fill_n(rows.data(), table_rows * row_bytes, char{0x3c});
  std::vector<std::int64_t> offsets;
  for (std::int64_t b = 0; b <= bags; ++b) offsets.push_back(b * shape.bag);
  for (std::int64_t i = 0; i < ids.size(); ++i)
    ids.data()[i] = static_cast<std::int32_t>(
        draw_id(1, static_cast<std::uint64_t>(i), table_rows, shape.skew));
  const auto ours = [&](std::int64_t batch) {
    op::Bags<std::int32_t> lists;
    lists.ids = ids.data() + batch * entries;
    lists.offsets = shape.bag == 1 ? nullptr : offsets.data();
    lists.bags = bags;
    const std::int64_t parts = 4 * shape.threads;
    detail::parallel_for(shape.threads, parts, [&](std::int64_t part, int) {
      detail::pool_rows<Row, false>(
          detail::RowsInOrder{reinterpret_cast<const std::byte*>(rows.data()), row_bytes}, Width,
          lists, bags * part / parts, bags * (part + 1) / parts, output.data(), Width);
    });
  };
  const auto limit = [&](std::int64_t batch, int distance) {
    gather<row_bytes, Width>(shape.threads, rows.data(),
                             std::span<const std::int32_t>(ids.data() + batch * entries,
                                                           static_cast<std::size_t>(entries)),
                             shape.bag, output.data(), distance);
  };
  run_beside_limit(state, batches, entries, entries * row_bytes + bags * Width * 4, ours, limit);
}

template <class Row, int Width>
void add(std::string_view format) {
  for (const int threads : {1, 2})
    for (const std::int64_t bag : {1, 10, 40})
      for (const double skew : {0.0, 1.05}) {
        const Shape shape{bag, skew, threads};
        benchmark::RegisterBenchmark(
            fmt::format("frozen/{}/width:{}/bag:{}/{}/threads:{}", format, Width, bag,
                        skew == 0 ? "uniform" : fmt::format("zipf:{}", skew), threads)
                .c_str(),
            [shape](benchmark::State& state) { lookup<Row, Width>(state, shape); })
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond)
            ->MinTime(0.15);
      }
}

template <int Width>
void add_width() {
  add<detail::ElementRow<float>, Width>("fp32");
  add<detail::ElementRow<BFloat16>, Width>("bf16");
  add<detail::CodeRow<Int8Row>, Width>("int8");
  add<detail::CodeRow<Int4Row>, Width>("int4");
}

}  // namespace

int main(int argc, char** argv) {
  add_width<16>();
  add_width<64>();
  add_width<128>();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
