// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks that do not mean the same, on any backend: bodies of test_agreement.cpp and
// gpu/twin_cases.hpp.
#pragma once

#include <support/small_model.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

namespace disagreeing {

using namespace tessera;      // NOLINT: a header of tests
using namespace on_backend;   // NOLINT
using namespace small_model;  // NOLINT

/// What each of three ranks throws from `run(communicator, backend)` ("" where nothing).
template <class Backend, class Run>
std::vector<std::string> texts(Run run) {
  std::vector<std::string> found(3);
  try {
    on_ranks<Backend>(3, [&](CountingOn<Backend>& c, const Backend& backend) {
      try {
        run(c, backend);
      } catch (const std::exception& error) {
        found[static_cast<std::size_t>(c.rank())] = error.what();
        throw;
      }
    });
  } catch (const std::exception&) {  // one of those texts
  }
  return found;
}

template <class Backend, class... Policies>
using E = EmbeddingsOn<Backend, CountingOn<Backend>, Policies...>;

/// Every rank constructs what `layout_of(rank)` and `options_of(rank)` say; all must find the same
/// fault.
template <class Backend, class LayoutOf, class OptionsOf>
void expect_difference(const std::string& text, LayoutOf layout_of, OptionsOf options_of) {
  const auto found = texts<Backend>([&](CountingOn<Backend>& c, const Backend& backend) {
    E<Backend> e(c, backend, layout_of(c.rank()), options_of(c.rank()));
  });
  for (int r = 0; r < 3; ++r) {
    CAPTURE(found[static_cast<std::size_t>(r)]);
    CHECK(found[static_cast<std::size_t>(r)].find(text) != std::string::npos);
    CHECK(found[static_cast<std::size_t>(r)].find("here, on rank " + std::to_string(r)) !=
          std::string::npos);
  }
}

template <class Change>
Layout with(Change change) {
  std::vector<TableSpec> t = tables();
  std::vector<FeatureSpec> f = features();
  std::vector<Shard> s = layout(3).shards;
  change(t, f, s);
  Layout changed = make_layout({3}, t, f, s);
  REQUIRE_MESSAGE(changed.fault.ok(), describe(changed.fault));
  return changed;
}

template <class Backend>
void ranks_construct_different_things() {
  using Options = typename E<Backend>::Options;
  const auto same_layout = [](int) { return layout(3); };
  const auto same_options = [](int) { return Options{}; };
  const auto on = [](int odd, auto change) {
    return [=](int rank) {
      Options options;
      if (rank == odd) change(options);
      return options;
    };
  };
  expect_difference<Backend>(
      "rank 1 does not have the rows and width of table 'user' of rank 0",
      [](int rank) {
        return rank != 1 ? layout(3) : with([](auto& t, auto&, auto& s) {
          t[1].rows = 61;
          for (Shard& shard : s)
            if (shard.table == 1) shard.rectangle.row_end = 61;
        });
      },
      same_options);
  expect_difference<Backend>(
      "ranks 1, 2 do not have the cut of table 'genre' of rank 0",
      [](int rank) {
        return rank == 0 ? layout(3) : with([](auto&, auto&, auto& s) {
          for (Shard& shard : s)
            if (shard.table == 2) shard.rank = 0;
        });
      },
      same_options);
  expect_difference<Backend>(
      "rank 2 does not have the feature 3 of rank 0",
      [](int rank) {
        return rank != 2 ? layout(3)
                         : with([](auto&, auto& f, auto&) { f[3].pooling = Pooling::sum; });
      },
      same_options);
  expect_difference<Backend>(
      "rank 2 does not have the number of features of rank 0",
      [](int rank) {
        return rank != 2 ? layout(3) : with([](auto&, auto& f, auto&) { f.pop_back(); });
      },
      same_options);
  expect_difference<Backend>("rank 1 does not have the learning rate of rank 0", same_layout,
                             on(1, [](auto& o) { o.learning_rate = 0.5f; }));
  expect_difference<Backend>("rank 2 does not have the seed of rank 0", same_layout,
                             on(2, [](auto& o) { o.seed = 9; }));
  expect_difference<Backend>("rank 1 does not have the option bad_ids of rank 0", same_layout,
                             on(1, [](auto& o) { o.bad_ids = BadIds::clamp; }));
  expect_difference<Backend>("rank 2 does not have the option non_finite of rank 0", same_layout,
                             on(2, [](auto& o) { o.non_finite = NonFinite::reject; }));
  expect_difference<Backend>("ranks 1, 2 do not have the optimizer of rank 0", same_layout,
                             on(0, [](auto& o) { o.optimizer.epsilon = 0.5f; }));
}

template <class Backend, class Odd>
void expect_other_type(const std::string& text) {
  const auto found = texts<Backend>([](CountingOn<Backend>& c, const Backend& backend) {
    if (c.rank() == 1) {
      Odd other(c, backend, layout(3), {});
    } else {
      E<Backend> e(c, backend, layout(3), {});
    }
  });
  for (const std::string& each : found) {
    CAPTURE(each);
    CHECK(each.find("rank 1 does not have the " + text + " of rank 0") != std::string::npos);
  }
}

template <class Backend>
void ranks_with_different_types() {
  expect_other_type<Backend, LayoutCollection<Widths<>, Adagrad, Backend, CountingOn<Backend>>>(
      "optimizer");
  expect_other_type<Backend, E<Backend, Storage<Half>>>("element type of the tables");
  expect_other_type<Backend, E<Backend, EncodeWith<Fp32, Bf16>>>("codecs");
}

template <class Backend>
void ids_of_different_types() {
  const auto found = texts<Backend>([](CountingOn<Backend>& c, const Backend& backend) {
    E<Backend> e(c, backend, layout(3), {});
    const Array<std::int32_t, Backend> narrow(backend, std::vector<std::int32_t>(12, 1));
    const Array<std::int64_t, Backend> wide(backend, std::vector<std::int64_t>(12, 1));
    const Array<float, Backend> weights(backend, std::vector<float>(12, 1));
    if (c.rank() == 2) {
      e.forward(KeyedJagged<std::int32_t>{6, 2, narrow.span(), {}, weights.span()});
    } else {
      e.forward(KeyedJagged<std::int64_t>{6, 2, wide.span(), {}, weights.span()});
    }
  });
  CHECK(found[2].find("rank 0 gives ids of 8 bytes, this rank ids of 4") != std::string::npos);
  for (const std::string& text : found)
    CHECK(text.find("bytes, this rank ids of") != std::string::npos);
}

template <class Backend>
void stages_are_compared() {
  const auto run = [](auto&& on_rank_1) {
    return texts<Backend>([&](CountingOn<Backend>& c, const Backend& backend) {
      typename E<Backend>::Options options;
      options.check_stages = true;
      E<Backend> e(c, backend, layout(3), options);
      for (int step = 0; step < 3; ++step) {
        const Given given(backend, Batch(c.rank(), step, 4, e.columns()), e.columns());
        const auto pooled = e.forward(given.keyed());
        if (c.rank() == 1 && step == 1) on_rank_1(e, given);
        e.backward(pooled, given.gradient);
      }
    });
  };
  CHECK(run([](auto&, auto&) {}) == std::vector<std::string>(3));
  const auto another_forward = run([](auto& e, auto& given) { e.forward(given.keyed()); });
  for (const std::string& text : another_forward) {
    CAPTURE(text);
    CHECK(text.find("rank 0 is at 'exchange_gradients' of step 2 with learning rate 0.01, but rank "
                    "1 at 'route' of step 2") != std::string::npos);
  }
  const auto another_rate = run([](auto& e, auto&) { e.set_learning_rate(0.5f); });
  for (const std::string& text : another_rate)
    CHECK(text.find("rank 1 at 'exchange_gradients' of step 2 with learning rate 0.5") !=
          std::string::npos);
}

/// Copies of a replicated table would drift apart: rates are compared where ranks meet anyway.
/// `ahead`: by who routes with a communicator of his own, and is not asked for his rate.
template <class Backend>
void learning_rates_are_compared() {
  for (const auto& [place, ahead, stage] : {std::tuple(every_rank, false, "update: "),
                                            {every_rank, true, "update: "},
                                            {0, false, "route: "}}) {
    std::vector<int> kept(3);
    const auto found = texts<Backend>([&, place = place, ahead = ahead](CountingOn<Backend>& c,
                                                                        const Backend& backend) {
      E<Backend> e(c, backend, make_layout({3}, {{"t", 3, 16}}, {}, {{0, {0, 3, 0, 16}, place}}),
                   {.learning_rate = 0.5f});
      const Array<std::int64_t, Backend> ids(backend, std::vector<std::int64_t>{0, 1});
      const KeyedJagged<std::int64_t> batch{1, 2, ids.span(), {}, {}};
      const Array<float, Backend> of_output(backend, std::vector<float>(32, 1.0f)),
          output(backend, std::vector<float>(32));
      const MatrixView<const float> gradient(of_output.data(), 2, 16);
      e.backward(e.forward(batch), gradient);
      const std::vector<float> before = shards_of(e);
      if (c.rank() == 1) e.set_learning_rate(0.25f);
      typename E<Backend>::template StepState<std::int64_t> step;
      try {
        ahead ? e.route(step, batch, c, backend) : e.route(step, batch);
        e.backward(e.forward_routed(step, {output.data(), 2, 16}), gradient);
      } catch (...) {
        kept[static_cast<std::size_t>(c.rank())] =
            same_bits(shards_of(e), before) && e.steps() == 1;
        throw;
      }
    });
    for (std::size_t r = 0; r < 3; ++r) {
      CAPTURE(found[r]);
      CHECK(kept[r] == 1);
      for (const char* part : {stage, "has learning rate 0.25",
                               "has 0.5; every rank must set the same rate before the same step"})
        CHECK((found[r].find(part) != std::string::npos ||
               found[r].find("has learning rate 0.5, but rank 1 has 0.25;") != std::string::npos));
    }
  }
}

/// All that a plan of replicated tables needs.
template <class Inner>
struct OnlyAllGather {
  Inner inner;
  int rank() const { return inner.rank(); }
  int size() const { return inner.size(); }
  template <Exchangeable T>
  void all_gather(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                  std::span<const std::size_t> counts) {
    inner.all_gather(send, receive, counts);
  }
};
using Query = Table<"query", 50, 8>;
using User = Table<"user", 20, 8>;

/// Outputs of three steps and the tables at the end, of each of three ranks.
template <class Backend, class Wrap>
std::vector<std::vector<float>> replicated_on_three(Wrap wrap) {
  std::vector<std::vector<float>> seen(3);
  on_thread_ranks<Backend>(3, [&](auto& threads, const Backend& backend) {
    auto c = wrap(threads);
    using Replicas = EmbeddingCollection<Plan<Replicated<Query>, Replicated<User>>, RowWiseAdagrad,
                                         Backend, decltype(c)>;
    typename Replicas::Options options;
    options.learning_rate = 0.5f;
    options.seed = 2;
    Replicas e(c, backend, options);
    std::vector<float>& mine = seen[static_cast<std::size_t>(c.rank())];
    for (std::int64_t step = 0; step < 3; ++step) {
      const Array<std::int64_t, Backend> ids(
          backend, std::vector<std::int64_t>{step, c.rank() + step, 3, 4 + c.rank()});
      const auto pooled = e.forward(KeyedJagged<std::int64_t>{2, 2, ids.span(), {}, {}});
      const std::vector<float> output = read(backend, pooled.values.data, 32);
      mine.insert(mine.end(), output.begin(), output.end());
      const Array<float, Backend> gradient(backend, output);
      e.backward(pooled, {gradient.data(), 2, 16});
    }
    const auto shards = shards_of(e);
    mine.insert(mine.end(), shards.begin(), shards.end());
  });
  return seen;
}

template <class Backend>
void replicas_need_all_gather_alone() {
  using Comm = typename ThreadRanks<Backend>::type;
  const auto few = replicated_on_three<Backend>([](Comm& c) { return OnlyAllGather<Comm>{c}; });
  const auto all = replicated_on_three<Backend>([](Comm& c) { return c; });
  for (std::size_t r = 0; r < 3; ++r) CHECK(same_bits(few[r], all[r]));
  // Replicas are one: values and states behind the outputs of three steps.
  CHECK(same_bits({few[0].begin() + 96, few[0].end()}, {few[2].begin() + 96, few[2].end()}));

  const auto without_all_to_all = [] {
    on_thread_ranks<Backend>(2, [](Comm& threads, const Backend& backend) {
      OnlyAllGather<Comm> c{threads};
      EmbeddingsOn<Backend, OnlyAllGather<Comm>> e(c, backend, layout(2), {});
    });
  };
  CHECK_THROWS_WITH_AS(
      without_all_to_all(),
      "EmbeddingCollection: the communicator lacks all_to_all, which this layout needs",
      InvalidArgument);
  const auto without_all_reduce = [] {
    on_thread_ranks<Backend>(2, [](Comm& threads, const Backend& backend) {
      OnlyAllGather<Comm> c{threads};
      EmbeddingCollection<Plan<Replicated<Query>>, RowWiseAdagrad, Backend, OnlyAllGather<Comm>> e(
          c, backend, {.non_finite = NonFinite::reject});
    });
  };
  CHECK_THROWS_WITH_AS(without_all_reduce(),
                       "EmbeddingCollection: the communicator lacks all_reduce, which the option "
                       "NonFinite::reject needs",
                       InvalidArgument);
}

}  // namespace disagreeing
