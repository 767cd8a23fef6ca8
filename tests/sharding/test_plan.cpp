// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/sharding/plan.hpp>

#include <tessera/laws/sharding_policy_laws.hpp>

#include <fmt/format.h>
#include <sharding/large_plans.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>

using namespace tessera;

namespace {

using Query = Table<"query", 1000, 64>;
using User = Table<"user", 400, 32>;
using Genres = Table<"genres", 100, 16, Mean>;
using Country = Table<"country", 25, 16>;

using Faults = std::vector<std::string>;

std::string joined(const Faults& faults) {
  std::string text;
  for (const std::string& fault : faults) text += fault + "\n";
  return text;
}

/// The ranks that hold a table's rectangles.
std::multiset<int> ranks_of(const Layout& layout, std::string_view table) {
  std::multiset<int> ranks;
  for (const Shard& shard : layout.shards)
    if (layout.tables[shard.table].name == table) ranks.insert(shard.rank);
  return ranks;
}

namespace listed {
namespace ts = tessera;
// [specs]
static constexpr ts::TableSpec kLarge[] = {{.name = "query", .rows = 900'000'000, .width = 128},
                                           {.name = "user", .rows = 40'000'000, .width = 128}};
static constexpr ts::TableSpec kSmall[] = {
    {.name = "genres", .rows = 1'000, .width = 16, .pooling = ts::Mean},  // or Pooling::mean
    {.name = "country", .rows = 250, .width = 16, .hotness = 1.5}};
using Model = ts::Plan<ts::RowWise<ts::Tables<kLarge>>, ts::TableWise<ts::Tables<kSmall>>>;
// [specs end]
static_assert(Model::tables.size() == 4 && Model::tables[2].pooling == Pooling::mean);
static_assert(std::is_same_v<Table<"a", 1, 1, Max>, Table<"a", 1, 1, Pooling::max>>);
static_assert(Model::layout({8}).fault.ok());
}  // namespace listed

// Facts are known while compiling.
using Small = Plan<RowWise<Query>, ColumnWise<4, User>, TableWise<Fused<Genres, Country>>>;
static_assert(Small::layout({8}).fault.ok());
static_assert(Small::layout({8}).columns() == 64 + 32 + 16 + 16);
static_assert(Small::widths.size() == 3 && Small::widths[0] == 8 && Small::widths[1] == 16 &&
              Small::widths[2] == 64);

/// A user's policy: the first hundredth of the rows on every rank, the rest on one.
template <class... Sources>
struct HotRowsEverywhere {
  using tables = TableList<Sources...>;
  static constexpr int count(const TableSpec&, const Topology&) { return 2; }
  static constexpr ShardRequest shard(const TableSpec& table, const Topology&, int i) {
    const std::int64_t hot = table.rows / 100;
    return i == 0 ? ShardRequest{{0, hot, 0, table.width}, {.kind = Place::Kind::every}}
                  : ShardRequest{{hot, table.rows, 0, table.width}, {}};
  }
};
static_assert(explain_sharding_policy<HotRowsEverywhere<>>());

// A plan cuts no columns if all its policies say so.
static_assert(Plan<RowWise<Query>, Replicated<User>, TableWise<Genres>,
                   RowWise<Shares<1, 2>, Country>>::whole_rows);
static_assert(Small::known_widths && !Plan<HotRowsEverywhere<Query>>::known_widths);
static_assert(Small::table_widths == std::array{16, 32, 64});
static_assert(!Small::whole_rows && !Plan<TableWise<Genres>, HotRowsEverywhere<Query>>::whole_rows);

// Local classes have no static members.
struct NotWhole {
  static constexpr bool whole_rows = true;
  static constexpr int count(const TableSpec& t, const Topology& p) {
    return p.ranks == 3 && t.width > 1 ? 2 : 1;
  }
  static constexpr ShardRequest shard(const TableSpec& t, const Topology& p, int i) {
    const std::int32_t half = count(t, p) == 1 ? t.width : t.width / 2;
    return {{0, t.rows, i * half, i == 0 ? half : t.width}, {}};
  }
};
struct NotHalves {
  static constexpr int column_parts = 2;
  static constexpr int count(const TableSpec&, const Topology&) { return 2; }
  static constexpr ShardRequest shard(const TableSpec& t, const Topology& p, int i) {
    const std::int32_t first = p.ranks == 3 ? 1 : t.width / 2;
    return {{0, t.rows, i * first, i == 0 ? first : t.width}, {}};
  }
};
struct CopiesOnFive {
  static constexpr bool whole_rows = true;
  static constexpr int count(const TableSpec&, const Topology&) { return 1; }
  static constexpr ShardRequest shard(const TableSpec& t, const Topology& p, int) {
    return {{0, t.rows, 0, t.width},
            {.kind = p.ranks == 5 ? Place::Kind::every : Place::Kind::any}};
  }
};

}  // namespace

// rounded up without a sum that overflows
static_assert(Topology{std::numeric_limits<int>::max()}.nodes() == 1);
static_assert(Topology{9, 4}.nodes() == 3 && Topology{8, 4}.nodes() == 2);

TEST_CASE("every policy keeps the laws") {
  CHECK(laws::sharding_policy_laws<Replicated<>>() == Faults{});
  CHECK(laws::sharding_policy_laws<TableWise<>>() == Faults{});
  CHECK(laws::sharding_policy_laws<TableWise<OnRank<5>>>() == Faults{});
  CHECK(laws::sharding_policy_laws<ColumnWise<1>>() == Faults{});
  CHECK(laws::sharding_policy_laws<ColumnWise<3>>(3) == Faults{});
  CHECK(laws::sharding_policy_laws<ColumnWise<8>>(8) == Faults{});
  CHECK(laws::sharding_policy_laws<RowWise<>>() == Faults{});
  CHECK(laws::sharding_policy_laws<RowWise<Shares<3, 0, 1>>>() == Faults{});
  CHECK(laws::sharding_policy_laws<RowWise<Interleaved>>() == Faults{});
  CHECK(laws::sharding_policy_laws<HotRows<3, RowWise<>>>() == Faults{});
  CHECK(laws::sharding_policy_laws<HotRows<3, RowWise<Interleaved>>>() == Faults{});
  CHECK(laws::sharding_policy_laws<HotRows<20, RowWise<Shares<3, 0, 1>>>>() == Faults{});
  CHECK(laws::sharding_policy_laws<HotRows<100'000, TableWise<>>>() == Faults{});
  CHECK(laws::sharding_policy_laws<Grid<1>>() == Faults{});
  CHECK(laws::sharding_policy_laws<Grid<4>>(4) == Faults{});
  CHECK(laws::sharding_policy_laws<ColumnWiseOn<OnRanks<5, 0, 2>>>(3) == Faults{});
  CHECK(laws::sharding_policy_laws<GridOn<OnNodes<1, 0>>>(2) == Faults{});
  CHECK(laws::sharding_policy_laws<HotRowsEverywhere<>>() == Faults{});
}

TEST_CASE("the laws find a policy that breaks them") {
  struct LosesARow {
    static constexpr int count(const TableSpec&, const Topology&) { return 1; }
    static constexpr ShardRequest shard(const TableSpec& t, const Topology&, int) {
      return {{0, t.rows - 1, 0, t.width}, {}};
    }
  };
  struct TwiceTheSame {
    static constexpr int count(const TableSpec&, const Topology&) { return 2; }
    static constexpr ShardRequest shard(const TableSpec& t, const Topology&, int) {
      return {{0, t.rows, 0, t.width}, {}};
    }
  };
  struct WrongRank {
    static constexpr int count(const TableSpec&, const Topology&) { return 1; }
    static constexpr ShardRequest shard(const TableSpec& t, const Topology& p, int) {
      return {{0, t.rows, 0, t.width}, {.kind = Place::Kind::rank, .index = p.ranks}};
    }
  };
  struct NothingOnOneNode {
    static constexpr int count(const TableSpec&, const Topology& p) {
      return p.ranks_per_node == 0 ? 0 : 1;
    }
    static constexpr ShardRequest shard(const TableSpec& t, const Topology&, int) {
      return {{0, t.rows, 0, t.width}, {}};
    }
  };
  struct NegativeCache {
    static constexpr int count(const TableSpec&, const Topology&) { return 1; }
    static constexpr ShardRequest shard(const TableSpec& t, const Topology&, int) {
      return {{0, t.rows, 0, t.width}, {}, Tier::file, -5};
    }
  };
  CHECK(joined(laws::sharding_policy_laws<LosesARow>()).find("cover") != std::string::npos);
  // three of one kind, and how many more
  CHECK(laws::sharding_policy_laws<LosesARow>().size() == 4);
  CHECK(laws::sharding_policy_laws<LosesARow>().back() == "... and 1077 more like the last");
  CHECK(joined(laws::sharding_policy_laws<TwiceTheSame>()).find("overlap") != std::string::npos);
  CHECK(joined(laws::sharding_policy_laws<NotWhole>())
            .find("columns: 1 of 1 x 2 are in one rectangle; the policy tells of 1") !=
        std::string::npos);
  CHECK(joined(laws::sharding_policy_laws<NotHalves>(2))
            .find("columns: 1 of 1 x 4 are in one rectangle; the policy tells of 2") !=
        std::string::npos);
  CHECK(joined(laws::sharding_policy_laws<CopiesOnFive>())
            .find("columns: 1 x 1 has copies on 5 or on two ranks") != std::string::npos);
  CHECK(joined(laws::sharding_policy_laws<WrongRank>()).find("there are 1 ranks") !=
        std::string::npos);
  CHECK(joined(laws::sharding_policy_laws<NothingOnOneNode>()).find("on 1 ranks, 0 per node") !=
        std::string::npos);
  CHECK(joined(laws::sharding_policy_laws<NegativeCache>())
            .find("cache: shard 0 of 1 x 1 has cache_rows -5") != std::string::npos);
}

TEST_CASE("row blocks: even ones differ by a row at most, uneven ones follow their shares") {
  const Layout even = Plan<RowWise<Table<"t", 10, 4>>>::layout({4});
  REQUIRE(even.shards.size() == 4);
  std::int64_t next = 0;
  for (int r = 0; r < 4; ++r) {
    CHECK(even.shards[r].rank == r);
    CHECK(even.shards[r].rectangle.row_begin == next);
    CHECK((even.shards[r].rectangle.rows() == 2 || even.shards[r].rectangle.rows() == 3));
    next = even.shards[r].rectangle.row_end;
  }
  CHECK(next == 10);
  const Layout uneven = Plan<RowWise<Shares<3, 0, 1>, Table<"t", 100, 4>>>::layout({4});
  REQUIRE(uneven.shards.size() == 2);
  CHECK(uneven.shards[0].rectangle.rows() == 75);
  CHECK(uneven.shards[0].rank == 0);
  CHECK(uneven.shards[1].rank == 2);
}

TEST_CASE("dealt rows, by hand") {
  // 20 rows on 4 ranks: bands of 10 rows, 5 before them, and the first 5
  const Layout layout = Plan<RowWise<Interleaved, Table<"t", 20, 4>>>::layout({4});
  REQUIRE(layout.fault.ok());
  const std::vector<std::array<std::int64_t, 3>> expected{
      {0, 2, 2},   {2, 3, 3},   {3, 4, 0},   {4, 5, 1},    // band 2 from the end, two ranks on
      {5, 7, 3},   {7, 8, 2},   {8, 9, 1},   {9, 10, 0},   // band 1, there and back
      {10, 13, 0}, {13, 16, 1}, {16, 18, 2}, {18, 20, 3},  // band 0
  };
  REQUIRE(layout.shards.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    const Shard& shard = layout.shards[i];
    CHECK(std::array<std::int64_t, 3>{shard.rectangle.row_begin, shard.rectangle.row_end,
                                      shard.rank} == expected[i]);
  }
  CHECK(Plan<RowWise<Interleaved, Table<"t", 20, 4>>>::layout({1}).shards.size() == 1);
}

TEST_CASE("hot rows, by hand") {
  const auto found = [](const Layout& layout) {
    REQUIRE(layout.fault.ok());
    std::vector<std::array<std::int64_t, 3>> shards;
    for (const Shard& s : layout.shards)
      shards.push_back({s.rectangle.row_begin, s.rectangle.row_end, s.rank});
    return shards;
  };
  using Shards = std::vector<std::array<std::int64_t, 3>>;
  using T = Table<"t", 20, 4>;
  CHECK(found(Plan<HotRows<5, RowWise<T>>>::layout({3})) ==
        Shards{{0, 5, every_rank}, {5, 10, 0}, {10, 15, 1}, {15, 20, 2}});
  // 4 ranks: a band of 10 rows, and the 8 before it that have no copy
  CHECK(found(Plan<HotRows<2, RowWise<Interleaved, T>>>::layout({4})) == Shards{{0, 2, every_rank},
                                                                                {2, 4, 3},
                                                                                {4, 6, 2},
                                                                                {6, 8, 1},
                                                                                {8, 10, 0},
                                                                                {10, 13, 0},
                                                                                {13, 16, 1},
                                                                                {16, 18, 2},
                                                                                {18, 20, 3}});
  // copies alone
  CHECK(found(Plan<HotRows<20, RowWise<Interleaved, T>>>::layout({4})) ==
        Shards{{0, 20, every_rank}});
  CHECK(found(Plan<HotRows<50, RowWise<T>>>::layout({4})) == Shards{{0, 20, every_rank}});
  CHECK(found(Plan<HotRows<5, RowWise<T>>>::layout({1})) == Shards{{0, 20, every_rank}});
  // where the other rows are is their policy's to say
  const Layout tiers = Plan<HotRows<5, OnHost<TableWise<OnRank<1>, T>>>>::layout({2});
  CHECK(found(tiers) == Shards{{0, 5, every_rank}, {5, 20, 1}});
  CHECK(tiers.shards[0].tier == Tier::device);
  CHECK(tiers.shards[1].tier == Tier::host);
  using P = Plan<HotRows<5, RowWise<T>>>;
  static_assert(P::replicates && P::exchanges && P::whole_rows && P::known_widths);
}

TEST_CASE("dealt rows: memory is even, and what ranks ask for, if frequent rows come first") {
  for (const std::int64_t rows : {10'000, 300'000})
    for (const double exponent : {0.8, 1.05, 1.2, 1.5})
      for (const int ranks : {2, 8}) {
        CAPTURE(rows);
        CAPTURE(exponent);
        CAPTURE(ranks);
        // how many ranks, of 8,192 samples in all, ask for each row
        double sum = 0;
        std::vector<double> asked(static_cast<std::size_t>(rows));
        for (std::size_t row = 0; row < asked.size(); ++row)
          sum += asked[row] = std::pow(static_cast<double>(row) + 1.5, -exponent);
        for (double& a : asked) a = ranks * (1 - std::exp(-8192.0 / ranks * a / sum));
        std::vector<double> held(static_cast<std::size_t>(ranks)), load(held), blocks(held);
        for (int i = 0; i < ranks; ++i)
          for (std::int64_t row = even_cut(rows, ranks, i); row < even_cut(rows, ranks, i + 1);
               ++row)
            blocks[static_cast<std::size_t>(i)] += asked[static_cast<std::size_t>(row)];
        const TableSpec table{.name = "t", .rows = rows, .width = 4};
        const int count = RowWise<Interleaved>::count(table, Topology{ranks});
        for (int i = 0; i < count; ++i) {
          const ShardRequest r = RowWise<Interleaved>::shard(table, Topology{ranks}, i);
          const auto rank = static_cast<std::size_t>(r.place.index);
          held[rank] += static_cast<double>(r.rectangle.rows());
          for (std::int64_t row = r.rectangle.row_begin; row < r.rectangle.row_end; ++row)
            load[rank] += asked[static_cast<std::size_t>(row)];
        }
        const auto uneven = [](const std::vector<double>& v) {
          return *std::max_element(v.begin(), v.end()) * static_cast<double>(v.size()) /
                 std::accumulate(v.begin(), v.end(), 0.0);
        };
        CHECK(*std::max_element(held.begin(), held.end()) -
                  *std::min_element(held.begin(), held.end()) <=
              static_cast<double>(count) / ranks);
        CHECK(uneven(load) < 1.10);
        CHECK(uneven(blocks) > 1.4);
      }
}

TEST_CASE("fewer rows than ranks: the ranks without a row hold nothing") {
  const Layout layout = Plan<RowWise<Table<"t", 2, 4>>>::layout({5});
  CHECK(layout.fault.ok());
  CHECK(layout.shards.size() == 2);
}

TEST_CASE("column parts go to different ranks while there are enough") {
  const Layout layout = Plan<ColumnWise<4, User>, ColumnWise<2, Query>>::layout({4});
  CHECK(ranks_of(layout, "user") == std::multiset<int>{0, 1, 2, 3});
  const std::multiset<int> query = ranks_of(layout, "query");
  CHECK(std::set<int>(query.begin(), query.end()).size() == 2);
}

TEST_CASE("fused tables share a rank, pinned ones go where they were told") {
  const Layout layout =
      Plan<TableWise<Fused<Genres, Country, User>>, TableWise<OnRank<2>, Query>>::layout({4});
  CHECK(ranks_of(layout, "genres") == ranks_of(layout, "country"));
  CHECK(ranks_of(layout, "genres") == ranks_of(layout, "user"));
  CHECK(ranks_of(layout, "query") == std::multiset<int>{2});
  CHECK(ranks_of(Plan<TableWise<OnRank<2>, Query>>::layout({2}), "query") == std::multiset<int>{0});
}

TEST_CASE("a grid's columns sit on one node each, their rows on all its ranks") {
  const Layout layout = Plan<Grid<2, Query>>::layout({8, 4});
  REQUIRE(layout.shards.size() == 8);
  std::map<int, std::set<int>> ranks_of_column;
  for (const Shard& shard : layout.shards)
    ranks_of_column[shard.rectangle.column_begin].insert(shard.rank);
  for (const auto& [column, ranks] : ranks_of_column)
    CHECK((ranks == std::set<int>{0, 1, 2, 3} || ranks == std::set<int>{4, 5, 6, 7}));
  CHECK(ranks_of_column[0] != ranks_of_column[32]);
}

namespace many {
constexpr std::size_t kCount = 600;
constexpr auto kNames = [] {
  std::array<std::array<char, 6>, kCount> names{};
  for (std::size_t i = 0; i < kCount; ++i)
    names[i] = {'t',
                static_cast<char>('0' + i / 100),
                static_cast<char>('0' + i / 10 % 10),
                static_cast<char>('0' + i % 10),
                0,
                0};
  return names;
}();
constexpr auto kSpecs = [] {
  std::array<TableSpec, kCount> specs{};
  for (std::size_t i = 0; i < kCount; ++i)
    specs[i] = {std::string_view(kNames[i].data(), 4),
                static_cast<std::int64_t>(10 + i * i % 977 * 100), 8 << (i % 3)};
  return specs;
}();
using Tables600 = Plan<TableWise<Tables<kSpecs>>>;
}  // namespace many

TEST_CASE("600 tables from an array: placed so that memory is level") {
  const Layout layout = many::Tables600::layout({8});
  REQUIRE(layout.fault.ok());
  std::int64_t most = 0, total = 0;
  for (int rank = 0; rank < 8; ++rank) {
    most = std::max(most, layout.elements(rank));
    total += layout.elements(rank);
  }
  CHECK(static_cast<double>(most) * 8 / static_cast<double>(total) < 1.05);
}

TEST_CASE("lookups are balanced too: equal tables of many features spread over the ranks") {
  // Four small tables that everybody reads often, four large ones read once.
  using Hot =
      TableWise<Table<"h0", 10, 16>, Table<"h1", 10, 16>, Table<"h2", 10, 16>, Table<"h3", 10, 16>>;
  using Cold = TableWise<Table<"c0", 10000, 16>, Table<"c1", 10000, 16>, Table<"c2", 10000, 16>,
                         Table<"c3", 10000, 16>>;
  const Layout layout = Plan<Hot, Cold>::layout({4});
  for (const auto* group : {"h", "c"}) {
    std::set<int> ranks;
    for (int i = 0; i < 4; ++i) ranks.insert(*ranks_of(layout, group + std::to_string(i)).begin());
    CHECK(ranks.size() == 4);
  }
}

TEST_CASE("features: several read one table; columns follow their order") {
  using P = Plan<TableWise<Query>, TableWise<Genres>,
                 Features<Feature<"clicked", "genres", Mean>, Feature<"q", "query">,
                          Feature<"seen", "genres", Sum, Weighted>>>;
  const Layout l = P::layout({2});
  REQUIRE(l.features.size() == 3);
  CHECK(l.feature_table == std::vector<int>{1, 0, 1});
  CHECK(l.feature_column == std::vector<std::int64_t>{0, 16, 80, 96});
  CHECK(l.features[2].weighted);
  CHECK(l.features[0].pooling == Pooling::mean);
}

TEST_CASE("rows given at run time; faults are named") {
  using P = Plan<RowWise<Table<"a", dynamic_rows, 8>>, TableWise<Table<"b", 5, 8>>>;
  const detail::TableRows good[] = {{"a", 100}};
  CHECK(P::layout({4}, good).fault.ok());
  CHECK(P::layout({4}, good).tables[0].rows == 100);
  CHECK(describe(P::layout({4}).fault).find("'a' has -1 rows") != std::string::npos);
  const detail::TableRows unknown[] = {{"a", 100}, {"nobody", 3}};
  CHECK(describe(P::layout({4}, unknown).fault).find("nobody") != std::string::npos);
  const detail::TableRows misspelled[] = {{"A", 100}};
  CHECK(describe(P::layout({4}, misspelled).fault).find("rows are given for a table 'A'") !=
        std::string::npos);
  const detail::TableRows huge[] = {{"a", std::int64_t{1} << 62}};
  CHECK(
      describe(P::layout({4}, huge).fault).find("no more than 9007199254740992 can be numbered") !=
      std::string::npos);
  using Both = Plan<RowWise<Table<"a", dynamic_rows, 8>>, RowWise<Table<"b", dynamic_rows, 8>>>;
  constexpr std::int64_t half = std::int64_t{1} << 52;
  const detail::TableRows halves[] = {{"a", half}, {"b", half}};
  CHECK(Both::layout({4}, halves).fault.ok());
  const detail::TableRows more[] = {{"a", half}, {"b", half + 1}};
  CHECK(describe(Both::layout({4}, more).fault).find("no more than 4503599627370496 can be") !=
        std::string::npos);
  CHECK(describe(P::layout({0}, good).fault).find("a layout for 0 ranks") != std::string::npos);
  CHECK(describe(P::layout({-2}, good).fault).find("a layout for -2 ranks") != std::string::npos);
  const detail::TableRows none[] = {{"a", 0}};
  CHECK(describe(P::layout({4}, none).fault).find("'a' has 0 rows") != std::string::npos);
}

TEST_CASE("layouts made by hand are checked") {
  const std::vector<TableSpec> tables{{"a", 10, 4}, {"b", 6, 2}};
  const auto fault = [&](std::vector<Shard> shards) {
    return describe(make_layout({2}, tables, {}, std::move(shards)).fault);
  };
  CHECK(fault({{0, {0, 10, 0, 4}, 0}, {1, {0, 6, 0, 2}, 1}}) == "no fault");
  CHECK(fault({{1, {0, 6, 0, 2}, 1}, {0, {5, 10, 0, 4}, 0}, {0, {0, 5, 0, 4}, 1}}) == "no fault");
  CHECK(fault({{0, {0, 9, 0, 4}, 0}, {1, {0, 6, 0, 2}, 1}}).find("'a' cover 36 of its 40") !=
        std::string::npos);
  CHECK(fault({{0, {0, 10, 0, 4}, 0}, {0, {9, 10, 0, 1}, 0}, {1, {0, 6, 0, 2}, 1}})
            .find("'a' overlap") != std::string::npos);
  CHECK(fault({{0, {0, 11, 0, 4}, 0}, {1, {0, 6, 0, 2}, 1}}).find("outside") != std::string::npos);
  CHECK(fault({{0, {0, 10, 0, 4}, 2}, {1, {0, 6, 0, 2}, 1}}).find("rank 2") != std::string::npos);
  CHECK(fault({{0, {0, 10, 0, 4}, 0}}).find("'b'") != std::string::npos);
  CHECK(fault({{0, {10, 0, 4, 0}, 0}, {1, {0, 6, 0, 2}, 1}}).find("ends before it begins") !=
        std::string::npos);
  for (const int table : {-1, 2})
    CHECK(fault({{0, {0, 10, 0, 4}, 0}, {1, {0, 6, 0, 2}, 1}, {table, {0, 1, 0, 1}, 0}})
              .find(fmt::format("of table {}", table)) != std::string::npos);
  CHECK(
      describe(make_layout({0}, {{"a", 1, 1}}, {}, {{0, {0, 1, 0, 1}, 0}}).fault).find("0 ranks") !=
      std::string::npos);
  CHECK(describe(make_layout({1}, {{"a", 1, 1}, {"a", 1, 1}}, {}, {}).fault).find("placed twice") !=
        std::string::npos);
  CHECK(describe(make_layout({1}, {{"a", 1, 0}}, {}, {}).fault).find("width 0") !=
        std::string::npos);
  CHECK(describe(make_layout({1}, {{"a", 1, 1}}, {{"f", "x"}}, {{0, {0, 1, 0, 1}, 0}}).fault) ==
        "Plan: feature 'f' reads table 'x', which the plan does not hold");
  CHECK(describe(
            make_layout({1}, {{"a", 1, 1}}, {{"f", "a"}, {"f", "a"}}, {{0, {0, 1, 0, 1}, 0}}).fault)
            .find("listed twice") != std::string::npos);
}

TEST_CASE("random rectangles: gaps and overlaps are those of a count of cells") {
  std::mt19937 draw(7);
  const auto below = [&](int n) { return static_cast<int>(draw() % static_cast<unsigned>(n)); };
  std::map<PlanFault::Kind, int> seen;
  for (int round = 0; round < 4000; ++round) {
    const int rows = 1 + below(6), width = 1 + below(6);
    Layout layout{.topology = {1}, .tables = {{.name = "t", .rows = rows, .width = width}}};
    // A table cut at random, until it is in up to eight pieces; one may be moved, one be doubled.
    std::vector<Rectangle> pieces{{0, rows, 0, width}};
    for (int cut = below(8); cut > 0; --cut) {
      Rectangle& r = pieces[static_cast<std::size_t>(below(static_cast<int>(pieces.size())))];
      Rectangle rest = r;
      if (below(2) == 0)
        r.row_end = rest.row_begin = r.row_begin + below(static_cast<int>(r.rows()) + 1);
      else
        r.column_end = rest.column_begin = r.column_begin + below(r.width() + 1);
      pieces.push_back(rest);
    }
    if (below(3) == 0) {
      Rectangle& r = pieces[static_cast<std::size_t>(below(static_cast<int>(pieces.size())))];
      r.row_begin = below(static_cast<int>(r.row_end) + 1);
      r.column_end = r.column_begin + below(width - r.column_begin + 1);
    }
    std::shuffle(pieces.begin(), pieces.end(), draw);
    std::vector<int> holders(static_cast<std::size_t>(rows * width));
    std::int64_t covered = 0;
    for (const Rectangle& r : pieces) {
      layout.shards.push_back({0, r, 0});
      covered += r.elements();
      for (std::int64_t row = r.row_begin; row < r.row_end; ++row)
        for (int column = r.column_begin; column < r.column_end; ++column)
          ++holders[static_cast<std::size_t>(row * width + column)];
    }
    PlanFault::Kind expected =
        covered == rows * width ? PlanFault::Kind::none : PlanFault::Kind::gap;
    for (const int n : holders)
      if (n > 1) expected = PlanFault::Kind::overlap;
    CHECK(detail::check_cover(layout).kind == expected);
    ++seen[expected];
  }
  for (const auto kind : {PlanFault::Kind::none, PlanFault::Kind::gap, PlanFault::Kind::overlap})
    CHECK(seen[kind] > 100);
}

TEST_CASE("memory: the fault names the table, what is needed and what is there") {
  const Layout layout = Plan<RowWise<Query>, TableWise<User>>::layout({2});
  CHECK(detail::check_memory(layout, {4, 0}, 1_GiB).ok());
  const PlanFault fault = detail::check_memory(layout, {8, 4}, 1000);
  CHECK(std::string(fault.name) == "query");
  CHECK(fault.limit == 1000);
  // The rank with the user table: half of query's rows and all of user's, 8 bytes an element and 4
  // a row.
  CHECK(fault.found == (500 * 64 + 400 * 32) * 8 + (500 + 400) * 4);
}
