// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tessera.cuh>

#include <doctest/doctest.h>
#include <gpu/array.hpp>
#include <support/random_batches.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

// The whole collection on Cuda against the collection on Host: the same model, layout, batches and
// gradients.

namespace {

using namespace tessera;
using random_layouts::pick;
using random_layouts::Random;

/// What a training gives: everything that a user can see.
struct Trace {
  std::vector<float> outputs;              // of all steps and ranks
  std::vector<float> weight_gradients;     // likewise
  std::vector<std::vector<float>> tables;  // at the end: weights, then states
  std::vector<std::uint64_t> bad_ids;      // summed over ranks
};

/// Options of its collection.
struct Chosen {
  BadIds bad_ids = BadIds::throw_error;
  bool deduplicate = false;
  bool sort_ahead = true;
};

struct Training {
  const random_layouts::Model& model;
  const Layout& layout;
  std::vector<reference::Batch> batches;
  std::vector<std::vector<float>> gradients;  // per step, [samples, columns]
  bool one_hot = false, model_parallel = false, weighted = false;
  /// of every rank's ids of each feature; with them under Options::equal_batches
  std::vector<std::int64_t> bounds{};
  bool equal_batches = false;
  /// all batches make one step, clipped by the norm, which is then the last output
  bool accumulates = false;
  int clip = 0;          // then: 0 by the norm of all, 1 by value, 2 by the norm of each row
  bool forgets = false;  // then: before each batch some rows begin anew, and lose their sums
  Chosen chosen{};

  template <class Backend, class Id, class O, class... Policies>
  Trace run() const {
    const int ranks = layout.ranks();
    constexpr int states = O::element_states + O::row_states;
    std::vector<Trace> traces(static_cast<std::size_t>(ranks));
    Trace whole;
    for (const TableSpec& t : model.tables)
      for (int k = -1; k < states; ++k)
        whole.tables.emplace_back(
            static_cast<std::size_t>(t.rows * (k < O::element_states ? t.width : 1)));
    run_ranks(ranks, [&](ThreadCommunicator& host) {
      const Backend backend;
      auto communicator = ThreadRanks<Backend>::make(host, backend);
      using Comm = typename ThreadRanks<Backend>::type;
      LayoutCollection<Widths<16>, O, Backend, Comm, Policies...> embeddings{
          communicator,
          backend,
          layout,
          {.learning_rate = 0.125f,
           .seed = 7,
           .bad_ids = chosen.bad_ids,
           .deduplicate = chosen.deduplicate,
           .equal_batches = equal_batches,
           .sort_ahead = chosen.sort_ahead}};
      const auto samples = static_cast<std::int64_t>(batches.front().front().size());
      const std::int64_t begin = even_cut(samples, ranks, host.rank()),
                         end = even_cut(samples, ranks, host.rank() + 1);
      std::vector<int> which;
      if (model_parallel)
        which.assign(embeddings.local_features().begin(), embeddings.local_features().end());
      else
        for (std::size_t f = 0; f < model.features.size(); ++f)
          which.push_back(static_cast<int>(f));
      Trace& trace = traces[static_cast<std::size_t>(host.rank())];
      for (std::size_t step = 0; step < batches.size(); ++step) {
        if (forgets)
          for (std::size_t t = 0; t < model.tables.size(); ++t) {
            std::vector<std::int64_t> rows;
            for (auto row = static_cast<std::int64_t>(step % 2); row < model.tables[t].rows;
                 row += 3)
              rows.push_back(row);
            embeddings.reset_rows(static_cast<int>(t), rows);
          }
        const random_layouts::Input<Id> input(batches[step], which, model_parallel ? 0 : begin,
                                              model_parallel ? samples : end, one_hot);
        const Array<Id, Backend> ids(backend, input.ids);
        const Array<std::int64_t, Backend> offsets(backend, input.offsets);
        const Array<float, Backend> weights(backend, input.weights);
        const KeyedJagged<Id> batch{input.features, input.samples,  ids.span(),
                                    offsets.span(), weights.span(), bounds};
        const auto pooled =
            model_parallel ? embeddings.forward_model_parallel(batch) : embeddings.forward(batch);
        const auto columns = static_cast<std::size_t>(layout.columns()),
                   count = static_cast<std::size_t>(end - begin) * columns;
        const std::vector<float> output = read(backend, pooled.values.data, count);
        trace.outputs.insert(trace.outputs.end(), output.begin(), output.end());
        const Array<float, Backend> gradient(
            backend,
            std::span(gradients[step]).subspan(static_cast<std::size_t>(begin) * columns, count));
        const MatrixView<const float> gradient_view(gradient.data(), end - begin, layout.columns());
        if (accumulates) {
          embeddings.accumulate(pooled, gradient_view);
        } else if (weighted) {
          const Array<float, Backend> of_weights(backend,
                                                 std::vector<float>(input.ids.size(), -1.0f));
          embeddings.backward(pooled, gradient_view, of_weights.span());
          const std::vector<float> got = read(backend, of_weights.data(), input.ids.size());
          trace.weight_gradients.insert(trace.weight_gradients.end(), got.begin(), got.end());
        } else {
          embeddings.backward(pooled, gradient_view);
        }
      }
      if (accumulates) {
        const Array<float, Backend> dense(backend, std::vector<float>{0.5f});
        const std::span<float> of_dense(dense.data(), 1);
        if (clip == 0)
          trace.outputs.push_back(
              static_cast<float>(embeddings.apply(ClipByGlobalNorm{1}, of_dense)));
        else if (clip == 1)
          embeddings.apply(ClipByValue{0.25f}, of_dense);
        else
          embeddings.apply(ClipByRowNorm{0.5f}, of_dense);
        trace.outputs.push_back(read(backend, dense.data(), 1)[0]);
      }
      trace.bad_ids.assign(embeddings.bad_ids().begin(), embeddings.bad_ids().end());
      for (int rank = 0; rank < ranks; ++rank, host.barrier()) {
        if (rank != host.rank()) continue;
        std::size_t at = 0;
        for (const TableSpec& t : model.tables)
          for (int k = -1; k < states; ++k, ++at) {
            float* to = whole.tables[at].data();
            if (k < 0)
              embeddings.tables().get(t.name, {to, t.rows, t.width});
            else
              embeddings.tables().get_state(t.name, k,
                                            {to, t.rows, k < O::element_states ? t.width : 1});
          }
      }
    });
    whole.bad_ids.resize(model.tables.size());
    for (const Trace& trace : traces) {
      whole.outputs.insert(whole.outputs.end(), trace.outputs.begin(), trace.outputs.end());
      whole.weight_gradients.insert(whole.weight_gradients.end(), trace.weight_gradients.begin(),
                                    trace.weight_gradients.end());
      for (std::size_t t = 0; t < whole.bad_ids.size(); ++t) whole.bad_ids[t] += trace.bad_ids[t];
    }
    return whole;
  }
};

bool nearly(const std::vector<float>& a, const std::vector<float>& b, float tolerance) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!(std::fabs(a[i] - b[i]) <= tolerance * (1 + std::fabs(b[i])))) return false;
  return true;
}

