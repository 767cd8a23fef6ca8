// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A CSV file of 13 numbers and 26 categories as a schema has it, on one thread: parsed, encoded, and
// an epoch of batches from one window in memory and from windows that are read meanwhile. Counters:
// bytes of text and samples per second.
#include "../examples/support/files.hpp"

#include <tessera/core/random.hpp>
#include <tessera_data/tabular_file.hpp>

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>

using namespace tessera;

namespace {

constexpr std::int64_t kSamples = 200'000, kNumbers = 13, kCategories = 26;

const Schema& schema() {
  static const Schema made = [] {
    std::string numeric = "label: y\nnumeric: [", categorical = "]\ncategorical: [";
    for (int i = 0; i < kNumbers; ++i)
      numeric += fmt::format("{}{{name: n{}, transform: log1p}}", i == 0 ? "" : ", ", i);
    for (int i = 0; i < kCategories; ++i)
      categorical += fmt::format("{}c{}", i == 0 ? "" : ", ", i);
    return parse_schema(numeric + categorical + "]\n", "schema");
  }();
  return made;
}

const std::string& text() {
  static const std::string made = [] {
    std::string lines = "y";
    for (int i = 0; i < kNumbers; ++i) lines += fmt::format(",n{}", i);
    for (int i = 0; i < kCategories; ++i) lines += fmt::format(",c{}", i);
    lines += '\n';
    for (std::int64_t s = 0; s < kSamples; ++s) {
      lines += static_cast<char>('0' + random_word(0, s) % 2);
      for (int i = 0; i < kNumbers; ++i) lines += fmt::format(",{}", random_word(1, s, i) % 3000);
      for (int i = 0; i < kCategories; ++i)
        lines += fmt::format(",{:08x}", random_word(2, i, random_word(3, s, i) % 10'000) >> 32);
      lines += '\n';
    }
    return lines;
  }();
  return made;
}

/// The same text as a file.
struct File {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / fmt::format("tessera_bench_{}.csv", ::getpid());
  File() { support::ResultFile(path).write(text()); }
  ~File() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
};

void count_text(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text().size()));
  state.SetItemsProcessed(state.iterations() * kSamples);
}

void read_csv_text(benchmark::State& state) {
  benchmark::DoNotOptimize(text().data());  // made before the clock starts
  TabularBlock block;
  for (auto _ : state) {
    TabularReader reader(
        [rest = std::string_view(text())](std::span<char> chunk) mutable {
          const std::size_t bytes = std::min(chunk.size(), rest.size());
          std::memcpy(chunk.data(), rest.data(), bytes);
          rest.remove_prefix(bytes);
          return bytes;
        },
        "memory", schema(), ",");
    while (reader.read(2048, block) != 0) benchmark::ClobberMemory();
  }
  count_text(state);
}
BENCHMARK(read_csv_text)->Unit(benchmark::kMillisecond);

/// An epoch of batches of 2,048; `window` 0: all in memory.
void epoch_of_batches(benchmark::State& state) {
  const File file;
  TabularFileOptions options{.threads = static_cast<int>(state.range(1))};
  options.window = state.range(0) == 0 ? kSamples : state.range(0);
  const TabularFile data(file.path, schema(), options);
  ClickBatch<std::int32_t> batch;
  data.train_batch(0, 0, 1, batch);
  std::int64_t epoch = 0;
  for (auto _ : state) {
    for (std::int64_t at = 0; at + 2048 <= data.train_samples(); at += 2048)
      data.train_batch(epoch, at, 2048, batch);
    ++epoch;
  }
  state.SetItemsProcessed(state.iterations() * data.train_samples());
}
BENCHMARK(epoch_of_batches)
    ->ArgNames({"window", "threads"})
    ->Args({0, 1})
    ->Args({1 << 14, 1})
    ->Args({1 << 14, 2})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
