// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Random tables cut into random rectangles on random ranks, random bags: against the definitions in
// double, and bit for bit between layouts where the design promises it.
#include <tessera/tessera.hpp>

#include <support/random_batches.hpp>
#include <support/random_layouts.hpp>
#include <support/reference_embeddings.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

using namespace tessera;
using namespace random_layouts;

namespace {

struct Result {
  std::vector<float> output;               // of the last step, all ranks
  std::vector<float> weight_gradients;     // of the last step, by feature, sample, id
  std::vector<std::vector<float>> tables;  // at the end
};

struct Run {
  const Model& model;
  const Layout& layout;
  std::vector<reference::Batch> batches;
  std::vector<std::vector<float>> gradients;
  bool one_hot = false;
  bool model_parallel = false;
  int threads = 1;

  template <class Id, class O>
  Result go() const {
    Result result;
    for (const TableSpec& t : model.tables)
      result.tables.emplace_back(static_cast<std::size_t>(t.rows * t.width));
    const std::int64_t samples = static_cast<std::int64_t>(batches.front().front().size());
    result.output.resize(static_cast<std::size_t>(samples * layout.columns()));
    std::vector<std::vector<std::vector<float>>> grad_weights(
        model.features.size(), std::vector<std::vector<float>>(static_cast<std::size_t>(samples)));
    run_ranks(layout.ranks(), [&](ThreadCommunicator& communicator) {
      LayoutCollection<Widths<4, 16>, O, Host, ThreadCommunicator> embeddings{
          communicator, Host{{.threads = threads}}, layout, {.learning_rate = 0.125f, .seed = 7}};
      const std::int64_t begin = even_cut(samples, layout.ranks(), communicator.rank());
      const std::int64_t end = even_cut(samples, layout.ranks(), communicator.rank() + 1);
      std::vector<int> all;
      for (std::size_t f = 0; f < model.features.size(); ++f) all.push_back(static_cast<int>(f));
      const std::vector<int> which(model_parallel
                                       ? std::vector<int>(embeddings.local_features().begin(),
                                                          embeddings.local_features().end())
                                       : all);
      const std::int64_t columns = layout.columns();
      for (std::size_t step = 0; step < batches.size(); ++step) {
        const Input<Id> input(batches[step], which, model_parallel ? 0 : begin,
                              model_parallel ? samples : end, one_hot);
        const auto pooled = model_parallel ? embeddings.forward_model_parallel(input.view())
                                           : embeddings.forward(input.view());
        std::copy_n(pooled.values.data, (end - begin) * columns,
                    result.output.data() + begin * columns);
        std::vector<float> of_weights(input.ids.size());
        embeddings.backward(
            pooled, {gradients[step].data() + begin * columns, end - begin, columns}, of_weights);
        for (int rank = 0; rank < layout.ranks(); ++rank) {
          if (rank == communicator.rank()) {
            std::size_t i = 0;
            for (const int f : which)
              for (std::int64_t s = model_parallel ? 0 : begin;
                   s < (model_parallel ? samples : end); ++s) {
                auto& sum = grad_weights[f][s];
                sum.resize(step == 0 || sum.size() != batches[step][f][s].ids.size()
                               ? batches[step][f][s].ids.size()
                               : sum.size());
                for (float& x : sum)
                  x = (model_parallel && step + 1 == batches.size() ? x : 0) + of_weights[i++];
              }
          }
          communicator.barrier();
        }
        if (model_parallel && step + 2 == batches.size()) {
          if (communicator.rank() == 0)
            for (auto& of_feature : grad_weights)
              for (auto& bag : of_feature) bag.clear();
          communicator.barrier();
        }
      }
      for (int rank = 0; rank < layout.ranks(); ++rank) {
        if (rank == communicator.rank())
          for (std::size_t t = 0; t < model.tables.size(); ++t)
            embeddings.tables().get(
                model.tables[t].name,
                {result.tables[t].data(), model.tables[t].rows, model.tables[t].width});
        communicator.barrier();
      }
    });
    for (const auto& of_feature : grad_weights)
      for (const auto& bag : of_feature)
        result.weight_gradients.insert(result.weight_gradients.end(), bag.begin(), bag.end());
    return result;
  }
};

/// The tables' first values, from a collection that holds all of them.
Result initial(const Model& model) {
  const Layout whole = [&] {
    std::vector<Shard> shards;
    for (std::size_t t = 0; t < model.tables.size(); ++t)
      shards.push_back(
          {static_cast<int>(t), {0, model.tables[t].rows, 0, model.tables[t].width}, 0});
    return make_layout({1}, model.tables, model.features, shards);
  }();
  Result result;
  SelfCommunicator self;
  LayoutCollection<Widths<16>, Sgd, Host, SelfCommunicator> embeddings{
      self, Host{}, whole, {.seed = 7}};
  for (const TableSpec& t : model.tables) {
    result.tables.emplace_back(static_cast<std::size_t>(t.rows * t.width));
    embeddings.tables().get(t.name, {result.tables.back().data(), t.rows, t.width});
  }
  return result;
}

bool close(const std::vector<float>& found, const std::vector<double>& expected) {
  if (found.size() != expected.size()) return false;
  for (std::size_t i = 0; i < found.size(); ++i)
    if (!(std::abs(found[i] - expected[i]) <= 2e-5 + 1e-4 * std::abs(expected[i]))) return false;
  return true;
}
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}
/// Equal as numbers; the two zeros are one.
bool same_values(const std::vector<float>& a, const std::vector<float>& b) { return a == b; }