std::vector<float> random_values(Random& random, std::size_t count) {
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(pick(random, -1000, 1000)) / 1000;
  return values;
}

/// A training of a random model; ids outside their tables where `bad`.
Training random_training(Random& random, const random_layouts::Model& model, const Layout& layout,
                         bool weighted, bool bad) {
  Training training{model,   layout, {}, {}, pick(random, 0, 2) == 0, pick(random, 0, 2) == 0,
                    weighted};
  const int samples = pick(random, 1, 13);
  for (int step = 0; step < 2; ++step) {
    training.batches.push_back(
        random_layouts::random_batch(random, model, samples, training.one_hot));
    if (bad)
      for (auto& feature : training.batches.back())
        for (auto& bag : feature)
          for (std::int64_t& id : bag.ids)
            if (pick(random, 0, 3) == 0) id = pick(random, 0, 1) == 0 ? -1 - id : id + 1000;
    training.gradients.push_back(
        random_values(random, static_cast<std::size_t>(samples * layout.columns())));
  }
  return training;
}

/// Of any row in any step.
int most_entries(const Training& training) {
  int most = 0;
  for (const reference::Batch& batch : training.batches) {
    std::map<std::pair<int, std::int64_t>, int> entries;
    for (std::size_t f = 0; f < batch.size(); ++f)
      for (const reference::Bag& bag : batch[f])
        for (const std::int64_t id : bag.ids)
          most = std::max(most, ++entries[{training.layout.feature_table[f], id}]);
  }
  return most;
}

#if defined(__FMA__)
constexpr bool host_fuses = true;  ///< as kernels do
#else
constexpr bool host_fuses = false;
#endif

/// `lossy`: vectors are rounded on their way, so plans differ.
template <class Id, class O, class... Policies>
void compare_with_host(unsigned seed, bool weighted, bool bad, bool lossy = false,
                       Chosen chosen = {BadIds::zero_vector}) {
  Random random(seed);
  const random_layouts::Model model = random_layouts::random_model(random, weighted);
  const int ranks = 1 + static_cast<int>(seed % 3);
  using random_layouts::Shape;
  constexpr Shape shapes[] = {Shape::whole, Shape::columns, Shape::any, Shape::replicated};
  const Shape shape = shapes[seed / 3 % 4];
  const Layout layout = random_layouts::random_layout(random, model, ranks, shape);
  Training training = random_training(random, model, layout, weighted, bad);
  training.chosen = chosen;
  INFO("seed ", seed, ", ranks ", ranks, ", shape ", static_cast<int>(shape), ", one-hot ",
       training.one_hot, ", model parallel ", training.model_parallel);
  // More entries are added in another order; and compilers fuse multiplications and additions as
  // they like, but for Sgd's by 1/8.
  const bool same_bits = host_fuses && std::is_same_v<O, Sgd> && most_entries(training) <= 32;
  // where something is rounded to a few bits, a last bit may turn one
  const float tolerance = same_bits ? 0.0f : lossy ? 0.1f : 2e-5f;
  const Trace expected = training.run<Host, Id, O, Policies...>();
  const Trace found = training.run<Cuda, Id, O, Policies...>();
  CHECK(nearly(found.outputs, expected.outputs, tolerance));
  CHECK(nearly(found.weight_gradients, expected.weight_gradients, tolerance));
  REQUIRE(found.tables.size() == expected.tables.size());
  for (std::size_t t = 0; t < found.tables.size(); ++t)
    CHECK(nearly(found.tables[t], expected.tables[t], tolerance));
  CHECK(found.bad_ids == expected.bad_ids);
  if (shape == Shape::replicated || lossy) return;
  // The same bits on one rank, whose tables are whole.
  const Layout one = random_layouts::random_layout(random, model, 1, Shape::whole);
  Training alone{model, one, training.batches, training.gradients, training.one_hot, false, false};
  alone.chosen = chosen;
  const Trace single = alone.run<Cuda, Id, O, Policies...>();
  CHECK((found.tables == single.tables));
}

/// The same training under Options::equal_batches. Bounds, on most seeds, are as low as they may
/// be.
Training with_equal_batches(Random& random, Training training) {
  training.equal_batches = true;
  if (training.one_hot) return training;
  const int ranks = training.layout.ranks();
  const auto samples = static_cast<std::int64_t>(training.batches.front().front().size());
  const std::int64_t spare = pick(random, 0, 2) == 0 ? 3 : 0;
  for (std::size_t f = 0; f < training.layout.features.size(); ++f) {
    std::size_t most = 0;
    for (const reference::Batch& batch : training.batches)
      for (int rank = 0; rank < ranks; ++rank) {
        std::size_t ids = 0;
        for (std::int64_t s = even_cut(samples, ranks, rank);
             s < even_cut(samples, ranks, rank + 1); ++s)
          ids += batch[f][s].ids.size();
        most = std::max(most, ids);
      }
    training.bounds.push_back(static_cast<std::int64_t>(most) + spare);
  }
  return training;
}

using TableA = Table<"a", 10, 4>;
using TableB = Table<"b", 6, 4, Mean>;
using SmallPlan = Plan<TableWise<TableA>, TableWise<TableB>>;
using OneRank = BasicSelfCommunicator<CudaTransfer>;
using SmallCollection = EmbeddingCollection<SmallPlan, RowWiseAdagrad, Cuda, OneRank>;

}  // namespace

