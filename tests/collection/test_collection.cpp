// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// EmbeddingCollection as a trainer meets it: bad ids, wrong calls, storage types, first values, stages, learning rates.
#include <tessera/tessera.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

using namespace tessera;

namespace {

using A = Table<"a", 10, 4>;
using B = Table<"b", 6, 4, Mean>;
using P = Plan<TableWise<A>, RowWise<B>>;

template <class... Policies>
using Collection = EmbeddingCollection<P, Sgd, Host, ThreadCommunicator, Policies...>;

/// On every rank: one sample per rank; feature a: the given ids, feature b: id 0.
template <class C, class F>
void on_ranks(int ranks, std::vector<std::int64_t> ids_of_a, F&& f) {
  run_ranks(ranks, [&](ThreadCommunicator& communicator) {
    C embeddings{communicator, Host{}, {.learning_rate = 1.0f, .seed = 3}};
    std::vector<std::int64_t> ids = ids_of_a;
    ids.push_back(0);
    const std::int64_t n = static_cast<std::int64_t>(ids_of_a.size());
    const std::vector<std::int64_t> offsets{0, n, n + 1};
    f(embeddings, KeyedJagged<std::int64_t>{2, 1, ids, offsets, {}}, communicator);
  });
}

std::vector<float> table_a(auto& embeddings) {
  std::vector<float> values(40, NAN);
  embeddings.tables().get("a", {values.data(), 10, 4});
  return values;
}

std::string message_of(auto&& f) {
  try {
    f();
  } catch (const std::exception& e) {
    return e.what();
  }
  return "no exception";
}

/// Sum of rows of A, by hand from the table's values.
std::vector<float> rows_of(const std::vector<float>& table, std::vector<int> rows) {
  std::vector<float> sum(4);
  for (const int r : rows)
    for (int c = 0; c < 4; ++c) sum[c] += table[r * 4 + c];
  return sum;
}

}  // namespace

TEST_CASE("bad ids: Throw names feature, sample, id and rows, on every rank count; nothing is changed") {
  for (const int ranks : {1, 3})
    for (const std::int64_t bad : {std::int64_t{10}, std::int64_t{-1}, std::int64_t{1} << 40}) {
      const std::string text = message_of([&] {
        on_ranks<Collection<>>(ranks, {1, bad}, [](auto& e, const auto& batch, auto&) { e.forward(batch); });
      });
      CHECK(text.find("feature 'a'") != std::string::npos);
      CHECK(text.find("sample 0") != std::string::npos);
      CHECK(text.find(std::to_string(bad)) != std::string::npos);
      CHECK(text.find("10 rows") != std::string::npos);
    }
}

TEST_CASE("bad ids: ZeroVector drops, Clamp and Wrap replace; all count; no row is polluted") {
  const auto run = [](auto tag, std::vector<int> stands_for, int ranks) {
    using C = Collection<decltype(tag)>;
    on_ranks<C>(ranks, {2, 12, -3}, [&](C& e, const auto& batch, ThreadCommunicator& communicator) {
      std::vector<float> before(40);
      for (int i = 0; i < 40; ++i) before[i] = static_cast<float>(i);
      e.tables().set("a", {before.data(), 10, 4});
      const auto pooled = e.forward(batch);
      const std::vector<float> expected = rows_of(before, stands_for);
      for (int c = 0; c < 4; ++c) CHECK(pooled.values(0, c) == expected[c]);
      CHECK(e.bad_ids()[0] == 2);
      CHECK(e.bad_ids()[1] == 0);
      const std::vector<float> gradient(8, 1.0f);
      e.backward(pooled, {gradient.data(), 1, 8});
      const std::vector<float> after = table_a(e);
      if (std::isnan(after[0])) return;  // another rank holds the table
      for (int r = 0; r < 10; ++r) {
        int touched = 0;
        for (const int row : stands_for) touched += row == r;
        for (int c = 0; c < 4; ++c) CHECK(after[r * 4 + c] == before[r * 4 + c] - static_cast<float>(touched * communicator.size()));
      }
    });
  };
  for (const int ranks : {1, 2}) {
    run(ZeroVector{}, {2}, ranks);
    run(Clamp{}, {2, 9, 0}, ranks);
    run(Wrap{}, {2, 2, 7}, ranks);
  }
}

