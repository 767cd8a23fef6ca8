// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A sharding policy and an optimizer of a user's own, without a change to the library. The policy
// needs two functions, the optimizer two small structs; routing, exchange, kernels, checks and the
// picture of the plan follow from them.
#include <tessera/laws.hpp>
#include <tessera/planner.hpp>
#include <tessera/tessera.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ts = tessera;

// [policy]
/// The first rows, which are the most frequent if ids are sorted by frequency, have a copy on
/// every rank; the others are cut into a block for each rank. A table that is not longer has copies
/// alone.
template <std::int64_t HotRows, class... Sources>
struct HotRowsReplicated {
  using tables = ts::TableList<Sources...>;

  static constexpr int count(const ts::TableSpec&, const ts::Topology& topology) {
    return 1 + topology.ranks;
  }

  static constexpr ts::ShardRequest shard(const ts::TableSpec& table, const ts::Topology& topology,
                                          int i) {
    const std::int64_t hot = std::min(HotRows, table.rows), rest = table.rows - hot;
    if (i == 0) return {{0, hot, 0, table.width}, {.kind = ts::Place::Kind::every}};
    const int rank = i - 1;
    return {{hot + ts::even_cut(rest, topology.ranks, rank),
             hot + ts::even_cut(rest, topology.ranks, rank + 1), 0, table.width},
            {.kind = ts::Place::Kind::rank, .index = rank}};
  }
};
static_assert(ts::ShardingPolicy<HotRowsReplicated<8>>);
// [policy end]

// [planned]
/// The compiler cuts each table by the policy if that is faster than the cuts of the library.
using Query = ts::Table<"query", 40'000'000, 64>;
using User = ts::Table<"user", 3'000'000, 64>;
using Planned =
    ts::AutoPlan<ts::TableList<Query, User>, ts::dgx_a100(8), ts::Workload{.sorted_ids = true},
                 ts::Consider<HotRowsReplicated<100'000>, "hot rows">>;
static_assert(Planned::layout(ts::Topology{8}).fault.ok());
// [planned end]

/// Momentum: v = beta v + g; w -= lr v. Only rows that a batch touches move.
struct Momentum {
  float beta = 0.9f;

  static constexpr int element_states = 1, row_states = 0;
  static constexpr bool needs_mean_square = false;
  static constexpr std::array<std::string_view, 1> state_names{"velocity"};

  struct Step {
    float learning_rate, beta;
    struct Row {};
    TESSERA_HOST_DEVICE Row row(float*, float) const { return {}; }
    TESSERA_HOST_DEVICE float element(float weight, float gradient, float* velocity,
                                      const Row&) const {
      velocity[0] = beta * velocity[0] + gradient;
      return weight - learning_rate * velocity[0];
    }
  };
  constexpr float initial_state(int) const { return 0; }
  constexpr Step at(float learning_rate, std::int64_t) const { return {learning_rate, beta}; }
};
static_assert(ts::Optimizer<Momentum>);

using Item = ts::Table<"item", 1000, 8>;
using Shop = ts::Table<"shop", 40, 8>;
using Plan = ts::Plan<HotRowsReplicated<50, Item>, ts::TableWise<Shop>>;
// 1 + 4 rectangles of Item, one of Shop
static_assert(Plan::layout(ts::Topology{4}).shards.size() == 6);

/// Pulls the sum of an item's and its shop's vector towards a target that depends on both; returns
/// the error before each step.
std::vector<float> train(int ranks) {
  constexpr int kBatch = 24, kSteps = 60, kColumns = 16;
  std::vector<float> errors(kSteps);
  ts::run_ranks(ranks, [&](ts::ThreadCommunicator& rank) {
    using Embeddings = ts::EmbeddingCollection<Plan, Momentum, ts::Host, ts::ThreadCommunicator>;
    Embeddings embeddings(rank, ts::Host(),
                          {.learning_rate = 0.05f, .seed = 7, .optimizer = {.beta = 0.8f}});
    if (rank.rank() == 0 && ranks == 4)
      for (const ts::Shard& shard : embeddings.layout().shards)
        fmt::print(
            "{} rows [{}, {}) on {}\n", embeddings.layout().tables[shard.table].name,
            shard.rectangle.row_begin, shard.rectangle.row_end,
            shard.rank == ts::every_rank ? "every rank" : fmt::format("rank {}", shard.rank));

    const std::int64_t first = ts::even_cut(kBatch, ranks, rank.rank()),
                       count = ts::even_cut(kBatch, ranks, rank.rank() + 1) - first;
    std::vector<std::int32_t> ids(2 * count);
    for (std::int64_t s = 0; s < count; ++s) {
      // some hot, some not, some twice
      ids[s] = static_cast<std::int32_t>((first + s) * (first + s) % 1000);
      ids[count + s] = static_cast<std::int32_t>((first + s) % 40);
    }
    ts::Matrix<float> gradient(count, kColumns);
    for (int step = 0; step < kSteps; ++step) {
      // features, batch, ids
      const auto pooled = embeddings.forward(ts::KeyedJagged<std::int32_t>{2, count, ids, {}, {}});
      double error = 0;
      for (std::int64_t s = 0; s < count; ++s)
        for (int c = 0; c < 8; ++c) {
          const float miss = pooled.values(s, c) + pooled.values(s, 8 + c) -
                             0.1f * static_cast<float>((first + s + c) % 5);
          gradient.view()(s, c) = gradient.view()(s, 8 + c) = miss;
          error += miss * miss;
        }
      rank.all_reduce(std::span<double>(&error, 1));
      errors[step] = static_cast<float>(error);
      embeddings.backward(pooled, gradient);
    }
  });
  return errors;
}

int main() {
  // [laws]
  for (const std::string& fault : ts::laws::sharding_policy_laws<HotRowsReplicated<8>>())
    fmt::print("policy: {}\n", fault);
  for (const std::string& fault : ts::laws::optimizer_laws(Momentum()))
    fmt::print("optimizer: {}\n", fault);
  // [laws end]
  const std::vector<float> four = train(4), one = train(1);
  for (const int step : {0, 20, 40, 59})
    fmt::print("step {:>2}: squared error {:.5f} on 4 ranks, {:.5f} on one\n", step, four[step],
               one[step]);
  const bool same = std::equal(four.begin(), four.end(), one.begin(),
                               [](float a, float b) { return std::abs(a - b) <= 1e-5f * (1 + b); });
  const bool learned = four.back() < 0.01f * four.front();
  fmt::print("{}, {}\n", same ? "any number of ranks gives one answer" : "the ranks DISAGREE",
             learned ? "learned" : "NOT learned");
  return same && learned ? 0 : 1;
}
