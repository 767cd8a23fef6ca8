// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Rows of keys that come and go, with a colder tier behind them: the model of a vocabulary that has
// rows for all keys, to the bit, under any plan and number of ranks.
#include <tessera/checkpoint.hpp>
#include <tessera/tessera.hpp>
#include <tessera/vocabulary.hpp>

#include <support/temporary_folder.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

using namespace tessera;

namespace {

constexpr int kWidth = 16, kSteps = 60, kBatch = 24;

struct HalfOf {
  float operator()(const ElementKey&) const { return 0.5f; }
};

template <std::int64_t Rows>
using User = Table<"user", Rows, kWidth>;
template <std::int64_t Rows>
using Item = Table<"item", Rows, kWidth>;

/// Keys of a step: 2 features of kBatch samples, few at a time, of many over all steps.
std::vector<std::int64_t> keys_of(int step) {
  std::vector<std::int64_t> keys;
  for (int i = 0; i < 2 * kBatch; ++i)
    keys.push_back(static_cast<std::int64_t>(random_word(3, step, i) % 30) + step / 3 % 9 * 20);
  return keys;
}
float gradient_of(int step, std::int64_t sample, std::int64_t column) {
  return static_cast<float>(static_cast<int>(random_word(4, step, sample, column) % 9) - 4) / 8;
}

struct Trained {
  /// what each sample's vectors were
  std::vector<std::vector<float>> outputs =
      std::vector<std::vector<float>>(kSteps, std::vector<float>(std::size_t{kBatch} * 2 * kWidth));
  std::int64_t evicted = 0, returned = 0, kept = 0;
};

/// Steps of a training, and the folders that it goes on from and ends in, if any.
struct Steps {
  int begin = 0, end = kSteps;
  std::filesystem::path from{}, to{};
};

/// `most`: keys that the colder tier keeps; 0: there is none.
template <class PlanT>
Trained train(int ranks, std::int64_t rows, std::int64_t most, const Steps& steps = {}) {
  Trained trained;
  run_ranks(ranks, [&](ThreadCommunicator& rank) {
    using E = EmbeddingCollection<PlanT, Adagrad, Host, ThreadCommunicator, InitializeWith<HalfOf>>;
    E embeddings(rank, Host(), {.learning_rate = 0.1f});
    Vocabulary vocabulary(
        rank, {.tables = {{.rows = rows, .eviction = Eviction::oldest},
                          {.rows = rows, .eviction = Eviction::oldest, .time_to_live = 6}},
               .report_keys = true});
    ColdRows cold(most > 0 ? most : 1);
    CheckpointContents contents;
    contents.add(embeddings);
    if (!steps.from.empty()) {
      load_checkpoint(rank, steps.from, contents, {.extra = {"vocabulary.*", "cold_rows.*"}});
      load_vocabulary(steps.from, vocabulary);
      load_cold_rows(steps.from, cold, embeddings);
      CHECK_THROWS_WITH_AS(load_cold_rows(steps.from, cold, embeddings),
                           doctest::Contains("give an empty ColdRows"), InvalidArgument);
    }
    const std::int64_t batch = kBatch / rank.size(), first = batch * rank.rank();
    for (int step = steps.begin; step < steps.end; ++step) {
      const std::vector<std::int64_t> all = keys_of(step);
      std::vector<std::int64_t> keys, found(static_cast<std::size_t>(2 * batch));
      for (int f = 0; f < 2; ++f)
        keys.insert(keys.end(), all.begin() + f * kBatch + first,
                    all.begin() + f * kBatch + first + batch);
      const auto reused =
          vocabulary.learn(KeyedJagged<std::int64_t>{2, batch, keys, {}, {}}, std::span(found));
      if (most > 0)
        cold.exchange(rank, vocabulary, embeddings);
      else
        for (const auto& [table, row] : reused)
          embeddings.reset_rows(static_cast<int>(table), std::span(&row, 1));
      if (rank.rank() == 0) trained.evicted += std::ssize(vocabulary.evicted());
      const auto output = embeddings.forward(KeyedJagged<std::int64_t>{2, batch, found, {}, {}});
      std::vector<float> gradient(static_cast<std::size_t>(batch * 2 * kWidth));
      for (std::int64_t s = 0; s < batch; ++s)
        for (std::int64_t c = 0; c < 2 * kWidth; ++c) {
          trained.outputs[static_cast<std::size_t>(step)]
                         [static_cast<std::size_t>((first + s) * 2 * kWidth + c)] =
              output.values.row(s)[c];
          gradient[static_cast<std::size_t>(s * 2 * kWidth + c)] = gradient_of(step, first + s, c);
        }
      embeddings.backward(output, MatrixView<const float>(gradient.data(), batch, 2 * kWidth));
    }
    if (rank.rank() == 0) trained.kept = cold.size();
    if (steps.to.empty()) return;
    const SavedVocabulary keys(contents, vocabulary);
    const SavedColdRows kept(contents, cold);
    save_checkpoint(rank, steps.to, contents, steps.end);
  });
  return trained;
}

}  // namespace

