// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Accumulated gradients where a call is refused or fails, on two ranks: every gradient counts once, or
// not at all.
#include <tessera/comm/fault_injecting_communicator.hpp>
#include <tessera/dense/parameters.hpp>
#include <tessera/tessera.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

using namespace tessera;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

using Comm = FaultInjectingCommunicator<ThreadCommunicator>;
using Collection = LayoutCollection<Widths<2, 4>, Sgd, Host, Comm>;

/// A table of 4 rows of zeros, rate 1.
struct Rank {
  Collection embeddings;

  Rank(Comm& communicator, const Layout& layout, NonFinite non_finite = {})
      : embeddings(communicator, Host{}, layout, {.learning_rate = 1, .non_finite = non_finite}) {
    const std::vector<float> zeros(16);
    embeddings.tables().set("t", {zeros.data(), 4, 4});
  }

  /// One batch: gradients of x in all columns of each id.
  bool accumulate(const std::vector<std::int64_t>& ids, float x) {
    const auto samples = static_cast<std::int64_t>(ids.size());
    const std::vector<float> gradient(4 * ids.size(), x);
    return embeddings.accumulate(
        embeddings.forward(KeyedJagged<std::int64_t>{1, samples, ids, {}, {}}),
        {gradient.data(), samples, 4});
  }
  /// Two: 2 x in row 1, and x in row 2.
  void accumulate(float x = 1) {
    CHECK(accumulate({1}, x));
    CHECK(accumulate({2, 1}, x));
  }

  void check_rows(float first, float second) const {
    std::vector<float> expected(16);
    for (std::size_t c = 0; c < 4; ++c) {
      expected[4 + c] = first;
      expected[8 + c] = second;
    }
    std::vector<float> rows = expected;  // this rank's part is read
    embeddings.tables().get("t", {rows.data(), 4, 4});
    CHECK(rows == expected);
  }
  /// No row has changed, nothing waits for `apply`, and other gradients train as ever.
  void check_dropped() {
    check_rows(0, 0);
    CHECK_THROWS_WITH_AS(embeddings.apply(), doctest::Contains("no gradients are accumulated"),
                         InvalidArgument);
    accumulate();
    embeddings.apply();
    check_rows(-4, -2);
  }
};

/// A layer of one parameter.
struct Bias {
  std::span<float> gradient;

  std::int64_t parameter_count() const { return 1; }
  void bind(std::span<float>, std::span<float> gradients) { gradient = gradients; }
  int initialize(std::uint64_t, int layer) { return layer; }
};

/// body(communicator, layout) on two ranks whose tables are copied, cut by rows, or copied in some
/// columns.
template <class Body>
void on_layouts(const std::vector<Fault>& faults, Body&& body) {
  for (const std::vector<Shard>& shards :
       {std::vector<Shard>{{0, {0, 4, 0, 4}, every_rank}},
        std::vector<Shard>{{0, {0, 4, 0, 2}, every_rank}, {0, {0, 4, 2, 4}, 1}},
        std::vector<Shard>{{0, {0, 2, 0, 4}, 0}, {0, {2, 4, 0, 4}, 1}}}) {
    CAPTURE(shards.size());
    CAPTURE(shards[0].rank);
    const Layout layout = make_layout({2}, {{"t", 4, 4}}, {{"f", "t"}}, shards);
    run_ranks(2, [&](ThreadCommunicator& threads) {
      Comm communicator(threads, faults);
      body(communicator, layout);
    });
  }
}

template <class Clip>
void refused_clip_changes_nothing(const Clip& refused) {
  on_layouts({}, [&](Comm& communicator, const Layout& layout) {
    Rank rank(communicator, layout);
    CHECK_THROWS_WITH_AS(rank.embeddings.apply(refused), doctest::Contains("positive number"),
                         InvalidArgument);
    rank.accumulate();
    for (int again = 0; again < 2; ++again)
      CHECK_THROWS_WITH_AS(rank.embeddings.apply(refused), doctest::Contains("positive number"),
                           InvalidArgument);
    rank.embeddings.apply();
    rank.check_rows(-4, -2);
    rank.accumulate();
    CHECK_THROWS_AS(rank.embeddings.apply(refused), InvalidArgument);
    rank.accumulate();  // more, after a call that was refused
    CHECK(rank.embeddings.apply(ClipByGlobalNorm{100}) == std::sqrt(4 * (8.0 * 8 + 4 * 4)));
    rank.check_rows(-12, -6);
    CHECK(rank.embeddings.steps() == 2);
  });
}

/// A collective of `apply` fails after copies were merged.
template <class Clip>
void failed_apply_drops_gradients(Collective collective, std::uint64_t call, const Clip& clip) {
  std::vector<Fault> faults;
  for (const int rank : {0, 1})
    faults.push_back({.rank = rank, .call = call, .collectives = collective});
  on_layouts(faults, [&](Comm& communicator, const Layout& layout) {
    Rank rank(communicator, layout);
    rank.accumulate(2);
    CHECK_THROWS_AS(rank.embeddings.apply(clip), CommunicatorError);
    rank.check_dropped();
  });
}

}  // namespace

