// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Random tables cut into random rectangles on random ranks, random bags: against the definitions in
// double, and bit for bit between layouts where the design promises it.
#include <tessera/planner/planned_policy.hpp>
#include <tessera/tessera.hpp>

#include <support/random_batches.hpp>
#include <support/random_layouts.hpp>
#include <support/reference_embeddings.hpp>
#include <support/same_bits.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
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
/// Equal as numbers; the two zeros are one.
bool same_values(const std::vector<float>& a, const std::vector<float>& b) { return a == b; }

struct DecayedL2 : RowWiseAdagradL2 {
  constexpr DecayedL2() { weight_decay = static_cast<float>(reference::l2_decay); }
};

/// One optimizer step from several batches: the tables, the norm, and how often `apply` talks.
template <class O, class Id, class Clip>
std::vector<std::vector<float>> accumulate(const Run& run, const Clip& clip, double& norm,
                                           std::array<std::uint64_t, 2>* calls = nullptr) {
  std::vector<std::vector<float>> tables;
  for (const TableSpec& t : run.model.tables)
    tables.emplace_back(static_cast<std::size_t>(t.rows * t.width));
  run_ranks(run.layout.ranks(), [&](ThreadCommunicator& threads) {
    const int ranks = run.layout.ranks(), rank = threads.rank();
    CountingCommunicator<ThreadCommunicator> communicator(threads);
    LayoutCollection<Widths<4, 16>, O, Host, CountingCommunicator<ThreadCommunicator>> embeddings{
        communicator, Host{}, run.layout, {.learning_rate = 0.125f, .seed = 7}};
    std::vector<int> all;
    for (std::size_t f = 0; f < run.model.features.size(); ++f) all.push_back(static_cast<int>(f));
    for (std::size_t k = 0; k < run.batches.size(); ++k) {
      const auto samples = std::ssize(run.batches[k].front());
      const std::int64_t begin = even_cut(samples, ranks, rank),
                         end = even_cut(samples, ranks, rank + 1), columns = run.layout.columns();
      const Input<Id> input(run.batches[k], all, begin, end, run.one_hot);
      embeddings.accumulate(embeddings.forward(input.view()),
                            {run.gradients[k].data() + begin * columns, end - begin, columns});
    }
    communicator.reset();
    const double found = embeddings.apply(clip);
    if (rank == 0) norm = found;
    if (rank == 0 && calls != nullptr)
      *calls = {communicator.traffic(Collective::all_reduce).calls, communicator.total().calls};
    for (int turn = 0; turn < ranks; ++turn) {
      if (turn == rank)
        for (std::size_t t = 0; t < tables.size(); ++t)
          embeddings.tables().get(
              run.model.tables[t].name,
              {tables[t].data(), run.model.tables[t].rows, run.model.tables[t].width});
      communicator.barrier();
    }
  });
  return tables;
}

/// Batches one after another as one.
Run joined(const Run& run, const Layout& layout) {
  Run whole{run.model, layout, {reference::Batch(run.model.features.size())}, {{}}, run.one_hot};
  for (const reference::Batch& batch : run.batches)
    for (std::size_t f = 0; f < batch.size(); ++f)
      whole.batches[0][f].insert(whole.batches[0][f].end(), batch[f].begin(), batch[f].end());
  for (const std::vector<float>& gradient : run.gradients)
    whole.gradients[0].insert(whole.gradients[0].end(), gradient.begin(), gradient.end());
  return whole;
}

