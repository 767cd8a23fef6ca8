// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Readers and generators on one thread. Click text is compared with the memory's own pace over the
// same bytes: copying them, and looking for their newlines. Counters: bytes per second of text,
// samples per second, ids per second.
#include <tessera/comm/thread_communicator.hpp>
#include <tessera_data/broadcasting_loader.hpp>
#include <tessera_data/criteo.hpp>
#include <tessera_data/criteo_encoder.hpp>
#include <tessera_data/metrics.hpp>
#include <tessera_data/synthetic.hpp>

#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

using namespace tessera;

namespace {

constexpr std::int64_t kRecords = 200'000;

/// Records like Criteo's: skewed categories, a fifth of the fields empty.
const std::vector<CriteoRecord>& records() {
  static const std::vector<CriteoRecord> made = [] {
    const SyntheticClicks clicks(criteo_like_features(1'000'000));
    ClickBatch<std::int32_t> batch;
    clicks.generate(0, kRecords, batch);
    std::vector<CriteoRecord> all(kRecords);
    for (std::size_t s = 0; s < all.size(); ++s) {
      CriteoRecord& record = all[s];
      record.label = batch.labels[s] > 0.5f;
      for (int i = 0; i < kCriteoIntegers; ++i) {
        const std::uint64_t word = random_word(1, s, i);
        record.integers[i] =
            word % 5 == 0 ? CriteoRecord::kMissing : static_cast<std::int32_t>((word >> 32) % 3000);
      }
      for (int f = 0; f < kCriteoCategories; ++f) {
        const std::uint64_t word =
            random_word(2, f, batch.ids[static_cast<std::size_t>(f) * all.size() + s]);
        if (word % 8 == 0) {
          record.missing_categories |= 1u << f;
        } else {
          record.categories[f] = static_cast<std::uint32_t>(word >> 32);
        }
      }
    }
    return all;
  }();
  return made;
}

const std::string& text() {
  static const std::string made = [] {
    std::string lines;
    for (const CriteoRecord& record : records()) append_criteo_line(lines, record);
    return lines;
  }();
  return made;
}

void count_text(benchmark::State& state) {
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text().size()));
  state.SetItemsProcessed(state.iterations() * kRecords);
}

void copy_text(benchmark::State& state) {
  std::vector<char> chunk(1 << 20);
  benchmark::DoNotOptimize(text().data());  // made before the clock starts
  for (auto _ : state) {
    for (std::size_t at = 0; at < text().size(); at += chunk.size()) {
      std::memcpy(chunk.data(), text().data() + at, std::min(chunk.size(), text().size() - at));
      benchmark::ClobberMemory();
    }
  }
  count_text(state);
}
BENCHMARK(copy_text)->Unit(benchmark::kMillisecond);

void find_newlines(benchmark::State& state) {
  for (auto _ : state) {
    std::int64_t lines = 0;
    for (const char* p = text().data();
         (p = static_cast<const char*>(std::memchr(p, '\n', text().data() + text().size() - p))) !=
         nullptr;
         ++p)
      ++lines;
    benchmark::DoNotOptimize(lines);
  }
  count_text(state);
}
BENCHMARK(find_newlines)->Unit(benchmark::kMillisecond);

void read_criteo_text(benchmark::State& state) {
  std::vector<CriteoRecord> block(4096);
  for (auto _ : state) {
    const ByteSource source = [rest = std::string_view(text())](std::span<char> chunk) mutable {
      const std::size_t bytes = std::min(chunk.size(), rest.size());
      std::memcpy(chunk.data(), rest.data(), bytes);
      rest.remove_prefix(bytes);
      return bytes;
    };
    CriteoReader reader(source, "memory");
    while (reader.read(block) != 0) benchmark::ClobberMemory();
  }
  count_text(state);
}
BENCHMARK(read_criteo_text)->Unit(benchmark::kMillisecond);