TEST_CASE("a zero vector still counts in the divisor of a mean; an empty bag is zero") {
  using C = EmbeddingCollection<Plan<TableWise<B>>, Sgd, Host, SelfCommunicator, ZeroVector>;
  SelfCommunicator self;
  C e{self, Host{}, {}};
  std::vector<float> table(24, 6.0f);
  e.tables().set("b", {table.data(), 6, 4});
  const std::vector<std::int32_t> ids{1, 99, 5};
  const std::vector<std::int64_t> offsets{0, 3, 3};
  const auto pooled = e.forward(KeyedJagged<std::int32_t>{1, 2, ids, offsets, {}});
  CHECK(pooled.values(0, 0) == doctest::Approx(4.0f));
  CHECK(pooled.values(1, 0) == 0.0f);
}

TEST_CASE("first values depend on seed, table, row and column alone") {
  const auto values = [](auto plan, int ranks, std::uint64_t seed) {
    std::vector<float> a(40);
    run_ranks(ranks, [&](ThreadCommunicator& communicator) {
      EmbeddingCollection<decltype(plan), Sgd, Host, ThreadCommunicator> e{communicator, Host{}, {.seed = seed}};
      e.tables().get("a", {a.data(), 10, 4});  // ranks write their own parts
    });
    return a;
  };
  const std::vector<float> expected = values(Plan<TableWise<A>>{}, 1, 9);
  CHECK(values(Plan<TableWise<B>, RowWise<A>>{}, 4, 9) == expected);
  CHECK(values(Plan<ColumnWise<4, A>>{}, 3, 9) == expected);
  CHECK(values(Plan<TableWise<A>>{}, 1, 10) != expected);
  const float bound = 1 / std::sqrt(10.0f);
  for (const float x : expected) CHECK(std::abs(x) <= bound);
}

TEST_CASE("initializers: constant, uniform, normal, a user's own") {
  struct RowNumber {
    float operator()(const ElementKey& key) const { return static_cast<float>(key.row * 10 + key.column); }
  };
  SelfCommunicator self;
  const auto first = [&](auto initializer) {
    using C = EmbeddingCollection<Plan<TableWise<Table<"t", 2000, 8>>>, Sgd, Host, SelfCommunicator, InitializeWith<decltype(initializer)>>;
    C e{self, Host{}, {.initialize = initializer}};
    std::vector<float> values(16000);
    e.tables().get("t", {values.data(), 2000, 8});
    return values;
  };
  for (const float x : first(Constant{0.5f})) CHECK(x == 0.5f);
  CHECK(first(RowNumber{})[13] == 15.0f);
  double sum = 0, squares = 0, least = 1, most = -1;
  for (const float x : first(Uniform{-2, 4})) {
    least = std::min<double>(least, x);
    most = std::max<double>(most, x);
    sum += x;
  }
  CHECK(least >= -2);
  CHECK(most < 4);
  CHECK(sum / 16000 == doctest::Approx(1).epsilon(0.05));
  sum = 0;
  for (const float x : first(Normal{1, 2})) {
    sum += x;
    squares += (x - 1.0) * (x - 1.0);
  }
  CHECK(sum / 16000 == doctest::Approx(1).epsilon(0.08));
  CHECK(squares / 16000 == doctest::Approx(4).epsilon(0.08));
}