TEST_CASE(
    "collection: row-wise Adagrad, float, int64 ids, weights and their gradients, any layout; with "
    "bad ids, too") {
  for (unsigned seed = 0; seed < 36; seed += slow_run ? 7 : 1)
    compare_with_host<std::int64_t, RowWiseAdagrad>(seed, seed % 2 == 0, seed >= 24);
}

TEST_CASE(
    "collection: one rank has half of a table's columns as a copy, half as its own: every id reads "
    "two rows of one arena") {
  for (const bool weighted : {false, true}) {
    const random_layouts::Model model{
        {{"a", 10, 8}},
        {{"clicked", "a", Pooling::sum, weighted}, {"seen", "a", Pooling::mean, weighted}}};
    const Layout layout =
        make_layout({1}, model.tables, model.features,
                    std::vector<Shard>{{0, {0, 10, 0, 4}, every_rank}, {0, {0, 10, 4, 8}, 0}});
    for (unsigned seed = 0; seed < 4; ++seed) {
      Random random(seed);
      const Training training = random_training(random, model, layout, weighted, false);
      INFO("weighted ", weighted, ", seed ", seed);
      const Trace expected = training.run<Host, std::int32_t, Sgd>(),
                  found = training.run<Cuda, std::int32_t, Sgd>();
      CHECK(nearly(found.outputs, expected.outputs, 2e-5f));
      CHECK(nearly(found.weight_gradients, expected.weight_gradients, 2e-5f));
      CHECK(nearly(found.tables[0], expected.tables[0], 2e-5f));
    }
  }
}

TEST_CASE(
    "collection: with equal batches nobody is asked for sizes, and nothing else changes, to the "
    "bit") {
  using random_layouts::Shape;
  constexpr Shape shapes[] = {Shape::whole, Shape::columns, Shape::any, Shape::replicated};
  // each layout on one to three ranks, twice
  for (unsigned seed = 0; seed < 24; seed += slow_run ? 5 : 1) {
    Random random(seed);
    const bool weighted = seed % 5 == 0;
    const int ranks = 1 + static_cast<int>(seed % 3);
    const random_layouts::Model model = random_layouts::random_model(random, weighted);
    const Layout layout = random_layouts::random_layout(random, model, ranks, shapes[seed / 3 % 4]);
    Training plain{model, layout, {}, {}, pick(random, 0, 1) == 0, false, weighted};
    plain.chosen.bad_ids = BadIds::zero_vector;
    for (int step = 0; step < 2; ++step) {
      plain.batches.push_back(
          random_layouts::random_batch(random, model, ranks * pick(random, 1, 4), plain.one_hot));
      if (step == 1)
        plain.batches.back() = plain.batches.front(),
        std::reverse(plain.batches[1][0].begin(), plain.batches[1][0].end());
      // bad ids
      if (seed % 4 == 3)
        plain.batches.back()[0][0].ids.assign(plain.batches.back()[0][0].ids.size(), 1000);
      plain.gradients.push_back(random_values(
          random, static_cast<std::size_t>(std::ssize(plain.batches[0][0]) * layout.columns())));
    }
    const Training equal = with_equal_batches(random, plain);
    Training bounded = equal;
    bounded.equal_batches = false;
    INFO("seed ", seed, ", ranks ", ranks, ", layout ", seed / 3 % 4, ", one-hot ", plain.one_hot,
         ", weighted ", weighted);
    const Trace expected = plain.run<Cuda, std::int64_t, RowWiseAdagrad>();
    const Trace found = equal.run<Cuda, std::int64_t, RowWiseAdagrad>();
    CHECK((found.outputs == expected.outputs));
    CHECK((found.weight_gradients == expected.weight_gradients));
    CHECK((found.tables == expected.tables));
    CHECK((found.bad_ids == expected.bad_ids));
    if (slow_run) continue;
    const Trace asking = bounded.run<Cuda, std::int64_t, RowWiseAdagrad>();
    CHECK((asking.weight_gradients == expected.weight_gradients));
    CHECK((asking.tables == expected.tables));
    if (ranks == 1) continue;
    const Trace encoded = equal.run<Cuda, std::int64_t, Sgd, EncodeWith<Bf16>>();
    CHECK((encoded.tables == plain.run<Cuda, std::int64_t, Sgd, EncodeWith<Bf16>>().tables));
  }
}

TEST_CASE(
    "collection: equal batches that are not equal; more ids than a bound do not travel; no "
    "duplicate removal") {
  const std::vector<TableSpec> tables{{"a", 10, 4}};
  const Layout layout =
      make_layout({2}, tables, {{"f", "a"}}, {{0, {0, 5, 0, 4}, 0}, {0, {5, 10, 0, 4}, 1}});
  run_ranks(2, [&](ThreadCommunicator& host) {
    const Cuda backend;
    auto communicator = ThreadRanks<Cuda>::make(host, backend);
    using Comm = ThreadRanks<Cuda>::type;
    using E = LayoutCollection<Widths<4>, Sgd, Cuda, Comm>;
    CHECK(message_of([&] {
            E(communicator, backend, layout, {.deduplicate = true, .equal_batches = true});
          }).find("exclude each other") != std::string::npos);
    E embeddings(communicator, backend, layout, {.seed = 3, .equal_batches = true});
    const auto forward = [&](const std::vector<std::int64_t>& ids,
                             const std::vector<std::int64_t>& offsets,
                             const std::vector<std::int64_t>& bounds) {
      const Array<std::int64_t, Cuda> device_ids(backend, ids), device_offsets(backend, offsets);
      const std::int64_t samples = offsets.empty() ? std::ssize(ids) : std::ssize(offsets) - 1;
      const auto pooled = embeddings.forward(KeyedJagged<std::int64_t>{
          1, samples, device_ids.span(), device_offsets.span(), {}, bounds});
      const std::vector<float> values =
          read(backend, pooled.values.data, static_cast<std::size_t>(samples * 4));
      const Array<float, Cuda> zero(backend, std::vector<float>(values.size()));
      embeddings.backward(pooled, {zero.data(), samples, 4});
      return values;
    };
    using V = std::vector<std::int64_t>;
    const bool second = host.rank() == 1;
    const std::string rank = second ? "1" : "0";
    CHECK(message_of([&] { forward(second ? V{1, 7} : V{2}, {}, {}); }) ==
          "EmbeddingCollection: rank 1 does not have the number of samples of rank 0 (here, on "
          "rank " +
              rank + ": " + (second ? "2" : "1") +
              "); option equal_batches says that all ranks give batches of the same sizes");
    CHECK(message_of([&] {
            forward({2, 3}, second ? V{} : V{0, 1, 2}, second ? V{} : V{2});
          }).find("kind of batch") != std::string::npos);
    CHECK(message_of([&] {
            forward({2, 3}, {0, 1, 2}, second ? V{} : V{2});
          }).find("number of bounds") != std::string::npos);
    CHECK(message_of([&] {
            forward({2, 3}, {0, 1, 2}, V{second ? 2 : 3});
          }).find("bound of feature 0") != std::string::npos);
    const std::vector<float> rows = forward({2, 6, 9}, {}, {});
    CHECK(message_of([&] { forward({2, 3}, {0, 1, 2}, V{2}); }) == "");
    // The third id is one too many: a later call tells of it. Nobody's memory is written beyond its
    // end, and the rest is right.
    const std::vector<float> cut = forward({2, 6, 9}, {0, 1, 3}, V{2});
    CHECK((cut == std::vector<float>(rows.begin(), rows.begin() + 8)));
    CHECK(message_of([&] { embeddings.bad_ids(); }) ==
          "KeyedJagged: feature 0 ('f') has 3 ids, more than its bound");
  });
}

