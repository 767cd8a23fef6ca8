// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Sequence features beside what they replace and beside the machine's limit, one table of 293,000
// rows x 64, int32 ids.
// step/distinct: 4 thread ranks, the table cut by rows, 64 histories of 512 ids a rank of which
// `distinct` percent differ: forward, a vector per id, gradients per id, Sgd. Each step is timed in
// turn with one in which every position is a one-hot sample of a pooled feature: `speedup`, and the
// bytes of vectors (forward and backward, all ranks) of each.
// lookup/distinct: one rank, one thread: forward alone, which leaves the rows packed (`packed`), with
// a vector per id written out of them (`materialized`), and forward that is told where vectors go
// (`share`), each as the rate over that of a plain gather of the same rows into the same matrix, by
// the processor's time.
#include "limits.hpp"

#include <tessera/comm/counting_communicator.hpp>
#include <tessera/tessera.hpp>

#include <benchmark/benchmark.h>
#include <time.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

using namespace tessera;

namespace {

constexpr std::int64_t kRows = 293'000, kUsers = 64, kLength = 512, kIds = kUsers * kLength;
constexpr int kWidth = 64, kSteps = 7;

using Packed =
    Plan<Features<Feature<"history", "item", Sequence>>, RowWise<Table<"item", kRows, kWidth>>>;
using Pooled1 = Plan<RowWise<Table<"item", kRows, kWidth>>>;
using Counting = CountingCommunicator<ThreadCommunicator>;
template <class P, class Comm>
using Embeddings = EmbeddingCollection<P, Sgd, Host, Comm>;

/// Ids of which so many percent differ, and each user's offsets.
struct Histories {
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> offsets;

  Histories(unsigned seed, std::int64_t percent) {
    std::mt19937 random(seed);
    std::vector<std::int32_t> distinct(static_cast<std::size_t>(kIds * percent / 100));
    for (std::int32_t& id : distinct) id = static_cast<std::int32_t>(random() % kRows);
    for (std::int64_t i = 0; i < kIds; ++i)
      ids.push_back(percent == 100 ? static_cast<std::int32_t>(random() % kRows)
                                   : distinct[random() % distinct.size()]);
    for (std::int64_t u = 0; u <= kUsers; ++u) offsets.push_back(u * kLength);
  }
};

void step(benchmark::State& state) {
  constexpr int ranks = 4;
  for (auto _ : state) {
    std::vector<double> packed, apart;
    double packed_bytes = 0, apart_bytes = 0;
    run_ranks(ranks, [&](ThreadCommunicator& threads) {
      Counting c(threads);
      Embeddings<Packed, Counting> sequences(c, Host{}, {});
      Embeddings<Pooled1, Counting> positions(c, Host{}, {});
      const Histories of_rank(static_cast<unsigned>(c.rank()) + 1, state.range(0));
      const std::vector<float> gradient(static_cast<std::size_t>(kIds * kWidth), 1e-3f);
      const MatrixView<const float> d(gradient.data(), kIds, kWidth);
      std::vector<float> vectors(gradient.size());
      const auto with_sequences = [&] {
        const auto found = sequences.forward(
            KeyedJagged<std::int32_t>{1, kUsers, of_rank.ids, of_rank.offsets, {}});
        const auto view = found.sequence<"history">();
        view.materialize({vectors.data(), kIds, kWidth});
        sequences.backward(found, {view.per_id(d)});
      };
      const auto with_positions = [&] {
        const auto found =
            positions.forward(KeyedJagged<std::int32_t>{1, kIds, of_rank.ids, {}, {}},
                              MatrixView<float>(vectors.data(), kIds, kWidth));
        positions.backward(found, d);
      };
      for (int i = 0; i < kSteps; ++i) {
        c.barrier();
        c.reset();
        const double a = bench::seconds([&] { with_sequences(), c.barrier(); });
        const auto first = static_cast<double>(c.total().bytes);
        c.reset();
        const double b = bench::seconds([&] { with_positions(), c.barrier(); });
        std::vector<double> bytes{first, static_cast<double>(c.total().bytes)};
        threads.all_reduce(std::span<double>(bytes));
        if (c.rank() != 0 || i == 0) continue;
        packed.push_back(a), apart.push_back(b);
        packed_bytes = bytes[0], apart_bytes = bytes[1];
      }
    });
    state.SetIterationTime(bench::median(packed));
    state.counters["speedup"] = bench::median(apart) / bench::median(packed);
    state.counters["ms_apart"] = 1e3 * bench::median(apart);
    state.counters["mb"] = packed_bytes / 1e6;
    state.counters["mb_apart"] = apart_bytes / 1e6;
  }
}
BENCHMARK(step)
    ->ArgName("distinct")
    ->Arg(2)
    ->Arg(10)
    ->Arg(50)
    ->Iterations(1)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

/// Of this thread: what other programs take from it does not count.
double processor_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void lookup(benchmark::State& state) {
  SelfCommunicator alone;
  Embeddings<Packed, SelfCommunicator> sequences(alone, Host{}, {});
  const Histories batch(1, state.range(0));
  bench::HugeArray<float> out(kIds * kWidth);
  const auto* const table =
      reinterpret_cast<const char*>(sequences.tables().local_shards().front().weights.data);
  const std::span<const std::int32_t> ids = batch.ids;
  const auto limit = [&](int distance) {
    bench::gather<kWidth * 4, kWidth>(1, table, ids, 1, out.data(), distance);
  };
  const int distance = bench::best_distance(limit);
  const auto forward = [&] {
    return sequences.forward(KeyedJagged<std::int32_t>{1, kUsers, ids, batch.offsets, {}});
  };
  const auto written_forward = [&] {
    sequences.forward(KeyedJagged<std::int32_t>{1, kUsers, ids, batch.offsets, {}},
                      {{0, {out.data(), kIds, kWidth}}});
  };
  forward();
  written_forward();
  std::vector<double> packed, materialized, written, gathered;
  for (auto _ : state) {
    const double begin = processor_seconds();
    const auto found = forward();
    const double looked_up = processor_seconds();
    found.sequence<"history">().materialize({out.data(), kIds, kWidth});
    const double done = processor_seconds();
    limit(distance);
    const double limit_done = processor_seconds();
    written_forward();
    written.push_back(processor_seconds() - limit_done);
    gathered.push_back(limit_done - done);
    packed.push_back(looked_up - begin), materialized.push_back(done - begin);
    state.SetIterationTime(written.back());
  }
  state.counters["packed"] = bench::median(gathered) / bench::median(packed);
  state.counters["materialized"] = bench::median(gathered) / bench::median(materialized);
  state.counters["share"] = bench::median(gathered) / bench::median(written);
  state.counters["gather_ms"] = 1e3 * bench::median(gathered);
}
BENCHMARK(lookup)
    ->ArgName("distinct")
    ->Arg(2)
    ->Arg(10)
    ->Arg(100)
    ->Iterations(51)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
