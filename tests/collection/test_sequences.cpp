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

TEST_CASE(
    "sequences beside sums of one id: the same bits with every optimizer, under a user's policy") {
  sequences::every_optimizer_has_the_same_bits<Host>();
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
TEST_CASE("sequences and max pooling with weights: as PyTorch has them, to the bit") {
  sequences::weights_as_pytorch<Host>();
}
TEST_CASE("sequences: what backward and views refuse, and nothing changes") {
  sequences::what_backward_and_views_refuse<Host>();
}
TEST_CASE("sequences: a row travels once per rank that asks, its gradient once back") {
  sequences::a_row_travels_once_per_rank<Host>();
}
TEST_CASE("sequences and max pooling: bad ids, NaN gradients, a codec, 16 bits, duplicates") {
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