TEST_CASE(
    "collection: one rank's batches with bounds are those without, to the bit: gradients of "
    "weights, no duplicates") {
  using random_layouts::Shape;
  for (unsigned seed = 0; seed < 12; ++seed) {
    Random random(seed);
    const bool weighted = seed % 4 != 3;
    const random_layouts::Model model = random_layouts::random_model(random, weighted);
    const Layout layout = random_layouts::random_layout(
        random, model, 1, seed % 2 == 0 ? Shape::columns : Shape::any);
    Training plain{model, layout, {}, {}, false, true, weighted};
    plain.batches.push_back(random_layouts::random_batch(random, model, 5, false));
    plain.gradients.push_back(
        random_values(random, static_cast<std::size_t>(5 * layout.columns())));
    Training bounded = with_equal_batches(random, plain);
    bounded.equal_batches = false;
    INFO("seed ", seed);
    const auto compare = [](const Trace& found, const Trace& expected) {
      CHECK((found.outputs == expected.outputs));
      CHECK((found.weight_gradients == expected.weight_gradients));
      CHECK((found.tables == expected.tables));
    };
    compare(bounded.run<Cuda, std::int64_t, Sgd>(), plain.run<Cuda, std::int64_t, Sgd>());
    plain.model_parallel = bounded.model_parallel = false;
    plain.chosen.deduplicate = bounded.chosen.deduplicate = true;
    compare(bounded.run<Cuda, std::int64_t, Sgd>(), plain.run<Cuda, std::int64_t, Sgd>());
  }
}

TEST_CASE(
    "collection: wrong offsets of equal batches are told of later; nothing is read or written out "
    "of bounds") {
  const std::vector<TableSpec> tables{{"a", 10, 4}, {"b", 10, 4}};
  const std::vector<std::int64_t> wrong[] = {
      {0, 2, 5, 3, 6}, {0, 2, 5, 1, 6}, {3, 2, 5, 1, 6}, {0, 6, 0, 6, 0}, {0, 1, 1, 2, 99}};
  for (const int ranks : {1, 2})
    for (const bool weighted : {false, true}) {
      const std::vector<FeatureSpec> features{{"f", "a", Pooling::sum, weighted},
                                              {"g", "b", Pooling::sum, weighted}};
      const Layout layout = make_layout(
          {ranks}, tables, features,
          {{0, {0, 10, 0, 4}, 0}, {1, {0, 10, 0, 2}, ranks - 1}, {1, {0, 10, 2, 4}, ranks - 1}});
      run_ranks(ranks, [&](ThreadCommunicator& host) {
        const Cuda backend;
        auto communicator = ThreadRanks<Cuda>::make(host, backend);
        using Comm = ThreadRanks<Cuda>::type;
        LayoutCollection<Widths<4>, RowWiseAdagrad, Cuda, Comm> embeddings(
            communicator, backend, layout, {.equal_batches = true});
        const std::vector<std::int64_t> bounds{4, 4};
        const Array<std::int64_t, Cuda> ids(backend, std::vector<std::int64_t>{1, 2, 3, 4, 5, 6});
        const Array<float, Cuda> weights(backend, std::vector<float>(6, 1.0f)),
            of_weights(backend, std::vector<float>(6)),
            gradient(backend, std::vector<float>(16, 1.0f));
        for (const std::vector<std::int64_t>& numbers : wrong) {
          const Array<std::int64_t, Cuda> offsets(backend, numbers);
          const auto pooled = embeddings.forward(
              KeyedJagged<std::int64_t>{2, 2, ids.span(), offsets.span(), weights.span(), bounds});
          embeddings.backward(pooled, {gradient.data(), 2, 8}, of_weights.span());
          CHECK(message_of([&] { embeddings.bad_ids(); }).starts_with("KeyedJagged: "));
        }
      });
    }
}

