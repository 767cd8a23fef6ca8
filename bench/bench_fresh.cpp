// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What freshness costs those who look up.
//   overlay/...  pooled lookups where some rows stand in an overlay against the same with none, run
//                in turn. Counter: flat_share = median time with none / median time.
//   updates/...  two threads that look up all the time, and a third that applies 100 increments
//                now and then: times of a batch, quiet and under updates by turns.
#include <tessera/checkpoint/increments.hpp>
#include <tessera/checkpoint/save.hpp>
#include <tessera/tessera.hpp>
#include <tessera_serving/fresh_tables.hpp>
#include <tessera_serving/frozen_lookup.hpp>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "limits.hpp"

using namespace tessera;
using namespace tessera::bench;

namespace {

template <class Row, int Width>
void overlay(benchmark::State& state, std::int64_t bag, int percent) {
  constexpr auto row_bytes = static_cast<std::int64_t>(Row::bytes(Width));
  constexpr std::int64_t table_rows = 4'000'000, bags = 32768;
  HugeArray<std::byte> rows(table_rows * row_bytes + 64);
  HugeArray<float> output(bags * Width);
  std::fill_n(rows.data(), table_rows * row_bytes, std::byte{0x3c});
  std::vector<std::int64_t> numbers, offsets;
  for (std::int64_t r = 0; r < table_rows; ++r)
    if (static_cast<int>(random_word(7, r) % 100) < percent) numbers.push_back(r);
  detail::RowOverlay changed(table_rows, numbers, row_bytes);
  std::fill_n(changed.data(), changed.rows() * row_bytes, std::byte{0x3c});
  for (std::int64_t b = 0; b <= bags; ++b) offsets.push_back(b * bag);
  const std::int64_t entries = bags * bag, batches = std::max<std::int64_t>(2, 4'000'000 / entries);
  HugeArray<std::int32_t> ids(entries * batches);
  for (std::int64_t i = 0; i < ids.size(); ++i)
    ids.data()[i] =
        static_cast<std::int32_t>(random_word(1, i) % static_cast<std::uint64_t>(table_rows));
  const detail::RowsInOrder flat{rows.data(), row_bytes};
  std::int64_t turn = 0;
  const auto pool = [&](const auto& where) {
    op::Bags<std::int32_t> lists;
    lists.ids = ids.data() + turn++ % batches * entries;
    lists.offsets = bag == 1 ? nullptr : offsets.data();
    lists.bags = bags;
    detail::pool_rows<Row, false>(where, Width, lists, 0, bags, output.data(), Width);
  };
  pool(flat);
  std::vector<double> flat_times, times;
  for (auto _ : state) {
    flat_times.push_back(seconds([&] { pool(flat); }));
    times.push_back(seconds([&] { pool(detail::RowsWithOverlay{flat, changed}); }));
    state.SetIterationTime(times.back());
  }
  state.counters["flat_share"] = median(flat_times) / median(times);
  state.counters["ids/s"] = static_cast<double>(entries) / median(times);
}

double quantile(std::vector<double>& times, double q) {
  const auto at = static_cast<std::ptrdiff_t>(q * static_cast<double>(times.size() - 1));
  std::nth_element(times.begin(), times.begin() + at, times.end());
  return times[static_cast<std::size_t>(at)];
}

using Item = Table<"item", 1'000'000, 64>;

/// A checkpoint and increments of it, in a folder of their own.
struct Saves {
  std::filesystem::path folder;
  std::vector<std::filesystem::path> increments;