TEST_CASE("keys come back with their vectors and states: as if all had kept their rows") {
  const Trained large = train<Plan<TableWise<User<1000>, Item<1000>>>>(1, 1000, 0);
  const auto check = [&](const Trained& small) {
    CHECK(small.outputs == large.outputs);
    CHECK(small.evicted > 100);
    CHECK(small.kept > 50);
  };
  constexpr std::int64_t rows = 32;
  check(train<Plan<TableWise<User<rows>, Item<rows>>>>(1, rows, 1000));
  check(train<Plan<RowWise<User<rows>>, ColumnWise<2, Item<rows>>>>(2, rows, 1000));
  check(train<Plan<Grid<2, User<rows>>, RowWise<Item<rows>>>>(4, rows, 1000));
  // without the tier, and with one that keeps few keys, vectors are lost
  CHECK(train<Plan<TableWise<User<rows>, Item<rows>>>>(1, rows, 0).outputs != large.outputs);
  const Trained few = train<Plan<TableWise<User<rows>, Item<rows>>>>(1, rows, 5);
  CHECK(few.outputs != large.outputs);
  CHECK(few.kept == 5);
}

TEST_CASE("a checkpoint holds the colder tier, for other ranks and plans") {
  constexpr std::int64_t rows = 32;
  constexpr int middle = kSteps / 2;
  const Trained whole = train<Plan<TableWise<User<rows>, Item<rows>>>>(1, rows, 1000);
  const TemporaryFolder folder;
  train<Plan<RowWise<User<rows>>, ColumnWise<2, Item<rows>>>>(2, rows, 1000,
                                                              {.end = middle, .to = folder.path});
  const std::filesystem::path step = *latest_checkpoint(folder.path);
  const auto check = [&](const Trained& rest) {
    CHECK(std::equal(rest.outputs.begin() + middle, rest.outputs.end(),
                     whole.outputs.begin() + middle));
    CHECK(rest.kept == whole.kept);
  };
  check(train<Plan<TableWise<User<rows>, Item<rows>>>>(1, rows, 1000,
                                                       {.begin = middle, .from = step}));
  check(train<Plan<Grid<2, User<rows>>, RowWise<Item<rows>>>>(4, rows, 1000,
                                                              {.begin = middle, .from = step}));
  // rows with other states are refused
  SelfCommunicator self;
  using E =
      EmbeddingCollection<Plan<TableWise<User<rows>, Item<rows>>>, Sgd, Host, SelfCommunicator>;
  const E other(self, Host(), {});
  ColdRows cold;
  CHECK_THROWS_WITH_AS(load_cold_rows(step, cold, other),
                       doctest::Contains("rows of 128 bytes were kept of table 'user', but with "
                                         "their states they have 64 now"),
                       InvalidArgument);
}

TEST_CASE("what a colder tier refuses") {
  CHECK_THROWS_AS(ColdRows(0), InvalidArgument);
  SelfCommunicator self;
  using E = EmbeddingCollection<Plan<TableWise<User<8>>>, Adagrad, Host, SelfCommunicator>;
  E embeddings(self, Host(), {.learning_rate = 0.1f});
  Vocabulary vocabulary(self, {.tables = {{.rows = 8}}});
  ColdRows cold;
  CHECK_THROWS_AS(cold.exchange(self, vocabulary, embeddings), InvalidArgument);

  // records of a damaged checkpoint: place 7 for two keys, two places for a key, places that are
  // none, half a record, too few bytes
  const std::int64_t bytes = 2 * 16 * sizeof(float);  // a vector and Adagrad's sums
  const auto take = [&](const std::vector<std::int64_t>& keys, std::int64_t all) {
    ColdRows fresh;
    fresh.import_records(0, {bytes, keys, std::vector<std::uint8_t>(static_cast<std::size_t>(all))},
                         embeddings);
    return fresh.size();
  };
  CHECK(take({1, 7, 2, 8, 1, 7}, 3 * bytes) == 2);  // a key of two ranks
  CHECK_THROWS_AS(take({1, 7, 2, 7}, 2 * bytes), DataError);
  CHECK_THROWS_AS(take({1, 7, 1, 8}, 2 * bytes), DataError);
  CHECK_THROWS_AS(take({1, -1}, bytes), DataError);
  CHECK_THROWS_AS(take({1, std::numeric_limits<std::int64_t>::max()}, bytes), DataError);
  CHECK_THROWS_AS(take({1, 7, 2}, bytes), DataError);
  CHECK_THROWS_AS(take({1, 7, 2, 8}, bytes), DataError);
}
