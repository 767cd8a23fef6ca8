// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Training groups: an optimizer and a learning rate per group of tables, in one collection.
#include <collection/group_bodies.hpp>

#include <tessera/checkpoint/load.hpp>
#include <tessera/checkpoint/save.hpp>

#include <doctest/doctest.h>
#include <support/temporary_folder.hpp>

#include <cmath>
#include <filesystem>
#include <string>
#include <type_traits>
#include <vector>

using namespace tessera;

TEST_CASE("training groups: every table trains as in a collection of its optimizer, to the bit") {
  groups::tables_train_as_apart<Host>();
}
TEST_CASE("the same without duplicates in the exchange, and encoded") {
  groups::tables_train_as_apart<Host, EncodeWith<Bf16>>(true);
}
TEST_CASE("accumulation: losses of one forward add up, and are told from other calls") {
  groups::losses_of_one_forward_add_up<Host>();
}

namespace {

using Wide = Table<"wide", 100, 1>;
using Country = Table<"country", 9, 1>;
using Item = Table<"item", 50, 8>;
using Pretrained = Table<"pretrained", 40, 4>;
using Model = Plan<RowWise<Wide>, Replicated<Country>, ColumnWise<2, Item>, TableWise<Pretrained>>;

using Embeddings = EmbeddingCollection<Model, Train<Ftrl, Wide, Country>, Train<RowWiseAdagrad>,
                                       Frozen<Pretrained>, Host, SelfCommunicator>;

template <class E>
void backward_of_ones(E& e) {
  const std::vector<std::int64_t> ids{3, 3, 3, 3};
  const std::vector<float> ones(static_cast<std::size_t>(e.columns()), 1.0f);
  const auto pooled = e.forward(KeyedJagged<std::int64_t>{4, 1, ids, {}, {}});
  e.backward(pooled, {ones.data(), 1, e.columns()});
}

template <class E>
std::vector<float> table_of(const E& e, std::string_view name) {
  const auto t = static_cast<std::size_t>(e.tables().table_index(name));
  const TableSpec& table = e.layout().tables[t];
  std::vector<float> values(static_cast<std::size_t>(table.rows * table.width));
  e.tables().get(name, {values.data(), table.rows, table.width});
  return values;
}

}  // namespace

TEST_CASE("training groups by types: who is in which, rates by table") {
  SelfCommunicator self;
  Embeddings::Options options;
  options.learning_rate = 0.5f;
  Embeddings::of<Train<Ftrl, Wide, Country>>(options) = {Ftrl{.l1 = 0.5f}, 0.25f};
  Embeddings e(self, Host{}, options);
  CHECK(e.learning_rate("wide") == 0.25f);
  CHECK(e.learning_rate("country") == 0.25f);
  CHECK(e.learning_rate("item") == 0.5f);
  CHECK(e.tables().states(0).size() == 2);
  CHECK(e.tables().states(2).size() == 1);
  CHECK(e.tables().states(3).empty());

  // Ftrl begins with zeros: z = 1, n = 1, w = -(1 - l1) / ((1 + 1) / 0.25) = -1/16
  const std::vector<float> item = table_of(e, "item"), pretrained = table_of(e, "pretrained");
  backward_of_ones(e);
  CHECK(table_of(e, "wide")[3] == doctest::Approx(-0.0625f));
  CHECK(table_of(e, "wide")[4] == 0);
  CHECK(table_of(e, "country")[3] == doctest::Approx(-0.0625f));
  CHECK(table_of(e, "item")[24] == doctest::Approx(item[24] - 0.5f));  // sum = 1
  CHECK(table_of(e, "pretrained") == pretrained);
  CHECK(e.steps() == 1);

  SUBCASE("a guard of gradients that a frozen group does not get") {
    Embeddings::of<Frozen<Pretrained>>(options).non_finite = NonFinite::count;
    CHECK_THROWS_WITH_AS(Embeddings(self, Host{}, options),
                         "EmbeddingCollection: training group 2 is Frozen, its tables get no "
                         "gradients; give the option non_finite to groups that train",
                         InvalidArgument);
  }
  SUBCASE("a rate of a group") {
    e.set_learning_rate<"item">(0);
    CHECK(e.learning_rate("item") == 0);
    CHECK(e.learning_rate("wide") == 0.25f);
    const std::vector<float> before = table_of(e, "item"), wide = table_of(e, "wide");
    backward_of_ones(e);
    CHECK(table_of(e, "item") == before);
    CHECK(table_of(e, "wide") != wide);
  }
  SUBCASE("a rate of all") {
    e.set_learning_rate(0);
    CHECK(e.learning_rate("item") == 0);
    CHECK(e.learning_rate("wide") == 0);
  }
  SUBCASE("rows begin anew with their group's first values") {
    const std::vector<std::int64_t> rows{3};
    e.reset_rows(0, rows);
    CHECK(table_of(e, "wide")[3] == 0);
    e.reset_rows(2, rows);
    CHECK(table_of(e, "item") == item);
  }
  CHECK_THROWS_WITH_AS(e.set_learning_rate("itme", 0.1f), doctest::Contains("'item'"),
                       InvalidArgument);
  CHECK_THROWS_WITH_AS(e.set_learning_rate("item", -1), doctest::Contains("learning rate is -1"),
                       InvalidArgument);
}

