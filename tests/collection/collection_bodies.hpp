// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// EmbeddingCollection as a trainer meets it, on any backend: bodies of test_collection.cpp and
// gpu/twin_cases.hpp.
#pragma once

#include <support/on_backend.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace as_a_trainer {

using namespace tessera;     // NOLINT: a header of tests
using namespace on_backend;  // NOLINT

using A = Table<"a", 10, 4>;
using B = Table<"b", 6, 4, Mean>;
using P = Plan<TableWise<A>, RowWise<B>>;

template <class Backend, class... Policies>
using Collection =
    EmbeddingCollection<P, Sgd, Backend, typename ThreadRanks<Backend>::type, Policies...>;
template <class PlanT, class Backend, class... Policies>
using OneRank =
    EmbeddingCollection<PlanT, Sgd, Backend, typename Alone<Backend>::Comm, Policies...>;

/// On every rank: one sample per rank; feature a: the given ids, feature b: id 0.
template <class Backend, class F>
void on_ranks(int ranks, const std::vector<std::int64_t>& ids_of_a, F&& f,
              BadIds bad_ids = BadIds::throw_error) {
  using C = Collection<Backend>;
  on_thread_ranks<Backend>(ranks, [&](auto& communicator, const Backend& backend) {
    typename C::Options options;
    options.learning_rate = 1.0f;
    options.seed = 3;
    options.bad_ids = bad_ids;
    C embeddings{communicator, backend, options};
    std::vector<std::int64_t> ids = ids_of_a;
    ids.push_back(0);
    const std::int64_t n = static_cast<std::int64_t>(ids_of_a.size());
    const std::vector<std::int64_t> offsets{0, n, n + 1};
    const BatchOn<std::int64_t, Backend> batch(backend, {2, 1, ids, offsets, {}});
    f(embeddings, batch.keyed(), communicator);
  });
}

std::vector<float> table_a(auto& embeddings) {
  std::vector<float> values(40, NAN);
  embeddings.tables().get("a", {values.data(), 10, 4});
  return values;
}

/// Sum of rows of A, by hand from the table's values.
inline std::vector<float> rows_of(const std::vector<float>& table, const std::vector<int>& rows) {
  std::vector<float> sum(4);
  for (const int r : rows)
    for (int c = 0; c < 4; ++c) sum[c] += table[r * 4 + c];
  return sum;
}

template <class Backend>
void bad_ids_are_thrown() {
  for (const int ranks : {1, 3})
    for (const std::int64_t bad : {std::int64_t{10}, std::int64_t{-1}, std::int64_t{1} << 40}) {
      const auto look_up_bad = [](auto& e, const auto& batch, auto&) {
        const std::vector<float> before = table_a(e);
        try {
          look_up(e, batch);
        } catch (const std::exception&) {
          const std::vector<float> after = table_a(e);  // NaN where other ranks hold it
          CHECK(std::memcmp(before.data(), after.data(), before.size() * sizeof(float)) == 0);
          throw;
        }
      };
      const std::string text = message_of([&] { on_ranks<Backend>(ranks, {1, bad}, look_up_bad); });
      CAPTURE(text);
      CHECK(text.find("feature 'a'") != std::string::npos);
      CHECK(text.find("sample 0") != std::string::npos);
      CHECK(text.find(std::to_string(bad)) != std::string::npos);
      CHECK(text.find("10 rows") != std::string::npos);
      CHECK((text.find("'s batch, feature 'a'") != std::string::npos) == (ranks > 1));
    }
}

