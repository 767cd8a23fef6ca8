// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/rank_memory.cuh>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/vocabulary/vocabulary.cuh>
#include <tessera/vocabulary/vocabulary.hpp>

#include <doctest/doctest.h>
#include <gpu/device.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

// The vocabulary on Cuda against the one on the host: rows, rows that changed hands and records,
// batch by batch.

namespace {

using namespace tessera;
using Keys = std::vector<std::int64_t>;

bool same_records(const detail::VocabularyRecords& a, const detail::VocabularyRecords& b) {
  return a.keys == b.keys && a.rows == b.rows && a.counts == b.counts && a.steps == b.steps &&
         a.used == b.used;
}

/// A batch of skewed keys that drift with time, so that old ones fall out of use.
Keys drifting_keys(int step, std::int64_t size, std::int64_t spread) {
  Keys keys;
  for (std::int64_t i = 0; i < size; ++i) {
    const double u = unit_float(random_word(5, step, i));
    const auto rank = static_cast<std::int64_t>(std::pow(static_cast<double>(spread), u));
    keys.push_back(static_cast<std::int64_t>(mix64(static_cast<std::uint64_t>(rank + step * 3))));
  }
  return keys;
}

struct OneRankVocabulary {
  ThreadGroup group{1};
  ThreadCommunicator communicator{group, 0};
};

/// A policy of a user's own, without admission: keys that are even are worth twice as much, and each
/// forgets a half in 16 batches.
struct Fading {
  TESSERA_HOST_DEVICE std::uint32_t score(const SeenKey& seen) const {
    const std::uint32_t age = (seen.now - seen.step) / 16;
    return age > 31 ? 0 : ((seen.key % 2 == 0 ? 2 : 1) * (seen.count % 1000)) >> age;
  }
};

/// One rank's vocabulary on both backends.
template <class Own = detail::NoPolicy>
class Both {
 public:
  using Id = std::int32_t;

  Both(ThreadCommunicator& communicator, const VocabularyOptions& options)
      : device_communicator_(communicator.group(), communicator.rank(), CudaTransfer(backend_)),
        host(communicator, options, std::vector<Own>(options.tables.size())),
        device(device_communicator_, backend_, options, std::vector<Own>(options.tables.size())) {}

  /// Learns a batch, then finds it and some unknown keys. Whether both vocabularies say the same.
  bool step(const KeyedJagged<std::int64_t>& batch) {
    std::vector<Id> expected(batch.ids.size());
    const OnGpu<std::int64_t> keys(backend_, Keys(batch.ids.begin(), batch.ids.end())),
        offsets(backend_, Keys(batch.offsets.begin(), batch.offsets.end()));
    const OnGpu<Id> rows(backend_, std::vector<Id>(batch.ids.size(), Id{-7}));
    KeyedJagged<std::int64_t> on_device = batch;
    on_device.ids = {keys.data(), batch.ids.size()};
    on_device.offsets = {offsets.data(), batch.offsets.size()};
    const auto expected_reused = host.learn(batch, std::span<Id>(expected));
    const auto reused = device.learn(on_device, std::span<Id>(rows.data(), expected.size()));
    reused_rows += expected_reused.size();
    bool same =
        rows.read() == expected &&
        std::equal(reused.begin(), reused.end(), expected_reused.begin(), expected_reused.end()) &&
        std::ranges::equal(device.evicted(), host.evicted()) &&
        std::ranges::equal(device.given(), host.given());
    evicted_keys += host.evicted().size();
    Keys others(batch.ids.begin(), batch.ids.end());
    for (std::size_t i = 0; i < others.size(); i += 3) others[i] ^= 1;
    const OnGpu<std::int64_t> other_keys(backend_, others);
    KeyedJagged<std::int64_t> lookup = batch;
    lookup.ids = others;
    host.find(lookup, std::span<Id>(expected));
    on_device.ids = {other_keys.data(), others.size()};
    device.find(on_device, std::span<Id>(rows.data(), expected.size()));
    same = same && rows.read() == expected;
    for (int t = 0; t < host.tables(); ++t)
      same = same && device.admitted(t) == host.admitted(t) &&
             device.candidates(t) == host.candidates(t);
    return same && device.step() == host.step();
  }
  bool same() const {
    for (int t = 0; t < host.tables(); ++t)
      if (!same_records(host.export_records(t), device.export_records(t))) return false;
    return true;
  }

