// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Keys per second that a vocabulary maps on one rank, beside the limit of random access: a counter
// raised in a slot of 24 bytes that each key's hash points to, in as much memory, prefetched.
// Batches of 65,536 keys. `skew` 0: uniform over the table, out of every cache.
#include "limits.hpp"

#include <tessera/comm/self_communicator.hpp>
#include <tessera/vocabulary/vocabulary.hpp>

#include <benchmark/benchmark.h>

#include <bit>
#include <cstdint>
#include <vector>

using namespace tessera;

namespace {

constexpr std::int64_t kBatch = 65'536, kBatches = 32;

std::vector<std::vector<std::int64_t>> batches(std::int64_t keys, double skew, std::uint64_t seed) {
  std::vector<std::vector<std::int64_t>> made;
  for (std::int64_t b = 0; b < kBatches; ++b) {
    made.emplace_back();
    for (std::int64_t i = 0; i < kBatch; ++i)
      made.back().push_back(static_cast<std::int64_t>(
          mix64(static_cast<std::uint64_t>(bench::draw_id(seed, b * kBatch + i, keys, skew)))));
  }
  return made;
}

KeyedJagged<std::int64_t> keyed(const std::vector<std::int64_t>& keys) {
  return {.features = 1, .batch = kBatch, .ids = keys, .offsets = {}, .weights = {}};
}

void random_access(benchmark::State& state) {
  struct Slot {
    std::int64_t key;
    std::uint32_t count, step;
    std::int32_t row;
    std::uint32_t touched;
  };
  const auto slots =
      static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(2 * state.range(0))));
  const bench::HugeArray<Slot> memory(slots);
  const auto all = batches(state.range(0), static_cast<double>(state.range(1)) / 100, 1);
  const auto place = [&](std::int64_t key) {
    return memory.data() +
           (mix64(static_cast<std::uint64_t>(key)) & static_cast<std::uint64_t>(slots - 1));
  };
  std::size_t b = 0;
  for (auto _ : state) {
    const std::vector<std::int64_t>& keys = all[b++ % kBatches];
    for (std::size_t i = 0; i < keys.size(); ++i) {
      __builtin_prefetch(place(keys[std::min(i + 16, keys.size() - 1)]), 1);
      ++place(keys[i])->count;
    }
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}

/// Every key has its row already.
void known_keys(benchmark::State& state, bool learn) {
  SelfCommunicator self;
  Vocabulary<SelfCommunicator> vocabulary(
      self, Host({.threads = static_cast<int>(state.range(2))}),
      {.tables = {{.rows = state.range(0) + state.range(0) / 8}}, .feature_table = {}});
  std::vector<std::int32_t> rows(kBatch);
  std::vector<std::int64_t> keys(kBatch);
  for (std::int64_t first = 0; first < state.range(0); first += kBatch) {
    for (std::int64_t i = 0; i < kBatch; ++i)
      keys[static_cast<std::size_t>(i)] = static_cast<std::int64_t>(
          mix64(static_cast<std::uint64_t>(std::min(first + i, state.range(0) - 1))));
    vocabulary.learn(keyed(keys), std::span(rows));
  }
  const auto all = batches(state.range(0), static_cast<double>(state.range(1)) / 100, 1);
  std::size_t b = 0;
  for (auto _ : state) {
    if (learn)
      vocabulary.learn(keyed(all[b++ % kBatches]), std::span(rows));
    else
      vocabulary.find(keyed(all[b++ % kBatches]), std::span(rows));
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
}
void find(benchmark::State& state) { known_keys(state, false); }
void learn(benchmark::State& state) { known_keys(state, true); }

/// A full table under a stream of which a tenth is new: rows are taken away all the time.
void learn_and_evict(benchmark::State& state) {
  SelfCommunicator self;
  Vocabulary<SelfCommunicator> vocabulary(
      self, Host({.threads = static_cast<int>(state.range(2))}),
      {.tables = {{.rows = state.range(0), .admit_after = 2, .eviction = Eviction::oldest}},
       .feature_table = {}});
  std::vector<std::int32_t> rows(kBatch);
  std::vector<std::int64_t> keys(kBatch);
  std::int64_t next = 0, reused = 0;
  const auto step = [&](std::int64_t fresh) {
    for (std::int64_t i = 0; i < kBatch; ++i) {
      // Each new key comes twice, so that it is admitted; others are among the newest that the
      // table holds.
      const bool is_new = i < fresh;
      const std::int64_t number =
          is_new ? next + i / 2
                 : std::max<std::int64_t>(
                       0, next - 1 -
                              bench::draw_id(3, static_cast<std::uint64_t>(next + i),
                                             state.range(0) * 3 / 4, 0));
      keys[static_cast<std::size_t>(i)] =
          static_cast<std::int64_t>(mix64(static_cast<std::uint64_t>(number)));
    }
    next += fresh / 2;
  };
  while (next < state.range(0)) {
    step(kBatch);
    vocabulary.learn(keyed(keys), std::span(rows));
  }
  for (auto _ : state) {
    state.PauseTiming();
    step(kBatch / 10);
    state.ResumeTiming();
    reused += static_cast<std::int64_t>(vocabulary.learn(keyed(keys), std::span(rows)).size());
  }
  state.SetItemsProcessed(state.iterations() * kBatch);
  state.counters["reused_rows"] =
      benchmark::Counter(static_cast<double>(reused), benchmark::Counter::kAvgIterations);
}

BENCHMARK(random_access)
    ->ArgNames({"keys", "skew"})
    ->ArgsProduct({{100'000, 4'000'000}, {0, 105}})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(find)
    ->ArgNames({"keys", "skew", "threads"})
    ->ArgsProduct({{100'000, 4'000'000}, {0, 105}, {1, 2}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();
BENCHMARK(learn)
    ->ArgNames({"keys", "skew", "threads"})
    ->ArgsProduct({{100'000, 4'000'000}, {0, 105}, {1, 2}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();
BENCHMARK(learn_and_evict)
    ->ArgNames({"rows", "skew", "threads"})
    ->ArgsProduct({{100'000, 4'000'000}, {0}, {1, 2}})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

}  // namespace

BENCHMARK_MAIN();