TEST_CASE("wrong calls say what is wrong") {
  SelfCommunicator self;
  using C = EmbeddingCollection<Plan<TableWise<A>, TableWise<B>>, Sgd, Host, SelfCommunicator>;
  C e{self, Host{}, {}};
  const std::vector<std::int32_t> ids{1, 2, 3, 4};
  const KeyedJagged<std::int32_t> batch{2, 2, ids, {}, {}};
  std::vector<float> memory(64);
  CHECK(message_of([&] {
          e.forward(KeyedJagged<std::int32_t>{1, 4, ids, {}, {}});
        }).find("1 features, the plan needs 2") != std::string::npos);
  CHECK(message_of([&] { e.forward(KeyedJagged<std::int32_t>{2, 3, ids, {}, {}}); }).find("needs 6 ids, got 4") != std::string::npos);
  const std::vector<std::int64_t> backwards{0, 3, 2, 4, 4};
  CHECK(message_of([&] {
          e.forward(KeyedJagged<std::int32_t>{2, 2, ids, backwards, {}});
        }).find("go backwards at feature 0, sample 1") != std::string::npos);
  const std::vector<std::int64_t> beyond{0, 1, 2, 3, 5};
  CHECK(message_of([&] { e.forward(KeyedJagged<std::int32_t>{2, 2, ids, beyond, {}}); }).find("last offset is 5") != std::string::npos);
  CHECK(message_of([&] {
          e.forward(KeyedJagged<std::int32_t>{2, 2, ids, {}, std::span(memory).first(3)});
        }).find("3 weights for 4 ids") != std::string::npos);
  CHECK(message_of([&] { e.forward(batch, MatrixView<float>{memory.data(), 2, 7}); }).find("must be [2, 8]") != std::string::npos);
  const auto pooled = e.forward(batch);
  CHECK(message_of([&] { e.backward(pooled, {memory.data(), 1, 8}); }).find("must be [2, 8]") != std::string::npos);
  e.backward(pooled, {memory.data(), 2, 8});
  CHECK(message_of([&] { e.backward(pooled, {memory.data(), 2, 8}); }).find("once for each forward") != std::string::npos);
  CHECK(message_of([&] { e.tables().get("c", {memory.data(), 1, 1}); }).find("no table 'c'") != std::string::npos);
  CHECK(message_of([&] { e.tables().get("a", {memory.data(), 1, 4}); }).find("[10, 4]") != std::string::npos);
  CHECK(message_of([&] { Host{{.threads = 0}}; }).find("0 threads") != std::string::npos);
  using Open = EmbeddingCollection<Plan<TableWise<Table<"open", dynamic_rows, 4>>>, Sgd, Host, SelfCommunicator>;
  CHECK(message_of([&] { Open{self, Host{}, {}}; }).find("'open' has -1 rows") != std::string::npos);
}

TEST_CASE("an empty batch passes through, on all ranks and on one of them") {
  run_ranks(3, [](ThreadCommunicator& communicator) {
    Collection<> e{communicator, Host{}, {}};
    for (const std::int64_t own : {std::int64_t{0}, static_cast<std::int64_t>(communicator.rank())}) {
      const std::vector<std::int32_t> ids(static_cast<std::size_t>(2 * own), 1);
      const auto pooled = e.forward(KeyedJagged<std::int32_t>{2, own, ids, {}, {}});
      CHECK(pooled.values.rows == own);
      const std::vector<float> gradient(static_cast<std::size_t>(own * 8), 0.5f);
      e.backward(pooled, {gradient.data(), own, 8});
    }
  });
}

TEST_CASE("rows known at run time, learning rate changed between steps, output into a wider matrix") {
  SelfCommunicator self;
  using C = EmbeddingCollection<Plan<TableWise<Table<"t", dynamic_rows, 2>>>, Sgd, Host, SelfCommunicator, InitializeWith<Constant>>;
  C e{self, Host{}, {.learning_rate = 1.0f, .rows = {{"t", 5}}}};
  CHECK(e.layout().tables[0].rows == 5);
  const std::vector<std::int32_t> ids{4};
  std::vector<float> wide(6, -7.0f);
  const float one[2] = {1, 1};
  for (const float rate : {1.0f, 0.25f}) {
    e.set_learning_rate(rate);
    const auto pooled = e.forward(KeyedJagged<std::int32_t>{1, 1, ids, {}, {}}, MatrixView<float>{wide.data() + 3, 1, 2, 6});
    e.backward(pooled, {one, 1, 2});
  }
  e.forward(KeyedJagged<std::int32_t>{1, 1, ids, {}, {}}, MatrixView<float>{wide.data() + 3, 1, 2, 6});
  CHECK(wide == std::vector<float>{-7, -7, -7, -1.25f, -1.25f, -7});
  CHECK(e.steps() == 2);
}

