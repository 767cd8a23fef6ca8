// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks that do not mean the same: found when the collection is constructed, or, asked for, at each stage; and what a plan asks of a
// communicator.
#include <support/small_model.hpp>

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace tessera;
using namespace small_model;

namespace {

/// What each of three ranks throws from `run(communicator)` ("" where nothing).
template <class Run>
std::vector<std::string> texts(Run run) {
  std::vector<std::string> found(3);
  try {
    run_ranks(3, [&](ThreadCommunicator& threads) {
      Counting c(threads);
      try {
        run(c);
      } catch (const std::exception& error) {
        found[static_cast<std::size_t>(c.rank())] = error.what();
        throw;
      }
    });
  } catch (const std::exception&) {  // one of those texts
  }
  return found;
}

using E = Embeddings<Counting>;

/// Every rank constructs what `layout_of(rank)` and `options_of(rank)` say; all must find the same fault.
template <class LayoutOf, class OptionsOf>
void expect_difference(const std::string& text, LayoutOf layout_of, OptionsOf options_of) {
  const auto found = texts([&](Counting& c) { E e(c, Host{}, layout_of(c.rank()), options_of(c.rank())); });
  for (int r = 0; r < 3; ++r) {
    CAPTURE(found[static_cast<std::size_t>(r)]);
    CHECK(found[static_cast<std::size_t>(r)].find(text) != std::string::npos);
    CHECK(found[static_cast<std::size_t>(r)].find("here, on rank " + std::to_string(r)) != std::string::npos);
  }
}

Layout with(auto change) {
  std::vector<TableSpec> t = tables();
  std::vector<FeatureSpec> f = features();
  std::vector<Shard> s = layout(3).shards;
  change(t, f, s);
  Layout changed = make_layout({3}, t, f, s);
  REQUIRE_MESSAGE(changed.fault.ok(), describe(changed.fault));
  return changed;
}

/// All that a plan of replicated tables needs.
struct OnlyAllGather {
  ThreadCommunicator inner;
  int rank() const { return inner.rank(); }
  int size() const { return inner.size(); }
  template <Exchangeable T>
  void all_gather(std::type_identity_t<std::span<const T>> send, std::span<T> receive, std::span<const std::size_t> counts) {
    inner.all_gather(send, receive, counts);
  }
};
using Query = Table<"query", 50, 8>;
using User = Table<"user", 20, 8>;
template <class P>
constexpr Collective kNeeds = EmbeddingCollection<P, Sgd, Host, ThreadCommunicator>::needs;
static_assert(kNeeds<Plan<Replicated<Query>, Replicated<User>>> == Collective::all_gather);
static_assert(kNeeds<Plan<RowWise<Query>, ColumnWise<2, User>>> == Collective::all_to_all);
static_assert(kNeeds<Plan<RowWise<Query>, Replicated<User>>> == (Collective::all_gather | Collective::all_to_all));

}  // namespace

TEST_CASE("ranks that construct different things say what differs and where") {
  const auto same_layout = [](int) { return layout(3); };
  const auto same_options = [](int) { return E::Options{}; };
  const auto on = [](int odd, auto change) {
    return [=](int rank) {
      E::Options options;
      if (rank == odd) change(options);
      return options;
    };
  };
  expect_difference(
      "rank 1 does not have the rows and width of table 'user' of rank 0",
      [](int rank) {
        return rank != 1 ? layout(3) : with([](auto& t, auto&, auto& s) {
          t[1].rows = 61;
          for (Shard& shard : s)
            if (shard.table == 1) shard.rectangle.row_end = 61;
        });
      },
      same_options);
  expect_difference(
      "ranks 1, 2 do not have the cut of table 'genre' of rank 0",
      [](int rank) {
        return rank == 0 ? layout(3) : with([](auto&, auto&, auto& s) {
          for (Shard& shard : s)
            if (shard.table == 2) shard.rank = 0;
        });
      },
      same_options);
  expect_difference(
      "rank 2 does not have the feature 3 of rank 0",
      [](int rank) { return rank != 2 ? layout(3) : with([](auto&, auto& f, auto&) { f[3].pooling = Pooling::sum; }); }, same_options);
  expect_difference(
      "rank 2 does not have the number of features of rank 0",
      [](int rank) { return rank != 2 ? layout(3) : with([](auto&, auto& f, auto&) { f.pop_back(); }); }, same_options);
  expect_difference("rank 1 does not have the learning rate of rank 0", same_layout, on(1, [](auto& o) { o.learning_rate = 0.5f; }));
  expect_difference("rank 2 does not have the seed of rank 0", same_layout, on(2, [](auto& o) { o.seed = 9; }));
  expect_difference("ranks 1, 2 do not have the optimizer of rank 0", same_layout, on(0, [](auto& o) { o.optimizer.epsilon = 0.5f; }));
}