struct DecayedL2 : RowWiseAdagradL2 {
  constexpr DecayedL2() { weight_decay = static_cast<float>(reference::l2_decay); }
};

template <class O>
void check(reference::Rule rule, unsigned seed, bool weights) {
  Random random(seed);
  const Model model = random_model(random, weights);
  const int samples = pick(random, 1, 13);
  const bool one_hot = pick(random, 0, 3) == 0;
  std::vector<reference::Batch> batches;
  std::vector<std::vector<float>> gradients;
  reference::Embeddings expected(model.tables, model.features, rule, 0.125);
  const Result start = initial(model);
  for (std::size_t t = 0; t < model.tables.size(); ++t)
    std::copy(start.tables[t].begin(), start.tables[t].end(),
              expected.table(model.tables[t].name).weights.begin());
  std::vector<double> output, weight_gradients;
  for (int step = 0; step < 3; ++step) {
    batches.push_back(random_batch(random, model, samples, one_hot));
    auto& gradient = gradients.emplace_back(static_cast<std::size_t>(samples * expected.columns()));
    for (float& g : gradient) g = static_cast<float>(pick(random, -1000, 1000)) / 1000;
    output = expected.forward(batches.back());
    weight_gradients.clear();
    for (std::size_t f = 0; f < model.features.size(); ++f)
      for (int s = 0; s < samples; ++s)
        for (const double g :
             expected.weight_gradient(batches.back(), gradient, f, static_cast<std::size_t>(s)))
          weight_gradients.push_back(model.features[f].weighted ? g : 0.0);
    expected.backward(batches.back(), gradient);
  }
  const Layout one = random_layout(random, model, 1, Shape::whole);
  const Result base = Run{model, one, batches, gradients, one_hot}.template go<std::int64_t, O>();
  for (const Shape shape : {Shape::whole, Shape::columns, Shape::any, Shape::replicated})
    for (const int ranks : {1, 2, 3, 5}) {
      const Layout layout = random_layout(random, model, ranks, shape);
      REQUIRE_MESSAGE(layout.fault.ok(), describe(layout.fault));
      const bool model_parallel = pick(random, 0, 1) == 1;
      const Run run{model, layout, batches, gradients, one_hot, model_parallel, pick(random, 1, 2)};
      const Result result = std::is_same_v<O, Sgd> && pick(random, 0, 1)
                                ? run.template go<std::int32_t, Sgd>()
                                : run.template go<std::int64_t, O>();
      INFO("seed " << seed << ", shape " << static_cast<int>(shape) << ", ranks " << ranks
                   << ", model parallel " << model_parallel);
      CHECK(close(result.output, output));
      CHECK(close(result.weight_gradients, weight_gradients));
      for (std::size_t t = 0; t < model.tables.size(); ++t) {
        CHECK(close(result.tables[t], expected.table(model.tables[t].name).weights));
        if (shape != Shape::replicated) CHECK(same_bits(result.tables[t], base.tables[t]));
      }
      if (shape != Shape::replicated &&
          (one_hot || shape == Shape::whole || shape == Shape::columns))
        CHECK(same_values(result.output, base.output));
    }
}

}  // namespace

TEST_CASE("SGD: any layout gives the definitions' answer") {
  for (unsigned seed = 0; seed < 16; ++seed) check<Sgd>(reference::Rule::sgd, seed, seed % 3 == 0);
}
TEST_CASE("Adagrad: any layout gives the definitions' answer") {
  for (unsigned seed = 100; seed < 108; ++seed)
    check<Adagrad>(reference::Rule::adagrad, seed, seed % 3 == 0);
}
TEST_CASE(
    "row-wise Adagrad: any layout gives the definitions' answer, also where columns are cut") {
  for (unsigned seed = 200; seed < 216; ++seed)
    check<RowWiseAdagrad>(reference::Rule::rowwise_adagrad, seed, seed % 3 == 0);
}
TEST_CASE("what optimizers measure of whole rows is the same where columns are cut") {
  for (unsigned seed = 400; seed < 408; ++seed)
    check<Lamb>(reference::Rule::lamb, seed, seed % 3 == 0);
  for (unsigned seed = 500; seed < 504; ++seed)
    check<DecayedL2>(reference::Rule::rowwise_adagrad_l2, seed, seed % 3 == 0);
}
TEST_CASE("Adam: any layout gives the definitions' answer") {
  for (unsigned seed = 300; seed < 308; ++seed)
    check<Adam>(reference::Rule::adam, seed, seed % 3 == 0);
}