TEST_CASE("training groups: first values of a group's own") {
  struct Half {
    TESSERA_HOST_DEVICE float operator()(const ElementKey& key) const {
      return scale * (key.row % 2 == 0 ? 1.0f : -1.0f);
    }
    float scale = 0.5f;
  };
  using Own = Train<Sgd, Item>::with<InitializeWith<Half>>;
  using Fixed = Frozen<Pretrained>::with<InitializeWith<Half>>;
  using E = EmbeddingCollection<Model, Own, Train<Sgd>, Fixed, Host, SelfCommunicator>;
  SelfCommunicator self;
  E::Options options;
  E::of<Own>(options).initialize.scale = 0.25f;
  E e(self, Host{}, options);
  CHECK(table_of(e, "item")[0] == 0.25f);
  CHECK(table_of(e, "item")[8] == -0.25f);
  CHECK(table_of(e, "pretrained")[0] == 0.5f);
  EmbeddingCollection<Model, Sgd, Host, SelfCommunicator> plain(self, Host{}, {});
  CHECK(table_of(e, "wide") == table_of(plain, "wide"));
  backward_of_ones(e);
  const std::vector<std::int64_t> rows{3};
  e.reset_rows(2, rows);
  CHECK(table_of(e, "item")[3 * 8] == -0.25f);
}

namespace {

/// Trains one table, cut as `shards` say, on gradients that repeat; what becomes of the weights, and
/// of each state.
template <class O>
std::vector<std::vector<float>> train_one_table(const std::vector<Shard>& shards, int steps) {
  SelfCommunicator self;
  LayoutCollection<Widths<>, O, Host, SelfCommunicator, InitializeWith<Uniform>> e{
      self,
      Host{},
      make_layout({1}, {{"t", 40, 11}}, {{"f", "t"}}, shards),
      {.learning_rate = 0.01f, .seed = 3}};
  const std::vector<std::int64_t> ids{3, 0, 39, 3, 21, 7}, offsets{0, 1, 2, 3, 4, 5, 6};
  std::vector<float> gradient(6 * 11);
  for (int step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < gradient.size(); ++i)
      gradient[i] =
          0.1f + 0.01f * static_cast<float>((i * 7 + static_cast<std::size_t>(step)) % 13);
    e.backward(e.forward(KeyedJagged<std::int64_t>{1, 6, ids, offsets, {}}),
               {gradient.data(), 6, 11});
  }
  std::vector<std::vector<float>> all{table_of(e, "t")};
  for (std::size_t k = 0; k < e.tables().states(0).size(); ++k) {
    all.emplace_back(40 * 11);
    e.tables().get_state("t", static_cast<int>(k), {all.back().data(), 40, 11});
  }
  return all;
}

}  // namespace

TEST_CASE("16-bit states: near those in float, on average exact, the same bits under any cut") {
  const std::vector<Shard> whole{{0, {0, 40, 0, 11}, 0}},
      cut{{0, {0, 40, 0, 3}, 0}, {0, {0, 17, 3, 11}, 0}, {0, {17, 40, 3, 11}, 0}};
  constexpr int steps = 1000;
  const auto expected = train_one_table<Adam>(whole, steps);
  const auto found = train_one_table<NarrowStates<Adam>>(whole, steps);
  CHECK(train_one_table<NarrowStates<Adam>>(cut, steps) == found);
  // From about the 400th step on the second moment grows by less than half a unit of a bf16: rounded
  // to nearest it would stop there.
  std::vector<double> sum(3), sum_expected(3);
  for (std::size_t k = 0; k < 3; ++k)
    for (std::size_t i = 0; i < expected[k].size(); ++i) {
      sum[k] += found[k][i], sum_expected[k] += expected[k][i];
      if (k != 0) {
        CHECK(to_float(from_float<BFloat16>(found[k][i])) == found[k][i]);
        CHECK(std::abs(found[k][i] - expected[k][i]) <= 0.25f * std::abs(expected[k][i]));
      } else {
        CHECK(std::abs(found[k][i] - expected[k][i]) <= 0.01f * steps * 0.05f);
      }
    }
  CHECK(sum[1] == doctest::Approx(sum_expected[1]).epsilon(0.005));
  CHECK(sum[2] == doctest::Approx(sum_expected[2]).epsilon(0.03));
}