void encode_records(benchmark::State& state) {
  CriteoStatistics statistics;
  statistics.add(records());
  const CriteoEncoder encoder =
      state.range(0) != 0 ? CriteoEncoder({}, statistics) : CriteoEncoder();
  ClickBatch<std::int32_t> batch;
  for (auto _ : state)
    for (std::size_t at = 0; at + 2000 <= records().size(); at += 2000)
      encoder.encode<std::int32_t>(std::span(records()).subspan(at, 2000), batch);
  state.SetItemsProcessed(state.iterations() * kRecords);
}
BENCHMARK(encode_records)->ArgName("vocabulary")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void generate_clicks(benchmark::State& state) {
  std::vector<SyntheticFeature> features(26);
  for (auto& feature : features) feature.max_hotness = static_cast<std::int32_t>(state.range(0));
  const SyntheticClicks clicks(features);
  ClickBatch<std::int32_t> batch;
  std::int64_t samples = 0, ids = 0;
  for (auto _ : state) {
    clicks.generate(samples, 2048, batch);
    samples += batch.size;
    ids += static_cast<std::int64_t>(batch.ids.size());
  }
  state.SetItemsProcessed(samples);
  state.counters["ids"] = benchmark::Counter(static_cast<double>(ids), benchmark::Counter::kIsRate);
}
BENCHMARK(generate_clicks)->ArgName("max_hotness")->Arg(1)->Arg(10)->Unit(benchmark::kMicrosecond);

ByteSource text_source() {
  return [rest = std::string_view(text())](std::span<char> chunk) mutable {
    const std::size_t bytes = std::min(chunk.size(), rest.size());
    std::memcpy(chunk.data(), rest.data(), bytes);
    rest.remove_prefix(bytes);
    return bytes;
  };
}

/// Batches of 2,000 records for four thread ranks: every rank reads the whole text and keeps its
/// quarter, or one reads for all.
void read_on_four_ranks(benchmark::State& state) {
  constexpr std::int64_t kBatch = 2000, kRanks = 4;
  const CriteoEncoder encoder;
  benchmark::DoNotOptimize(text().data());  // made before the clock starts
  const auto every_rank = [&](ThreadCommunicator& c) {
    CriteoReader reader(text_source(), "memory");
    std::vector<CriteoRecord> block(kBatch);
    ClickBatch<std::int32_t> part;
    const auto count = static_cast<std::size_t>(kBatch / kRanks);
    while (reader.read(block) != 0) {
      encoder.encode<std::int32_t>(
          std::span(block).subspan(static_cast<std::size_t>(c.rank()) * count, count), part);
      c.barrier();  // a step
    }
  };
  const auto first_rank = [&](ThreadCommunicator& c, ThreadCommunicator& own) {
    CriteoReader reader(text_source(), "memory");
    std::vector<CriteoRecord> block(kBatch);
    BroadcastingLoader<std::int32_t, ThreadCommunicator> loader(
        own,
        [&](ClickBatch<std::int32_t>& whole) {
          const std::size_t count = reader.read(block);
          if (count != 0) encoder.encode<std::int32_t>(std::span(block).first(count), whole);
          return count != 0;
        },
        {.prefetch = state.range(0) == 2});
    ClickBatch<std::int32_t> part;
    while (loader.next(part)) c.barrier();
  };
  for (auto _ : state) {
    ThreadGroup background(kRanks);
    run_ranks(kRanks, [&](ThreadCommunicator& c) {
      ThreadCommunicator own(background, c.rank());
      state.range(0) == 0 ? every_rank(c) : first_rank(c, own);
    });
  }
  count_text(state);
  state.SetLabel(state.range(0) == 0   ? "every rank reads"
                 : state.range(0) == 1 ? "one reads"
                                       : "one reads ahead");
}
BENCHMARK(read_on_four_ranks)
    ->ArgName("how")
    ->DenseRange(0, 2)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

void auc_of_a_million(benchmark::State& state) {
  std::vector<float> scores(1'000'000), labels(scores.size());
  for (std::size_t i = 0; i < scores.size(); ++i) {
    scores[i] = unit_float(random_word(1, i));
    labels[i] = unit_float(random_word(2, i)) < 0.25f ? 1.0f : 0.0f;
  }
  Auc auc;
  auc.add(scores, labels);
  for (auto _ : state) benchmark::DoNotOptimize(auc.value());
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(scores.size()));
}
BENCHMARK(auc_of_a_million)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