template <class O>
void check_accumulation(unsigned seed) {
  Random random(seed);
  Model model = random_model(random, true);
  if (seed % 2 != 0)
    for (TableSpec& table : model.tables) table.width = 8;  // all may meet in one arena
  // a feature for each table
  std::erase_if(model.features, [&](const FeatureSpec& feature) {
    return std::ranges::find(model.features, feature.table, &FeatureSpec::table)->name !=
           feature.name;
  });
  std::erase_if(model.tables, [&](const TableSpec& table) {
    return std::ranges::find(model.features, table.name, &FeatureSpec::table) ==
           model.features.end();
  });
  const Layout one = random_layout(random, model, 1, Shape::whole);
  Run run{model, one, {}, {}, pick(random, 0, 1) == 0};
  for (const int samples : {7, 1, 12}) {
    run.batches.push_back(random_batch(random, model, samples, run.one_hot));
    auto& gradient = run.gradients.emplace_back(static_cast<std::size_t>(samples * one.columns()));
    for (float& g : gradient) g = static_cast<float>(pick(random, -1000, 1000)) / 1000;
  }
  const Result whole = joined(run, one).template go<std::int64_t, O>();
  double norm = 0, clipped_norm = 0, none = 0;
  const auto clipped = accumulate<O, std::int64_t>(run, ClipByGlobalNorm{0.5f}, norm);
  const auto row_clipped = accumulate<O, std::int64_t>(run, ClipByRowNorm{0.75f}, none);
  CHECK(row_clipped != clipped);
  for (const Shape shape :
       {Shape::whole, Shape::columns, Shape::any, Shape::replicated, Shape::copied_halves})
    for (const int ranks : {1, 2, 3, 4}) {
      const Layout layout = random_layout(random, model, ranks, shape);
      const Run cut{model, layout, run.batches, run.gradients, run.one_hot};
      INFO("seed " << seed << ", shape " << static_cast<int>(shape) << ", ranks " << ranks);
      std::array<std::uint64_t, 2> unclipped_calls{}, clipped_calls{};
      const auto found = accumulate<O, std::int32_t>(cut, KeepGradients{}, none, &unclipped_calls);
      const auto found_clipped =
          accumulate<O, std::int64_t>(cut, ClipByGlobalNorm{0.5f}, clipped_norm, &clipped_calls);
      // ranks compare rates; no exchange for what no table needs
      if (shape == Shape::whole) CHECK(unclipped_calls[1] == (ranks > 1 ? 1 : 0));
      // the norm takes one all-reduce, and nothing else
      CHECK(unclipped_calls[0] == 0);
      CHECK(clipped_calls[0] == (ranks > 1 ? 1 : 0));
      CHECK(clipped_calls[1] - clipped_calls[0] == unclipped_calls[1]);
      const auto found_rows = accumulate<O, std::int32_t>(cut, ClipByRowNorm{0.75f}, none);
      CHECK(std::isnan(none));
      const bool exact =
          (shape != Shape::replicated && shape != Shape::copied_halves) || ranks == 1;
      if (exact) CHECK(clipped_norm == norm);
      CHECK(clipped_norm == doctest::Approx(norm));
      for (std::size_t t = 0; t < model.tables.size(); ++t) {
        const auto near = [&](const std::vector<float>& a, const std::vector<float>& b) {
          return close(a, std::vector<double>(b.begin(), b.end()));
        };
        CHECK((exact ? same_bits(found[t], whole.tables[t]) : near(found[t], whole.tables[t])));
        CHECK(
            (exact ? same_bits(found_clipped[t], clipped[t]) : near(found_clipped[t], clipped[t])));
        CHECK((exact ? same_bits(found_rows[t], row_clipped[t])
                     : near(found_rows[t], row_clipped[t])));
      }
    }
}

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

/// All tables cut by a policy that leaves no rank open.
Layout cut_by(const Model& model, int ranks, const detail::PlannedPolicy& policy) {
  std::vector<Shard> shards;
  for (std::size_t t = 0; t < model.tables.size(); ++t)
    for (int i = 0; i < policy.count(model.tables[t], {ranks}); ++i)
      if (const ShardRequest part = policy.shard(model.tables[t], {ranks}, i);
          !part.rectangle.empty())
        shards.push_back({static_cast<int>(t), part.rectangle,
                          part.place.kind == Place::Kind::every ? every_rank : part.place.index});
  return make_layout({ranks}, model.tables, model.features, shards);
}