TEST_CASE("accumulation: a clip that is refused leaves the gradients as they are") {
  refused_clip_changes_nothing(ClipByGlobalNorm{0});
  refused_clip_changes_nothing(ClipByValue{-1});
  refused_clip_changes_nothing(ClipByRowNorm{not_a_number});
}

TEST_CASE("accumulation: a norm that is not finite drops the gradients of all ranks") {
  on_layouts({}, [](Comm& communicator, const Layout& layout) {
    Rank rank(communicator, layout);
    rank.accumulate(communicator.rank() == 0 ? not_a_number : 1);
    CHECK_THROWS_WITH_AS(rank.embeddings.apply(ClipByGlobalNorm{1}),
                         doctest::Contains("NaN or infinite"), InvalidArgument);
    rank.check_dropped();
    CHECK(rank.embeddings.steps() == 1);
  });
}

TEST_CASE("accumulation: an apply that fails behind the merge of copies drops the gradients") {
  failed_apply_drops_gradients(Collective::all_reduce, 1, ClipByGlobalNorm{1});
}

TEST_CASE("accumulation: other rates and clips are refused before anything is merged") {
  on_layouts({}, [](Comm& communicator, const Layout& layout) {
    Rank rank(communicator, layout);
    const bool first = communicator.rank() == 0;
    rank.accumulate();
    if (!first) rank.embeddings.set_learning_rate(0.5f);
    CHECK_THROWS_WITH_AS(rank.embeddings.apply(),
                         doctest::Contains(first ? "apply: rank 1 has learning rate 0.5"
                                                 : "apply: rank 0 has learning rate 1"),
                         InvalidArgument);
    rank.embeddings.set_learning_rate(1);
    const char* const refusal = first ? "apply: rank 1 clips gradients by ClipByValue{0.25}, but "
                                        "rank 0 by ClipByValue{2}; every rank must"
                                      : "apply: rank 0 clips gradients by ClipByValue{2}, but";
    CHECK_THROWS_WITH_AS(rank.embeddings.apply(ClipByValue{first ? 2 : 0.25f}),
                         doctest::Contains(refusal), InvalidArgument);
    const auto other_kinds = [&] {
      first ? rank.embeddings.apply(ClipByGlobalNorm{2}) : rank.embeddings.apply();
    };
    CHECK_THROWS_WITH_AS(other_kinds(),
                         doctest::Contains(first ? "rank 1 clips gradients by KeepGradients, but "
                                                   "rank 0 by ClipByGlobalNorm{2};"
                                                 : "rank 0 clips gradients by ClipByGlobalNorm"),
                         InvalidArgument);
    rank.embeddings.apply();
    rank.check_rows(-4, -2);
  });
}

TEST_CASE("accumulation: a dropped loss takes no more losses of its forward") {
  on_layouts({}, [](Comm& communicator, const Layout& layout) {
    Rank rank(communicator, layout);
    const std::vector<std::int64_t> ids{1};
    std::vector<float> gradient(4, not_a_number);
    const auto pooled = rank.embeddings.forward(KeyedJagged<std::int64_t>{1, 1, ids, {}, {}});
    rank.embeddings.accumulate(pooled, {gradient.data(), 1, 4});
    CHECK_THROWS_AS(rank.embeddings.apply(ClipByGlobalNorm{1}), InvalidArgument);
    gradient.assign(4, 1);
    CHECK_THROWS_WITH_AS(rank.embeddings.accumulate(pooled, {gradient.data(), 1, 4}),
                         doctest::Contains("look the batch up again"), InvalidArgument);
  });
}

TEST_CASE("accumulation: a batch that is refused says so, and dense layers leave it out, too") {
  on_layouts({}, [](Comm& communicator, const Layout& layout) {
    Rank rank(communicator, layout, NonFinite::reject);
    Bias bias;
    DenseParameters parameters(1, bias);
    // as docs/concepts/optimizer.md has it
    const auto train = [&](const std::vector<float>& batches) {
      bool any = false;
      for (const float x : batches) {
        bias.gradient[0] = x;
        if (!rank.accumulate({1}, x)) continue;
        parameters.accumulate();
        any = true;
      }
      if (!any) return false;
      parameters.take_accumulated();
      rank.embeddings.apply(ClipByGlobalNorm{100}, parameters.gradients());
      return true;
    };
    const float one_has = communicator.rank() == 0 ? not_a_number : 1;
    CHECK(train({1, one_has, 2}));
    CHECK(parameters.gradients()[0] == 3);
    rank.check_rows(-6, 0);
    CHECK_FALSE(train({one_has, one_has}));
    rank.embeddings.apply();  // does nothing
    CHECK(rank.embeddings.steps() == 1);
    CHECK(train({0.5f}));
    CHECK(parameters.gradients()[0] == 0.5f);
    rank.check_rows(-7, 0);
    CHECK(rank.embeddings.rejected_steps() == 3);
  });
}