TEST_CASE("training groups: gradients are guarded by each group's own policy") {
  using Wides = Train<Sgd, Wide, Country>;
  using Items = Train<Sgd, Item>;
  using E =
      EmbeddingCollection<Model, Wides, Items, Train<Sgd, Pretrained>, Host, ThreadCommunicator>;
  E::Options options;
  E::of<Wides>(options).non_finite = NonFinite::count;
  E::of<Items>(options).non_finite = NonFinite::reject;
  // the column of a NaN on rank 1: wide, country, item's first and last, pretrained
  struct Expected {
    int column;
    std::uint64_t counted, rejected;
  };
  for (const Expected& expected : {Expected{0, 1, 0}, {1, 1, 0}, {2, 1, 1}, {9, 1, 1}, {10, 0, 0}})
    run_ranks(2, [&](ThreadCommunicator& c) {
      E e(c, Host{}, options);
      const std::vector<std::int64_t> ids{3, 3, 3, 3};
      std::vector<float> gradient(static_cast<std::size_t>(e.columns()), 1.0f);
      if (c.rank() == 1) gradient[static_cast<std::size_t>(expected.column)] = std::nanf("");
      const auto pooled = e.forward(KeyedJagged<std::int64_t>{4, 1, ids, {}, {}});
      e.backward(pooled, {gradient.data(), 1, e.columns()});
      CHECK(e.non_finite_gradients() == (c.rank() == 1 ? expected.counted : 0));
      CHECK(e.rejected_steps() == expected.rejected);
      CHECK(e.steps() == (expected.rejected == 0 ? 1 : 0));
    });
}

TEST_CASE("training groups: gradients of a frozen table are guarded if weights of ids need them") {
  const auto check = [](auto plan, std::uint64_t rejected) {
    using Plan = decltype(plan);
    using E = EmbeddingCollection<Plan, Train<Sgd>, Frozen<Table<"pretrained", 40, 4>>, Host,
                                  SelfCommunicator>;
    SelfCommunicator self;
    typename E::Options options;
    options.non_finite = NonFinite::reject;
    E e(self, Host{}, options);
    const std::vector<std::int64_t> ids{3, 3};
    const std::vector<float> weights{1, 1}, gradient{1, 1, 1, 1, 1, std::nanf("")};
    std::vector<float> of_weights(2);
    const auto pooled = e.forward(KeyedJagged<std::int64_t>{2, 1, ids, {}, weights});
    e.backward(pooled, {gradient.data(), 1, 6}, of_weights);
    CHECK(e.rejected_steps() == rejected);
    CHECK(e.steps() == 1 - static_cast<std::int64_t>(rejected));
  };
  using Trains = Feature<"trains", "trains">;
  using Tables = TableWise<Table<"trains", 40, 2>, Table<"pretrained", 40, 4>>;
  check(Plan<Features<Trains, Feature<"frozen", "pretrained">>, Tables>{}, 0);
  check(Plan<Features<Trains, Feature<"frozen", "pretrained", Sum, Weighted>>, Tables>{}, 1);
}