TEST_CASE("two steps in flight: the next batch is routed before this one is finished, with the same result") {
  const auto run = [](bool overlapped) {
    std::vector<float> a(40);
    run_ranks(2, [&](ThreadCommunicator& communicator) {
      Collection<> e{communicator, Host{}, {.learning_rate = 0.5f}};
      using Step = Collection<>::StepState<std::int32_t>;
      Step steps[2];
      std::vector<std::vector<std::int32_t>> ids;
      for (int s = 0; s < 4; ++s) ids.push_back({(s * 3 + communicator.rank()) % 10, s, s, (s + communicator.rank()) % 6});
      std::vector<float> output(16);
      const MatrixView<float> out{output.data(), 2, 8};
      const auto batch = [&](int s) { return KeyedJagged<std::int32_t>{2, 2, ids[s], {}, {}}; };
      e.route(steps[0], batch(0));
      for (int s = 0; s < 4; ++s) {
        Step& now = steps[s % 2];
        if (overlapped && s < 3) e.route(steps[(s + 1) % 2], batch(s + 1));
        e.lookup(now, out);
        e.exchange(now);
        e.assemble(now, out);
        e.split(now, out);
        e.exchange_gradients(now);
        e.update(now, out);
        if (!overlapped && s < 3) e.route(steps[(s + 1) % 2], batch(s + 1));
      }
      communicator.barrier();
      e.tables().get("a", {a.data(), 10, 4});
    });
    return a;
  };
  CHECK(run(true) == run(false));
}

TEST_CASE("16-bit tables: lookups are the stored values, updates round without bias") {
  SelfCommunicator self;
  const auto drift = [&]<class T>(std::type_identity<T>) {
    using C = EmbeddingCollection<Plan<TableWise<Table<"t", 64, 64>>>, Sgd, Host, SelfCommunicator, Storage<T>, InitializeWith<Constant>>;
    C e{self, Host{}, {.learning_rate = 1.0f, .seed = 5, .initialize = {1.0f}}};
    std::vector<std::int32_t> ids(64);
    for (int i = 0; i < 64; ++i) ids[i] = i;
    const std::vector<float> gradient(64 * 64, -1e-4f);  // far below the spacing of 16-bit numbers at 1
    for (int step = 0; step < 50; ++step) {
      const auto pooled = e.forward(KeyedJagged<std::int32_t>{1, 64, ids, {}, {}});
      e.backward(pooled, {gradient.data(), 64, 64});
    }
    std::vector<float> values(64 * 64);
    e.tables().get("t", {values.data(), 64, 64});
    double sum = 0;
    for (const float x : values) sum += x;
    return sum / 4096 - 1;
  };
  CHECK(drift(std::type_identity<BFloat16>{}) == doctest::Approx(0.005).epsilon(0.2));
  CHECK(drift(std::type_identity<Half>{}) == doctest::Approx(0.005).epsilon(0.1));
}

TEST_CASE("fits: known while compiling") {
  using Embeddings = EmbeddingCollection<Plan<RowWise<Table<"q", 900'000'000, 128>>>, RowWiseAdagrad, Host, ThreadCommunicator>;
  static_assert(fits<Embeddings, Cluster{.ranks = 8, .memory_per_rank = 80_GiB}>);
  constexpr PlanFault fault = check_memory(Embeddings::plan::layout({4}), Embeddings::memory_cost, 80_GiB);
  static_assert(fault.kind == PlanFault::Kind::does_not_fit);
  CHECK(std::string(fault.name) == "q");
}
