// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// VirtualRanks and with_fixed_sums: the same bits on any number of ranks, under any plan.
#include <tessera/tessera.hpp>

#include <tessera/sharding/fixed_sums.hpp>
#include <tessera/update/virtual_ranks.hpp>

#include <doctest/doctest.h>
#include <support/same_bits.hpp>

#include <algorithm>
#include <mutex>
#include <random>
#include <set>
#include <utility>
#include <vector>

using namespace tessera;

namespace {

constexpr int kParts = 8;

using Word = Table<"word", 203, 16>;
using User = Table<"user", 60, 32>;
using Country = Table<"country", 5, 16>;

std::vector<FeatureSpec> features() {
  return {
      {"word", "word"}, {"title", "word", Pooling::mean}, {"user", "user"}, {"country", "country"}};
}
/// Of features: all but the last have bags of several ids.
const std::vector<bool> kLists{true, true, true, false};

/// A plan's layout, with these features.
template <class PlanT>
Layout layout_of(int ranks) {
  const Layout layout = PlanT::layout({ranks, ranks > 1 ? ranks / 2 : 0});
  return make_layout(layout.topology, layout.tables, features(), layout.shards);
}
using Layouts = std::vector<Layout (*)(int)>;
const Layouts kLayouts{&layout_of<Plan<TableWise<Word, User, Country>>>,
                       &layout_of<Plan<RowWise<Word, User, Country>>>,
                       &layout_of<Plan<ColumnWise<2, Word, User, Country>>>,
                       &layout_of<Plan<Replicated<Word, User, Country>>>,
                       &layout_of<Plan<Grid<2, Word>, RowWise<User>, Replicated<Country>>>};

constexpr std::int64_t kSamples = 37;

/// Some samples of the global batch of a step.
struct Batch {
  std::vector<std::int64_t> ids, offsets{0};
  std::vector<float> gradient;
  std::int64_t samples;

  Batch(unsigned step, std::int64_t begin, std::int64_t end, std::int64_t columns)
      : samples(end - begin) {
    const std::int64_t rows[] = {203, 203, 60, 5};
    for (unsigned f = 0; f < 4; ++f)
      for (std::int64_t s = 0; s < kSamples; ++s) {
        std::minstd_rand random(1 + 7919 * (step * 1000 + f * 100 + static_cast<unsigned>(s)));
        random.discard(5);
        const unsigned count = kLists[f] ? static_cast<unsigned>(random()) % 6 : 1;
        if (s < begin || s >= end) continue;
        for (unsigned i = 0; i < count; ++i)
          ids.push_back(static_cast<std::int64_t>(random() % static_cast<unsigned>(rows[f])));
        offsets.push_back(std::ssize(ids));
      }
    std::minstd_rand random(step + 1);
    for (std::int64_t i = 0; i < kSamples * columns; ++i) {
      const auto g = static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 1000;
      if (i >= begin * columns && i < end * columns) gradient.push_back(g);
    }
  }
};

struct Model {
  std::vector<float> outputs;              // of all steps, all ranks
  std::vector<std::vector<float>> tables;  // at the end
};

Model train(const Layout& layout) {
  Model model;
  const int steps = 3, ranks = layout.ranks();
  const std::int64_t columns = layout.columns();
  model.outputs.resize(static_cast<std::size_t>(steps * kSamples * columns));
  for (const TableSpec& t : layout.tables)
    model.tables.emplace_back(static_cast<std::size_t>(t.rows * t.width));
  std::mutex mutex;
  run_ranks(ranks, [&](ThreadCommunicator& c) {
    LayoutCollection<Widths<>, RowWiseAdagrad, Host, ThreadCommunicator> e{
        c, Host{}, layout, {.learning_rate = 0.125f, .seed = 7}};
    const detail::VirtualRanks<Host> parts(Host{}, kParts, c.rank(), ranks);
    const std::int64_t begin = parts.first(kSamples),
                       end = begin + parts.begin(kSamples, parts.count());
    for (int step = 0; step < steps; ++step) {
      const Batch batch(static_cast<unsigned>(step), begin, end, columns);
      const auto pooled =
          e.forward(KeyedJagged<std::int64_t>{4, batch.samples, batch.ids, batch.offsets, {}});
      std::copy_n(pooled.values.data, batch.samples * columns,
                  model.outputs.data() + (step * kSamples + begin) * columns);
      e.backward(pooled, {batch.gradient.data(), batch.samples, columns});
    }
    const std::lock_guard lock(mutex);
    for (std::size_t t = 0; t < layout.tables.size(); ++t)
      e.tables().get(layout.tables[t].name,
                     {model.tables[t].data(), layout.tables[t].rows, layout.tables[t].width});
  });
  return model;
}

std::vector<float> random_values(unsigned seed, std::size_t count) {
  std::minstd_rand random(seed + 1);
  random.discard(10);
  std::vector<float> values(count);
  for (float& x : values) x = static_cast<float>(random() % 20'000'001) / 1e4f - 1000;
  return values;
}

}  // namespace

