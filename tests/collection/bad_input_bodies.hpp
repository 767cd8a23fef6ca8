// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What a collection does with input that no trainer means to give, on any backend: bodies of
// test_bad_input.cpp and gpu/twin_cases.hpp.
#pragma once

#include <fmt/format.h>
#include <support/small_model.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace bad_input {

using namespace tessera;     // NOLINT: a header of tests
using namespace on_backend;  // NOLINT

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class Backend>
using OneRank = small_model::EmbeddingsOn<Backend, typename Alone<Backend>::Comm>;
template <class Backend>
using OnThree = small_model::EmbeddingsOn<Backend, small_model::CountingOn<Backend>>;

/// Steps of the small model on some ranks; at every other step the last rank gives a gradient with
/// bad numbers, or (`left_out`) nobody takes that step at all. `rejected`, `counted`: per such
/// step.
template <class Backend>
std::vector<std::vector<float>> shards_after(NonFinite policy, int ranks, bool left_out,
                                             std::uint64_t rejected, std::uint64_t counted) {
  std::vector<std::vector<float>> shards(static_cast<std::size_t>(ranks));
  small_model::on_ranks<Backend>(
      ranks, [&](small_model::CountingOn<Backend>& c, const Backend& backend) {
        small_model::EmbeddingsOn<Backend, small_model::CountingOn<Backend>> embeddings(
            c, backend, small_model::layout(ranks, true), {.seed = 7, .non_finite = policy});
        for (int step = 0; step < 4; ++step) {
          small_model::Batch batch(c.rank(), step, small_model::samples_of(c.rank(), step),
                                   embeddings.columns());
          const bool bad_step = step % 2 == 1;
          if (bad_step && left_out) continue;
          if (bad_step && c.rank() == ranks - 1) {
            batch.gradient[3] = kNan;
            batch.gradient[70] = -kInfinity;
          }
          const small_model::Given given(backend, batch, embeddings.columns());
          const auto pooled = embeddings.forward(given.keyed());
          embeddings.backward(pooled, given.gradient, given.of_weights.span());
          if (rejected != 0 && bad_step)
            for (const float x : given.of_weights.read())
              require<Error>(x == 0, "a rejected step has weight gradients");
        }
        require<Error>(embeddings.rejected_steps() == (left_out ? 0 : 2 * rejected),
                       "{} steps were rejected", embeddings.rejected_steps());
        require<Error>(embeddings.non_finite_gradients() ==
                           (left_out || c.rank() != ranks - 1 ? 0 : 2 * counted),
                       "{} were counted", embeddings.non_finite_gradients());
        require<Error>(embeddings.steps() == (left_out || rejected != 0 ? 2 : 4), "{} steps",
                       embeddings.steps());
        shards[static_cast<std::size_t>(c.rank())] = small_model::shards_of(embeddings);
        const std::int64_t bad = embeddings.count_non_finite_weights();
        std::int64_t found = 0;
        for (const float x : small_model::shards_of(embeddings, false)) found += !std::isfinite(x);
        require<Error>(bad == found, "{} weights are said to be no numbers, {} are", bad, found);
      });
  return shards;
}

template <class Backend>
void a_rejected_step_changes_nothing() {
  for (const int ranks : {1, 3}) {
    const auto expected = shards_after<Backend>(NonFinite::reject, ranks, true, 1, 2);
    const auto rejected = shards_after<Backend>(NonFinite::reject, ranks, false, 1, 2);
    for (int r = 0; r < ranks; ++r)
      CHECK(
          same_bits(expected[static_cast<std::size_t>(r)], rejected[static_cast<std::size_t>(r)]));
  }
}

template <class Backend>
void counted_or_not_they_are_used() {
  const auto counted = shards_after<Backend>(NonFinite::count, 3, false, 0, 2),
             used = shards_after<Backend>(NonFinite::use, 3, false, 0, 0);
  std::int64_t bad = 0;
  for (std::size_t r = 0; r < 3; ++r) {
    CHECK(same_bits(counted[r], used[r]));
    for (const float x : used[r]) bad += !std::isfinite(x);
  }
  CHECK(bad > 0);
}