TEST_CASE(
    "collection: equal batches of a rank that has no ids; bounds beyond what messages can have "
    "room for") {
  const std::vector<TableSpec> tables{{"a", 10, 4}, {"b", 10, 4}};
  const Layout layout =
      make_layout({2}, tables, {{"f", "a", Pooling::sum, true}, {"g", "b", Pooling::sum, true}},
                  {{0, {0, 10, 0, 4}, 0}, {1, {0, 10, 0, 4}, 1}});
  run_ranks(2, [&](ThreadCommunicator& host) {
    const Cuda backend;
    auto communicator = ThreadRanks<Cuda>::make(host, backend);
    LayoutCollection<Widths<4>, Sgd, Cuda, ThreadRanks<Cuda>::type> embeddings(
        communicator, backend, layout, {.equal_batches = true});
    const std::size_t count = host.rank() == 0 ? 2 : 0;
    const std::vector<std::int64_t> end =
        host.rank() == 0 ? std::vector<std::int64_t>{0, 1, 2} : std::vector<std::int64_t>{0, 0, 0};
    const Array<std::int64_t, Cuda> ids(backend, std::vector<std::int64_t>(count, 3)),
        offsets(backend, end);
    const Array<float, Cuda> weights(backend, std::vector<float>(count, 1.0f)),
        of_weights(backend, std::vector<float>(count)),
        gradient(backend, std::vector<float>(8, 1.0f));
    std::vector<std::int64_t> bounds{4, 4};
    const KeyedJagged<std::int64_t> batch{2, 1, ids.span(), offsets.span(), weights.span(), bounds};
    const auto pooled = embeddings.forward(batch);
    const std::vector<float> rows = read(backend, pooled.values.data, 8);
    embeddings.backward(pooled, {gradient.data(), 1, 8}, of_weights.span());
    if (count != 0) {
      CHECK(read(backend, of_weights.data(), 2)[0] ==
            doctest::Approx(rows[0] + rows[1] + rows[2] + rows[3]));
      CHECK(read(backend, of_weights.data(), 2)[1] ==
            doctest::Approx(rows[4] + rows[5] + rows[6] + rows[7]));
    }
    bounds[1] = std::numeric_limits<std::int64_t>::max();
    CHECK(
        message_of([&] { embeddings.forward(batch); }) ==
        "option equal_batches: the bound of feature 'g' is 9223372036854775807; at most 2^31 - 1");
  });
}

TEST_CASE("collection: more rows of one width than kernels count are refused before any memory") {
  run_ranks(1, [](ThreadCommunicator& host) {
    const Cuda backend;
    auto communicator = ThreadRanks<Cuda>::make(host, backend);
    constexpr std::int64_t half = std::int64_t{1} << 49;
    using Collection = LayoutCollection<Widths<4>, Sgd, Cuda, ThreadRanks<Cuda>::type>;
    CHECK(message_of([&] {
            Collection(communicator, backend,
                       make_layout({1}, {{"a", half, 4}, {"b", half, 4}}, {{"f", "a"}, {"g", "b"}},
                                   {{0, {0, half, 0, 4}, 0}, {1, {0, half, 0, 4}, 0}}),
                       {});
          }) ==
          "1125899906842624 rows of one width on one GPU; it holds less than 2^32 - 1: cut the "
          "tables by rows");
    CHECK(message_of([] { Cuda::before_arena((std::int64_t{1} << 32) - 2); }).empty());
    CHECK_FALSE(message_of([] { Cuda::before_arena((std::int64_t{1} << 32) - 1); }).empty());
  });
}

TEST_CASE(
    "collection: vectors travel encoded; duplicate ids do not travel: of several ranks, with bad "
    "ids, too") {
  for (const unsigned seed : {1u, 2u, 4u, 5u, 7u, 8u, 10u, 11u, 19u, 20u, 23u}) {
    compare_with_host<std::int64_t, Sgd, EncodeWith<Int8, Bf16>>(seed, seed % 2 == 0, seed >= 18,
                                                                 true);
    if (slow_run) break;
    compare_with_host<std::int64_t, Sgd, EncodeWith<Int8, Bf16>>(seed, seed % 2 == 0, seed >= 18,
                                                                 true, {BadIds::zero_vector, true});
  }
}

namespace {

template <class O, class Id>
void compare_accumulations(unsigned seed, int clip, bool forgets) {
  Random random(seed);
  const random_layouts::Model model = random_layouts::random_model(random, true);
  const int ranks = 1 + static_cast<int>(seed % 3);
  const auto shape = static_cast<random_layouts::Shape>(seed / 3 % 4);
  const Layout layout = random_layouts::random_layout(random, model, ranks, shape);
  Training plain = random_training(random, model, layout, false, false);
  plain.accumulates = true;
  plain.clip = clip;
  plain.forgets = forgets;
  plain.model_parallel = false;
  const bool equal = seed % 2 == 1 && std::ssize(plain.batches.front().front()) % ranks == 0;
  const Training training = equal ? with_equal_batches(random, plain) : plain;
  INFO("seed ", seed, ", ranks ", ranks, ", shape ", static_cast<int>(shape), ", clip ", clip);
  const Trace expected = training.run<Host, Id, O>(), found = training.run<Cuda, Id, O>();
  CHECK(nearly(found.outputs, expected.outputs, 2e-5f));
  for (std::size_t t = 0; t < found.tables.size(); ++t)
    CHECK(nearly(found.tables[t], expected.tables[t], 2e-5f));
  if (shape == random_layouts::Shape::replicated) return;
  const Layout one = random_layouts::random_layout(random, model, 1, random_layouts::Shape::whole);
  Training alone{model, one, training.batches, training.gradients, training.one_hot};
  alone.accumulates = true;
  alone.clip = clip;
  alone.forgets = forgets;
  const Trace single = alone.run<Cuda, Id, O>();
  CHECK((found.tables == single.tables));
  CHECK(found.outputs.back() == single.outputs.back());
}

}  // namespace

TEST_CASE(
    "collection: accumulated batches, clipped in every way, with rows that begin anew; what LAMB "
    "measures of rows") {
  for (unsigned seed = 0; seed < 12; seed += slow_run ? 5 : 1) {
    // every way with every number of ranks and shape
    const int clip = static_cast<int>(slow_run ? seed / 5 : (seed + seed / 3) % 3);
    if (seed % 2 == 0)
      compare_accumulations<Lamb, std::int32_t>(seed, clip, seed % 4 == 0);
    else
      compare_accumulations<Sgd, std::int64_t>(seed, clip, seed % 4 == 1);
  }
}

TEST_CASE("collection: 16-bit tables and states, Adam and Adagrad") {
  for (const unsigned seed : {1u, 2u, 5u, 8u, 13u, 20u}) {
    compare_with_host<std::int64_t, RowWiseAdagrad, Storage<BFloat16>>(seed, seed % 2 == 0, false,
                                                                       true);
    compare_with_host<std::int32_t, NarrowStates<Momentum>, Storage<Half>>(
        seed, seed % 2 == 0, true, true, {BadIds::clamp});
    if (slow_run) break;
    compare_with_host<std::int32_t, Adam>(seed, seed % 2 == 0, true, false, {BadIds::wrap});
    compare_with_host<std::int64_t, Adagrad>(seed, seed % 2 == 0, true, false, {BadIds::clamp});
  }
}