TEST_CASE("training groups: element types of a group's own, and checkpoints between them") {
  using Items = Train<RowWiseAdagrad, Item>::with<Storage<BFloat16>, InitializeWith<Uniform>>;
  using Mixed =
      EmbeddingCollection<Model, Train<NarrowStates<Ftrl>>, Items,
                          Frozen<Pretrained>::with<Storage<Half>>, Host, SelfCommunicator>;
  // wide and country with z and n in 16 bits; item in 16 bits with a sum a row of each half;
  // pretrained alone
  constexpr std::int64_t needed = 8 * 109 + 2 * 50 * 8 + 4 * 2 * 50 + 2 * 40 * 4;
  CHECK(detail::check_memory(Model::layout({1}), Mixed::memory_costs(), needed).ok());
  CHECK(detail::check_memory(Model::layout({1}), Mixed::memory_costs(), needed - 1).found ==
        needed);
  SelfCommunicator self;
  Mixed mixed(self, Host{}, {});
  CHECK(mixed.tables().element_type(0) == detail::TensorType::f32);
  CHECK(mixed.tables().element_type(2) == detail::TensorType::bf16);
  CHECK(mixed.tables().element_type(3) == detail::TensorType::f16);
  CHECK(mixed.tables().states(0)[1].type == detail::TensorType::bf16);
  CHECK(mixed.tables().states(2)[0].type == detail::TensorType::f32);
  CHECK(mixed.count_non_finite_weights() == 0);
  backward_of_ones(mixed);

  const auto through_file = [&](auto& from, auto& to) {
    const TemporaryFolder folder;
    CheckpointContents written, read;
    written.add(from);
    save_checkpoint(self, folder.path, written, from.steps());
    read.add(to);
    load_checkpoint(self, latest_checkpoint(folder.path).value(), read);
  };
  Embeddings wider(self, Host{}, {.seed = 5});
  through_file(mixed, wider);
  for (const char* table : {"wide", "country", "item", "pretrained"})
    CHECK(table_of(wider, table) == table_of(mixed, table));
  std::vector<float> z(100), z_of_mixed(100);
  wider.tables().get_state("wide", 0, {z.data(), 100, 1});
  mixed.tables().get_state("wide", 0, {z_of_mixed.data(), 100, 1});
  CHECK(z == z_of_mixed);
  CHECK(z[3] == 1);
  std::vector<float> third(400, 1.0f / 3);
  wider.tables().set("item", {third.data(), 50, 8});
  Mixed again(self, Host{}, {.seed = 6});
  through_file(wider, again);
  CHECK(table_of(again, "item") ==
        std::vector<float>(400, to_float(from_float<BFloat16>(1.0f / 3))));
  CHECK(table_of(again, "pretrained") == table_of(mixed, "pretrained"));
  CHECK(small_model::shards_of(again) != small_model::shards_of(mixed));
}

TEST_CASE(
    "WidthsFor: kernels of a width for float tables of the optimizers named, others for any") {
  using List = WidthsFor<Widths<8, 16>, Sgd, Adam>;
  const auto kernel = []<class Of>(Of, int width) {
    int found = -1;
    Of::dispatch(width, [&](auto constant) { found = constant(); });
    return found;
  };
  CHECK(kernel(List::of<float>{}, 16) == 16);
  CHECK(kernel(List::of<float, Sgd>{}, 8) == 8);
  CHECK(kernel(List::of<float, Adam>{}, 16) == 16);
  CHECK(kernel(List::of<float, Adam>{}, 12) == op::dynamic_width);
  CHECK(kernel(List::of<float, Adagrad>{}, 16) == op::dynamic_width);
  CHECK(kernel(List::of<BFloat16>{}, 16) == op::dynamic_width);
  CHECK(kernel(List::of<Half, Sgd>{}, 16) == op::dynamic_width);
  CHECK(kernel(Widths<8, 16>::of<Half, Adagrad>{}, 16) == 16);
}

TEST_CASE("training groups at run time: wrong groups are named") {
  using Two = TrainingGroups<Train<Sgd>, Train<Adagrad>>;
  using E = LayoutCollection<Widths<>, Two, Host, SelfCommunicator>;
  SelfCommunicator self;
  E::Options options;
  const auto make = [&] { E(self, Host{}, small_model::layout(1), options); };
  CHECK_THROWS_WITH_AS(make(), doctest::Contains("0 entries for 5 tables"), InvalidArgument);
  options.optimizer.group_of_table = {0, 1, 2, 0, 0};
  CHECK_THROWS_WITH_AS(make(), doctest::Contains("'genre' is in group 2; give 0 .. 1"),
                       InvalidArgument);
  options.optimizer.group_of_table = {0, 1, 1, 0, 0};
  std::get<1>(options.optimizer.groups).learning_rate = -1;
  CHECK_THROWS_WITH_AS(make(), doctest::Contains("learning rate is -1"), InvalidArgument);
}

TEST_CASE("training groups: every table costs what its optimizer keeps") {
  // wide 100 and country 9 rows of width 1 with z and n; item 50 x 8 and a sum a row of each half;
  // pretrained 40 x 4 alone
  constexpr std::int64_t needed = 12 * 109 + 4 * (50 * 8 + 2 * 50) + 4 * 40 * 4;
  CHECK(detail::check_memory(Model::layout({1}), Embeddings::memory_costs(), needed).ok());
  const PlanFault fault =
      detail::check_memory(Model::layout({1}), Embeddings::memory_costs(), needed - 1);
  CHECK(fault.kind == PlanFault::Kind::does_not_fit);
  CHECK(fault.found == needed);
  static_assert(fits<Embeddings, Cluster{.ranks = 1, .memory_per_rank = needed}>);
}

