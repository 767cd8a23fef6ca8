// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/breakable_barrier.hpp>
#include <tessera/comm/collective_checks.hpp>
#include <tessera/comm/deadline.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/core/clock.hpp>
#include <tessera/core/error.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// How long a thread rank waits for its peers.
struct ThreadGroupOptions {
  /// How long a rank waits in a collective for the others before it gives up and names them; zero:
  /// for ever.
  std::chrono::nanoseconds timeout{0};
};

/// What the thread ranks of one process share. A collective publishes every rank's buffers, lets
/// each rank copy what it needs straight from its peers' memory (one copy per byte), and ends when
/// no rank reads a peer any more. Peers must agree about every call; if they don't, all of them
/// throw the same CommunicatorError. Not movable; outlives its users.
class ThreadGroup {
 public:
  explicit ThreadGroup(int ranks, ThreadGroupOptions options = {})
      : options_(options), slots_(static_cast<std::size_t>(checked(ranks))), barrier_(ranks) {}
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  int size() const { return static_cast<int>(slots_.size()); }

  /// Ends the group: who waits in a collective, or calls one later, throws a CommunicatorError that
  /// names `rank` and says `text`. The first reason stays. Any thread may call it.
  void fail(int rank, const std::string& text);

  /// Says that `rank` takes part in nothing more: ends this group as `fail` does, and of its parts
  /// those that the rank is in.
  void leave(int rank, const std::string& text);

  /// Returns a group for some of these ranks. It lives as long as this group, and ends when this
  /// one fails.
  ThreadGroup& add_part(std::vector<int> ranks);

 private:
  template <class Memory>
  friend class BasicThreadCommunicator;

  /// One rank's part of a collective.
  struct Call {
    detail::CallHeader header;
    const std::byte* send = nullptr;
    std::byte* receive = nullptr;
    const std::size_t* send_counts = nullptr;  // in elements
  };

  /// What one rank does in a collective.
  struct Work {
    /// Says what disagrees between this rank and its peers.
    virtual detail::Disagreement check(const detail::CallHeader&) const = 0;
    virtual void move() const = 0;  ///< brings the data

   protected:
    ~Work() = default;
  };

  /// What a rank shows its peers. They read `call` between the two barriers of a collective only,
  /// `fault` after the second.
  struct alignas(64) Slot {
    Call call;
    std::atomic<std::uint64_t> step{0};  // collectives that this rank has entered
    detail::Disagreement fault;
  };

  static int checked(int ranks);

  const Call& call_of(int rank) const { return slots_[static_cast<std::size_t>(rank)].call; }

  /// Runs one collective of `rank`. While `work` moves data, peers use this rank's memory: only the
  /// wait before may be left early.
  void run(int rank, const Call& call, const Work& work);

  void exchange(int rank, Slot& mine, std::uint64_t step, const Work& work) noexcept;

  void enter(int rank, Collective collective, std::uint64_t step);

  struct Part {
    std::unique_ptr<ThreadGroup> group;
    std::vector<int> ranks;  // in this group
  };

  void end(int rank, const std::string& text);

  void set_failure(int rank, const std::string& text);

  /// Returns who has not entered a collective; not who waits for others of them in a part.
  std::vector<int> late(std::uint64_t step) const;

  bool waits_in_part(int rank) const;

  [[noreturn]] void throw_fault(int rank, Collective collective);

  ThreadGroupOptions options_;
  std::vector<Slot> slots_;
  detail::BreakableBarrier barrier_;
  std::atomic<std::uint64_t> faulty_step_{0};
  std::mutex failure_mutex_;
  std::string failure_;
  int failed_rank_ = -1;
  std::vector<Part> parts_;  // guarded by failure_mutex_
};

#ifdef TESSERA_INLINE
TESSERA_INLINE void ThreadGroup::fail(int rank, const std::string& text) {
  const std::lock_guard lock(failure_mutex_);
  end(rank, text);
  for (const Part& part : parts_) part.group->fail(rank, text);
}

TESSERA_INLINE void ThreadGroup::leave(int rank, const std::string& text) {
  const std::lock_guard lock(failure_mutex_);
  end(rank, text);
  for (const Part& part : parts_)
    if (const auto place = std::find(part.ranks.begin(), part.ranks.end(), rank);
        place != part.ranks.end())
      part.group->leave(static_cast<int>(place - part.ranks.begin()), text);
}

TESSERA_INLINE ThreadGroup& ThreadGroup::add_part(std::vector<int> ranks) {
  auto group = std::make_unique<ThreadGroup>(static_cast<int>(ranks.size()), options_);
  const std::lock_guard lock(failure_mutex_);
  if (!failure_.empty()) group->fail(failed_rank_, failure_);
  return *parts_.emplace_back(Part{std::move(group), std::move(ranks)}).group;
}