 private:
  const Cuda backend_;
  BasicThreadCommunicator<CudaTransfer> device_communicator_;

 public:
  Vocabulary<ThreadCommunicator, Host, Own> host;
  Vocabulary<BasicThreadCommunicator<CudaTransfer>, Cuda, Own> device;
  std::size_t reused_rows = 0, evicted_keys = 0;
};

KeyedJagged<std::int64_t> one_hot(const Keys& keys, std::int64_t features) {
  return {.features = features,
          .batch = std::ssize(keys) / features,
          .ids = keys,
          .offsets = {},
          .weights = {}};
}

}  // namespace

TEST_CASE("one rank: admission, eviction and forgetting as on the host") {
  for (const Eviction eviction : {Eviction::none, Eviction::least_frequent, Eviction::oldest})
    for (const std::uint32_t admit_after : {1u, 3u}) {
      CAPTURE(static_cast<int>(eviction));
      CAPTURE(admit_after);
      in_every_order([&] {
        OneRankVocabulary rank;
        Both<> both(rank.communicator,
                    {.tables = {{50, admit_after, eviction}}, .feature_table = {}});
        for (int step = 0; step < (slow_run ? 4 : 25); ++step)
          CHECK(both.step(one_hot(drifting_keys(step, 90, 3000), 1)));
        CHECK(both.same());
        if (!slow_run) CHECK((both.reused_rows > 20) == (eviction != Eviction::none));
      });
    }
}

TEST_CASE("one rank: probability, time to live and a user's own policy as on the host") {
  const auto run = [](auto& both, int first, int steps) {
    for (int step = 0; step < steps; ++step)
      CHECK(
          both.step(one_hot(step % 16 == 15 ? Keys() : drifting_keys(first + step, 90, 3000), 1)));
    CHECK(both.same());
  };
  OneRankVocabulary rank;
  const int steps = slow_run ? 2 : 10;
  for (const std::int64_t rows : {50, 2000}) {  // 2000: only sweeps take rows away
    const detail::VocabularyTable table{.rows = rows, .admit_probability = 0.5f, .time_to_live = 4};
    Both<> both(rank.communicator, {.tables = {table}, .feature_table = {}, .report_keys = true});
    Both<Fading> fading(rank.communicator,
                        {.tables = {table}, .feature_table = {}, .report_keys = true});
    for (const std::int64_t begin : {0, 60, 125}) {
      if (begin > 0) {
        both.host.set_step(begin);
        both.device.set_step(begin);
        fading.host.set_step(begin);
        fading.device.set_step(begin);
      }
      run(both, static_cast<int>(begin), steps);
      run(fading, static_cast<int>(begin), steps);
    }
    if (slow_run) continue;
    CHECK(both.evicted_keys > 20);
    CHECK(fading.evicted_keys > 20);
  }
}

