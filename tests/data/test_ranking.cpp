// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranking metrics against their definitions over sorted lists in double; draws of negatives against
// the probabilities that they claim.
#include <tessera_data/negative_sampler.hpp>
#include <tessera_data/ranking_metrics.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

using namespace tessera;

TEST_CASE("ranks, hit rate, NDCG and reciprocal rank, from lists sorted by score") {
  std::mt19937 random(3);
  for (const int cutoff : {1, 3, 10}) {
    RankingMetrics metrics(cutoff), merged(cutoff),
        parts[3]{RankingMetrics(cutoff), RankingMetrics(cutoff), RankingMetrics(cutoff)};
    double hits = 0, gains = 0, reciprocals = 0;
    constexpr int kRankings = 200, kItems = 40;
    for (int i = 0; i < kRankings; ++i) {
      std::vector<float> scores(kItems);
      for (float& score : scores) score = static_cast<float>(random() % 1000);
      std::vector<std::int32_t> without(random() % 12);
      for (std::int32_t& item : without) item = static_cast<std::int32_t>(random() % kItems);
      const int target = static_cast<int>(random() % kItems);
      // best first; among equals the target comes last
      std::vector<int> list;
      for (int item = 0; item < kItems; ++item)
        if (item == target || std::find(without.begin(), without.end(), item) == without.end())
          list.push_back(item);
      std::sort(list.begin(), list.end(), [&](int a, int b) {
        return scores[a] != scores[b] ? scores[a] > scores[b] : (b == target) > (a == target);
      });
      const auto place =
          static_cast<int>(std::find(list.begin(), list.end(), target) - list.begin());
      const std::int64_t rank =
          rank_of(std::span<const float>(scores), target, std::span<const std::int32_t>(without));
      CHECK(rank == place);
      metrics.add(rank);
      parts[i % 3].add(rank);
      hits += place < cutoff;
      gains += place < cutoff ? std::log(2.0) / std::log(place + 2.0) : 0;
      reciprocals += 1.0 / (place + 1);
    }
    CHECK(metrics.count() == kRankings);
    CHECK(metrics.hit_rate() == doctest::Approx(hits / kRankings).epsilon(1e-14));
    CHECK(metrics.ndcg() == doctest::Approx(gains / kRankings).epsilon(1e-13));
    CHECK(metrics.mean_reciprocal_rank() ==
          doctest::Approx(reciprocals / kRankings).epsilon(1e-13));
    for (const int r : {2, 0, 1}) merged.merge(parts[r]);
    CHECK(merged.ndcg() == metrics.ndcg());
    CHECK(merged.mean_reciprocal_rank() == metrics.mean_reciprocal_rank());
  }
}

TEST_CASE("ties are lost, NaN is an error") {
  std::vector<float> same(5, 1.0f);
  const std::vector<std::int32_t> none;
  CHECK(rank_of<std::int32_t>(same, 2, none) == 4);
  same[4] = std::numeric_limits<float>::quiet_NaN();
  CHECK_THROWS_AS(rank_of<std::int32_t>(same, 2, none), InvalidArgument);
  const std::vector<float> scores{1, 2};
  CHECK_THROWS_AS(rank_of<std::int32_t>(scores, 2, none), InvalidArgument);
  const std::vector<std::int32_t> outside{7};
  CHECK_THROWS_AS(rank_of<std::int32_t>(scores, 0, outside), InvalidArgument);
  CHECK_THROWS_AS(RankingMetrics(0), InvalidArgument);
  RankingMetrics metrics;
  CHECK(std::isnan(metrics.hit_rate()));
  CHECK_THROWS_AS(metrics.add(-1), InvalidArgument);
}

TEST_CASE("negatives come as often as their probabilities say, the same for the same step") {
  const std::vector<std::int64_t> counts{0, 3, 99, 0, 15, 1};
  for (const double power : {0.0, 0.5, 1.0}) {
    CAPTURE(power);
    const NegativeSampler sampler(counts, power, 5);
    double sum = 0;
    for (const std::int64_t count : counts) sum += std::pow(count + 1.0, power);
    std::vector<std::int32_t> drawn(60'000), again(drawn.size());
    sampler.draw(7, std::span(drawn));
    sampler.draw(7, std::span(again));
    CHECK(drawn == again);
    sampler.draw(8, std::span(again));
    CHECK(drawn != again);
    for (std::size_t item = 0; item < counts.size(); ++item) {
      const double p = std::pow(counts[item] + 1.0, power) / sum;
      CHECK(std::exp(sampler.log_probability(static_cast<int>(item))) ==
            doctest::Approx(p).epsilon(1e-5));
      const double share =
          static_cast<double>(std::count(drawn.begin(), drawn.end(), static_cast<int>(item))) /
          static_cast<double>(drawn.size());
      CHECK(std::abs(share - p) < 5 * std::sqrt(p / static_cast<double>(drawn.size())));
    }
  }
  CHECK(NegativeSampler(3, 1).log_probability(2) == doctest::Approx(std::log(1.0 / 3)));
  CHECK_THROWS_AS(NegativeSampler(0, 1), InvalidArgument);
  CHECK_THROWS_AS(NegativeSampler(std::vector<std::int64_t>{1, -1}, 1, 1), InvalidArgument);
  CHECK_THROWS_AS(NegativeSampler(counts, -1, 1), InvalidArgument);
}

TEST_CASE("unseen items: distinct, none that was seen, all where there are few") {
  const std::vector<std::int32_t> seen{0, 3, 3, 8};
  std::vector<int> times(40);
  for (std::uint64_t seed = 0; seed < 2'000; ++seed) {
    const auto drawn = draw_unseen<std::int32_t>(40, seen, 10, seed);
    REQUIRE(drawn.size() == 10);
    for (const std::int32_t item : drawn) ++times[static_cast<std::size_t>(item)];
    CHECK(std::set<std::int32_t>(drawn.begin(), drawn.end()).size() == 10);
    CHECK(drawn == draw_unseen<std::int32_t>(40, seen, 10, seed));
  }
  for (int item = 0; item < 40; ++item)
    if (item == 0 || item == 3 || item == 8)
      CHECK(times[item] == 0);
    else
      CHECK(std::abs(times[item] / 2'000.0 - 10.0 / 37) < 0.06);
  CHECK(draw_unseen<std::int32_t>(10, seen, 100, 1).size() == 7);
  CHECK(draw_unseen<std::int32_t>(10, seen, std::numeric_limits<std::int64_t>::max(), 1).size() ==
        7);
  CHECK(draw_unseen<std::int32_t>(10, seen, 5, 1).size() == 5);
  CHECK(draw_unseen<std::int32_t>(10, seen, 0, 1).empty());
  const std::vector<std::int32_t> unsorted{3, 1};
  CHECK_THROWS_AS(draw_unseen<std::int32_t>(10, unsorted, 1, 1), InvalidArgument);
}