/// The tables are cut into columns, so that every backend waits for offsets and reports at once.
template <class Backend>
void wrong_offsets_and_counts() {
  Alone<Backend> alone;
  const Backend& backend = alone.backend;
  OneRank<Backend> embeddings(alone.communicator, backend, small_model::layout(1), {});
  const small_model::Batch good(0, 0, 4, embeddings.columns());
  const std::vector<float> before = small_model::shards_of(embeddings);
  const auto refuses = [&](auto&& damage, const std::string& part) {
    small_model::Batch batch = good;
    KeyedJagged<std::int64_t> ids = batch.keyed();
    damage(batch, ids);
    ids.ids = batch.ids;
    if (!ids.offsets.empty()) ids.offsets = batch.offsets;
    if (!ids.weights.empty()) ids.weights = batch.weights;
    const BatchOn<std::int64_t, Backend> given(backend, ids);
    check_message([&] { embeddings.forward(given.keyed()); }, part);
  };
  refuses([](auto& b, auto&) { std::swap(b.offsets[7], b.offsets[12]); },
          "offsets go backwards at feature");
  refuses([](auto& b, auto&) { b.offsets[3] = std::numeric_limits<std::int64_t>::max(); },
          "offsets go backwards");
  refuses([](auto& b, auto&) { b.offsets[3] = std::numeric_limits<std::int64_t>::min(); },
          "offsets go backwards");
  refuses([](auto& b, auto&) { b.offsets[0] = -1; }, "first offset must be 0");
  refuses([](auto& b, auto&) { b.offsets.back() += std::int64_t{1} << 40; }, "the last offset is");
  refuses([](auto& b, auto&) { b.offsets.pop_back(); }, "offsets, got");
  refuses([](auto& b, auto&) { b.ids.pop_back(), b.weights.pop_back(); }, "the last offset is");
  refuses([](auto& b, auto&) { b.weights.pop_back(); }, "give one per id");
  refuses([](auto&, auto& ids) { ids.weights = {}; }, "the batch has no weights");
  refuses([](auto&, auto& ids) { ids.batch = -1; }, "must not be negative");
  refuses([](auto&, auto& ids) { ids.batch = std::numeric_limits<std::int64_t>::max(); },
          "too many bags");
  refuses([](auto&, auto& ids) { ids.batch = std::int64_t{1} << 61; }, "too many bags");
  refuses([](auto&, auto& ids) { ids.features = 7; }, "7 features");
  refuses(
      [](auto& b, auto& ids) {
        b.offsets = {0}, b.ids = {}, b.weights = {};
        ids.features = 0, ids.batch = std::int64_t{1} << 60;
      },
      "the batch has 0 features, the plan needs 6");
  refuses([](auto&, auto& ids) { ids.offsets = {}; }, "one-hot batch of");
  CHECK(same_bits(small_model::shards_of(embeddings), before));
  const BatchOn<std::int64_t, Backend> given(backend, good.keyed());
  embeddings.forward(given.keyed());  // as if nothing had happened
}

template <class Backend>
void ids_around_2_31_and_2_32() {
  Alone<Backend> alone;
  const Backend& backend = alone.backend;
  OneRank<Backend> strict(alone.communicator, backend, small_model::layout(1), {});
  OneRank<Backend> zero(alone.communicator, backend, small_model::layout(1),
                        {.bad_ids = BadIds::zero_vector});
  for (const std::int64_t id :
       {std::int64_t{1} << 31, (std::int64_t{1} << 31) - 1, -(std::int64_t{1} << 31),
        std::int64_t{1} << 32, (std::int64_t{1} << 32) + 3,
        std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()}) {
    small_model::Batch batch(0, 0, 4, strict.columns());
    batch.ids[0] = id;
    const BatchOn<std::int64_t, Backend> given(backend, batch.keyed());
    check_message([&] { strict.forward(given.keyed()); },
                  fmt::format("id {} is outside its table of", id));
    zero.forward(given.keyed());
  }
  std::uint64_t bad = 0;
  for (const std::uint64_t n : zero.bad_ids()) bad += n;
  CHECK(bad == 7);
  std::vector<std::int32_t> ids(6, 0);
  ids[2] = std::numeric_limits<std::int32_t>::min();
  const std::vector<float> weights(6);
  const BatchOn<std::int32_t, Backend> one_hot(backend, {6, 1, ids, {}, weights});
  check_message([&] { look_up(strict, one_hot.keyed()); }, "id -2147483648");

  int named = -2;  // whose batch it was, says rank 1's error
  const auto bad_on_one_rank = [&] {
    small_model::on_ranks<Backend>(
        3, [&](small_model::CountingOn<Backend>& c, const Backend& ranks_backend) {
          OnThree<Backend> e(c, ranks_backend, small_model::layout(3, true), {});
          small_model::Batch batch(c.rank(), 0, 4, e.columns());
          if (c.rank() == 1) batch.ids[0] = 1000;
          const small_model::Given given(ranks_backend, batch, e.columns());
          try {
            look_up(e, given.keyed());
          } catch (const BadId& error) {
            if (c.rank() == 1) named = error.rank();
            throw;
          }
        });
  };
  check_message(bad_on_one_rank, "rank 1's batch, feature '");
  CHECK(named == 1);
}

