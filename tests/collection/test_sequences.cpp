// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Sequences and max pooling: by definition, and against other plans and numbers of ranks.
#include <collection/sequence_bodies.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

using namespace tessera;

namespace {

/// A policy of a user's own: the first rows have a copy on every rank, the others are cut into a
/// block for each.
template <std::int64_t HotRows, class... Sources>
struct HotRowsOnAll {
  using tables = TableList<Sources...>;

  static constexpr int count(const TableSpec&, const Topology& topology) {
    return 1 + topology.ranks;
  }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int i) {
    if (i == 0) return {{0, HotRows, 0, table.width}, {.kind = Place::Kind::every}};
    const std::int64_t rest = table.rows - HotRows;
    return {{HotRows + even_cut(rest, topology.ranks, i - 1),
             HotRows + even_cut(rest, topology.ranks, i), 0, table.width},
            {.kind = Place::Kind::rank, .index = i - 1}};
  }
};

/// A table for each optimizer of the library, and a feature for each table.
using EveryOptimizer =
    TrainingGroups<Train<Sgd>, Train<Adagrad>, Train<RowWiseAdagrad>, Train<Adam>, Train<AdamW>,
                   Train<PartialRowWiseAdam>, Train<Lamb>, Train<Ftrl>, Train<Lion>,
                   Train<Momentum>, Train<RowWiseAdagradL2>, Train<RowWiseAdagradDecoupled>,
                   Train<CountedRowWiseAdagrad>, Train<NarrowStates<Adam>>>;
template <FixedString... Names>
struct Models {
  using Pooled = Plan<TableWise<Table<Names, 40, 8>>...>;
  using ByRows =
      Plan<Features<Feature<Names, Names, Sequence>...>, RowWise<Table<Names, 40, 8>...>>;
  using Hot =
      Plan<Features<Feature<Names, Names, Sequence>...>, HotRowsOnAll<13, Table<Names, 40, 8>...>>;
};
using Fourteen = Models<"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n">;

struct SeenOfModel {
  std::vector<float> vectors, tables;
  bool operator==(const SeenOfModel&) const = default;
};

/// Steps with an id per sample and feature, many of them equal.
SeenOfModel train_every_optimizer(const Layout& layout, int gradient_blocks) {
  constexpr std::int64_t all = 24, width = 8;
  const auto tables = std::ssize(layout.tables);
  SeenOfModel seen;
  seen.vectors.resize(static_cast<std::size_t>(3 * tables * all * width));
  seen.tables.resize(static_cast<std::size_t>(tables * 40 * width));
  run_ranks(layout.ranks(), [&](ThreadCommunicator& c) {
    LayoutCollection<Widths<>, EveryOptimizer, Host, ThreadCommunicator>::Options options;
    options.learning_rate = 0.125f;
    options.seed = 5;
    options.gradient_blocks = gradient_blocks;
    for (int t = 0; t < tables; ++t) options.optimizer.group_of_table.push_back(t);
    LayoutCollection<Widths<>, EveryOptimizer, Host, ThreadCommunicator> e(c, Host{}, layout,
                                                                           options);
    const std::int64_t begin = even_cut(all, c.size(), c.rank()),
                       samples = even_cut(all, c.size(), c.rank() + 1) - begin;
    for (int step = 0; step < 3; ++step) {
      std::vector<std::int32_t> ids;
      std::vector<std::vector<float>> of_ids(static_cast<std::size_t>(tables));
      std::vector<float> pooled(static_cast<std::size_t>(samples * tables * width));
      for (int t = 0; t < tables; ++t)
        for (std::int64_t s = begin; s < begin + samples; ++s) {
          const auto key = static_cast<std::uint64_t>((step * 20 + t) * all + s);
          ids.push_back(static_cast<std::int32_t>(mix64(key) % (s % 3 == 0 ? 40 : 6)) +
                        10 * (s % 2));
          ids.back() %= 40;
          for (int i = 0; i < width; ++i) {
            const float g = sequences::gradient_of(step, t % 8, s + 24 * (t / 8), 0, i);
            of_ids[static_cast<std::size_t>(t)].push_back(g);
            pooled[static_cast<std::size_t>(((s - begin) * tables + t) * width + i)] = g;
          }
        }
      const auto found = e.forward(KeyedJagged<std::int32_t>{tables, samples, ids, {}, {}});
      std::vector<SequenceGradient> gradients;
      for (int t = 0; t < tables; ++t) {
        float* const to = seen.vectors.data() + ((step * tables + t) * all + begin) * width;
        const MatrixView<const float> of_table(of_ids[static_cast<std::size_t>(t)].data(), samples,
                                               width);
        if (layout.columns() != 0) {
          for (std::int64_t s = 0; s < samples; ++s)
            std::copy_n(found.values.row(s) + t * width, width, to + s * width);
        } else {
          found.sequence(t).materialize({to, samples, width});
          gradients.push_back(found.sequence(t).per_id(of_table));
        }
      }
      e.backward(found, {pooled.data(), samples, layout.columns()}, gradients);
    }
    for (int rank = 0; rank < c.size(); ++rank, c.barrier())
      for (int t = 0; rank == c.rank() && t < tables; ++t)
        e.tables().get(layout.tables[static_cast<std::size_t>(t)].name,
                       {seen.tables.data() + t * 40 * width, 40, width});
  });
  return seen;
}

}  // namespace

