// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace tessera { inline namespace v0 { namespace detail {

/// A reusable barrier of `ranks` threads that can be broken for ever. Whether a round completes or
/// breaks is one atomic decision: all threads that wait in it see the same. A thread waits by a
/// short spin and then sleeps.
class BreakableBarrier {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Outcome { complete, broken, late };

  explicit BreakableBarrier(int ranks)
      : ranks_(static_cast<std::uint64_t>(ranks)),
        spins_(std::thread::hardware_concurrency() >= static_cast<unsigned>(ranks) ? 2000 : 0) {}

  /// Waits for the others, until the barrier is broken, or until `deadline`. After `late` this
  /// thread still counts as arrived: it must call `break_round`, and go on as if complete where
  /// that returns false.
  Outcome arrive(Clock::time_point deadline);

  /// Waits for the others, whatever happens: for rounds in which other threads use this thread's
  /// memory.
  void arrive_committed();

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
  Outcome finish_arrival(std::uint64_t old, std::uint64_t mask, Clock::time_point deadline);

  static Outcome outcome(std::uint64_t old, std::uint64_t now) {
    return old / kGeneration != now / kGeneration ? Outcome::complete : Outcome::broken;
  }

  void wake();

  std::uint64_t ranks_;
  int spins_;
  alignas(64) std::atomic<std::uint64_t> word_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable condition_;
};

#ifdef TESSERA_INLINE
TESSERA_INLINE BreakableBarrier::Outcome BreakableBarrier::arrive(Clock::time_point deadline) {
  std::uint64_t old = word_.load(std::memory_order_acquire);
  do {
    if (old & kBroken) return Outcome::broken;
  } while (!word_.compare_exchange_weak(old, after_arrival(old)));
  return finish_arrival(old, kBroken | ~(kGeneration - 1), deadline);
}

TESSERA_INLINE void BreakableBarrier::arrive_committed() {
  std::uint64_t old = word_.load(std::memory_order_acquire);
  while (!word_.compare_exchange_weak(old, after_arrival(old))) {
  }
  finish_arrival(old, ~(kGeneration - 1), Clock::time_point::max());
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
    std::uint64_t old, std::uint64_t mask, Clock::time_point deadline) {
  if (last(old)) {
    wake();
    return Outcome::complete;
  }
  std::uint64_t now = old;
  const auto changed = [&] { return (((now = word_.load()) ^ old) & mask) != 0; };
  for (int spin = 0; spin < spins_; ++spin)
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