template <class Backend>
void no_sample_and_no_id() {
  for (const bool offsets : {true, false})
    small_model::on_ranks<Backend>(
        3, [&](small_model::CountingOn<Backend>& c, const Backend& backend) {
          OnThree<Backend> embeddings(c, backend, small_model::layout(3, true), {.seed = 7});
          const std::vector<float> before = small_model::shards_of(embeddings);
          const std::vector<std::int64_t> none{0}, empty_bags(6 * 5 + 1);
          for (const auto& ids :
               {KeyedJagged<std::int64_t>{
                    6, 0, {}, offsets ? std::span(none) : std::span<const std::int64_t>(), {}},
                KeyedJagged<std::int64_t>{6, 5, {}, empty_bags, {}}}) {
            const BatchOn<std::int64_t, Backend> given(backend, ids);
            const auto pooled = embeddings.forward(given.keyed());
            require<Error>(pooled.values.rows == ids.batch, "{} samples", pooled.values.rows);
            const std::size_t count = static_cast<std::size_t>(ids.batch * embeddings.columns());
            for (const float x : read(backend, pooled.values.data, count))
              require<Error>(x == 0, "an empty bag is not zero");
            const Array<float, Backend> gradient(backend, std::vector<float>(count, 1.0f));
            embeddings.backward(pooled, {gradient.data(), ids.batch, embeddings.columns()});
          }
          require<Error>(same_bits(small_model::shards_of(embeddings), before),
                         "rows changed that nobody read");
          require<Error>(embeddings.steps() == 2, "{} steps", embeddings.steps());
        });
}

template <class Backend>
void tables_of_no_width_or_rows() {
  const auto collection_of = [](TableSpec table, Rectangle rectangle) {
    Alone<Backend> alone;
    OneRank<Backend> embeddings(
        alone.communicator, alone.backend,
        make_layout({1}, std::vector{table}, {}, std::vector<Shard>{{0, rectangle, 0}}), {});
  };
  check_message([&] { collection_of({"t", 4, 0}, {0, 4, 0, 0}); }, "'t'");
  check_message([&] { collection_of({"t", 0, 4}, {0, 0, 0, 4}); }, "'t'");
  check_message([&] { collection_of({"t", -5, 4}, {0, -5, 0, 4}); }, "'t'");
  check_message([&] { collection_of({"t", 4, 4}, {0, 5, 0, 4}); }, "'t'");
  CHECK(message_of([&] { collection_of({"t", 1, 1}, {0, 1, 0, 1}); }) == "");
}