template <class Backend>
void expect_replaced(BadIds policy, const std::vector<int>& stands_for, int ranks) {
  on_ranks<Backend>(
      ranks, {2, 12, -3},
      [&](auto& e, const auto& batch, auto& communicator) {
        std::vector<float> before(40);
        for (int i = 0; i < 40; ++i) before[i] = static_cast<float>(i);
        e.tables().set("a", {before.data(), 10, 4});
        const auto pooled = e.forward(batch);
        CHECK(read(e.backend(), pooled.values.data, 4) == rows_of(before, stands_for));
        CHECK(e.bad_ids()[0] == 2);
        CHECK(e.bad_ids()[1] == 0);
        const Array<float, Backend> gradient(e.backend(), std::vector<float>(8, 1.0f));
        e.backward(pooled, {gradient.data(), 1, 8});
        const std::vector<float> after = table_a(e);
        if (std::isnan(after[0])) return;  // another rank holds the table
        for (int r = 0; r < 10; ++r) {
          int touched = 0;
          for (const int row : stands_for) touched += row == r;
          for (int c = 0; c < 4; ++c)
            CHECK(after[r * 4 + c] ==
                  before[r * 4 + c] - static_cast<float>(touched * communicator.size()));
        }
      },
      policy);
}

template <class Backend>
void bad_ids_are_dropped_or_replaced() {
  for (const int ranks : {1, 2}) {
    expect_replaced<Backend>(BadIds::zero_vector, {2}, ranks);
    expect_replaced<Backend>(BadIds::clamp, {2, 9, 0}, ranks);
    expect_replaced<Backend>(BadIds::wrap, {2, 2, 7}, ranks);
  }
}

template <class Backend>
void a_zero_vector_counts_in_a_mean() {
  Alone<Backend> alone;
  OneRank<Plan<TableWise<B>>, Backend> e{
      alone.communicator, alone.backend, {.bad_ids = BadIds::zero_vector}};
  std::vector<float> table(24, 6.0f);
  e.tables().set("b", {table.data(), 6, 4});
  const std::vector<std::int32_t> ids{1, 99, 5};
  const std::vector<std::int64_t> offsets{0, 3, 3};
  const BatchOn<std::int32_t, Backend> batch(alone.backend, {1, 2, ids, offsets, {}});
  const auto pooled = e.forward(batch.keyed());
  const std::vector<float> values = read(alone.backend, pooled.values.data, 8);
  CHECK(values[0] == doctest::Approx(4.0f));
  CHECK(values[4] == 0.0f);
}

template <class PlanT, class Backend>
std::vector<float> first_values(int ranks, std::uint64_t seed) {
  std::vector<float> a(40);
  on_thread_ranks<Backend>(ranks, [&](auto& communicator, const Backend& backend) {
    using C = EmbeddingCollection<PlanT, Sgd, Backend, typename ThreadRanks<Backend>::type>;
    typename C::Options options;
    options.seed = seed;
    C e{communicator, backend, options};
    e.tables().get("a", {a.data(), 10, 4});  // ranks write their own parts
  });
  return a;
}

template <class Backend>
void first_values_depend_on_seed_and_place() {
  const std::vector<float> expected = first_values<Plan<TableWise<A>>, Backend>(1, 9);
  CHECK(first_values<Plan<TableWise<B>, RowWise<A>>, Backend>(4, 9) == expected);
  CHECK(first_values<Plan<ColumnWise<4, A>>, Backend>(3, 9) == expected);
  CHECK(first_values<Plan<TableWise<A>>, Backend>(1, 10) != expected);
  const float bound = 1 / std::sqrt(10.0f);
  for (const float x : expected) CHECK(std::abs(x) <= bound);
}

struct RowNumber {
  TESSERA_HOST_DEVICE float operator()(const ElementKey& key) const {
    return static_cast<float>(key.row * 10 + key.column);
  }
};

