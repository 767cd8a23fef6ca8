// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What a collection does with input that no trainer means to give: the matrix in docs/errors.md,
// one test case for each line.
#include <collection/bad_input_bodies.hpp>
#include <collection/stage_bodies.hpp>

#include <doctest/doctest.h>
#include <simt/sanitizer.hpp>

using namespace tessera;
using on_backend::check_message;

namespace {

template <class... Sources>
struct CutsOnThree {
  using tables = TableList<Sources...>;
  static constexpr bool whole_rows = true;
  static constexpr int count(const TableSpec&, const Topology& topology) {
    return topology.ranks == 3 ? 2 : 1;
  }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int i) {
    const std::int32_t width = table.width / count(table, topology);
    return {{0, table.rows, i * width, (i + 1) * width}, {}};
  }
};
template <class... Sources>
struct NotHalvesOnThree {
  using tables = TableList<Sources...>;
  static constexpr int column_parts = 2;
  static constexpr int count(const TableSpec&, const Topology&) { return 2; }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int i) {
    const std::int32_t first = topology.ranks == 3 ? 1 : table.width / 2;
    return {{0, table.rows, i * first, i == 0 ? first : table.width}, {}};
  }
};
template <class... Sources>
struct CopiesOnThree {
  using tables = TableList<Sources...>;
  static constexpr bool whole_rows = true;
  static constexpr int count(const TableSpec&, const Topology&) { return 1; }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int) {
    return {{0, table.rows, 0, table.width},
            {.kind = topology.ranks == 3 ? Place::Kind::every : Place::Kind::any}};
  }
};

template <class... Sources>
struct LeavesOnThree {
  using tables = TableList<Sources...>;
  static constexpr bool whole_rows = true;
  static constexpr int count(const TableSpec&, const Topology&) { return 1; }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology& topology, int) {
    return {.rectangle = {0, table.rows, 0, table.width},
            .place = {},
            .tier = topology.ranks == 3 ? Tier::host : Tier::device};
  }
};

template <class Policy>
void on_ranks(int ranks) {
  run_ranks(ranks, [](ThreadCommunicator& c) {
    EmbeddingCollection<Plan<Policy>, Sgd, Host, ThreadCommunicator>(c, Host{}, {});
  });
}

}  // namespace

TEST_CASE("gradients that are NaN or infinite: a rejected step changes nothing on any rank") {
  bad_input::a_rejected_step_changes_nothing<Host>();
}
TEST_CASE("gradients that are NaN or infinite: counted or not, they are used") {
  bad_input::counted_or_not_they_are_used<Host>();
}
TEST_CASE("offsets that go backwards, counts that are negative or huge") {
  bad_input::wrong_offsets_and_counts<Host>();
}
TEST_CASE("ids around 2^31 and 2^32 are outside, whatever their low bits say") {
  bad_input::ids_around_2_31_and_2_32<Host>();
}
TEST_CASE("batches of no sample, bags of no id") { bad_input::no_sample_and_no_id<Host>(); }
TEST_CASE("tables of no width or no rows, shards beyond them") {
  bad_input::tables_of_no_width_or_rows<Host>();
}
TEST_CASE("the gradient of a batch that is not the last one looked up, or of another collection") {
  bad_input::a_stale_or_foreign_step<Host>();
}
TEST_CASE("matrices whose rows overlap or that have no memory; states that are not there") {
  bad_input::matrices_that_overlap_or_are_nowhere<Host>();
}
TEST_CASE("a learning rate that is no number") {
  bad_input::a_learning_rate_that_is_no_number<Host>();
}
TEST_CASE("constants of an optimizer that are no numbers") {
  bad_input::optimizer_constants_that_are_no_numbers<Host>();
}

TEST_CASE("tables for which there is no memory") {
  if (simt::has_asan || simt::has_tsan) return;  // which end the program where memory is refused
  const std::int64_t rows = std::int64_t{1} << 48;
  const auto collection = [&] {
    SelfCommunicator self;
    bad_input::OneRank<Host>(self, Host(),
                             make_layout({1}, {{"t", rows, 4}}, {}, {{0, {0, rows, 0, 4}, 0}}), {});
  };
  // 2^48 rows of 4 floats and one of state
  check_message(collection, "no memory for the tables of rank 0: 5629499534213120 bytes");
}