TEST_CASE(
    "several tables and blocks, bags, keys that are seen rarely, the same table for two features") {
  const VocabularyOptions options{.tables = {{8'200, 1, Eviction::oldest}, {70, 2}, {600, 5}},
                                  .feature_table = {0, 1, 0, 2}};
  OneRankVocabulary rank;
  Both<> both(rank.communicator, options);
  const int size = slow_run ? 100 : 1500;
  for (int step = 0; step < (slow_run ? 3 : 9); ++step)
    CHECK(both.step(one_hot(drifting_keys(step, 4 * size, 60'000), 4)));
  const Keys keys{
      0,  -1, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max(), 0,
      -1, 7};
  const Keys offsets{0, 0, 4, 4, 4, 7, 7, 7, 7};
  CHECK(both.step({.features = 4, .batch = 2, .ids = keys, .offsets = offsets, .weights = {}}));
  CHECK(both.step(one_hot({}, 4)));
  CHECK(both.same());
}

TEST_CASE("keys without a row are forgotten, in several rounds") {
  OneRankVocabulary rank;
  Both<> both(rank.communicator, {.tables = {{600, 9}, {600, 9}}, .feature_table = {}});
  Keys keys;  // of the first feature; then of the second, which forgets nothing
  for (std::int64_t i = 0; i < 200; ++i) keys.push_back(i);
  for (std::int64_t i = 0; i < 1800; ++i) keys.push_back(1000 + i / 2);
  for (std::int64_t i = 0; i < 2000; ++i) keys.push_back(i / 4);
  CHECK(both.step(one_hot(keys, 2)));
  CHECK(both.device.candidates(0) == 0);
  CHECK(both.device.candidates(1) == 500);
  CHECK(both.step(one_hot(keys, 2)));
  CHECK(both.same());
}

TEST_CASE("many ranks, and records that move between backends and rank counts") {
  const VocabularyOptions options{.tables = {{8'200, 1, Eviction::oldest}, {60, 2}},
                                  .feature_table = {0, 1, 1}};
  std::vector<std::vector<detail::VocabularyRecords>> saved(
      2, std::vector<detail::VocabularyRecords>(3));
  run_ranks(3, [&](ThreadCommunicator& communicator) {
    Both<> both(communicator, options);
    for (int step = 0; step < 6; ++step) {
      // a rank that has had no keys yet takes part
      const Keys keys =
          step < 2 && communicator.rank() == 1
              ? Keys()
              : drifting_keys(step * 7 + communicator.rank(),
                              3 * (slow_run ? 20 : 120) * (communicator.rank() + 1), 9000);
      require<Error>(both.step(one_hot(keys, 3)), "rank {} differs in step {}", communicator.rank(),
                     step);
    }
    require<Error>(both.same() && both.reused_rows > 0, "the records of rank {} differ",
                   communicator.rank());
    for (int t = 0; t < 2; ++t)
      saved[static_cast<std::size_t>(t)][static_cast<std::size_t>(communicator.rank())] =
          both.device.export_records(t);
  });
  OneRankVocabulary rank;
  Both<> both(rank.communicator, options);
  CHECK(both.step(one_hot(drifting_keys(99, 300, 9000), 3)));  // what is replaced
  for (int t = 0; t < 2; ++t) {
    both.host.import_records(t, saved[static_cast<std::size_t>(t)]);
    both.device.import_records(t, saved[static_cast<std::size_t>(t)]);
  }
  CHECK(both.host.step() == 6);  // the records' last
  CHECK(both.device.step() == 6);
  for (const std::int64_t step : {std::int64_t{5}, std::int64_t{-1}, std::int64_t{1} << 32}) {
    CHECK_THROWS_AS(both.host.set_step(step), InvalidArgument);
    CHECK_THROWS_AS(both.device.set_step(step), InvalidArgument);
  }
  CHECK(both.same());
  for (int step = 6; step < 9; ++step)
    CHECK(both.step(one_hot(drifting_keys(step * 7, 300, 9000), 3)));
  CHECK(both.same());
  detail::VocabularyRecords bad = both.device.export_records(0);
  bad.rows[0] = bad.rows[1] = 5;
  CHECK_THROWS_AS(both.device.import_records(0, std::vector{bad}), InvalidArgument);
  CHECK(both.same());
  const Cuda backend;
  const OnGpu<std::int64_t> keys(backend, {1, 2, 3}), offsets(backend, {0, 2, 1, 3});
  const OnGpu<std::int32_t> rows(backend, {0, 0, 0});
  const std::span<const std::int64_t> ids(keys.data(), 3), backwards(offsets.data(), 4);
  CHECK_THROWS_AS(both.device.learn(
                      {.features = 3, .batch = 1, .ids = ids, .offsets = backwards, .weights = {}},
                      std::span(rows.data(), 3)),
                  InvalidArgument);
  CHECK_THROWS_AS(
      both.device.learn({.features = 3, .batch = 1, .ids = ids, .offsets = {}, .weights = {}},
                        std::span(rows.data(), 2)),
      InvalidArgument);
}