TEST_CASE("collection: ids are sorted from lookup on, for the same bits as in the update") {
  using random_layouts::Shape;
  constexpr Shape shapes[] = {Shape::whole, Shape::columns, Shape::any, Shape::replicated};
  for (unsigned seed = 0; seed < 8; seed += slow_run ? 5 : 1) {
    Random random(100 + seed);
    const random_layouts::Model model = random_layouts::random_model(random, seed % 2 == 0);
    const int ranks = 1 + static_cast<int>(seed % 3);
    const Layout layout = random_layouts::random_layout(random, model, ranks, shapes[seed / 2]);
    Training training = random_training(random, model, layout, seed % 2 == 0, true);
    training.chosen.bad_ids = BadIds::zero_vector;
    const Trace ahead = training.run<Cuda, std::int64_t, RowWiseAdagrad>();
    training.chosen.sort_ahead = false;
    CHECK((training.run<Cuda, std::int64_t, RowWiseAdagrad>().tables == ahead.tables));
  }
  // those of one that is looked up alone are not
  const Cuda backend;
  OneRank self{CudaTransfer(backend)};
  LayoutCollection<Widths<4, 8>, RowWiseAdagrad, Cuda, OneRank> embeddings(
      self, backend,
      make_layout({1}, {{"a", 10, 4}, {"b", 6, 8}}, {},
                  {{0, {0, 10, 0, 4}, 0}, {1, {0, 6, 0, 8}, 0}}),
      {});
  const Array<std::int64_t, Cuda> ids(backend, std::vector<std::int64_t>{1, 2, 9, 0, 5, 5});
  const Array<float, Cuda> values(backend, std::vector<float>(36));
  const KeyedJagged<std::int64_t> batch{2, 3, ids.span(), {}, {}};
  const MatrixView<float> output(values.data(), 3, 12);
  decltype(embeddings)::StepState<std::int64_t> step;
  const auto places = [&] {
    std::int64_t all = 0;
    for (std::size_t a = 0; a < 2; ++a) all += step.sorted.of(a).places;
    return all;
  };
  embeddings.route(step, batch);
  CHECK(places() == 0);
  embeddings.lookup(step, output);
  CHECK(places() == 6);
  embeddings.end(step);
  embeddings.evaluate(step, batch, output);
  CHECK(places() == 0);
  // an update that would be refused is left to itself: the lookup goes on
  const Array<std::int64_t, Cuda> offsets(backend, std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6});
  const std::vector<std::int64_t> bounds{std::int64_t{1} << 31, 3};
  const auto pooled = embeddings.forward(
      KeyedJagged<std::int64_t>{2, 3, ids.span(), offsets.span(), {}, bounds}, output);
  CHECK(message_of([&] { embeddings.backward(pooled, output); }).find("at most") !=
        std::string::npos);
}

TEST_CASE("bad ids: every policy") {
  const Cuda backend;
  const Array<std::int32_t, Cuda> ids(backend, std::vector<std::int32_t>{3, -4, 10, 27, 5, 9});
  const std::vector<op::AdmitIds<std::int32_t>::Job> jobs{{10, 1}, {6, 0}};
  const std::pair<BadIds, std::vector<std::int32_t>> policies[] = {
      {BadIds::throw_error, {3, -1, -1, -1, 5, -1}},
      {BadIds::zero_vector, {3, -1, -1, -1, 5, -1}},
      {BadIds::clamp, {3, 0, 9, 5, 5, 5}},
      {BadIds::wrap, {3, 6, 0, 3, 5, 3}}};
  for (const auto& [policy, expected] : policies)
    in_every_order([&, &expected = expected, policy = policy] {
      const Array<std::int32_t, Cuda> admitted(backend, std::vector<std::int32_t>(6));
      const Array<unsigned long long, Cuda> counts(backend, std::vector<unsigned long long>(2));
      const Array<op::InputFault, Cuda> fault(backend, std::vector<op::InputFault>(1));
      op::run<op::AdmitIds<std::int32_t>>(backend, {.ids = ids.data(),
                                                    .count = 6,
                                                    .batch = 3,
                                                    .jobs = jobs,
                                                    .policy = policy,
                                                    .admitted = admitted.data(),
                                                    .bad_counts = counts.data(),
                                                    .fault = fault.data()});
      CHECK((admitted.read() == expected));
      CHECK((counts.read() == std::vector<unsigned long long>{2, 2}));
      const op::InputFault found = fault.read()[0];
      CHECK(found.kind ==
            (policy == BadIds::throw_error ? op::InputFault::bad_id : op::InputFault::none));
      if (policy == BadIds::throw_error)
        CHECK((found.feature == 0 && found.sample == 1 && found.value == -4));
    });
}

