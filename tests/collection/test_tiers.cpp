// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Tables OnHost: the same model, memory of the right kind, both budgets.
#include <collection/tier_bodies.hpp>

#include <doctest/doctest.h>

#include <type_traits>

using namespace tessera;

TEST_CASE("tables in either memory: one model, to the bit") {
  tiers::any_memory_gives_one_model<Host>();
}

namespace {

using Query = Table<"query", 1000, 16>;
using User = Table<"user", 400, 8>;
using Country = Table<"country", 50, 8>;
using Mixed = Plan<OnHost<RowWise<Query>>, ColumnWise<2, User>, OnDevice<Replicated<Country>>>;
using HostOnly = Plan<OnHost<ColumnWise<2, User>>>;

}  // namespace

TEST_CASE("OnHost: the policy's rectangles, each with its memory") {
  const Layout layout = Mixed::layout({4});
  const Layout plain = Plan<RowWise<Query>, ColumnWise<2, User>, Replicated<Country>>::layout({4});
  REQUIRE(layout.shards.size() == plain.shards.size());
  for (std::size_t s = 0; s < layout.shards.size(); ++s) {
    CHECK(layout.shards[s].rectangle == plain.shards[s].rectangle);
    CHECK(layout.shards[s].rank == plain.shards[s].rank);
    CHECK((layout.shards[s].tier == Tier::host) == (layout.shards[s].table == 0));
  }
  static_assert(OnHost<RowWise<Query>>::whole_rows);
  static_assert(OnHost<ColumnWise<2, User>>::column_parts == 2);
  static_assert(!HostOnly::whole_rows);
}

TEST_CASE("each memory has its budget, and the one that is too small is named") {
  // of 4 bytes an element and 4 a row: query 68,000 in 4 parts; user 12,800 + 3,200; country 1,800
  const Layout layout = Mixed::layout({4});
  const detail::MemoryCost cost{4, 4};
  CHECK(detail::check_memory(layout, cost, 20'000).ok());
  CHECK(detail::check_memory(layout, cost, 20'000, 17'000).ok());
  CHECK(describe(detail::check_memory(layout, cost, 20'000, 16'999)) ==
        "Plan: with table 'query' a rank needs 17000 bytes of host memory, but has 16999; use more "
        "ranks or keep fewer tables OnHost");
  const PlanFault device = detail::check_memory(layout, cost, 1'000, 17'000);
  CHECK(device.kind == PlanFault::Kind::does_not_fit);
  CHECK(device.limit == 1'000);
  using Embeddings = EmbeddingCollection<Mixed, RowWiseAdagrad, Host, ThreadCommunicator>;
  // 100 rows of 17 numbers and their places, of each rank's 250; 80 rows of 9, of 400
  using Behind = Plan<Cached<100, OnFile<RowWise<Query>>>, Cached<80, TableWise<User>>>;
  const std::int64_t caches = 100 * (17 * 4 + 56) + 80 * (9 * 4 + 56);
  CHECK(detail::check_memory(Behind::layout({4}), cost, caches, 14'400).ok());
  CHECK(detail::check_memory(Behind::layout({4}), cost, caches - 1, 14'400).found == caches);
  CHECK(detail::check_memory(Behind::layout({4}), cost, caches, 14'399).found == 14'400);
  static_assert(
      fits<Embeddings,
           Cluster{.ranks = 4, .memory_per_rank = 20'000, .host_memory_per_rank = 17'000}>);
}
