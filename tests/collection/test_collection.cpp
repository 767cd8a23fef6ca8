// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// EmbeddingCollection as a trainer meets it: bad ids, wrong calls, storage types, first values,
// stages, learning rates.
#include <collection/collection_bodies.hpp>

#include <tessera_data/tabular_encoder.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

using namespace tessera;

namespace {

/// Rows of four texts, of which training shows one often enough: the others' are `unknown`.
std::vector<std::int64_t> rows_of_texts() {
  const Schema schema = parse_schema(
      "label: y\ncategorical: [{name: a, min_count: 2, unknown: bad_id}]", "schema.yaml");
  const auto block_of = [&](const char* text) {
    const auto source = [rest = std::string(text)](std::span<char> to) mutable {
      const std::size_t n = std::min(to.size(), rest.size());
      std::memcpy(to.data(), rest.data(), n);
      rest.erase(0, n);
      return n;
    };
    TabularReader reader(source, "a.csv", schema, ",");
    TabularBlock block;
    reader.read(9, block);
    return block;
  };
  TabularStatistics statistics(schema);
  statistics.add(block_of("y,a\n0,often\n1,often\n1,rare\n"));
  TabularBlock block = block_of("y,a\n0,often\n1,rare\n0,new\n1,\n");
  TabularEncoder(statistics).encode(block, "file 'a.csv'");
  return {block.keys.begin(), block.keys.end()};
}

/// The sum of A's rows that stand for those texts.
void expect_rows(BadIds policy, const std::vector<int>& rows) {
  as_a_trainer::on_ranks<Host>(
      1, rows_of_texts(),
      [&](auto& e, const auto& batch, auto&) {
        const std::vector<float> table = as_a_trainer::table_a(e);
        const auto pooled = e.forward(batch);
        CHECK(on_backend::read(e.backend(), pooled.values.data, 4) ==
              as_a_trainer::rows_of(table, rows));
        CHECK(e.bad_ids()[0] == 2);
      },
      policy);
}

}  // namespace

TEST_CASE(
    "bad ids: throw_error names feature, sample, id and rows, on every rank count; nothing is "
    "changed") {
  as_a_trainer::bad_ids_are_thrown<Host>();
}
TEST_CASE("bad ids: zero_vector drops, clamp and wrap replace; all count; no row is polluted") {
  as_a_trainer::bad_ids_are_dropped_or_replaced<Host>();
}
TEST_CASE("unknown texts of a data file, under each policy of bad ids") {
  expect_rows(BadIds::zero_vector, {2, 0});
  expect_rows(BadIds::clamp, {2, 0, 0, 0});
  expect_rows(BadIds::wrap, {2, 9, 9, 0});
  on_backend::check_message(
      [] {
        as_a_trainer::on_ranks<Host>(1, rows_of_texts(), [](auto& e, const auto& batch, auto&) {
          on_backend::look_up(e, batch);
        });
      },
      "id -1");
}
TEST_CASE("a zero vector still counts in the divisor of a mean; an empty bag is zero") {
  as_a_trainer::a_zero_vector_counts_in_a_mean<Host>();
}
TEST_CASE("first values depend on seed, table, row and column alone") {
  as_a_trainer::first_values_depend_on_seed_and_place<Host>();
}
TEST_CASE("initializers: constant, uniform, normal, a user's own") {
  as_a_trainer::initializers<Host>();
}
TEST_CASE("wrong calls say what is wrong") {
  as_a_trainer::wrong_calls<Host>();
  on_backend::check_message([] { Host{{.threads = 0}}; }, "0 threads");
}
TEST_CASE("an empty batch passes through, on all ranks and on one of them") {
  as_a_trainer::an_empty_batch_passes_through<Host>();
}
TEST_CASE(
    "rows known at run time, learning rate changed between steps, output into a wider matrix") {
  as_a_trainer::open_rows_other_rates_wider_outputs<Host>();
}
TEST_CASE(
    "two steps in flight: the next batch is routed before this one is finished, with the same "
    "result") {
  as_a_trainer::two_steps_in_flight<Host>();
}
TEST_CASE("16-bit tables: lookups are the stored values, updates round without bias") {
  as_a_trainer::sixteen_bit_tables<Host>();
}

TEST_CASE("fits: known while compiling") {
  using Embeddings = EmbeddingCollection<Plan<RowWise<Table<"q", 900'000'000, 128>>>,
                                         RowWiseAdagrad, Host, ThreadCommunicator>;
  static_assert(fits<Embeddings, Cluster{.ranks = 8, .memory_per_rank = 80_GiB}>);
  constexpr PlanFault fault =
      detail::check_memory(Embeddings::plan::layout({4}), Embeddings::memory_cost, 80_GiB);
  static_assert(fault.kind == PlanFault::Kind::does_not_fit);
  CHECK(std::string(fault.name) == "q");
}