TEST_CASE("ranks with different types: optimizer, elements, codecs") {
  const auto found = [](auto odd) {
    return texts([](Counting& c) {
      if (c.rank() == 1) {
        typename decltype(odd)::type other(c, Host{}, layout(3), {});
      } else {
        E e(c, Host{}, layout(3), {});
      }
    });
  };
  const auto check = [](const std::vector<std::string>& all, const std::string& text) {
    for (const std::string& each : all) {
      CAPTURE(each);
      CHECK(each.find("rank 1 does not have the " + text + " of rank 0") != std::string::npos);
    }
  };
  check(found(std::type_identity<ShardedCollection<Widths<>, Adagrad, Host, Counting>>{}), "optimizer");
  check(found(std::type_identity<Embeddings<Counting, Storage<Half>>>{}), "element type of the tables");
  check(found(std::type_identity<Embeddings<Counting, EncodeWith<Fp32, Bf16>>>{}), "codecs");
}

TEST_CASE("ids of different types in one batch") {
  const auto found = texts([](Counting& c) {
    E e(c, Host{}, layout(3), {});
    const std::vector<std::int32_t> narrow(12, 1);
    const std::vector<std::int64_t> wide(12, 1);
    const std::vector<float> weights(12, 1);
    if (c.rank() == 2) {
      e.forward(KeyedJagged<std::int32_t>{6, 2, narrow, {}, weights});
    } else {
      e.forward(KeyedJagged<std::int64_t>{6, 2, wide, {}, weights});
    }
  });
  CHECK(found[2].find("rank 0 gives ids of 8 bytes, this rank ids of 4") != std::string::npos);
  for (const std::string& text : found) CHECK(text.find("bytes, this rank ids of") != std::string::npos);
}

TEST_CASE("stages are compared where that is asked for") {
  const auto run = [](auto&& on_rank_1) {
    return texts([&](Counting& c) {
      E e(c, Host{}, layout(3), {.check_stages = true});
      for (int step = 0; step < 3; ++step) {
        const Batch batch(c.rank(), step, 4, e.columns());
        const auto pooled = e.forward(batch.keyed());
        if (c.rank() == 1 && step == 1) on_rank_1(e, batch);
        e.backward(pooled, {batch.gradient.data(), 4, e.columns()});
      }
    });
  };
  CHECK(run([](auto&, auto&) {}) == std::vector<std::string>(3));
  for (const std::string& text : run([](auto&e, auto&batch) { e.forward(batch.keyed()); })) {
    CAPTURE(text);
    CHECK(text.find("rank 0 is at 'exchange_gradients' of step 2 with learning rate 0.01, but rank 1 at 'route' of step 2") !=
          std::string::npos);
  }
  for (const std::string& text : run([](auto&e, auto&) { e.set_learning_rate(0.5f); }))
    CHECK(text.find("rank 1 at 'exchange_gradients' of step 2 with learning rate 0.5") != std::string::npos);
}

TEST_CASE("a plan of replicated tables needs all_gather alone, and gives what any communicator gives") {
  using P = Plan<Replicated<Query>, Replicated<User>>;
  const auto run = [](auto&& wrap) {
    std::vector<std::vector<float>> seen(3);
    run_ranks(3, [&](ThreadCommunicator& threads) {
      auto c = wrap(threads);
      EmbeddingCollection<P, RowWiseAdagrad, Host, decltype(c)> e(c, Host{}, {.learning_rate = 0.5f, .seed = 2});
      std::vector<float>& mine = seen[static_cast<std::size_t>(c.rank())];
      for (std::int64_t step = 0; step < 3; ++step) {
        const std::vector<std::int64_t> ids{step, c.rank() + step, 3, 4 + c.rank()};
        const auto pooled = e.forward(KeyedJagged<std::int64_t>{2, 2, ids, {}, {}});
        mine.insert(mine.end(), pooled.values.data, pooled.values.data + 32);
        const std::vector<float> gradient(mine.end() - 32, mine.end());
        e.backward(pooled, {gradient.data(), 2, 16});
      }
      const auto shards = shards_of(e);
      mine.insert(mine.end(), shards.begin(), shards.end());
    });
    return seen;
  };
  const auto few = run([](ThreadCommunicator& c) { return OnlyAllGather{c}; });
  const auto all = run([](ThreadCommunicator& c) { return c; });
  for (std::size_t r = 0; r < 3; ++r) CHECK(same_bits(few[r], all[r]));
  // Replicas are one: values and states behind the outputs of three steps.
  CHECK(same_bits({few[0].begin() + 96, few[0].end()}, {few[2].begin() + 96, few[2].end()}));

  std::string text;
  try {
    run_ranks(2, [](ThreadCommunicator& threads) {
      OnlyAllGather c{threads};
      ShardedCollection<Widths<>, RowWiseAdagrad, Host, OnlyAllGather> e(c, Host{}, layout(2), {});
    });
  } catch (const InvalidArgument& error) {
    text = error.what();
  }
  CHECK(text == "EmbeddingCollection: the communicator lacks all_to_all, which this layout needs");
}