template <class Backend>
void initializers() {
  Alone<Backend> alone;
  const auto first = [&](auto initializer) {
    using C = OneRank<Plan<TableWise<Table<"t", 2000, 8>>>, Backend,
                      InitializeWith<decltype(initializer)>>;
    typename C::Options options;
    options.initialize = initializer;
    C e{alone.communicator, alone.backend, options};
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

template <class Backend>
void wrong_calls() {
  Alone<Backend> alone;
  const Backend& backend = alone.backend;
  OneRank<Plan<TableWise<A>, TableWise<B>>, Backend> e{alone.communicator, backend, {}};
  const Array<std::int32_t, Backend> four(backend, std::vector<std::int32_t>{1, 2, 3, 4});
  const std::span<const std::int32_t> ids = four.span();
  const KeyedJagged<std::int32_t> batch{2, 2, ids, {}, {}};
  std::vector<float> memory(64);
  const Array<float, Backend> backends_memory(backend, memory);
  float* const data = backends_memory.data();
  check_message([&] { e.forward(KeyedJagged<std::int32_t>{1, 4, ids, {}, {}}); },
                "1 features, the plan needs 2");
  check_message([&] { e.forward(KeyedJagged<std::int32_t>{2, 3, ids, {}, {}}); },
                "needs 6 ids, got 4");
  check_message([&] { e.forward(KeyedJagged<std::int32_t>{0, 0, ids, {}, {}}); },
                "4 ids for 0 features x 0 samples; set the members features and batch");
  check_message([&] { e.tables().get("ab", {memory.data(), 2, 2}); },
                "the plan has no table 'ab'; it has 'a', 'b'");
  // All tables are whole and of one width: a backend whose memory the host cannot read tells of
  // offsets later, and of the feature's name.
  const Array<std::int64_t, Backend> backwards(backend, std::vector<std::int64_t>{0, 3, 2, 4, 4});
  check_message([&] { look_up(e, KeyedJagged<std::int32_t>{2, 2, ids, backwards.span(), {}}); },
                reports_at_once<Backend> ? "go backwards at feature 0, sample 1"
                                         : "go backwards at feature 0 ('a'), sample 1");
  const Array<std::int64_t, Backend> beyond(backend, std::vector<std::int64_t>{0, 1, 2, 3, 5});
  check_message([&] { look_up(e, KeyedJagged<std::int32_t>{2, 2, ids, beyond.span(), {}}); },
                "last offset is 5");
  check_message([&] { e.forward(KeyedJagged<std::int32_t>{2, 2, ids, {}, {data, 3}}); },
                "3 weights for 4 ids");
  check_message([&] { e.forward(batch, MatrixView<float>{data, 2, 7}); }, "must be [2, 8]");
  check_message([&] { e.forward_model_parallel(batch, {}, {{0, {data, 2, 4}}}); },
                "no feature is a sequence");
  const auto pooled = e.forward(batch);
  check_message([&] { e.backward(pooled, {data, 1, 8}); }, "must be [2, 8]");
  e.backward(pooled, {data, 2, 8});
  check_message([&] { e.backward(pooled, {data, 2, 8}); }, "once for each forward");
  check_message([&] { e.tables().get("c", {memory.data(), 1, 1}); }, "no table 'c'");
  check_message([&] { e.tables().get("a", {memory.data(), 1, 4}); }, "[10, 4]");
  using Open = OneRank<Plan<TableWise<Table<"open", dynamic_rows, 4>>>, Backend>;
  check_message([&] { Open{alone.communicator, backend, {}}; }, "'open' has -1 rows");
}

template <class Backend>
void an_empty_batch_passes_through() {
  on_thread_ranks<Backend>(3, [](auto& communicator, const Backend& backend) {
    Collection<Backend> e{communicator, backend, {}};
    for (const std::int64_t own :
         {std::int64_t{0}, static_cast<std::int64_t>(communicator.rank())}) {
      const Array<std::int32_t, Backend> ids(
          backend, std::vector<std::int32_t>(static_cast<std::size_t>(2 * own), 1));
      const auto pooled = e.forward(KeyedJagged<std::int32_t>{2, own, ids.span(), {}, {}});
      CHECK(pooled.values.rows == own);
      const Array<float, Backend> gradient(
          backend, std::vector<float>(static_cast<std::size_t>(own * 8), 0.5f));
      e.backward(pooled, {gradient.data(), own, 8});
    }
  });
}

template <class Backend>
void open_rows_other_rates_wider_outputs() {
  Alone<Backend> alone;
  using C =
      OneRank<Plan<TableWise<Table<"t", dynamic_rows, 2>>>, Backend, InitializeWith<Constant>>;
  typename C::Options options;
  options.learning_rate = 1.0f;
  options.rows = {{"t", 5}};
  C e{alone.communicator, alone.backend, options};
  CHECK(e.layout().tables[0].rows == 5);
  const Array<std::int32_t, Backend> ids(alone.backend, std::vector<std::int32_t>{4});
  const Array<float, Backend> wide(alone.backend, std::vector<float>(6, -7.0f)),
      one(alone.backend, std::vector<float>{1, 1});
  const KeyedJagged<std::int32_t> batch{1, 1, ids.span(), {}, {}};
  const MatrixView<float> output(wide.data() + 3, 1, 2, 6);
  for (const float rate : {1.0f, 0.25f}) {
    e.set_learning_rate(rate);
    const auto pooled = e.forward(batch, output);
    e.backward(pooled, {one.data(), 1, 2});
  }
  e.forward(batch, output);
  CHECK(wide.read() == std::vector<float>{-7, -7, -7, -1.25f, -1.25f, -7});
  CHECK(e.steps() == 2);
}

template <class Backend>
std::vector<float> trained_in_stages(bool overlapped) {
  std::vector<float> a(40);
  on_thread_ranks<Backend>(2, [&](auto& communicator, const Backend& backend) {
    typename Collection<Backend>::Options options;
    options.learning_rate = 0.5f;
    Collection<Backend> e{communicator, backend, options};
    typename Collection<Backend>::template StepState<std::int32_t> steps[2];
    std::vector<Array<std::int32_t, Backend>> ids;
    for (int s = 0; s < 4; ++s)
      ids.emplace_back(backend, std::vector<std::int32_t>{(s * 3 + communicator.rank()) % 10, s, s,
                                                          (s + communicator.rank()) % 6});
    const Array<float, Backend> output(backend, std::vector<float>(16));
    const MatrixView<float> out{output.data(), 2, 8};
    const auto batch = [&](int s) {
      return KeyedJagged<std::int32_t>{2, 2, ids[static_cast<std::size_t>(s)].span(), {}, {}};
    };
    e.route(steps[0], batch(0));
    for (int s = 0; s < 4; ++s) {
      auto& now = steps[s % 2];
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
}

template <class Backend>
void two_steps_in_flight() {
  CHECK(trained_in_stages<Backend>(true) == trained_in_stages<Backend>(false));
}

/// What 50 updates, each far below the spacing of 16-bit numbers at 1, add to 64 x 64 elements on
/// average.
template <class T, class Backend>
double drift_of_16_bits() {
  Alone<Backend> alone;
  using C =
      OneRank<Plan<TableWise<Table<"t", 64, 64>>>, Backend, Storage<T>, InitializeWith<Constant>>;
  typename C::Options options;
  options.learning_rate = 1.0f;
  options.seed = 5;
  options.initialize = {1.0f};
  C e{alone.communicator, alone.backend, options};
  std::vector<std::int32_t> all(64);
  for (int i = 0; i < 64; ++i) all[i] = i;
  const Array<std::int32_t, Backend> ids(alone.backend, all);
  const Array<float, Backend> gradient(alone.backend, std::vector<float>(64 * 64, -1e-4f));
  for (int step = 0; step < 50; ++step) {
    const auto pooled = e.forward(KeyedJagged<std::int32_t>{1, 64, ids.span(), {}, {}});
    e.backward(pooled, {gradient.data(), 64, 64});
  }
  std::vector<float> values(64 * 64);
  e.tables().get("t", {values.data(), 64, 64});
  double sum = 0;
  for (const float x : values) sum += x;
  return sum / 4096 - 1;
}

template <class Backend>
void sixteen_bit_tables() {
  CHECK(drift_of_16_bits<BFloat16, Backend>() == doctest::Approx(0.005).epsilon(0.2));
  CHECK(drift_of_16_bits<Half, Backend>() == doctest::Approx(0.005).epsilon(0.1));
}

}  // namespace as_a_trainer