TEST_CASE(
    "a policy that says whole_rows or column_parts and, on three ranks alone, cuts other columns, "
    "copies tables, or keeps them elsewhere") {
  check_message([] { on_ranks<CutsOnThree<Table<"t", 10, 4>>>(3); },
                "table 't' has a shard of 2 columns, which its policy's whole_rows or column_parts "
                "rules out");
  check_message([] { on_ranks<NotHalvesOnThree<Table<"t", 10, 4>>>(3); },
                "table 't' has a shard of 1 columns, which its policy's whole_rows or column_parts "
                "rules out");
  on_ranks<NotHalvesOnThree<Table<"t", 10, 4>>>(2);
  check_message(
      [] { on_ranks<CopiesOnThree<Table<"t", 10, 4>>>(3); },
      "a policy with whole_rows or column_parts copies table 't' on 3 ranks, but not on two");
  on_ranks<CutsOnThree<Table<"t", 10, 4>>>(2);
  on_ranks<CopiesOnThree<Table<"t", 10, 4>>>(4);
  check_message([] { on_ranks<LeavesOnThree<Table<"t", 10, 4>>>(3); },
                "keeps table 't' out of the device's memory on 3 ranks, but not on 1, 2 and 4");
  on_ranks<LeavesOnThree<Table<"t", 10, 4>>>(2);
}

TEST_CASE("rows that changed hands start anew, and only those") {
  bad_input::rows_that_changed_hands<Host>();
}

TEST_CASE(
    "stages that are left out or repeated: each wrong order is refused, and the tables stay") {
  stages::every_wrong_order_is_refused<Host>();
}
TEST_CASE("stages with a step of another collection") {
  stages::the_step_of_another_collection<Host>();
}
TEST_CASE("stages with gradients of another shape") { stages::gradients_of_other_shapes<Host>(); }
TEST_CASE(
    "gradients that are NaN through the stages: the rejected step changes nothing, and takes "
    "others") {
  stages::rejected_through_the_stages<Host>();
}
TEST_CASE("the stages one by one are forward and backward, weight gradients too") {
  stages::stages_are_forward_and_backward<Host>();
}
TEST_CASE("a forgotten backward is counted; stages that are compared refuse it") {
  stages::a_forgotten_backward<Host>();
}
TEST_CASE("evaluation is forward, and leaves no trace") {
  stages::evaluation_is_forward_without_a_trace<Host>();
}
TEST_CASE("an update that is too large changes no table") {
  stages::an_update_that_is_too_large_changes_nothing<Host>();
}
TEST_CASE("bags whose lengths do not fit 32 bits are refused before they travel") {
  using bad_input::OnThree;
  std::vector<std::string> texts(2);
  const auto on_two = [&] {
    small_model::on_ranks<Host>(2, [&](small_model::Counting& c, const Host& host) {
      OnThree<Host> e(c, host, make_layout({2}, {{"t", 9, 4}}, {}, {{0, {0, 9, 0, 4}, 0}}), {});
      const std::vector<std::int64_t> ids{1, 2, 3};
      std::vector<std::int64_t> offsets{0, 2, 3};
      OnThree<Host>::StepState<std::int64_t> step;
      step.begin(&e);
      detail::IdReport<Host> report(host, 1, c.rank());
      step.batch.admit(host, e.layout(), std::vector{0}, {1, 2, ids, offsets, {}},
                       {BadIds::throw_error, report}, 0);
      // as if so many ids had been checked, for which no test has memory
      if (c.rank() == 1) offsets.back() += std::int64_t{1} << 32;
      texts[static_cast<std::size_t>(c.rank())] =
          message_of([&] { step.routed.exchange(host, c, e.tables().routing(), step); });
      if (c.rank() == 1) throw Error(texts[1]);
    });
  };
  check_message(on_two,
                "route: 4294967299 ids of feature 0 for one rank in one batch; at most 2^32 - 1");
}

TEST_CASE("ids wrap to rows that they can hold, or the batch is refused") {
  const std::int64_t rows = std::int64_t{3} << 30;
  const Layout layout = make_layout({1}, {{"t", rows, 4}}, {}, {{0, {0, rows, 0, 4}, 0}});
  const Host host;
  detail::IdReport<Host> report(host, 1, 0);
  const detail::IdChecks<Host> checks{BadIds::wrap, report};
  const std::vector<std::int64_t> cuts{0, 1};
  std::vector<std::int64_t> ends;
  const std::vector<std::int32_t> narrow{-1};
  detail::HostAdmission<std::int32_t, Host> of_32;
  detail::PodVector<detail::FeatureInput<std::int32_t>> inputs_32(1);
  CHECK_THROWS_WITH_AS(of_32.admit(host, layout, std::vector{0}, {1, 1, narrow, {}, {}}, cuts,
                                   checks, inputs_32, ends),
                       "BadIds::wrap: table 't' has 3221225472 rows; give ids of 64 bits",
                       InvalidArgument);
  const std::vector<std::int64_t> wide{-1};
  detail::HostAdmission<std::int64_t, Host> of_64;
  detail::PodVector<detail::FeatureInput<std::int64_t>> inputs_64(1);
  of_64.admit(host, layout, std::vector{0}, {1, 1, wide, {}, {}}, cuts, checks, inputs_64, ends);
  CHECK(inputs_64[0].bags.ids[0] == rows - 1);
}
