// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Duplicate removal before the exchange, against the same training without it, and by its counters.
#include <tessera/host/distinct_ids.hpp>

#include <support/small_model.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

using namespace tessera;
using namespace small_model;

TEST_CASE("distinct ids: by definition, for any number of threads") {
  std::mt19937 random(3);
  for (const int threads : {1, 3}) {
    std::vector<std::vector<std::int64_t>> ids(4), distinct(4);
    std::vector<std::vector<std::int32_t>> index(4);
    std::vector<DistinctIds<std::int64_t>::Job> jobs;
    for (std::size_t k = 0; k < 4; ++k) {
      for (std::size_t i = 0; i < 1000 * k; ++i)
        ids[k].push_back(static_cast<std::int64_t>(random() % (100 * k)) * (std::int64_t{1} << (10 * k)) - 7);
      distinct[k].resize(ids[k].size());
      index[k].resize(ids[k].size());
      jobs.push_back({ids[k].data(), static_cast<std::int64_t>(ids[k].size()), distinct[k].data(), index[k].data(), -1});
    }
    run<DistinctIds<std::int64_t>>(Host({.threads = threads}), {jobs});
    for (std::size_t k = 0; k < 4; ++k) {
      const std::set<std::int64_t> expected(ids[k].begin(), ids[k].end());
      distinct[k].resize(static_cast<std::size_t>(jobs[k].found));
      CHECK(std::set<std::int64_t>(distinct[k].begin(), distinct[k].end()) == expected);
      CHECK(distinct[k].size() == expected.size());
      bool all = true;
      for (std::size_t i = 0; i < ids[k].size(); ++i) all = all && distinct[k][static_cast<std::size_t>(index[k][i])] == ids[k][i];
      CHECK(all);
    }
  }
}

TEST_CASE("training without duplicates in the exchange: as with them, to float tolerance") {
  for (const bool one_hot : {false, true})
    for (const int ranks : {1, 3})
      for (const bool replicated : {false, true}) {
        CAPTURE(one_hot);
        CAPTURE(ranks);
        const auto plain = train_ranks<>(ranks, 4, replicated, 1, one_hot),
                   distinct = train_ranks<Deduplicate>(ranks, 4, replicated, 2, one_hot);
        for (std::size_t r = 0; r < plain.size(); ++r) {
          CHECK(largest_difference(distinct[r].outputs, plain[r].outputs) < 2e-5);
          CHECK(largest_difference(distinct[r].weight_gradients, plain[r].weight_gradients) < 1e-4);
          CHECK(largest_difference(distinct[r].shards, plain[r].shards) < 1e-4);
        }
      }
}

TEST_CASE("forward: a bag over several blocks of rows is summed in the order of its ids, as on one rank") {
  // The first step's outputs, before any update: sample by sample those of one rank that has the same batch.
  const auto distinct = train_ranks<Deduplicate>(3, 1);
  const std::vector<float>& mine = distinct[2].outputs;
  std::vector<Shard> whole;
  for (int t = 0; t < static_cast<int>(tables().size()); ++t) whole.push_back({t, {0, tables()[t].rows, 0, tables()[t].width}, 0});
  std::vector<float> alone;
  run_ranks(1, [&](ThreadCommunicator& threads) {
    Counting c(threads);
    Embeddings<Counting> e(c, Host{}, make_layout({1}, tables(), features(), whole), {.learning_rate = 0.125f, .seed = 7});
    const Batch batch(2, 0, samples_of(2, 0), e.columns());
    const auto pooled = e.forward(batch.keyed());
    alone.assign(pooled.values.data, pooled.values.data + batch.samples * e.columns());
  });
  CHECK(same_bits(mine, alone));
}

TEST_CASE("with codecs: rows travel encoded; the error is that of the codec per id") {
  const auto plain = train_ranks<>(3, 1), coded = train_ranks<Deduplicate, EncodeWith<Bf16>>(3, 1);
  for (std::size_t r = 0; r < 3; ++r) {
    // Up to 3 rows of elements up to 1/sqrt(5), weighted by up to 2.
    CHECK(largest_difference(coded[r].outputs, plain[r].outputs) < 3 * 2 * 0.45 * 0x1p-8);
    CHECK(largest_difference(coded[r].outputs, plain[r].outputs) > 0);
  }
}

TEST_CASE("traffic: each distinct id of a feature and a rank travels once, and one row comes back") {
  run_ranks(2, [&](ThreadCommunicator& threads) {
    Counting c(threads);
    Embeddings<Counting, Deduplicate> e(c, Host{}, make_layout({2}, {{"t", 100, 8}}, {}, {{0, {0, 100, 0, 8}, 0}}), {});
    const std::vector<std::int64_t> ids{5, 5, 7, 5, 9, 7, 5, 5}, offsets{0, 3, 3, 8};
    Embeddings<Counting, Deduplicate>::StepState<std::int64_t> step;
    const std::vector<float> gradient(24, 1.0f);
    std::vector<float> output(24);
    c.reset();
    e.route(step, KeyedJagged<std::int64_t>{1, 3, ids, offsets, {}});
    const Traffic routed = c.total();
    e.lookup(step, {output.data(), 3, 8});
    e.exchange(step);
    e.assemble(step, {output.data(), 3, 8});
    const Traffic forward = c.total() - routed;
    e.split(step, {gradient.data(), 3, 8});
    e.exchange_gradients(step);
    const Traffic backward = c.total() - routed - forward;
    e.update(step, {gradient.data(), 3, 8});
    if (c.rank() == 1) {  // three ids, one header
      CHECK(routed.bytes == 3 * 8 + sizeof(SlotHeader));
      CHECK(forward.bytes == 0);
      CHECK(backward.bytes == 3 * 8 * 4);
    } else {
      CHECK(forward.bytes == 3 * 8 * 4);
      CHECK(backward.bytes == 0);
    }
  });
}
