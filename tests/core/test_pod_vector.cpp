// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// PodVector beside std::vector, which it stands in for.
#include <tessera/core/pod_vector.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <random>
#include <span>
#include <utility>
#include <vector>

using tessera::detail::PodVector;

namespace {

struct Job {
  const char* name = "none";
  int count = 7;

  bool operator==(const Job&) const = default;
};

}  // namespace

TEST_CASE("a PodVector holds what a std::vector holds after the same calls") {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    PodVector<Job> ours, other;
    std::vector<Job> theirs, others;
    for (int call = 0; call < 60; ++call) {
      const Job job{nullptr, static_cast<int>(random() % 5)};
      const std::size_t count = random() % 40;
      switch (random() % 11) {
        case 0:
          ours.resize(count), theirs.resize(count);
          break;
        case 1:
          ours.resize(count, job), theirs.resize(count, job);
          break;
        case 2:
          ours.assign(count, job), theirs.assign(count, job);
          break;
        case 3:
          ours.clear(), theirs.clear();
          break;
        case 4:
          ours.reserve(count);
          break;
        case 5:
          ours.remove(job), std::erase(theirs, job);
          break;
        case 6:
          other = ours, others = theirs;
          break;
        case 7:
          std::swap(ours, other), std::swap(theirs, others);
          break;
        case 8:
          ours = std::move(other), theirs = std::move(others);
          other = {job, job}, others = {job, job};
          break;
        case 9:  // of what it has itself
          if (theirs.empty()) break;
          ours.push_back(ours.front()), theirs.push_back(Job(theirs.front()));
          ours.resize(count, ours.back()), theirs.resize(count, Job(theirs.back()));
          if (theirs.empty()) break;
          ours.remove(ours.front()), std::erase(theirs, Job(theirs.front()));
          break;
        default:
          ours.push_back(job), theirs.push_back(job);
      }
      REQUIRE(ours.size() == theirs.size());
      REQUIRE(ours.empty() == theirs.empty());
      REQUIRE(std::equal(ours.begin(), ours.end(), theirs.begin()));
      REQUIRE(std::equal(other.begin(), other.end(), others.begin(), others.end()));
      if (!theirs.empty()) REQUIRE(ours.back() == theirs.back());
    }
    const PodVector<Job> copy = ours;
    const std::span<const Job> span = copy;
    REQUIRE(std::equal(span.begin(), span.end(), theirs.begin(), theirs.end()));
    if (!theirs.empty()) REQUIRE(copy.data() != ours.data());
  }
}

TEST_CASE("a PodVector keeps its memory while there is room in it") {
  PodVector<int> list(10);
  const PodVector<int> others{1, 2, 3};
  const int* const memory = list.data();
  list = others;
  list.push_back(4);
  list.assign(10, 5);
  list = std::as_const(list);
  CHECK(list.size() == 10);
  CHECK(list.data() == memory);
}

TEST_CASE("a PodVector that cannot grow keeps what it has") {
  PodVector<std::int64_t> list{1, 2};
  for (const std::size_t count : {~std::size_t{0}, ~std::size_t{0} / 8})
    CHECK_THROWS_AS(list.reserve(count), std::bad_alloc);
  list.push_back(3);
  CHECK(std::vector<std::int64_t>(list.begin(), list.end()) == std::vector<std::int64_t>{1, 2, 3});
}
