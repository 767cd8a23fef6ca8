// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What this machine's processor gives: multiplications and additions of floats in registers
// (`flop/s`). And its memory: a copy of a stream, and random rows of a table of 2 GiB on huge
// pages, summed (gather), written out (gather_write) or modified and written back
// (gather_modify_write), each with the best of several prefetch distances. Counters: bytes/s of
// rows, streams and outputs, each byte once per direction; `distance`.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstring>
#include <string>
#include <utility>

#include "limits.hpp"

using namespace tessera;
using namespace tessera::bench;

namespace {

constexpr std::int64_t kTableBytes = std::int64_t{2} << 30;

void copy(benchmark::State& state, int threads) {
  const std::int64_t floats = std::int64_t{64} << 20;
  const HugeArray<float> from(floats), to(floats);
  for (auto _ : state)
    state.SetIterationTime(seconds([&] {
      detail::parallel_for(threads, threads, [&](std::int64_t part, int) {
        const std::int64_t first = floats * part / threads, last = floats * (part + 1) / threads;
        std::memcpy(to.data() + first, from.data() + first,
                    static_cast<std::size_t>(last - first) * sizeof(float));
      });
    }));
  state.counters["bytes/s"] = benchmark::Counter(8.0 * static_cast<double>(floats),
                                                 benchmark::Counter::kIsIterationInvariantRate);
}

void arithmetic(benchmark::State& state, int threads) {
  const double operations = 1e9;
  for (auto _ : state) state.SetIterationTime(seconds([&] { multiply_add(threads, operations); }));
  state.counters["flop/s"] =
      benchmark::Counter(operations, benchmark::Counter::kIsIterationInvariantRate);
}

enum class Access { gather, gather_write, gather_modify_write };

template <int RowBytes>
void rows(benchmark::State& state, Access access, int threads) {
  constexpr int width = RowBytes / 4;
  const std::int64_t table_rows = kTableBytes / RowBytes,
                     count = std::max<std::int64_t>(1 << 15, (std::int64_t{64} << 20) / RowBytes);
  const std::int64_t bag = access == Access::gather ? 64 : 1;
  const HugeArray<char> table(kTableBytes);
  const HugeArray<float> output(count / bag * width);
  const HugeArray<std::int32_t> ids(8 * count);
  const auto mask = static_cast<std::uint64_t>(table_rows - 1);  // a power of two
  // distinct: each step maps the rows one to one
  for (std::int64_t i = 0; i < ids.size(); ++i)
    ids.data()[i] = static_cast<std::int32_t>([&](std::uint64_t x) {
      for (int round = 0; round < 3; ++round) {
        x = (x * 0x9e3779b97f4a7c15u + 0x7f4a7c15u) & mask;
        x ^= x >> 9;
      }
      return x;
    }(static_cast<std::uint64_t>(i)));
  std::int64_t turn = 0;
  const auto access_rows = [&](int distance) {
    const std::span<const std::int32_t> part(ids.data() + turn++ % 8 * count,
                                             static_cast<std::size_t>(count));
    if (access == Access::gather_modify_write) {
      gather_modify_write<RowBytes, 1, 0>(threads, {table.data()}, {}, part, distance);
    } else {
      gather<RowBytes, width>(threads, table.data(), part, bag, output.data(), distance);
    }
  };
  const int distance = best_distance(access_rows);
  for (auto _ : state) state.SetIterationTime(seconds([&] { access_rows(distance); }));
  const int directions = access == Access::gather ? 1 : 2;
  state.counters["bytes/s"] = benchmark::Counter(static_cast<double>(directions * count * RowBytes),
                                                 benchmark::Counter::kIsIterationInvariantRate);
  state.counters["rows/s"] =
      benchmark::Counter(static_cast<double>(count), benchmark::Counter::kIsIterationInvariantRate);
  state.counters["distance"] = distance;
}

template <class F>
void add(const std::string& name, F f) {
  benchmark::RegisterBenchmark(name.c_str(), f)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond)
      ->MinTime(0.3);
}

template <int RowBytes>
void add_rows(int threads) {
  for (const auto& [name, access] : {std::pair{"gather", Access::gather},
                                     {"gather_write", Access::gather_write},
                                     {"gather_modify_write", Access::gather_modify_write}})
    add(fmt::format("limit/{}/row_bytes:{}/threads:{}", name, RowBytes, threads),
        [access = access, threads](benchmark::State& state) {
          rows<RowBytes>(state, access, threads);
        });
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (const int threads : {1, 2}) {
    add(fmt::format("limit/multiply_add/threads:{}", threads),
        [threads](benchmark::State& state) { arithmetic(state, threads); });
    add(fmt::format("limit/copy/threads:{}", threads),
        [threads](benchmark::State& state) { copy(state, threads); });
    add_rows<64>(threads);
    add_rows<128>(threads);
    add_rows<256>(threads);
    add_rows<512>(threads);
  }
  benchmark::RunSpecifiedBenchmarks();
}