TEST_CASE(
    "collection: throw_error names what is wrong, at once where the host waits anyway, else later; "
    "nothing is read out of bounds") {
  const Cuda backend;
  OneRank self{CudaTransfer(backend)};
  // The host waits for the sizes of bags where tables have several widths.
  using TwoWidths =
      EmbeddingCollection<Plan<TableWise<Table<"a", 10, 4>>, TableWise<Table<"b", 6, 8>>>, Sgd,
                          Cuda, OneRank>;
  const auto check = [&]<class Collection>(std::type_identity<Collection>, bool waits) {
    const auto says = [&](std::vector<std::int64_t> ids, std::vector<std::int64_t> offsets,
                          const std::string& what) {
      Collection e{self, backend, {}};
      const Array<std::int64_t, Cuda> device_ids(backend, ids), device_offsets(backend, offsets);
      const Array<float, Cuda> gradient(backend, std::vector<float>(24, 0.5f));
      const KeyedJagged<std::int64_t> batch{2, 2, device_ids.span(), device_offsets.span(), {}};
      const auto step = [&] {
        const auto pooled = e.forward(batch);
        e.backward(pooled, {gradient.data(), 2, pooled.values.columns});
        backend.synchronize();
      };
      if (!waits) step();
      const std::string message = message_of(step);
      CAPTURE(message);
      CHECK(message.find(what) != std::string::npos);
      CHECK(message.empty() == what.empty());
    };
    says({1, 2, 10, 3}, {0, 1, 3, 3, 4},
         "feature 'a', sample 1: id 10 is outside its table of 10 rows");
    says({1, 2, 9, 3, -7}, {0, 1, 3, 3, 5}, "feature 'b', sample 1: id -7");
    says({1, 2, 9, 3}, {0, 3, 2, 2, 4}, "go backwards at feature 0 ('a'), sample 1: 2 after 3");
    says({1, 2, 9, 3}, {1, 1, 2, 2, 4}, "first offset must be 0, is 1");
    says({1, 2, 9, 3}, {0, 1, 2, 2, 5}, "last offset is 5 but there are 4 ids");
    says({1, 2, 5, 3}, {0, 1, 2, 2, 4}, "");
  };
  check(std::type_identity<TwoWidths>{}, true);
  check(std::type_identity<SmallCollection>{}, false);

  SmallCollection e{self, backend, {}};
  const Array<std::int32_t, Cuda> ids(backend, std::vector<std::int32_t>{1, 11, 2, 3}),
      good(backend, std::vector<std::int32_t>{1, 9, 2, 3});
  const auto pooled = e.forward(KeyedJagged<std::int32_t>{2, 2, ids.span(), {}, {}});
  CHECK((read(backend, pooled.values.row(1), 4) == std::vector<float>(4, 0.0f)));
  CHECK(message_of([&] { e.bad_ids(); }).find("feature 'a', sample 1: id 11") != std::string::npos);
  e.forward(KeyedJagged<std::int32_t>{2, 2, good.span(), {}, {}});
  CHECK(e.bad_ids()[0] == 1);
  CHECK(e.bad_ids()[1] == 0);
}

TEST_CASE("collection: batches with bounds; a step of one rank without the host waiting") {
  const Cuda backend;
  OneRank self{CudaTransfer(backend)};
  const Array<std::int64_t, Cuda> ids(backend, std::vector<std::int64_t>{1, 2, 9, 3, 5}),
      offsets(backend, std::vector<std::int64_t>{0, 1, 3, 3, 5});
  const Array<float, Cuda> gradient(backend, std::vector<float>(16, 0.5f));
  const std::vector<std::int64_t> bounds{4, 7};
  std::vector<std::vector<float>> tables[2];
  for (const bool bounded : {false, true}) {
    SmallCollection e{self, backend, {.learning_rate = 0.5f, .seed = 3}};
    KeyedJagged<std::int64_t> batch{2, 2, ids.span(), offsets.span(), {}};
    if (bounded) batch.bounds = bounds;
    for (int step = 0; step < 2; ++step) {
      const auto pooled = e.forward(batch);
      e.backward(pooled, {gradient.data(), 2, 8});
    }
    for (const char* name : {"a", "b"}) {
      std::vector<float> table(name[0] == 'a' ? 40 : 24);
      e.tables().get(name, {table.data(), std::ssize(table) / 4, 4});
      tables[bounded].push_back(table);
    }
  }
  CHECK((tables[0] == tables[1]));
}

TEST_CASE(
    "collection: ids may have room for more where there are bounds; more ids than a bound are told "
    "of, and nothing else is touched") {
  under_every_deferral([] {
    const Cuda backend;
    OneRank self{CudaTransfer(backend)};
    const std::vector<std::int64_t> host_ids{1, 2, 9, 3, 5, -7, 1000}, bounds{4, 7},
        low_bounds{2, 1};
    const Array<std::int64_t, Cuda> ids(backend, host_ids),
        exact(backend, std::span(host_ids).first(5)),
        offsets(backend, std::vector<std::int64_t>{0, 1, 3, 3, 5}),
        too_far(backend, std::vector<std::int64_t>{0, 1, 3, 3, 9});
    const Array<float, Cuda> gradient(backend, std::vector<float>(16, 0.5f));
    const auto tables_after = [&](std::span<const std::int64_t> given) {
      SmallCollection e{self, backend, {.learning_rate = 0.5f, .seed = 3}};
      KeyedJagged<std::int64_t> batch{2, 2, given, offsets.span(), {}};
      batch.bounds = bounds;
      e.backward(e.forward(batch), {gradient.data(), 2, 8});
      CHECK(e.bad_ids()[0] + e.bad_ids()[1] == 0);
      std::vector<float> tables(64);
      e.tables().get("a", {tables.data(), 10, 4});
      e.tables().get("b", {tables.data() + 40, 6, 4});
      return tables;
    };
    CHECK((tables_after(ids.span()) == tables_after(exact.span())));

    SmallCollection e{self, backend, {}};
    KeyedJagged<std::int64_t> batch{2, 2, ids.span(), offsets.span(), {}};
    batch.bounds = low_bounds;
    e.backward(e.forward(batch), {gradient.data(), 2, 8});
    CHECK(message_of([&] { e.bad_ids(); }) ==
          "KeyedJagged: feature 0 ('a') has 3 ids, more than its bound");
    const std::vector<std::int64_t> negative{4, -1};
    batch.bounds = negative;
    CHECK(message_of([&] { e.forward(batch); }) ==
          "KeyedJagged: bounds must not be negative, one is -1");
    batch.bounds = bounds;
    batch.offsets = too_far.span();
    e.backward(e.forward(batch), {gradient.data(), 2, 8});
    CHECK(message_of([&] { e.bad_ids(); }) ==
          "KeyedJagged: the last offset is 9 but there are 7 ids");
  });
}

TEST_CASE("collection: it may end while what it reports is on its way to the host") {
  under_every_deferral([] {
    const Cuda backend;
    OneRank self{CudaTransfer(backend)};
    const Array<std::int32_t, Cuda> ids(backend, std::vector<std::int32_t>{1, 11, 2, 3});
    SmallCollection e{self, backend, {}};
    e.forward(KeyedJagged<std::int32_t>{2, 2, ids.span(), {}, {}});
  });
}