TESSERA_INLINE int ThreadGroup::checked(int ranks) {
  require(ranks >= 1, "ThreadGroup: need at least one rank, got {}", ranks);
  return ranks;
}

TESSERA_INLINE void ThreadGroup::run(int rank, const Call& call, const Work& work) {
  Slot& mine = slots_[static_cast<std::size_t>(rank)];
  const std::uint64_t step = mine.step.load(std::memory_order_relaxed) + 1;
  const Collective collective = call.header.collective;
  mine.call = call;
  mine.call.header.call = step;
  mine.fault.text.clear();
  mine.step.store(step, std::memory_order_relaxed);
  enter(rank, collective, step);
  exchange(rank, mine, step, work);
  if (faulty_step_.load(std::memory_order_relaxed) == step) throw_fault(rank, collective);
}

TESSERA_INLINE void ThreadGroup::exchange(int rank, Slot& mine, std::uint64_t step,
                                          const Work& work) noexcept {
  const auto header_of = [&](int peer) -> const detail::CallHeader& {
    return call_of(peer).header;
  };
  mine.fault = detail::disagreement_of_calls(mine.call.header.collective, size(), header_of);
  try {
    if (mine.fault.text.empty()) mine.fault = work.check(mine.call.header);
    if (mine.fault.text.empty()) work.move();
  } catch (const std::exception& error) {
    mine.fault = {rank, detail::formatted("{} (call {}) on rank {}: {}",
                                          detail::name_of(mine.call.header.collective), step, rank,
                                          error.what())};
  }
  if (!mine.fault.text.empty()) faulty_step_.store(step, std::memory_order_relaxed);
  barrier_.arrive_committed(rank);
}

TESSERA_INLINE void ThreadGroup::enter(int rank, Collective collective, std::uint64_t step) {
  const auto deadline = options_.timeout.count() == 0
                            ? detail::BreakableBarrier::Clock::time_point::max()
                            : detail::deadline_after(options_.timeout);
  const std::uint64_t round = barrier_.round();
  const auto outcome = barrier_.arrive(rank, deadline);
  if (outcome == detail::BreakableBarrier::Outcome::complete) return;
  const std::lock_guard lock(failure_mutex_);
  if (outcome == detail::BreakableBarrier::Outcome::late) {
    if (!barrier_.break_round(round)) return;
    if (failure_.empty()) {
      const std::vector<int> peers = late(step);
      std::string names;
      for (const int peer : peers)
        names += detail::formatted("{}{}", names.empty() ? "" : ", ", peer);
      set_failure(
          peers.empty() ? -1 : peers[0],
          detail::formatted(
              "late: rank {} waited {} ms in {} (call {}) for rank(s) {}; raise the timeout "
              "(ThreadGroupOptions) if that can be right",
              rank, std::chrono::duration_cast<std::chrono::milliseconds>(options_.timeout).count(),
              detail::name_of(collective), step, names));
    }
  }
  throw CommunicatorError(
      failed_rank_, detail::name_of(collective),
      detail::formatted("{} (call {}) on rank {} cannot finish: rank {} failed: {}",
                        detail::name_of(collective), step, rank, failed_rank_, failure_));
}

TESSERA_INLINE void ThreadGroup::end(int rank, const std::string& text) {
  barrier_.break_now();
  if (failure_.empty()) set_failure(rank, text);
}

TESSERA_INLINE void ThreadGroup::set_failure(int rank, const std::string& text) {
  failed_rank_ = rank;
  failure_ = text.empty() ? "no reason given" : text;
}

TESSERA_INLINE std::vector<int> ThreadGroup::late(std::uint64_t step) const {
  std::vector<int> late, waiting;
  for (int peer = 0; peer < size(); ++peer)
    if (slots_[static_cast<std::size_t>(peer)].step.load() < step)
      (waits_in_part(peer) ? waiting : late).push_back(peer);
  return late.empty() ? waiting : late;
}

TESSERA_INLINE bool ThreadGroup::waits_in_part(int rank) const {
  return std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) {
    const auto place = std::find(part.ranks.begin(), part.ranks.end(), rank);
    const std::vector<Slot>& slots = part.group->slots_;
    return place != part.ranks.end() &&
           std::any_of(slots.begin(), slots.end(),
                       [step = slots[place - part.ranks.begin()].step.load()](const Slot& peer) {
                         return peer.step.load() < step;
                       });
  });
}

TESSERA_INLINE void ThreadGroup::throw_fault(int rank, Collective collective) {
  const auto faulty = std::find_if(slots_.begin(), slots_.end(),
                                   [](const Slot& slot) { return !slot.fault.text.empty(); });
  const CommunicatorError error(faulty->fault.rank, detail::name_of(collective),
                                faulty->fault.text);
  barrier_.arrive_committed(rank);  // the fault stays until everybody has read it
  throw error;
}
#endif

}}  // namespace tessera::v0