TEST_CASE(
    "sequences beside sums of one id: the same bits with every optimizer, under a user's policy") {
  const auto layout_of = []<class P>(P, int ranks) { return P::layout(Topology{ranks}); };
  const SeenOfModel pooled = train_every_optimizer(layout_of(Fourteen::Pooled{}, 1), 0);
  CHECK(train_every_optimizer(layout_of(Fourteen::Hot{}, 1), 0) == pooled);
  const SeenOfModel two = train_every_optimizer(layout_of(Fourteen::Hot{}, 2), 2);
  CHECK(train_every_optimizer(layout_of(Fourteen::ByRows{}, 2), 2) == two);
  CHECK(train_every_optimizer(layout_of(Fourteen::Hot{}, 1), 2) == two);
  CHECK_FALSE(two == pooled);  // sums of ranks are rounded
}

TEST_CASE("sequences and max pooling beside sums, by definition") {
  sequences::by_definition<Host>();
}
TEST_CASE("sequences and max pooling: the same bits under every plan") {
  sequences::the_same_bits_under_every_plan<Host>();
}
TEST_CASE("sequences and max pooling: with gradient_blocks the same bits on 1, 2 and 4 ranks") {
  sequences::the_same_bits_on_any_number_of_ranks<Host>();
}
TEST_CASE("sequences and max pooling: model-parallel input gives the bits of own samples") {
  sequences::model_parallel_has_the_same_bits<Host>();
}
TEST_CASE("sequences: model-parallel ranks that differ are named") {
  sequences::model_parallel_ranks_that_differ<Host>();
}
TEST_CASE("sequences: what backward and views refuse, and nothing changes") {
  sequences::what_backward_and_views_refuse<Host>();
}
TEST_CASE("sequences: a row travels once per rank that asks, its gradient once back") {
  sequences::a_row_travels_once_per_rank<Host>();
}
TEST_CASE("sequences and max pooling: bad ids, NaN gradients, a codec, 16 bits, Deduplicate") {
  sequences::policies_go_along<Host>();
  sequences::policies_go_along<Host, Half>();
}
TEST_CASE("sequences: ids beyond the table under every policy") {
  sequences::bad_ids_under_every_policy<Host>();
}
TEST_CASE("sequences: stages, accumulated gradients, short ids, no offsets: the same bits") {
  sequences::other_ways_have_the_same_bits<Host>();
}
TEST_CASE("sequences of a plan: routed ahead, a frozen table without gradients, dynamic rows") {
  using Plan =
      tessera::Plan<Features<Feature<"h", "item", Sequence>, Feature<"f", "text", Sequence>,
                             Feature<"x", "item">>,
                    RowWise<Table<"item", dynamic_rows, 8>>, TableWise<Table<"text", 50, 4>>>;
  static_assert(Plan::keeps_rows && Plan::feature_shape.count == 1 &&
                Plan::feature_shape.width == 8);
  using E = EmbeddingCollection<Plan, Train<Adagrad>, Frozen<Table<"text", 50, 4>>, Host,
                                ThreadCommunicator>;
  const auto train = [](bool ahead) {
    std::vector<std::vector<float>> shards(2);
    run_ranks(2, [&](ThreadCommunicator& c) {
      E e(c, Host{}, {.rows = {{"item", 30}}});
      ThreadCommunicator second = c.split(0);
      std::vector<std::int32_t> ids{3, 4, 3, 9, 9, 2, 29, 3, 3};
      ids[0] = c.rank();
      const std::vector<std::int64_t> offsets{0, 3, 3, 5, 6, 7, 9};
      const KeyedJagged<std::int32_t> batch{3, 2, ids, offsets, {}};
      const std::vector<float> ones(24, 1.0f);
      std::vector<float> output(16);
      const auto finish = [&](auto& step) {
        const auto found = e.forward_routed(step, {output.data(), 2, 8});
        CHECK(found.template sequence<"f">().ids() == 3);
        e.backward(found, {ones.data(), 2, 8}, {found.sequence("h").per_id({ones.data(), 3, 8})});
      };
      if (ahead) {
        RouteAhead<E, std::int32_t, ThreadCommunicator, Host> route(e, second, Host{});
        route.start(batch);
        for (int step = 0; step < 3; ++step) {
          auto& routed = route.take();
          if (step < 2) route.start(batch);
          finish(routed);
        }
      } else {
        E::StepState<std::int32_t> step;
        for (int i = 0; i < 3; ++i) e.route(step, batch), finish(step);
      }
      shards[static_cast<std::size_t>(c.rank())] = sequences::shards_of(e);
    });
    return shards;
  };
  CHECK(train(false) == train(true));
}
