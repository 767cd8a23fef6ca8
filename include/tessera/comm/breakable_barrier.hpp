// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>

#include <tessera/core/clock.hpp>

#include <sched.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// A reusable barrier of `ranks` threads that can be broken for ever. Whether a round completes or
/// breaks is one atomic decision: all threads that wait in it see the same. A thread that waits
/// looks for some microseconds whether the others are there, and then sleeps: a sleeper is 25 us
/// late, and then the others wait for it in the next round. It sleeps at once if the threads have
/// fewer cores, or if another one was last seen on its own core, which it would keep from that.
class BreakableBarrier {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Outcome { complete, broken, late };

  explicit BreakableBarrier(int ranks)
      : ranks_(static_cast<std::uint64_t>(ranks)),
        cores_(std::thread::hardware_concurrency() >= static_cast<unsigned>(ranks)
                   ? static_cast<std::size_t>(ranks)
                   : 0) {}

  /// Waits, as one of the ranks, for the others, until the barrier is broken, or until `deadline`.
  /// After `late` this thread still counts as arrived: it must call `break_round`, and go on as if
  /// complete if that returns false.
  Outcome arrive(int rank, Clock::time_point deadline);

  /// Waits for the others, whatever happens: for rounds in which other threads use this thread's
  /// memory.
  void arrive_committed(int rank);

  /// Returns the number of completed rounds. A thread that has not arrived, or is late, cannot miss
  /// one.
  std::uint64_t round() const { return word_.load(std::memory_order_acquire) / kGeneration; }

  /// Breaks the barrier: threads in or at `arrive` return `broken`, now and for ever.
  void break_now();

  /// Breaks the barrier unless `round` has completed by now; false then.
  bool break_round(std::uint64_t round);

 private:
  // One word: completed rounds in the upper half, then the broken bit, then the arrivals of this
  // round.
  static constexpr std::uint64_t kGeneration = std::uint64_t{1} << 32;
  static constexpr std::uint64_t kBroken = std::uint64_t{1} << 31;
  static constexpr std::uint64_t kArrivals = kBroken - 1;

  bool last(std::uint64_t word) const { return (word & kArrivals) + 1 == ranks_; }
  std::uint64_t after_arrival(std::uint64_t word) const {
    return last(word) ? (word & ~kArrivals) + kGeneration : word + 1;
  }

  /// Waits until a bit in `mask` differs from `old`, the word before this thread's arrival.
  Outcome finish_arrival(int rank, std::uint64_t old, std::uint64_t mask,
                         Clock::time_point deadline);
  /// Notes the core that this thread is on. Returns whether the others are on other cores.
  bool cores_differ(int rank);

  static Outcome outcome(std::uint64_t old, std::uint64_t now) {
    return old / kGeneration != now / kGeneration ? Outcome::complete : Outcome::broken;
  }

  void wake();

  static constexpr std::chrono::microseconds kSpin{10};
  struct alignas(64) Core {
    std::atomic<int> number{-1};
  };

  std::uint64_t ranks_;
  std::vector<Core> cores_;  ///< by rank; none: threads have fewer cores
  alignas(64) std::atomic<std::uint64_t> word_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable condition_;
};

#ifdef TESSERA_INLINE
TESSERA_INLINE BreakableBarrier::Outcome BreakableBarrier::arrive(int rank,
                                                                  Clock::time_point deadline) {
  std::uint64_t old = word_.load(std::memory_order_acquire);
  do {
    if (old & kBroken) return Outcome::broken;
  } while (!word_.compare_exchange_weak(old, after_arrival(old)));
  return finish_arrival(rank, old, kBroken | ~(kGeneration - 1), deadline);
}

TESSERA_INLINE void BreakableBarrier::arrive_committed(int rank) {
  std::uint64_t old = word_.load(std::memory_order_acquire);
  while (!word_.compare_exchange_weak(old, after_arrival(old))) {
  }
  finish_arrival(rank, old, ~(kGeneration - 1), Clock::time_point::max());
}

TESSERA_INLINE void BreakableBarrier::break_now() {
  word_.fetch_or(kBroken);
  wake();
}

TESSERA_INLINE bool BreakableBarrier::break_round(std::uint64_t round) {
  std::uint64_t old = word_.load(std::memory_order_acquire);
  do {
    if (old / kGeneration != round) return false;
  } while (!word_.compare_exchange_weak(old, old | kBroken));
  wake();
  return true;
}

TESSERA_INLINE BreakableBarrier::Outcome BreakableBarrier::finish_arrival(
    int rank, std::uint64_t old, std::uint64_t mask, Clock::time_point deadline) {
  const bool spins = cores_differ(rank);
  if (last(old)) {
    wake();
    return Outcome::complete;
  }
  std::uint64_t now = old;
  const auto changed = [&] { return (((now = word_.load()) ^ old) & mask) != 0; };
  // By the clock: how long so many turns take depends on where the compiler puts them.
  if (spins)
    for (const Clock::time_point end = Clock::now() + kSpin; Clock::now() < end;)
      for (int turn = 0; turn < 64; ++turn)
        if (changed()) return outcome(old, now);
  std::unique_lock lock(mutex_);
  ++sleepers_;
  bool in_time = true;
  if (deadline == Clock::time_point::max()) {
    condition_.wait(lock, changed);
  } else {
    in_time = condition_.wait_until(lock, deadline, changed);
  }
  --sleepers_;
  return in_time ? outcome(old, now) : Outcome::late;
}

TESSERA_INLINE bool BreakableBarrier::cores_differ(int rank) {
  if (cores_.empty()) return false;
  const int own = ::sched_getcpu();
  const std::size_t place = static_cast<std::size_t>(rank);
  cores_[place].number.store(own, std::memory_order_relaxed);
  for (std::size_t r = 0; r < cores_.size(); ++r)
    if (r != place && cores_[r].number.load(std::memory_order_relaxed) == own) return false;
  return true;
}

TESSERA_INLINE void BreakableBarrier::wake() {
  // A sleeper counts itself before its last look at the word, so that it is seen here or sees the
  // change there.
  if (sleepers_.load() == 0) return;
  {
    const std::lock_guard lock(mutex_);
  }
  condition_.notify_all();
}
#endif

}}}  // namespace tessera::v0::detail