TEST_CASE("fixed sums: one model under any plan, on 1, 2, 4 and 8 ranks") {
  const Model one = train(detail::with_fixed_sums(kLayouts[0](1), kParts, kLists));
  int differed = 0;  // what this is for
  for (std::size_t plan = 0; plan < kLayouts.size(); ++plan)
    for (const int ranks : {1, 2, 4, 8}) {
      if (plan == 4 && ranks == 1) continue;  // two nodes
      CAPTURE(plan);
      CAPTURE(ranks);
      const Layout layout = kLayouts[plan](ranks),
                   fixed = detail::with_fixed_sums(layout, kParts, kLists);
      REQUIRE(fixed.fault.ok());
      const Model found = train(fixed);
      CHECK(same_bits(found.outputs, one.outputs));
      for (std::size_t t = 0; t < found.tables.size(); ++t)
        CHECK(same_bits(found.tables[t], one.tables[t]));
      if (ranks == 4) differed += !same_bits(train(layout).outputs, one.outputs);
    }
  CHECK(differed > 0);
}

TEST_CASE("fixed sums: tables with lists have the same cuts everywhere, copies are gone") {
  for (std::size_t plan = 0; plan < kLayouts.size(); ++plan)
    for (const int ranks : {2, 4, 8}) {
      CAPTURE(plan);
      CAPTURE(ranks);
      const Layout layout = kLayouts[plan](ranks),
                   fixed = detail::with_fixed_sums(layout, kParts, kLists);
      std::set<std::int64_t> expected, edges;
      for (int k = 0; k <= kParts; ++k) expected.insert(even_cut(203, kParts, k));
      for (const Shard& shard : fixed.shards) {
        CHECK(shard.rank >= 0);
        if (shard.table != 0) continue;
        edges.insert(shard.rectangle.row_begin);
        edges.insert(shard.rectangle.row_end);
      }
      CHECK(edges == expected);
      // one id a bag needs no cut
      if (plan == 0) CHECK(std::ranges::count(fixed.shards, 2, &Shard::table) == 1);
    }
  // copies go to the emptiest ranks: 203 x 16, 60 x 32, 5 x 16
  const Layout fixed = detail::with_fixed_sums(kLayouts[3](4), kParts, std::vector<bool>(4));
  REQUIRE(fixed.shards.size() == 3);
  CHECK(std::set<int>{fixed.shards[0].rank, fixed.shards[1].rank, fixed.shards[2].rank}.size() ==
        3);
  CHECK_THROWS_WITH_AS(detail::with_fixed_sums(fixed, 0, kLists),
                       doctest::Contains("give 1 or more"), InvalidArgument);
  CHECK_THROWS_WITH_AS(detail::with_fixed_sums(fixed, 8, {true}),
                       doctest::Contains("1 entries for 4"), InvalidArgument);
}

