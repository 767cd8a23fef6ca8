// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Duplicate removal before the exchange, against the same training without it, and by its counters.
#include <tessera/host/distinct_ids.hpp>

#include <collection/deduplicate_bodies.hpp>

#include <doctest/doctest.h>

#include <random>
#include <set>
#include <vector>

using namespace tessera;

TEST_CASE("distinct ids: by definition, for any number of threads, of tables large and small") {
  std::mt19937 random(3);
  for (const int threads : {1, 3})
    for (const bool small : {false, true}) {
      std::vector<std::vector<std::int64_t>> ids(4), distinct(4);
      std::vector<std::vector<std::int32_t>> index(4);
      std::vector<op::DistinctIds<std::int64_t>::Job> jobs;
      for (std::size_t k = 0; k < 4; ++k) {
        const std::int64_t apart = std::int64_t{1} << (small ? k : 10 * k);
        for (std::size_t i = 0; i < 1000 * k; ++i)
          ids[k].push_back(static_cast<std::int64_t>(random() % (100 * k)) * apart - 7);
        distinct[k].resize(ids[k].size());
        index[k].resize(ids[k].size());
        jobs.push_back({ids[k].data(), static_cast<std::int64_t>(ids[k].size()), distinct[k].data(),
                        index[k].data(), -1,
                        small ? static_cast<std::int64_t>(100 * k) * apart : 0});
      }
      op::run<op::DistinctIds<std::int64_t>>(Host({.threads = threads}), {jobs});
      for (std::size_t k = 0; k < 4; ++k) {
        std::set<std::int64_t> expected(ids[k].begin(), ids[k].end());
        expected.erase(expected.begin(), expected.lower_bound(0));  // negative ones are left out
        distinct[k].resize(static_cast<std::size_t>(jobs[k].found));
        CHECK(std::set<std::int64_t>(distinct[k].begin(), distinct[k].end()) == expected);
        CHECK(distinct[k].size() == expected.size());
        bool all = true;
        for (std::size_t i = 0; i < ids[k].size(); ++i)
          all = all &&
                (ids[k][i] < 0 ? index[k][i] == -1
                               : distinct[k][static_cast<std::size_t>(index[k][i])] == ids[k][i]);
        CHECK(all);
      }
    }
}

TEST_CASE("training without duplicates in the exchange: as with them, to float tolerance") {
  without_duplicates::as_with_them<Host>();
}
TEST_CASE(
    "forward: a bag over several blocks of rows is summed in the order of its ids, as on one "
    "rank") {
  without_duplicates::bags_are_summed_in_the_order_of_ids<Host>();
}
TEST_CASE("with codecs: rows travel encoded; the error is that of the codec per id") {
  without_duplicates::rows_travel_encoded<Host>();
}
TEST_CASE(
    "traffic: each distinct id of a feature and a rank travels once, and one row comes back") {
  without_duplicates::each_distinct_id_travels_once<Host>();
}
