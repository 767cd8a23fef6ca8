// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Steps of a table OnFile behind a cache (routing ahead, lookup, row-wise Adagrad, one-hot batches
// of 8192, one thread) in turn with those of the same table in memory, and with the transfers
// alone: as many blocks of 4096 bytes of a file, at random, read and written. Arguments: bytes of
// the table's weights, columns, rows in the cache (percent of all), Zipf's exponent (100 times; 0:
// uniform). Counters of a step: `of_resident` (speed beside the table in memory), `limit_share`
// (time of the transfers alone over that of the step), `hit_rate`, rows and MB fetched and written
// back, `waited_ms` on the thread that routes. Files lie in TESSERA_BENCH_FOLDER, else in the
// folder of temporary files.
#include "file_calibration.hpp"
#include "limits.hpp"

#include <tessera/tessera.hpp>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

using namespace tessera;

namespace {

constexpr std::int64_t kBatch = 8192;
constexpr int kSteps = 8, kRounds = 7, kWarmRounds = 40;

using Comm = ThreadCommunicator;
using Embeddings = LayoutCollection<Widths<>, RowWiseAdagrad, Host, Comm>;

std::string folder() {
  const char* const parent = std::getenv("TESSERA_BENCH_FOLDER");
  return (parent != nullptr ? std::filesystem::path(parent)
                            : std::filesystem::temp_directory_path()) /
         ("tessera_bench_" + std::to_string(getpid()));
}

/// A table in memory or in a file, and a thread that routes its next batch.
class Table {
 public:
  Table(Comm& main, Comm& routing, std::int64_t rows, int width, Tier tier, std::int64_t cache_rows)
      : embeddings_(main, Host{},
                    make_layout({1}, {{"table", rows, width}}, {{"feature", "table"}},
                                {{0, {0, rows, 0, width}, 0, tier, cache_rows}}),
                    {.files = {.folder = folder()}}),
        ahead_(embeddings_, routing, Host{}),
        output_(static_cast<std::size_t>(kBatch * width)),
        gradient_(output_.size(), 1e-3f),
        width_(width) {}

  void train(const std::vector<std::int32_t>* batches) {
    const auto ids = [&](int i) {
      return KeyedJagged<std::int32_t>{1, kBatch, batches[i], {}, {}};
    };
    ahead_.start(ids(0));
    for (int i = 0; i < kSteps; ++i) {
      const auto pooled =
          embeddings_.forward_routed(ahead_.take(), {output_.data(), kBatch, width_});
      if (i + 1 < kSteps) ahead_.start(ids(i + 1));
      embeddings_.backward(pooled, {gradient_.data(), kBatch, width_});
    }
  }
  detail::CacheCounters counters() const { return embeddings_.tables().cache_counters(); }

 private:
  Embeddings embeddings_;
  RouteAhead<Embeddings, std::int32_t, Comm, Host> ahead_;
  std::vector<float> output_, gradient_;
  std::int64_t width_;
};

void step(benchmark::State& state) {
  const int width = static_cast<int>(state.range(1));
  const std::int64_t rows = state.range(0) / (4 * width);
  const double skew = static_cast<double>(state.range(3)) / 100;
  std::vector<std::vector<std::int32_t>> batches(kSteps * (kWarmRounds + kRounds));
  std::uint64_t drawn = 0;
  for (auto& batch : batches)
    for (std::int64_t i = 0; i < kBatch; ++i)
      batch.push_back(static_cast<std::int32_t>(bench::draw_id(7, drawn++, rows, skew)));
  for (auto _ : state)
    run_ranks(1, [&](Comm& main) {
      Comm first = main.split(0), second = main.split(0);
      Table resident(main, first, rows, width, Tier::device, 0),
          on_file(main, second, rows, width, Tier::file, rows * state.range(2) / 100);
      bench::Disk disk(folder(), static_cast<std::size_t>(state.range(0)));
      detail::TransferQueue queue;
      const std::vector<std::int32_t>* next = batches.data();
      for (int round = 0; round < kWarmRounds; ++round, next += kSteps) {
        resident.train(next);
        on_file.train(next);
      }
      std::vector<double> in_memory, in_file, transfers;
      const detail::CacheCounters before = on_file.counters();
      for (int round = 0; round < kRounds; ++round, next += kSteps) {
        in_memory.push_back(bench::seconds([&] { resident.train(next); }));
        const detail::CacheCounters start = on_file.counters();
        in_file.push_back(bench::seconds([&] { on_file.train(next); }));
        const detail::CacheCounters end = on_file.counters();
        double moved = 0;  // of one byte each: in one block
        const auto of_blocks = [&](std::int64_t bytes, bool write) {
          return disk.seconds(queue, bytes / detail::DirectFile::block, 1, write, moved);
        };
        transfers.push_back(of_blocks(end.read_bytes - start.read_bytes, false) +
                            of_blocks(end.written_bytes - start.written_bytes, true));
      }
      const detail::CacheCounters after = on_file.counters();
      const double time = bench::median(in_file);
      state.SetIterationTime(time / kSteps);
      const auto add = [&](const char* name, double begin, double end, double unit) {
        state.counters[name] = (end - begin) * unit / (kSteps * kRounds);
      };
      state.counters["of_resident"] = bench::median(in_memory) / time;
      state.counters["limit_share"] = bench::median(transfers) / time;
      state.counters["hit_rate"] =
          1 - static_cast<double>(after.fetched_rows - before.fetched_rows) /
                  static_cast<double>(after.rows - before.rows);
      add("fetched", static_cast<double>(before.fetched_rows),
          static_cast<double>(after.fetched_rows), 1);
      add("written", static_cast<double>(before.written_rows),
          static_cast<double>(after.written_rows), 1);
      add("read_MB", static_cast<double>(before.read_bytes), static_cast<double>(after.read_bytes),
          1e-6);
      add("written_MB", static_cast<double>(before.written_bytes),
          static_cast<double>(after.written_bytes), 1e-6);
      add("waited_ms", before.seconds, after.seconds, 1e3);
    });
  std::filesystem::remove_all(folder());
}

void arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"bytes", "width", "cache", "zipf"});
  constexpr std::int64_t bytes = std::int64_t{128} << 20;
  for (const int width : {16, 64, 128})
    for (const int cache : {5, 10, 25})
      for (const int zipf : {0, 105, 120})
        if (cache == 10 || (width == 64 && zipf == 105)) bench->Args({bytes, width, cache, zipf});
}
BENCHMARK(step)->Apply(arguments)->Iterations(1)->UseManualTime()->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
