// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

// The same model on ranks that are processes and on as many thread ranks: the same bits. The
// program has included its engine.
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/tessera.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <vector>

namespace ts = tessera;

namespace {

using Query = ts::Table<"query", 1000, 16>;
using User = ts::Table<"user", 300, 32>;
using Genre = ts::Table<"genre", 40, 16>;
using Country = ts::Table<"country", 20, 16>;
using Plan = ts::Plan<
    ts::Features<ts::Feature<"query", "query">, ts::Feature<"user", "user">,
                 ts::Feature<"genre", "genre", ts::Mean>, ts::Feature<"country", "country">,
                 ts::Feature<"history", "query", ts::Sequence>,
                 ts::Feature<"friends", "user", ts::Sequence>,
                 ts::Feature<"best", "genre", ts::Max>>,
    ts::RowWise<Query>, ts::ColumnWise<2, User>, ts::TableWise<Genre>, ts::Replicated<Country>>;
constexpr std::int64_t rows_of_features[] = {1000, 300, 40, 20, 1000, 300, 40};

/// This rank's pooled vectors and sequences of six steps, then its tables. At step 2 the last rank
/// has no history.
template <class Comm>
std::vector<float> train(Comm& c) {
  using Embeddings = ts::EmbeddingCollection<Plan, ts::RowWiseAdagrad, ts::Host, Comm>;
  Embeddings embeddings(c, ts::Host{}, {.learning_rate = 0.1f, .seed = 3});
  std::vector<float> seen;
  std::minstd_rand random(static_cast<unsigned>(100 + c.rank()));
  for (int step = 0; step < 6; ++step) {
    const std::int64_t batch = 20 + 7 * c.rank();
    std::vector<std::int64_t> ids, offsets{0};
    for (const std::int64_t rows : rows_of_features)
      for (std::int64_t sample = 0; sample < batch; ++sample) {
        const bool none = step == 2 && c.rank() + 1 == c.size();
        for (unsigned n = none ? 0 : random() % 4; n > 0; --n)
          ids.push_back(static_cast<std::int64_t>(random() % static_cast<unsigned>(rows)));
        offsets.push_back(static_cast<std::int64_t>(ids.size()));
      }
    auto pooled = embeddings.forward(ts::KeyedJagged<std::int64_t>{
        .features = 7, .batch = batch, .ids = ids, .offsets = offsets, .weights = {}});
    seen.insert(seen.end(), pooled.values.data, pooled.values.data + batch * embeddings.columns());
    std::vector<float> gradient(static_cast<std::size_t>(batch * embeddings.columns()));
    for (float& g : gradient)
      g = 0.01f * static_cast<float>(static_cast<int>(random() % 2001) - 1000);
    std::vector<std::vector<float>> vectors;
    std::vector<ts::SequenceGradient> of_sequences;
    for (const char* name : {"history", "friends"}) {
      const auto view = pooled.sequence(name);
      std::vector<float>& some =
          vectors.emplace_back(static_cast<std::size_t>(view.ids() * view.width()));
      view.materialize({some.data(), view.ids(), view.width()});
      seen.insert(seen.end(), some.begin(), some.end());
      for (float& g : some) g = 0.01f * static_cast<float>(static_cast<int>(random() % 201) - 100);
      of_sequences.push_back(view.per_id({some.data(), view.ids(), view.width()}));
    }
    embeddings.backward(pooled,
                        ts::MatrixView<const float>(gradient.data(), batch, embeddings.columns()),
                        of_sequences);
  }
  for (const auto& shard : embeddings.tables().local_shards())
    for (std::int64_t row = 0; row < shard.weights.rows; ++row)
      seen.insert(seen.end(), shard.weights.row(row),
                  shard.weights.row(row) + shard.weights.columns);
  return seen;
}

/// Three groups, two batches and a second loss to a step, clipped: norms, and this rank's shards.
template <class Comm>
std::vector<float> train_groups(Comm& c) {
  using Embeddings =
      ts::EmbeddingCollection<Plan, ts::Train<ts::Ftrl, User>, ts::Train<ts::RowWiseAdagrad>,
                              ts::Frozen<Genre>, ts::Host, Comm>;
  typename Embeddings::Options options;
  options.learning_rate = 0.1f;
  options.seed = 3;
  Embeddings embeddings(c, ts::Host{}, options);
  std::vector<float> seen;
  std::minstd_rand random(static_cast<unsigned>(200 + c.rank()));
  for (int step = 0; step < 6; ++step) {
    const std::int64_t batch = 9 + 2 * c.rank();
    std::vector<std::int64_t> ids, offsets{0};
    for (const std::int64_t rows : rows_of_features)
      for (std::int64_t sample = 0; sample < batch; ++sample) {
        for (unsigned n = random() % 3; n > 0; --n)
          ids.push_back(static_cast<std::int64_t>(random() % static_cast<unsigned>(rows)));
        offsets.push_back(static_cast<std::int64_t>(ids.size()));
      }
    const auto pooled = embeddings.forward(ts::KeyedJagged<std::int64_t>{
        .features = 7, .batch = batch, .ids = ids, .offsets = offsets, .weights = {}});
    std::vector<float> gradient(static_cast<std::size_t>(batch * embeddings.columns()));
    for (float& g : gradient)
      g = 0.01f * static_cast<float>(static_cast<int>(random() % 2001) - 1000);
    std::vector<std::vector<float>> vectors;
    std::vector<ts::SequenceGradient> of_sequences;
    for (const char* name : {"history", "friends"}) {
      const auto view = pooled.sequence(name);
      vectors.emplace_back(static_cast<std::size_t>(view.ids() * view.width()), 0.25f);
      of_sequences.push_back(view.per_id({vectors.back().data(), view.ids(), view.width()}));
    }
    for (int loss = 0; loss <= step % 2; ++loss)
      embeddings.accumulate(pooled, {gradient.data(), batch, embeddings.columns()}, of_sequences);
    if (step % 2 == 0) continue;
    std::vector<float> dense{3, 4};
    seen.push_back(static_cast<float>(embeddings.apply(ts::ClipByGlobalNorm{20}, dense)));
    seen.push_back(dense[0]);
  }
  for (const auto& shard : embeddings.tables().local_shards())
    ts::with_matrix(shard.weights, [&](const auto& weights) {
      for (std::int64_t row = 0; row < weights.rows; ++row)
        for (std::int64_t column = 0; column < weights.columns; ++column)
          seen.push_back(ts::to_float(weights.row(row)[column]));
    });
  return seen;
}

}  // namespace