TEST_CASE("training groups: ranks that differ are told") {
  using Two = TrainingGroups<Train<Sgd>, Train<RowWiseAdagrad>>;
  const auto run = [](auto&& set_options, auto&& set_rates) {
    std::vector<std::string> texts(2);
    run_ranks(2, [&](ThreadCommunicator& c) {
      using E = LayoutCollection<Widths<>, Two, Host, ThreadCommunicator>;
      E::Options options;
      options.optimizer.group_of_table = {0, 1, 1, 0, 1};
      try {
        set_options(options, c.rank());
        E e(c, Host{}, small_model::layout(2), options);
        set_rates(e, c.rank());
        const small_model::Batch batch(c.rank(), 0, 3, e.columns());
        e.forward(batch.keyed());
      } catch (const InvalidArgument& error) {
        texts[static_cast<std::size_t>(c.rank())] = error.what();
      }
    });
    return texts;
  };
  const auto keep = [](auto&&...) {};
  CHECK(run(keep, keep) == std::vector<std::string>(2));
  for (const std::string& text :
       run([](auto& options, int rank) { options.optimizer.group_of_table[3] = rank; }, keep))
    CHECK(text.find("rank 1 does not have the training group of table 'word' of rank 0") !=
          std::string::npos);
  for (const std::string& text : run(
           [](auto& options, int rank) {
             std::get<1>(options.optimizer.groups).learning_rate = 0.5f * (1 + rank);
           },
           keep))
    CHECK(text.find("the learning rate of training group 1 of rank 0") != std::string::npos);
  for (const std::string& text :
       run(keep, [](auto& e, int rank) { e.set_learning_rate("user", 0.5f * (1 + rank)); }))
    CHECK(text.find("has other learning rates of its training groups than rank") !=
          std::string::npos);
  // word and genre: groups 0 and 1
  for (const std::string& text :
       run(keep, [](auto& e, int rank) { e.set_learning_rate("word", 0.5f * (1 + rank)); }))
    CHECK(text.find("(group 0); every rank must set the same rates") != std::string::npos);
  for (const std::string& text :
       run(keep, [](auto& e, int rank) { e.set_learning_rate("genre", 0.5f * (1 + rank)); }))
    CHECK(text.find("(group 1); every rank must set the same rates") != std::string::npos);
}

TEST_CASE("training groups: checkpoints hold each table's state, and go to other groups") {
  const TemporaryFolder folder;
  SelfCommunicator self;
  Embeddings saved(self, Host{}, {});
  backward_of_ones(saved);
  CheckpointContents contents;
  contents.add(saved);
  save_checkpoint(self, folder.path, contents, 1);
  const std::filesystem::path checkpoint = latest_checkpoint(folder.path).value();

  Embeddings same(self, Host{}, {.seed = 5});
  CheckpointContents of_same;
  of_same.add(same);
  load_checkpoint(self, checkpoint, of_same);
  CHECK(small_model::shards_of(same) == small_model::shards_of(saved));

  // wide by Adagrad, country as it was, item frozen, pretrained trains
  using Other = EmbeddingCollection<Model, Train<Adagrad, Wide>, Train<Ftrl, Country>, Frozen<Item>,
                                    Train<RowWiseAdagrad, Pretrained>, Host, SelfCommunicator>;
  Other other(self, Host{}, {.seed = 5});
  CheckpointContents of_other;
  of_other.add(other);
  CHECK_THROWS_WITH_AS(load_checkpoint(self, checkpoint, of_other),
                       doctest::Contains("the checkpoint has no 'wide.sum'"), DataError);
  std::vector<std::string> anew;
  load_checkpoint(self, checkpoint, of_other, {.new_optimizers = &anew});
  CHECK(anew == std::vector<std::string>{"wide", "item", "pretrained"});
  for (const char* table : {"wide", "country", "item", "pretrained"})
    CHECK(table_of(other, table) == table_of(saved, table));
  std::vector<float> z(9), z_saved(9), sum(100);
  other.tables().get_state("country", 0, {z.data(), 9, 1});
  saved.tables().get_state("country", 0, {z_saved.data(), 9, 1});
  CHECK(z == z_saved);
  CHECK(z[3] == 1);
  other.tables().get_state("wide", 0, {sum.data(), 100, 1});
  CHECK(sum == std::vector<float>(100));
  CHECK(other.steps() == 1);
}