/// Copied rows have the bits of replicated tables, the others those of tables cut by rows.
template <class O>
void check_hot_rows(unsigned seed) {
  Random random(seed);
  const Model model = random_model(random, seed % 2 == 0);
  const int samples = pick(random, 1, 13);
  const bool one_hot = pick(random, 0, 1) == 0;
  std::vector<reference::Batch> batches;
  std::vector<std::vector<float>> gradients;
  const Layout whole = random_layout(random, model, 1, Shape::whole);
  for (int step = 0; step < 3; ++step) {
    batches.push_back(random_batch(random, model, samples, one_hot));
    auto& gradient = gradients.emplace_back(static_cast<std::size_t>(samples * whole.columns()));
    for (float& g : gradient) g = static_cast<float>(pick(random, -1000, 1000)) / 1000;
  }
  const auto go = [&](const Layout& layout) {
    REQUIRE_MESSAGE(layout.fault.ok(), describe(layout.fault));
    return Run{model, layout, batches, gradients, one_hot}.template go<std::int64_t, O>();
  };
  const Result base = go(whole);
  for (int ranks = 1; ranks <= 8; ++ranks) {
    const Result copied = go(cut_by(model, ranks, planned_policy<Replicated<>>("")));
    for (const auto& [number, policy] :
         {std::pair(1, planned_policy<HotRows<1, RowWise<Interleaved>>>("")),
          std::pair(3, planned_policy<HotRows<3, RowWise<>>>("")),
          std::pair(20, planned_policy<HotRows<20, RowWise<Interleaved>>>(""))}) {
      const int hot = number;  // a lambda of clang 14 takes no structured binding
      INFO("seed " << seed << ", ranks " << ranks << ", hot rows " << hot);
      const Result result = go(cut_by(model, ranks, policy));
      CHECK(close(result.output, {base.output.begin(), base.output.end()}));
      CHECK(close(result.weight_gradients,
                  {base.weight_gradients.begin(), base.weight_gradients.end()}));
      for (std::size_t i = 0; i < result.output.size() && one_hot; ++i)
        if (result.output[i] != copied.output[i]) CHECK(result.output[i] == base.output[i]);
      for (std::size_t t = 0; t < model.tables.size(); ++t) {
        const auto edge = std::min<std::int64_t>(hot, model.tables[t].rows) * model.tables[t].width;
        const auto parts = [&](const Result& of) {
          const auto begin = of.tables[t].begin();
          return std::pair(std::vector(begin, begin + edge),
                           std::vector(begin + edge, of.tables[t].end()));
        };
        CHECK(same_bits(parts(result).first, parts(copied).first));
        CHECK(same_bits(parts(result).second, parts(base).second));
      }
    }
  }
}

}  // namespace

