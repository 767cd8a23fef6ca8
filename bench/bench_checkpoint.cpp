// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints against what they could cost at best: a copy of the same bytes to memory, and to one
// file with write() and fsync(). A load's limit: the same bytes read from the file, which the
// system has in memory, block by block into one place.
//   TESSERA_BENCH_FOLDER=/disk/folder bench_checkpoint     where the files go (default: the folder for temporary files)
#include <tessera/checkpoint/async_save.hpp>
#include <tessera/checkpoint/increments.hpp>
#include <tessera/checkpoint/load.hpp>
#include <tessera/checkpoint/save.hpp>
#include <tessera/tessera.hpp>

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <vector>

#include "times.hpp"

using namespace tessera;
using namespace tessera::bench;

namespace {

constexpr std::int64_t kRows = 1'000'000;
constexpr int kWidth = 64, kBatch = 2048;
constexpr std::int64_t kBytes = kRows * (kWidth + 1) * 4;

using Tables = LayoutCollection<Widths<64, 32>, RowWiseAdagrad, Host, SelfCommunicator>;

struct Folder {
  std::filesystem::path path;
  Folder() {
    const char* parent = std::getenv("TESSERA_BENCH_FOLDER");
    path = (parent != nullptr ? std::filesystem::path(parent)
                              : std::filesystem::temp_directory_path()) /
           ("tessera_bench_" + std::to_string(getpid()));
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

/// One table of 260 MB, whole or in two column parts, on one rank.
struct Model {
  SelfCommunicator communicator;
  Tables tables;
  CheckpointContents contents;
  std::vector<std::int32_t> ids = std::vector<std::int32_t>(kBatch);
  std::vector<float> gradient =
      std::vector<float>(static_cast<std::size_t>(kBatch) * kWidth, 0.01f);
  std::mt19937 random{1};

  explicit Model(bool columns) : tables(communicator, Host{}, layout(columns), {}) {
    contents.add(tables);
  }
  static Layout layout(bool columns) {
    std::vector<Shard> shards;
    if (columns)
      shards = {{0, {0, kRows, 0, kWidth / 2}, 0}, {0, {0, kRows, kWidth / 2, kWidth}, 0}};
    else
      shards = {{0, {0, kRows, 0, kWidth}, 0}};
    return make_layout({1}, {{"t", kRows, kWidth}}, {}, shards);
  }
  void step() {
    for (std::int32_t& id : ids) id = static_cast<std::int32_t>(random() % kRows);
    const auto pooled = tables.forward(KeyedJagged<std::int32_t>{
        .features = 1, .batch = kBatch, .ids = ids, .offsets = {}, .weights = {}});
    tables.backward(pooled, MatrixView<const float>(gradient.data(), kBatch, kWidth));
  }
  /// Returns what a step takes, the mean of so many.
  double step_seconds(int steps) {
    const auto begin = Clock::now();
    for (int i = 0; i < steps; ++i) step();
    return seconds_since(begin) / steps;
  }
};

void bm_memcpy(benchmark::State& state) {
  const std::vector<char> from(kBytes, 1);
  std::vector<char> to(kBytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), kBytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kBytes);
}

void bm_write_and_sync(benchmark::State& state) {
  const Folder folder;
  const std::vector<std::byte> from(kBytes, std::byte{1});
  for (auto _ : state) {
    detail::File file(folder.path / "plain", detail::File::Mode::create);
    file.reserve(kBytes);
    for (std::int64_t at = 0; at < kBytes; at += 1 << 20)
      file.write_at(static_cast<std::uint64_t>(at),
                    std::span(from).subspan(
                        static_cast<std::size_t>(at),
                        static_cast<std::size_t>(std::min<std::int64_t>(1 << 20, kBytes - at))));
    file.sync();
    state.PauseTiming();
    std::filesystem::remove(folder.path / "plain");
    state.ResumeTiming();
  }
  state.SetBytesProcessed(state.iterations() * kBytes);
}

void bm_read(benchmark::State& state) {
  const Folder folder;
  std::vector<std::byte> block(1 << 20);
  {
    detail::File file(folder.path / "plain", detail::File::Mode::create);
    for (std::int64_t at = 0; at < kBytes; at += std::ssize(block))
      file.write_at(static_cast<std::uint64_t>(at), block);
  }
  const detail::File file(folder.path / "plain", detail::File::Mode::read);
  for (auto _ : state)
    for (std::int64_t at = 0; at < kBytes; at += std::ssize(block))
      file.read_at(static_cast<std::uint64_t>(at), block);
  state.SetBytesProcessed(state.iterations() * kBytes);
}

void bm_crc32(benchmark::State& state) {
  const std::vector<std::byte> from(detail::kChunkBytes, std::byte{1});
  for (auto _ : state) benchmark::DoNotOptimize(detail::crc32(from));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(detail::kChunkBytes));
}

void bm_save(benchmark::State& state) {
  const Folder folder;
  Model model(state.range(0) != 0);
  std::int64_t step = 0;
  for (auto _ : state) {
    save_checkpoint(model.communicator, folder.path, model.contents, step++);
    state.PauseTiming();
    std::filesystem::remove_all(*latest_checkpoint(folder.path));
    state.ResumeTiming();
  }
  state.SetBytesProcessed(state.iterations() * kBytes);
}

void bm_load(benchmark::State& state) {
  const Folder folder;
  Model model(state.range(0) != 0);
  save_checkpoint(model.communicator, folder.path, model.contents, 1);
  for (auto _ : state)
    load_checkpoint(model.communicator, folder.path / detail::checkpoint_name(1), model.contents);
  state.SetBytesProcessed(state.iterations() * kBytes);
}

/// An asynchronous save beside steps of 2,048 random rows: the pause to begin it, the longest step
/// while it is written, to publish.
void bm_async_save(benchmark::State& state) {
  const Folder folder;
  Model model(false);
  double quiet = 0, begin_pause = 0, longest = 0, publish = 0, busy = 0;
  std::int64_t number = 0, steps = 0;
  for (int i = 0; i < 50; ++i) model.step();
  for (auto _ : state) {
    quiet += model.step_seconds(50);
    auto begin = Clock::now();
    AsyncSave save(model.communicator, folder.path, model.contents, number++);
    begin_pause += seconds_since(begin);
    for (bool published = false; !published;) {
      const double step = seconds([&] { model.step(); });
      longest = std::max(longest, step);
      busy += step;
      ++steps;
      begin = Clock::now();
      published = save.poll(model.communicator).has_value();
      if (published) publish += seconds_since(begin);
    }
    std::filesystem::remove_all(*latest_checkpoint(folder.path));
  }
  const double saves = static_cast<double>(state.iterations());
  state.counters["step_ms"] = 1e3 * quiet / saves;
  state.counters["step_while_saving_ms"] = 1e3 * busy / static_cast<double>(steps);
  state.counters["longest_step_ms"] = 1e3 * longest;
  state.counters["begin_ms"] = 1e3 * begin_pause / saves;
  state.counters["publish_ms"] = 1e3 * publish / saves;
  state.counters["steps"] = static_cast<double>(steps) / saves;
}

/// Steps with and without a memory of changed rows, and an increment after 100 steps.
void bm_increment(benchmark::State& state) {
  const Folder folder;
  Model model(false);
  const CheckpointBase base = save_checkpoint(model.communicator, folder.path, model.contents, 0);
  double quiet = 0, watched = 0;
  std::int64_t step = 0;
  for (auto _ : state) {
    state.PauseTiming();
    quiet += model.step_seconds(100);
    ChangedRows changed(model.contents);
    watched += model.step_seconds(100);
    state.ResumeTiming();
    save_increment(model.communicator, folder.path, changed, base, ++step);
  }
  state.counters["step_ms"] = 1e3 * quiet / static_cast<double>(state.iterations());
  state.counters["watched_step_ms"] = 1e3 * watched / static_cast<double>(state.iterations());
}

}  // namespace

BENCHMARK(bm_memcpy)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(bm_crc32)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(bm_read)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(3);
BENCHMARK(bm_write_and_sync)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(3);
BENCHMARK(bm_save)
    ->ArgName("columns")
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Iterations(3);
BENCHMARK(bm_load)
    ->ArgName("columns")
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Iterations(3);
BENCHMARK(bm_async_save)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(2);
BENCHMARK(bm_increment)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(2);
BENCHMARK_MAIN();