template <class Backend>
void a_stale_or_foreign_step() {
  Alone<Backend> alone;
  const Backend& backend = alone.backend;
  OneRank<Backend> embeddings(alone.communicator, backend, small_model::layout(1), {}),
      others(alone.communicator, backend, small_model::layout(1), {});
  const small_model::Given first(backend, small_model::Batch(0, 0, 4, embeddings.columns()),
                                 embeddings.columns()),
      second(backend, small_model::Batch(0, 1, 4, embeddings.columns()), embeddings.columns());
  const std::vector<float> before = small_model::shards_of(embeddings);
  const auto training = embeddings.forward(first.keyed());
  check_message([&] { others.backward(training, first.gradient); }, "another collection's forward");
  const auto evaluation = embeddings.forward(second.keyed());
  check_message([&] { embeddings.backward(training, first.gradient); },
                "another batch was looked up since this forward");
  CHECK(same_bits(small_model::shards_of(embeddings), before));
  embeddings.backward(evaluation, first.gradient);
  CHECK(embeddings.steps() == 1);
  check_message([&] { embeddings.backward(evaluation, first.gradient); },
                "backward once for each forward");

  // a second one: both batches are there
  typename OneRank<Backend>::template StepState<std::int64_t> step;
  const auto kept = embeddings.forward(first.keyed());
  embeddings.route(step, second.keyed());
  const Array<float, Backend> output(
      backend, std::vector<float>(static_cast<std::size_t>(4 * embeddings.columns())));
  embeddings.forward_routed(step, MatrixView<float>(output.data(), 4, embeddings.columns()));
  embeddings.backward(kept, first.gradient);
  CHECK(embeddings.steps() == 2);

  // one whose batch went to another
  embeddings.route(step, second.keyed());
  auto taken = std::move(step);
  const MatrixView<float> found(output.data(), 4, embeddings.columns());
  check_message([&] { embeddings.lookup(step, found); }, "lookup: this step has no batch");
  embeddings.lookup(taken, found);
}

template <class Backend>
void matrices_that_overlap_or_are_nowhere() {
  Alone<Backend> alone;
  const Backend& backend = alone.backend;
  OneRank<Backend> embeddings(alone.communicator, backend, small_model::layout(1), {});
  const small_model::Batch batch(0, 0, 4, embeddings.columns());
  const std::int64_t columns = embeddings.columns();
  const small_model::Given given(backend, batch, columns);
  std::vector<float> memory(batch.gradient.size());
  const Array<float, Backend> backends_memory(backend, memory);
  float* const data = backends_memory.data();
  check_message(
      [&] { embeddings.forward(given.keyed(), MatrixView<float>(data, 4, columns, columns - 1)); },
      "a stride of");
  check_message([&] { embeddings.forward(given.keyed(), MatrixView<float>(nullptr, 4, columns)); },
                "its data is null");
  const auto pooled = embeddings.forward(given.keyed());
  check_message([&] { embeddings.backward(pooled, MatrixView<const float>(data, 4, columns, 0)); },
                "a stride of");
  check_message([&] { embeddings.backward(pooled, MatrixView<const float>(nullptr, 4, columns)); },
                "its data is null");
  check_message([&] { embeddings.tables().get("country", {memory.data(), 5, 16, 15}); },
                "a stride of");
  check_message(
      [&] { embeddings.tables().set("country", MatrixView<const float>(nullptr, 5, 16)); },
      "its data is null");
  for (const int state : {-1, 7}) {
    check_message([&] { embeddings.tables().get_state("country", state, {memory.data(), 5, 16}); },
                  fmt::format("no state {}", state));
    check_message([&] { embeddings.tables().set_state("country", state, {memory.data(), 5, 16}); },
                  fmt::format("no state {}", state));
  }
  embeddings.backward(pooled, given.gradient);
}

template <class Backend>
void a_learning_rate_that_is_no_number() {
  Alone<Backend> alone;
  for (const float rate : {kNan, kInfinity, -0.5f})
    check_message(
        [&] {
          OneRank<Backend>(alone.communicator, alone.backend, small_model::layout(1),
                           {.learning_rate = rate});
        },
        "the learning rate is");
  OneRank<Backend> embeddings(alone.communicator, alone.backend, small_model::layout(1),
                              {.learning_rate = 0.5f});
  check_message([&] { embeddings.set_learning_rate(kNan); }, "the learning rate is");
  check_message([&] { embeddings.set_learning_rate(-1e-30f); }, "it must be finite, and 0 or more");
  CHECK(embeddings.learning_rate() == 0.5f);
  embeddings.set_learning_rate(0);
  for (const std::int64_t steps : {std::int64_t{-5}, std::numeric_limits<std::int64_t>::max()})
    check_message([&] { embeddings.set_steps(steps); }, fmt::format("{} steps", steps));
  embeddings.set_steps(1);
  CHECK(embeddings.steps() == 1);
}