TEST_CASE("ranks: they and thread ranks train to the same bits" *
          doctest::skip(engine::skips_ranks)) {
  auto c = engine::world();
  const auto check = [&](const auto& run) {
    const std::vector<float> mine = run(c);
    std::vector<std::vector<float>> threads(static_cast<std::size_t>(c.size()));
    ts::run_ranks(c.size(), [&](ts::ThreadCommunicator& t) {
      threads[static_cast<std::size_t>(t.rank())] = run(t);
    });
    const std::vector<float>& reference = threads[static_cast<std::size_t>(c.rank())];
    REQUIRE(mine.size() == reference.size());
    REQUIRE(mine.size() > 1000);
    CHECK(std::memcmp(mine.data(), reference.data(), mine.size() * sizeof(float)) == 0);
    return mine;
  };
  check([](auto& communicator) { return train(communicator); });
  // groups, accumulated and clipped: every rank has one norm, and it is above the bound
  const std::vector<float> groups =
      check([](auto& communicator) { return train_groups(communicator); });
  for (std::size_t apply = 0; apply < 3; ++apply) {
    CHECK(groups[2 * apply] > 20);
    CHECK(groups[2 * apply + 1] ==
          3 * static_cast<float>(20 / static_cast<double>(groups[2 * apply])));
  }
  c.finish();
}
