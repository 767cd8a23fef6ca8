// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/breakable_barrier.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <thread>

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
  CHECK(barrier.arrive(Barrier::Clock::now()) == Outcome::late);
  CHECK(barrier.arrive(kNever) == Outcome::complete);
  CHECK_FALSE(barrier.break_round(0));
  CHECK(barrier.round() == 1);
  // not broken: the next round waits
  CHECK(barrier.arrive(Barrier::Clock::now() + 1ms) == Outcome::late);
}

TEST_CASE("a round that the late thread breaks does not complete any more") {
  Barrier barrier(2);
  CHECK(barrier.arrive(Barrier::Clock::now()) == Outcome::late);
  CHECK(barrier.break_round(0));
  CHECK(barrier.arrive(kNever) == Outcome::broken);
  CHECK(barrier.arrive(kNever) == Outcome::broken);
  CHECK(barrier.round() == 0);
}

TEST_CASE("breaking wakes who sleeps, but not from a committed round") {
  Barrier barrier(3);
  std::atomic<int> through{0};
  std::jthread first([&] { barrier.arrive_committed(), ++through; });
  std::jthread second([&] { barrier.arrive_committed(), ++through; });
  std::this_thread::sleep_for(20ms);
  barrier.break_now();
  std::this_thread::sleep_for(20ms);
  CHECK(through == 0);
  barrier.arrive_committed();
  first.join();
  second.join();
  CHECK(through == 2);
  CHECK(barrier.arrive(kNever) == Outcome::broken);

  Barrier other(2);
  std::jthread sleeper([&] { CHECK(other.arrive(kNever) == Outcome::broken); });
  std::this_thread::sleep_for(20ms);
  other.break_now();
}