template <class Backend>
void optimizer_constants_that_are_no_numbers() {
  Alone<Backend> alone;
  const auto construct = [&]<class O>(const O& optimizer) {
    using E = LayoutCollection<Widths<16>, O, Backend, typename Alone<Backend>::Comm>;
    typename E::Options options;
    options.optimizer = optimizer;
    E(alone.communicator, alone.backend, small_model::layout(1), options);
  };
  check_message([&] { construct(RowWiseAdagrad{.epsilon = kNan}); },
                " of a weight of 1 and small gradients; check its constants");
  check_message([&] { construct(Adam{.beta1 = 1.0f}); }, "check its constants");
  check_message([&] { construct(Adam{.beta2 = -0.5f}); }, "check its constants");
  check_message([&] { construct(Adagrad{.initial_accumulator = -1e-3f}); }, "check its constants");
  check_message([&] { construct(RowWiseAdagrad{.initial_accumulator = -1e-3f}); },
                "check its constants");
  check_message([&] { construct(Ftrl{.initial_accumulator = -1}); }, "check its constants");
  check_message([&] { construct(Ftrl{.l1 = kNan}); }, "check its constants");
  check_message([&] { construct(Lion{.beta1 = kNan}); }, "check its constants");
  check_message([&] { construct(Lion{.beta2 = kNan}); }, "check its constants");
  check_message([&] { construct(Adagrad{.initial_accumulator = kInfinity}); },
                "the optimizer makes inf of a first state");
  // finite, but uphill
  check_message([&] { construct(Adam{.epsilon = -1}); }, "epsilon is -1; check its constants");
  check_message([&] { construct(Adagrad{.epsilon = -1e-3f}); }, "epsilon is -0.001");
  check_message([&] { construct(RowWiseAdagradL2{.weight_decay = -1}); }, "decay is -1");
  check_message([&] { construct(Lion{.beta1 = 1.5f}); }, "beta1 is 1.5; check its");
  check_message([&] { construct(Momentum{.momentum = -0.5f}); }, "momentum is -0.5");
  check_message([&] { construct(Ftrl{.l2 = -1}); }, "l2 is -1");
  construct(Adam{});
}

template <class Backend>
void rows_that_changed_hands() {
  small_model::on_ranks<Backend>(3, [](small_model::CountingOn<Backend>& c,
                                       const Backend& backend) {
    OnThree<Backend> embeddings(c, backend, small_model::layout(3, true),
                                {.learning_rate = 0.5f, .seed = 7});
    const std::vector<float> fresh = small_model::shards_of(embeddings);
    small_model::train(embeddings, c.rank(), 3);
    const std::vector<float> trained = small_model::shards_of(embeddings);
    std::int64_t all = 0;
    for (const int table : {0, 3, 4}) {
      const std::vector<std::int64_t> rows{0, 1, 3};
      embeddings.reset_rows(table, rows);
      for (const auto& shard : embeddings.tables().local_shards())
        for (const std::int64_t row : rows)
          if (shard.table == table && row >= shard.rectangle.row_begin &&
              row < shard.rectangle.row_end)
            all += shard.weights.columns + 1;
    }
    const std::vector<float> now = small_model::shards_of(embeddings);
    std::int64_t anew = 0;
    for (std::size_t i = 0; i < now.size(); ++i) {
      require<Error>(now[i] == fresh[i] || now[i] == trained[i], "element {} is neither", i);
      anew += now[i] != trained[i];
    }
    require<Error>(anew <= all && (all == 0 || anew > 0), "{} of {} elements start anew", anew,
                   all);
    const std::vector<std::int64_t> outside{200};
    require<Error>(message_of([&] { embeddings.reset_rows(0, outside); }).find("not row 200") !=
                       std::string::npos,
                   "row 200 was taken");
    require<Error>(message_of([&] { embeddings.reset_rows(9, outside); }).find("table 9 of 5") !=
                       std::string::npos,
                   "table 9 was taken");
    const std::vector<std::int64_t> everything{0, 1, 2, 3, 4};
    embeddings.reset_rows(4, everything);
    std::vector<float> weights(80), first(80);
    embeddings.tables().get("country", {weights.data(), 5, 16});
    OnThree<Backend> untouched(c, backend, small_model::layout(3, true), {.seed = 7});
    untouched.tables().get("country", {first.data(), 5, 16});
    require<Error>(same_bits(weights, first), "a reset table is not as at the beginning");
  });
}

}  // namespace bad_input