TEST_CASE(
    "hot rows: copies are those of replicated tables, the others those of tables cut by rows") {
  for (unsigned seed = 700; seed < 708; ++seed) check_hot_rows<RowWiseAdagrad>(seed);
  check_hot_rows<Sgd>(708);
}

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
TEST_CASE("accumulated batches are one batch of all of them, and their norm has the same bits") {
  for (unsigned seed = 600; seed < 606; ++seed) check_accumulation<Lamb>(seed);
  check_accumulation<Sgd>(607);
}
TEST_CASE("accumulation: columns of one rank beside columns that all ranks have copies of") {
  const Model model{{{"t", 40, 8}, {"other", 50, 8}}, {{"f", "t"}, {"g", "other"}}};
  Random random(9);
  const Layout one = make_layout({1}, model.tables, model.features,
                                 {{0, {0, 40, 0, 8}, 0}, {1, {0, 50, 0, 8}, 0}});
  Run whole{model, one, {}, {}};
  for (const int samples : {9, 20, 3, 14}) {
    whole.batches.push_back(random_batch(random, model, samples, false));
    auto& gradient = whole.gradients.emplace_back(static_cast<std::size_t>(samples * 16));
    // whole numbers: copies add them up rank by rank
    for (float& g : gradient) g = static_cast<float>(pick(random, -8, 8));
  }
  for (const int ranks : {1, 2, 3}) {
    CAPTURE(ranks);
    // halves of the other table lie in arenas with and without halves of the first
    const Layout layout = make_layout({ranks}, model.tables, model.features,
                                      {{0, {0, 40, 0, 4}, every_rank},
                                       {0, {0, 40, 4, 8}, ranks - 1},
                                       {1, {0, 50, 0, 4}, 0},
                                       {1, {0, 50, 4, 8}, ranks - 1}});
    const Run cut{model, layout, whole.batches, whole.gradients};
    double norm = 0, cut_norm = 0, none = 0;
    const auto expected = accumulate<Lamb, std::int64_t>(whole, ClipByGlobalNorm{0.5f}, norm);
    CHECK(accumulate<Lamb, std::int32_t>(cut, ClipByGlobalNorm{0.5f}, cut_norm) == expected);
    CHECK(cut_norm == norm);
    CHECK(accumulate<Lamb, std::int64_t>(cut, ClipByRowNorm{0.75f}, none) ==
          accumulate<Lamb, std::int64_t>(whole, ClipByRowNorm{0.75f}, none));
    CHECK(accumulate<Sgd, std::int64_t>(cut, ClipByRowNorm{0.75f}, none) ==
          accumulate<Sgd, std::int64_t>(whole, ClipByRowNorm{0.75f}, none));
  }
}
TEST_CASE("accumulation: the norm is the definition's; errors change nothing") {
  const TableSpec table{"t", 3, 4};
  const FeatureSpec feature{"f", "t"};
  SelfCommunicator self;
  LayoutCollection<Widths<4, 16>, Sgd, Host, SelfCommunicator> embeddings{
      self,
      Host{},
      make_layout({1}, {{table}}, {{feature}}, {{0, {0, 3, 0, 4}, 0}}),
      {.learning_rate = 1}};
  const std::vector<float> zeros(12);
  embeddings.tables().set("t", {zeros.data(), 3, 4});
  CHECK_THROWS_WITH_AS(embeddings.apply(), doctest::Contains("no gradients are accumulated"),
                       InvalidArgument);
  const std::vector<std::int64_t> ids{2, 0, 2}, offsets{0, 1, 2, 3};
  const KeyedJagged<std::int64_t> batch{1, 3, ids, offsets, {}};
  std::vector<float> gradient{1, 0, 0, 0, 0, 2, 0, 0, 1, 0, 0, 1};
  const MatrixView<const float> view{gradient.data(), 3, 4};
  embeddings.accumulate(embeddings.forward(batch), view);
  const auto pooled = embeddings.forward(batch);
  CHECK_THROWS_WITH_AS(embeddings.backward(pooled, view), doctest::Contains("wait for apply"),
                       InvalidArgument);
  embeddings.accumulate(embeddings.forward(batch), view);
  CHECK_THROWS_WITH_AS(embeddings.apply(ClipByGlobalNorm{0}),
                       doctest::Contains("give a positive number"), InvalidArgument);
  // rows 0 and 2: (0, 4, 0, 0) and (4, 0, 0, 2); dense layers add 8^2: 100 in all
  std::vector<float> dense{8};
  CHECK(embeddings.apply(ClipByGlobalNorm{5}, dense) == 10);
  std::vector<float> found(12);
  embeddings.tables().get("t", {found.data(), 3, 4});
  CHECK(found == std::vector<float>{0, -2, 0, 0, 0, 0, 0, 0, -2, 0, 0, -1});
  CHECK(dense[0] == 4);
  CHECK(embeddings.steps() == 1);
  gradient[0] = std::nanf("");
  embeddings.accumulate(embeddings.forward(batch), view);
  CHECK_THROWS_WITH_AS(embeddings.apply(ClipByGlobalNorm{5}), doctest::Contains("NaN or infinite"),
                       InvalidArgument);
  gradient[0] = 1e30f;
  gradient[5] = 1e-40f;
  embeddings.accumulate(embeddings.forward(batch), view);  // what was dropped does not come back
  CHECK(std::isnan(embeddings.apply(ClipByValue{0.5f})));
  embeddings.tables().get("t", {found.data(), 3, 4});
  CHECK(found == std::vector<float>{0, -2, 0, 0, 0, 0, 0, 0, -2.5, 0, 0, -1.5});
}
TEST_CASE("accumulation: rows are clipped each by its own norm, dense layers are not") {
  SelfCommunicator self;
  // the halves of a row stand apart: each knows the norm of both
  for (const std::vector<Shard>& shards :
       {std::vector<Shard>{{0, {0, 3, 0, 4}, 0}},
        std::vector<Shard>{{0, {0, 3, 0, 1}, 0}, {0, {0, 1, 1, 4}, 0}, {0, {1, 3, 1, 4}, 0}}}) {
    LayoutCollection<Widths<4>, Sgd, Host, SelfCommunicator> embeddings{
        self, Host{}, make_layout({1}, {{"t", 3, 4}}, {{"f", "t"}}, shards), {.learning_rate = 1}};
    std::vector<float> table(12);
    embeddings.tables().set("t", {table.data(), 3, 4});
    const std::vector<std::int64_t> ids{2, 0, 2}, offsets{0, 1, 2, 3};
    // row 2: (4, 0, 0, 3), norm 5; row 0: (0, 2, 0, 0)
    const std::vector<float> gradient{1, 0, 0, 0, 0, 2, 0, 0, 3, 0, 0, 3};
    embeddings.accumulate(embeddings.forward(KeyedJagged<std::int64_t>{1, 3, ids, offsets, {}}),
                          {gradient.data(), 3, 4});
    CHECK_THROWS_WITH_AS(embeddings.apply(ClipByRowNorm{-1}),
                         doctest::Contains("give a positive number"), InvalidArgument);
    std::vector<float> dense{8};
    CHECK(std::isnan(embeddings.apply(ClipByRowNorm{2.5f}, dense)));
    embeddings.tables().get("t", {table.data(), 3, 4});
    CHECK(table == std::vector<float>{0, -2, 0, 0, 0, 0, 0, 0, -2, 0, 0, -1.5});
    CHECK(dense[0] == 8);
  }
}
TEST_CASE("accumulation: a batch that is refused is left out, and a step of such batches alone") {
  SelfCommunicator self;
  LayoutCollection<Widths<4>, Sgd, Host, SelfCommunicator> embeddings{
      self,
      Host{},
      make_layout({1}, {{"t", 3, 4}}, {{"f", "t"}}, {{0, {0, 3, 0, 4}, 0}}),
      {.learning_rate = 1, .non_finite = NonFinite::reject}};
  std::vector<float> table(12);
  embeddings.tables().set("t", {table.data(), 3, 4});
  const std::vector<std::int64_t> ids{1}, offsets{0, 1};
  const auto add = [&](float x) {
    const std::vector<float> gradient(4, x);
    embeddings.accumulate(embeddings.forward(KeyedJagged<std::int64_t>{1, 1, ids, offsets, {}}),
                          {gradient.data(), 1, 4});
  };
  add(std::nanf(""));
  CHECK(std::isnan(embeddings.apply(ClipByGlobalNorm{1})));
  CHECK(embeddings.steps() == 0);
  for (const float x : {0.25f, std::nanf(""), 0.5f}) add(x);
  CHECK(embeddings.apply(ClipByGlobalNorm{9}) == 1.5);
  CHECK(embeddings.steps() == 1);
  CHECK(embeddings.rejected_steps() == 2);
  embeddings.tables().get("t", {table.data(), 3, 4});
  CHECK(table[4] == -0.75f);
  CHECK_THROWS_AS(embeddings.apply(), InvalidArgument);
}
TEST_CASE("exact sums of squares: any float, any order") {
  const float values[] = {1e-45f, 3e38f, -3e38f, 1.5f, 1e-20f, 0.0f, -0.0f, 3.4e38f, 7e-39f};
  op::SquareDigits forth{}, back{};
  const auto add = [](op::SquareDigits& to, float x) {
    op::add_square(x, [&](int place, std::int64_t amount) { to[place] += amount; });
  };
  for (const float x : values) add(forth, x);
  for (std::size_t i = std::size(values); i-- > 0;) add(back, values[i]);
  const double norm = op::norm_of(forth);
  CHECK(norm == op::norm_of(back));
  CHECK(norm == doctest::Approx(std::hypot(3e38, 3e38, 3.4e38)));
  for (const float x : {1e-45f, 1.0f, 3.4e38f, 0.1f}) {
    op::SquareDigits one{};
    add(one, x);
    CHECK(op::norm_of(one) == static_cast<double>(std::fabs(x)));
  }
}
TEST_CASE("Adam: any layout gives the definitions' answer") {
  for (unsigned seed = 300; seed < 308; ++seed)
    check<Adam>(reference::Rule::adam, seed, seed % 3 == 0);
}