TEST_CASE("thread ranks reduce device memory in the order of ranks") {
  run_ranks(3, [](ThreadCommunicator& host) {
    const Cuda backend;
    auto communicator = ThreadRanks<Cuda>::make(host, backend);
    std::vector<float> values;
    for (int i = 0; i < 300; ++i)
      values.push_back(static_cast<float>(i % 7) * 0.1f + static_cast<float>(host.rank()) * 1e-3f);
    const Array<float, Cuda> device(backend, values);
    std::vector<float> expected = values;
    host.all_reduce(std::span(expected));
    communicator.all_reduce(device.span());
    CHECK((read(backend, device.data(), values.size()) == expected));
    double loss = host.rank();  // host memory goes the host's way
    communicator.all_reduce(std::span(&loss, 1), Reduction::max);
    CHECK(loss == 2);
    const Array<float, Cuda> part(backend, std::vector<float>(100));
    const std::vector<std::size_t> counts(3, 100);
    communicator.reduce_scatter(std::span<const float>(device.span()), part.span(), counts);
    CHECK(read(backend, part.data(), 1)[0] ==
          doctest::Approx(3 * expected[static_cast<std::size_t>(host.rank()) * 100]));
    communicator.broadcast(part.span(), 1);
    CHECK(read(backend, part.data(), 1)[0] == doctest::Approx(3 * expected[100]));
  });
}

TEST_CASE("batches that are routed ahead, on another stream, give the bits of batches in turn") {
  const random_layouts::Model model{{{"a", 40, 16}, {"b", 30, 7}},
                                    {{"f", "a"}, {"g", "b"}, {"h", "a", Pooling::sqrtn}}};
  const Layout layout = make_layout({2}, model.tables, model.features,
                                    {{0, {0, 15, 0, 16}, 0},
                                     {0, {15, 40, 0, 16}, 1},
                                     {1, {0, 30, 0, 3}, 1},
                                     {1, {0, 30, 3, 7}, 0}});
  constexpr int steps = 4, samples = 6;
  under_every_deferral([&] {
    std::vector<float> results[2];
    for (const bool ahead : {false, true}) {
      ThreadGroup routing_group(2);
      std::vector<float> outputs[2], tables[2];
      run_ranks(2, [&](ThreadCommunicator& host) {
        const gpu::Stream stream, routing_stream;
        const Cuda backend({.stream = stream.get()}), routing({.stream = routing_stream.get()});
        BasicThreadCommunicator<CudaTransfer> communicator(host.group(), host.rank(),
                                                           CudaTransfer(backend)),
            second(routing_group, host.rank(), CudaTransfer(routing));
        using E = LayoutCollection<Widths<16>, RowWiseAdagrad, Cuda,
                                   BasicThreadCommunicator<CudaTransfer>>;
        E embeddings(communicator, backend, layout, {.learning_rate = 0.125f, .seed = 7});
        std::vector<Array<std::int32_t, Cuda>> ids;
        for (int s = 0; s < steps; ++s) {
          std::vector<std::int32_t> values;
          for (int i = 0; i < 3 * samples; ++i)
            values.push_back((i * 11 + s * 5 + host.rank() * 3) % 30);
          ids.emplace_back(backend, values);
        }
        const auto batch = [&](int s) {
          return KeyedJagged<std::int32_t>{
              3, samples, ids[static_cast<std::size_t>(s)].span(), {}, {}};
        };
        const Array<float, Cuda> output(
            backend, std::vector<float>(static_cast<std::size_t>(samples * layout.columns())));
        const Array<float, Cuda> gradient(
            backend,
            std::vector<float>(static_cast<std::size_t>(samples * layout.columns()), 0.5f));
        const MatrixView<float> out(output.data(), samples, layout.columns());
        const auto one = [&](const auto& pooled) {
          const std::vector<float> got = output.read();
          outputs[host.rank()].insert(outputs[host.rank()].end(), got.begin(), got.end());
          embeddings.backward(pooled, {gradient.data(), samples, layout.columns()});
        };
        if (ahead) {
          RouteAhead<E, std::int32_t, BasicThreadCommunicator<CudaTransfer>, Cuda> route(
              embeddings, second, routing);
          route.start(batch(0));
          for (int s = 0; s < steps; ++s) {
            const auto pooled = embeddings.forward_routed(route.take(), out);
            if (s + 1 < steps) route.start(batch(s + 1));
            one(pooled);
          }
        } else {
          for (int s = 0; s < steps; ++s) one(embeddings.forward(batch(s), out));
        }
        tables[host.rank()].assign(40 * 16, 0.0f);
        embeddings.tables().get("a", {tables[host.rank()].data(), 40, 16});
      });
      for (int r = 0; r < 2; ++r)
        for (const std::vector<float>* part : {&outputs[r], &tables[r]})
          results[ahead].insert(results[ahead].end(), part->begin(), part->end());
    }
    CHECK(results[0].size() ==
          2 * (steps * samples * static_cast<std::size_t>(layout.columns()) + 640));
    CHECK((results[0] == results[1]));
  });
}

TEST_CASE("tables OnHost: weights and states in the host's memory, the others on the device") {
  using Far = Table<"far", 90, 16>;
  using Near = Table<"near", 30, 16>;
  using Cut = Table<"cut", 50, 16>;
  using Embeddings =
      EmbeddingCollection<Plan<OnHost<TableWise<Far>>, TableWise<Near>, OnHost<ColumnWise<2, Cut>>>,
                          RowWiseAdagrad, Cuda, BasicSelfCommunicator<CudaTransfer>>;
  const Cuda backend;
  BasicSelfCommunicator<CudaTransfer> communicator{CudaTransfer(backend)};
  const Embeddings embeddings(communicator, backend, {});
  const auto on_device = [](const void* p) {
    cudaPointerAttributes attributes{};
    gpu::check(cudaPointerGetAttributes(&attributes, p), "asking whose memory it is");
    return attributes.type == cudaMemoryTypeDevice;
  };
  std::vector<int> seen(3);
  for (const auto& shard : embeddings.tables().local_shards()) {
    ++seen[static_cast<std::size_t>(shard.table)];
    CHECK(on_device(shard.weights.data) == (shard.table == 1));
    CHECK(on_device(shard.states[0].data) == (shard.table == 1));
  }
  CHECK(seen == std::vector<int>{1, 1, 2});
}