TEST_CASE("virtual ranks: one tree of sums on any number of ranks") {
  constexpr std::size_t size = 13;  // not divided by the ranks
  std::vector<std::vector<float>> level;
  std::vector<double> losses, tree;
  for (unsigned p = 0; p < kParts; ++p) {
    level.push_back(random_values(p, size));
    losses.push_back(level[p][0] / 3.0);
  }
  const std::vector<std::vector<float>> parts = level;
  tree = losses;
  for (; level.size() > 1; level.resize(level.size() / 2), tree.resize(tree.size() / 2))
    for (std::size_t i = 0; i < level.size() / 2; ++i) {
      std::vector<float> sum(size);
      for (std::size_t k = 0; k < size; ++k) sum[k] = level[2 * i][k] + level[2 * i + 1][k];
      level[i] = sum;
      tree[i] = tree[2 * i] + tree[2 * i + 1];
    }
  std::vector<float> in_order(size);
  for (const auto& part : parts)
    for (std::size_t k = 0; k < size; ++k) in_order[k] += part[k];
  CHECK(!same_bits(in_order, level[0]));
  for (const int ranks : {1, 2, 4, 8})
    run_ranks(ranks, [&](ThreadCommunicator& c) {
      detail::VirtualRanks<Host> mine(Host{}, kParts, c.rank(), ranks);
      for (int step = 0; step < 2; ++step) {
        std::vector<float> sum(size);
        std::vector<double> own;
        for (int k = 0; k < mine.count(); ++k) {
          const auto p = static_cast<std::size_t>(c.rank() * mine.count() + k);
          mine.add(parts[p]);
          own.push_back(losses[p]);
        }
        mine.all_reduce(c, std::span<float>(sum));
        CHECK(same_bits(sum, level[0]));
        CHECK(mine.sum(c, own) == tree[0]);
      }
    });
}

TEST_CASE("virtual ranks: parts of a batch, and what they refuse") {
  for (const int ranks : {1, 2, 8})
    for (const std::int64_t batch : {0, 3, 64, 101}) {
      std::int64_t at = 0;
      for (int r = 0; r < ranks; ++r) {
        const detail::VirtualRanks<Host> mine(Host{}, kParts, r, ranks);
        CHECK(mine.count() == kParts / ranks);
        CHECK(mine.first(batch) == at);
        for (int k = 0; k < mine.count();
             ++k, at += batch / kParts + (at < batch % kParts * (batch / kParts + 1)))
          CHECK(mine.first(batch) + mine.begin(batch, k) == at);
      }
      CHECK(at == batch);
    }
  CHECK_THROWS_WITH_AS(detail::VirtualRanks<Host>(Host{}, 6, 0, 2),
                       doctest::Contains("power of two"), InvalidArgument);
  CHECK_THROWS_WITH_AS(detail::VirtualRanks<Host>(Host{}, 8, 0, 3), doctest::Contains("3 ranks"),
                       InvalidArgument);
  CHECK_THROWS_WITH_AS(detail::VirtualRanks<Host>(Host{}, 2, 0, 4), doctest::Contains("at most"),
                       InvalidArgument);
  SelfCommunicator self;
  detail::VirtualRanks<Host> mine(Host{}, 2, 0, 1);
  std::vector<float> values(3);
  mine.add(values);
  CHECK_THROWS_WITH_AS(mine.all_reduce(self, std::span<float>(values)),
                       doctest::Contains("1 of this rank's 2 parts"), InvalidArgument);
}

TEST_CASE("parts of a shard share its cache") {
  using Files = Plan<Cached<1000, OnFile<RowWise<Table<"t", 100'000, 4>>>>>;
  for (const int ranks : {1, 2, 4}) {
    std::int64_t rows = 0;
    for (const Shard& shard :
         detail::with_fixed_sums(Files::layout(Topology{ranks}), 64, {true}).shards)
      rows += shard.cache_rows;
    CHECK(rows >= 1000 * ranks);
    CHECK(rows <= 1000 * ranks + 64);
  }
}