  Saves(int count, int rows_each) {
    std::string name = (std::filesystem::temp_directory_path() / "tessera_fresh_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw Error("no temporary folder");
    folder = name;
    SelfCommunicator rank;
    EmbeddingCollection<Plan<TableWise<Item>>, Sgd, Host, SelfCommunicator> embeddings(rank, Host(),
                                                                                       {});
    CheckpointContents contents;
    contents.add(embeddings);
    ChangedRows changed(contents);
    const CheckpointBase base = save_checkpoint(rank, folder, contents, 0);
    const std::vector<float> gradient(static_cast<std::size_t>(rows_each) * 64, 0.01f);
    for (int step = 1; step <= count; ++step) {
      std::vector<std::int64_t> ids;
      for (int i = 0; i < rows_each; ++i)
        ids.push_back(static_cast<std::int64_t>(random_word(step, i) % 1'000'000));
      const auto pooled = embeddings.forward(KeyedJagged<std::int64_t>{1, rows_each, ids, {}, {}});
      embeddings.backward(pooled, MatrixView<const float>(gradient.data(), rows_each, 64));
      save_increment(rank, folder, changed, base, step);
      increments.push_back(folder / detail::checkpoint_name(step));
    }
  }
  ~Saves() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
};

void updates(benchmark::State& state, RowFormat format, std::chrono::milliseconds pause) {
  constexpr int kPhases = 10, kApplied = 10;  // increments in each phase with updates
  const Saves saves(10, 2000);
  freeze_checkpoint(saves.folder / detail::checkpoint_name(0), saves.folder / "frozen",
                    {.format = format});
  FreshTables tables(FrozenTables(saves.folder / "frozen"));
  tables.apply(saves.increments.back());  // quiet phases, too, read through an overlay
  for (auto _ : state) {
    std::atomic<int> phase = -1;
    std::vector<double> times[2][2];  // by thread; quiet, under updates
    const auto read = [&](int thread) {
      FrozenLookup<std::int32_t> lookup(
          tables, std::vector<FrozenFeature>{{.name = "item", .table = "item"}});
      constexpr std::int64_t batch = 256, bag = 10;
      std::vector<std::int32_t> ids(batch * bag);
      std::vector<std::int64_t> offsets;
      for (std::int64_t b = 0; b <= batch; ++b) offsets.push_back(b * bag);
      std::vector<float> output(batch * 64);
      for (std::uint64_t n = 0; phase < 2 * kPhases; ++n) {
        for (std::size_t i = 0; i < ids.size(); ++i)
          ids[i] = static_cast<std::int32_t>(random_word(thread, n, i) % 1'000'000);
        const double time =
            seconds([&] { lookup.pool({1, batch, ids, offsets, {}}, {output.data(), batch, 64}); });
        if (const int now = phase; now >= 0 && now < 2 * kPhases)
          times[thread][now % 2].push_back(time);
      }
    };
    std::thread first(read, 0), second(read, 1);
    std::vector<double> applying;
    std::this_thread::sleep_for(pause);
    for (int p = 0; p < 2 * kPhases; ++p) {
      phase = p;
      for (int i = 0; i < kApplied; ++i) {
        if (p % 2 == 1)
          applying.push_back(seconds([&] {
            tables.apply(saves.increments[static_cast<std::size_t>(i) % saves.increments.size()]);
          }));
        std::this_thread::sleep_for(pause);
      }
    }
    phase = 2 * kPhases;
    first.join();
    second.join();
    for (int under = 0; under < 2; ++under) {
      std::vector<double> all = times[0][under];
      all.insert(all.end(), times[1][under].begin(), times[1][under].end());
      const std::string name = under == 0 ? "quiet_" : "updates_";
      state.counters[name + "p50_us"] = quantile(all, 0.5) * 1e6;
      state.counters[name + "p99_us"] = quantile(all, 0.99) * 1e6;
      state.counters[name + "batches"] = static_cast<double>(all.size());
    }
    state.counters["p99_ratio"] = state.counters["updates_p99_us"] / state.counters["quiet_p99_us"];
    state.counters["apply_ms"] = median(applying) * 1e3;
    state.SetIterationTime(median(applying));
  }
}

template <class Row>
void add(std::string_view format) {
  for (const std::int64_t bag : {1, 10})
    for (const int percent : {1, 10, 50})
      benchmark::RegisterBenchmark(
          fmt::format("overlay/{}/width:64/bag:{}/changed:{}%", format, bag, percent).c_str(),
          [=](benchmark::State& state) { overlay<Row, 64>(state, bag, percent); })
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond)
          ->MinTime(0.15);
}

}  // namespace

int main(int argc, char** argv) {
  add<detail::ElementRow<float>>("fp32");
  add<detail::CodeRow<Int8Row>>("int8");
  add<detail::CodeRow<Int4Row>>("int4");
  for (const RowFormat format : {RowFormat::fp32, RowFormat::int8})
    benchmark::RegisterBenchmark(
        fmt::format("updates/{}/every:100ms", to_string(format)).c_str(),
        [=](benchmark::State& state) { updates(state, format, std::chrono::milliseconds(100)); })
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond)
        ->Iterations(1);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
