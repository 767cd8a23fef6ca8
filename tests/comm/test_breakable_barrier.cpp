// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/breakable_barrier.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace ts = tessera;
using namespace std::chrono_literals;
using Barrier = ts::detail::BreakableBarrier;
using Outcome = ts::detail::BreakableBarrier::Outcome;

namespace {

constexpr auto kNever = Barrier::Clock::time_point::max();

}  // namespace

TEST_CASE(
    "a round that completes after a deadline, before the late thread breaks it, is complete") {
  Barrier barrier(2);
  CHECK(barrier.arrive(0, Barrier::Clock::now()) == Outcome::late);
  CHECK(barrier.arrive(1, kNever) == Outcome::complete);
  CHECK_FALSE(barrier.break_round(0));
  CHECK(barrier.round() == 1);
  // not broken: the next round waits
  CHECK(barrier.arrive(0, Barrier::Clock::now() + 1ms) == Outcome::late);
}

TEST_CASE("a round that the late thread breaks does not complete any more") {
  Barrier barrier(2);
  CHECK(barrier.arrive(0, Barrier::Clock::now()) == Outcome::late);
  CHECK(barrier.break_round(0));
  CHECK(barrier.arrive(1, kNever) == Outcome::broken);
  CHECK(barrier.arrive(0, kNever) == Outcome::broken);
  CHECK(barrier.round() == 0);
}

TEST_CASE("breaking wakes who sleeps, but not from a committed round") {
  Barrier barrier(3);
  std::atomic<int> through{0};
  std::jthread first([&] { barrier.arrive_committed(0), ++through; });
  std::jthread second([&] { barrier.arrive_committed(1), ++through; });
  std::this_thread::sleep_for(20ms);
  barrier.break_now();
  std::this_thread::sleep_for(20ms);
  CHECK(through == 0);
  barrier.arrive_committed(2);
  first.join();
  second.join();
  CHECK(through == 2);
  CHECK(barrier.arrive(2, kNever) == Outcome::broken);

  Barrier other(2);
  std::jthread sleeper([&] { CHECK(other.arrive(0, kNever) == Outcome::broken); });
  std::this_thread::sleep_for(20ms);
  other.break_now();
}

TEST_CASE("threads meet as often as asked, whether they spin, sleep, or share a core") {
  for (const int ranks : {2, 3}) {
    CAPTURE(ranks);
    Barrier barrier(ranks);
    constexpr int rounds = 2000;
    std::atomic<int> came{0}, early{0};
    const auto meet = [&](int rank) {
      for (int round = 1; round <= rounds; ++round) {
        if (round % 500 == 0) std::this_thread::sleep_for(1ms * rank);
        ++came;
        barrier.arrive_committed(rank);
        if (came < round * ranks) ++early;
      }
    };
    {
      std::vector<std::jthread> threads;
      for (int r = 0; r < ranks; ++r) threads.emplace_back(meet, r);
    }
    CHECK(early == 0);
    CHECK(barrier.round() == rounds);
  }
}
