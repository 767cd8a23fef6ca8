// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/breakable_barrier.hpp>
#include <tessera/comm/collective_checks.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/concepts/rank_memory.hpp>
#include <tessera/core/error.hpp>

#include <omp.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera::inline v0 {

struct ThreadGroupOptions {
  /// How long a rank waits in a collective for the others before it gives up and names them; zero: for ever.
  std::chrono::nanoseconds timeout{0};
};

/// What the thread ranks of one process share. A collective publishes every rank's buffers, lets each rank copy what it needs
/// straight from its peers' memory (one copy per byte), and ends when nobody reads a peer any more. Peers must
/// agree about every call; where they don't, all of them throw the same CommunicatorError. Not movable; outlives its users.
class ThreadGroup {
 public:
  explicit ThreadGroup(int ranks, ThreadGroupOptions options = {})
      : options_(options), slots_(static_cast<std::size_t>(checked(ranks))), barrier_(ranks) {}
  ThreadGroup(const ThreadGroup&) = delete;
  ThreadGroup& operator=(const ThreadGroup&) = delete;

  int size() const { return static_cast<int>(slots_.size()); }

  /// Ends the group: who waits in a collective, or calls one later, throws a CommunicatorError that names `rank` and says `text`.
  /// The first reason stays. Any thread may call it.
  void fail(int rank, const std::string& text) {
    const std::lock_guard lock(failure_mutex_);
    end(rank, text);
    for (const Part& part : parts_) part.group->fail(rank, text);
  }

  /// Says that `rank` takes part in nothing more: ends this group as `fail` does, and of its parts those that the rank is in.
  void leave(int rank, const std::string& text) {
    const std::lock_guard lock(failure_mutex_);
    end(rank, text);
    for (const Part& part : parts_)
      if (const auto place = std::find(part.ranks.begin(), part.ranks.end(), rank); place != part.ranks.end())
        part.group->leave(static_cast<int>(place - part.ranks.begin()), text);
  }

  /// A group for some of these ranks. It lives as long as this group, and ends when this one fails.
  ThreadGroup& add_part(std::vector<int> ranks) {
    auto group = std::make_unique<ThreadGroup>(static_cast<int>(ranks.size()), options_);
    const std::lock_guard lock(failure_mutex_);
    if (!failure_.empty()) group->fail(failed_rank_, failure_);
    return *parts_.emplace_back(Part{std::move(group), std::move(ranks)}).group;
  }

 private:
  template <class Memory>
  friend class BasicThreadCommunicator;

  /// One rank's part of a collective.
  struct Call {
    CallHeader header;
    const std::byte* send = nullptr;
    std::byte* receive = nullptr;
    const std::size_t* send_counts = nullptr;  // in elements
  };

  /// What a rank shows its peers. They read `call` between the two barriers of a collective only, `fault` after the second.
  struct alignas(64) Slot {
    Call call;
    std::atomic<std::uint64_t> step{0};  // collectives that this rank has entered
    Disagreement fault;
  };

  static int checked(int ranks) {
    require(ranks >= 1, "ThreadGroup: need at least one rank, got {}", ranks);
    return ranks;
  }

  const Call& call_of(int rank) const { return slots_[static_cast<std::size_t>(rank)].call; }

  /// Runs one collective of `rank`: `check` says what disagrees between this rank and its peers, `move` brings the data.
  /// In between peers use this rank's memory, so that only the wait before may be left early.
  template <class Check, class Move>
  void run(int rank, const Call& call, Check check, Move move) {
    Slot& mine = slots_[static_cast<std::size_t>(rank)];
    const std::uint64_t step = mine.step.load(std::memory_order_relaxed) + 1;
    const Collective collective = call.header.collective;
    mine.call = call;
    mine.call.header.call = step;
    mine.fault.text.clear();
    mine.step.store(step, std::memory_order_relaxed);
    enter(rank, collective, step);
    exchange(rank, mine, step, check, move);
    if (faulty_step_.load(std::memory_order_relaxed) == step) throw_fault(collective);
  }

  template <class Check, class Move>
  void exchange(int rank, Slot& mine, std::uint64_t step, Check& check, Move& move) noexcept {
    const auto header_of = [&](int peer) -> const CallHeader& { return call_of(peer).header; };
    mine.fault = disagreement_of_calls(mine.call.header.collective, size(), header_of);
    if (mine.fault.text.empty()) mine.fault = check(mine.call.header);
    try {
      if (mine.fault.text.empty()) move();
    } catch (const std::exception& error) {
      mine.fault = {rank, fmt::format("{} (call {}) on rank {}: {}", name_of(mine.call.header.collective), step, rank, error.what())};
    }
    if (!mine.fault.text.empty()) faulty_step_.store(step, std::memory_order_relaxed);
    barrier_.arrive_committed();
  }

  void enter(int rank, Collective collective, std::uint64_t step) {
    const auto deadline =
        options_.timeout.count() == 0 ? BreakableBarrier::Clock::time_point::max() : BreakableBarrier::Clock::now() + options_.timeout;
    const std::uint64_t round = barrier_.round();
    const auto outcome = barrier_.arrive(deadline);
    if (outcome == BreakableBarrier::Outcome::complete) return;
    const std::lock_guard lock(failure_mutex_);
    if (outcome == BreakableBarrier::Outcome::late) {
      if (!barrier_.break_round(round)) return;
      if (failure_.empty()) set_failure(first_late(step), late_text(rank, collective, step));
    }
    throw CommunicatorError(
        failed_rank_, name_of(collective),
        fmt::format("{} (call {}) on rank {} cannot finish: rank {} failed: {}", name_of(collective), step, rank, failed_rank_, failure_));
  }

  struct Part {
    std::unique_ptr<ThreadGroup> group;
    std::vector<int> ranks;  // in this group
  };

  void end(int rank, const std::string& text) {
    barrier_.break_now();
    if (failure_.empty()) set_failure(rank, text);
  }

  void set_failure(int rank, const std::string& text) {
    failed_rank_ = rank;
    failure_ = text.empty() ? "no reason given" : text;
  }

  int first_late(std::uint64_t step) const {
    const auto late = std::find_if(slots_.begin(), slots_.end(), [&](const Slot& slot) { return slot.step.load() < step; });
    return late == slots_.end() ? -1 : static_cast<int>(late - slots_.begin());
  }

  std::string late_text(int rank, Collective collective, std::uint64_t step) const {
    std::string late;
    for (int peer = 0; peer < size(); ++peer)
      if (slots_[static_cast<std::size_t>(peer)].step.load() < step) late += fmt::format("{}{}", late.empty() ? "" : ", ", peer);
    return fmt::format("late: rank {} waited {} ms in {} (call {}) for rank(s) {}; raise ThreadGroupOptions::timeout if that can be right",
                       rank, std::chrono::duration_cast<std::chrono::milliseconds>(options_.timeout).count(), name_of(collective), step,
                       late);
  }

  [[noreturn]] void throw_fault(Collective collective) {
    const auto faulty = std::find_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return !slot.fault.text.empty(); });
    const CommunicatorError error(faulty->fault.rank, name_of(collective), faulty->fault.text);
    barrier_.arrive_committed();  // the fault stays until everybody has read it
    throw error;
  }

  ThreadGroupOptions options_;
  std::vector<Slot> slots_;
  BreakableBarrier barrier_;
  std::atomic<std::uint64_t> faulty_step_{0};
  std::mutex failure_mutex_;
  std::string failure_;
  int failed_rank_ = -1;
  std::vector<Part> parts_;  // guarded by failure_mutex_
};

/// One rank of a ThreadGroup: a handle to copy freely, to be used by one thread at a time. Buffers of one call must not overlap,
/// on one rank or between ranks. Sums are in rank order, the same bits on every rank. Throws CommunicatorError (a peer failed, is
/// late or disagrees), InvalidArgument (this rank's counts contradict its buffers; `run_ranks` then ends the other ranks).
/// `Memory` moves the bytes: HostMemory, or a backend's (concepts/rank_memory.hpp says what it offers).
template <class Memory>
class BasicThreadCommunicator {
 public:
  BasicThreadCommunicator(ThreadGroup& group, int rank, Memory memory = {}) : group_(&group), rank_(rank), memory_(std::move(memory)) {
    require(rank >= 0 && rank < group.size(), "ThreadCommunicator: rank {} is not in 0..{}", rank, group.size() - 1);
  }

  int rank() const { return rank_; }
  int size() const { return group_->size(); }
  ThreadGroup& group() const { return *group_; }
  /// Ends the group because this rank gives up: waits in it throw. Any thread may call it.
  void interrupt(const std::string& text) { group_->fail(rank_, text); }

  /// Rank r gets block r of every rank's `send`, in rank order. Counts in elements, one per rank.
  template <Exchangeable T>
  void all_to_all(std::type_identity_t<std::span<const T>> send, std::span<const std::size_t> send_counts, std::span<T> receive,
                  std::span<const std::size_t> receive_counts) {
    check_counts(Collective::all_to_all, rank_, size(), "send", send.size(), send_counts);
    check_counts(Collective::all_to_all, rank_, size(), "receive", receive.size(), receive_counts);
    Call call = make_call<T>(Collective::all_to_all, send, receive);
    call.send_counts = send_counts.data();
    const auto check = [&](const CallHeader& header) {
      return disagreement_of_counts(
          header, rank_, size(), [&](int peer) { return peer_call(peer).send_counts[rank_]; },
          [&](int peer) { return receive_counts[peer]; });
    };
    run(call, check, [&] {
      for_each_peer([&](int peer) {
        const Call& from = peer_call(peer);
        memory_.copy(receive.data() + offset(receive_counts.data(), peer), elements<T>(from) + offset(from.send_counts, rank_),
                     receive_counts[peer] * sizeof(T));
      });
    });
  }

  /// Every rank gets all ranks' `send`, in rank order; `counts[r]` is the size of rank r's.
  template <Exchangeable T>
  void all_gather(std::type_identity_t<std::span<const T>> send, std::span<T> receive, std::span<const std::size_t> counts) {
    check_counts(Collective::all_gather, rank_, size(), "receive", receive.size(), counts);
    const auto check = [&](const CallHeader& header) {
      return disagreement_of_counts(
          header, rank_, size(), [&](int peer) { return peer_call(peer).header.size; }, [&](int peer) { return counts[peer]; });
    };
    run(make_call<T>(Collective::all_gather, send, receive), check, [&] {
      for_each_peer([&](int peer) {
        memory_.copy(receive.data() + offset(counts.data(), peer), elements<T>(peer_call(peer)), counts[peer] * sizeof(T));
      });
    });
  }

  /// Replaces `values` on every rank by the reduction over all ranks, element by element.
  template <Reducible T>
  void all_reduce(std::span<T> values, Reduction reduction = Reduction::sum) {
    Call call = make_call<T>(Collective::all_reduce, values, values);
    call.header.reduction = reduction;
    run(call, nothing_more, [&] {
      // Rank r alone touches slice r of anybody's values: it reduces the slice and writes the result to all.
      const std::size_t ranks = static_cast<std::size_t>(size());
      const std::size_t begin = detail::slice_begin(values.size(), ranks, static_cast<std::size_t>(rank_));
      const std::size_t end = detail::slice_begin(values.size(), ranks, static_cast<std::size_t>(rank_) + 1);
      memory_.template reduce<T>(
          size(), [&](int peer) { return elements<T>(peer_call(peer)) + begin; }, size(),
          [&](int peer) { return reinterpret_cast<T*>(peer_call(peer).receive) + begin; }, end - begin, reduction);
    });
  }

  /// Adds up all ranks' `send`; rank r gets block r of the sum, of counts[r] elements.
  template <Reducible T>
  void reduce_scatter(std::type_identity_t<std::span<const T>> send, std::span<T> receive, std::span<const std::size_t> counts) {
    check_counts(Collective::reduce_scatter, rank_, size(), "send", send.size(), counts);
    check_own_count(Collective::reduce_scatter, rank_, "receive", receive.size(), counts[static_cast<std::size_t>(rank_)]);
    Call call = make_call<T>(Collective::reduce_scatter, send, receive);
    call.send_counts = counts.data();
    // All counts, not only this rank's: they say where its block begins in the peers' memory.
    const auto check = [&](const CallHeader& header) {
      for (int to = 0; to < size(); ++to)
        if (Disagreement found = disagreement_of_counts(
                header, to, size(), [&](int peer) { return peer_call(peer).send_counts[to]; },
                [&](int) { return peer_call(to).send_counts[to]; });
            !found.text.empty())
          return found;
      return Disagreement{};
    };
    run(call, check, [&] {
      const std::size_t begin = offset(counts.data(), rank_);
      memory_.template reduce<T>(
          size(), [&](int peer) { return elements<T>(peer_call(peer)) + begin; }, 1, [&](int) { return receive.data(); }, receive.size(),
          Reduction::sum);
    });
  }

  /// Gives every rank the `values` of rank `root`.
  template <Exchangeable T>
  void broadcast(std::span<T> values, int root) {
    check_root(rank_, size(), root);
    Call call = make_call<T>(Collective::broadcast, values, values);
    call.header.root = root;
    run(call, nothing_more, [&] {
      if (rank_ != root) memory_.copy(values.data(), peer_call(root).send, values.size_bytes());
    });
  }

  /// Returns when every rank has called it.
  void barrier() {
    Call call;
    call.header.collective = Collective::barrier;
    run(call, nothing_more, [] {});
  }

 private:
  using Call = ThreadGroup::Call;

  const Call& peer_call(int peer) const { return group_->call_of(peer); }

  /// Each rank begins with itself and goes round, so that not all read from the same peer at once.
  template <class Visit>
  void for_each_peer(Visit visit) const {
    for (int i = 0; i < size(); ++i) visit((rank_ + i) % size());
  }

  /// The check of collectives whose headers say it all.
  static Disagreement nothing_more(const CallHeader&) { return {}; }

  template <class T>
  static const T* elements(const Call& call) {
    return reinterpret_cast<const T*>(call.send);
  }

  static std::size_t offset(const std::size_t* counts, int rank) { return std::accumulate(counts, counts + rank, std::size_t{0}); }

  template <class T>
  static Call make_call(Collective collective, std::span<const T> send, std::span<T> receive) {
    return {.header = make_header<T>(collective, send.size()),
            .send = reinterpret_cast<const std::byte*>(send.data()),
            .receive = reinterpret_cast<std::byte*>(receive.data())};
  }

  /// One collective, with this rank's memory ready before peers use it and this rank's own work done before they go on.
  template <class Check, class Move>
  void run(const Call& call, Check check, Move move) {
    memory_.publish(call.send);
    memory_.publish(call.receive);
    group_->run(rank_, call, check, [&] {
      move();
      memory_.complete();
    });
  }

  ThreadGroup* group_;
  int rank_;
  Memory memory_;
};

/// Ranks whose buffers are in host memory.
class ThreadCommunicator : public BasicThreadCommunicator<HostMemory> {
 public:
  using BasicThreadCommunicator::BasicThreadCommunicator;

  /// A communicator of the ranks that give the same `color`, in the order of their ranks here. A collective call. It lives as long as
  /// this rank's group, may be used by another thread than this one, and ends with the group; errors that began here number ranks as here.
  ThreadCommunicator split(int color) {
    const std::size_t ranks = static_cast<std::size_t>(size());
    const std::vector<std::size_t> ones(ranks, 1);
    std::vector<int> colors(ranks);
    all_gather(std::span<const int>(&color, 1), std::span<int>(colors), ones);
    std::vector<int> members;
    for (std::size_t r = 0; r < ranks; ++r)
      if (colors[r] == color) members.push_back(static_cast<int>(r));
    const int place = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
    const std::size_t first = static_cast<std::size_t>(members.front());
    ThreadGroup* made = place == 0 ? &group().add_part(std::move(members)) : nullptr;
    std::vector<ThreadGroup*> groups(ranks);
    all_gather(std::span<ThreadGroup* const>(&made, 1), std::span<ThreadGroup*>(groups), ones);
    return {*groups[first], place};
  }
};

static_assert(Communicator<ThreadCommunicator>);

namespace detail {

/// A new thread inherits the processors of the one that starts it. With OMP_PROC_BIND that is a single core, and all ranks would share
/// it: this thread takes back all the places that OpenMP was given. A refusal costs speed only. GNU's OpenMP binds every thread of the
/// user's to its first place in the thread's first parallel region: that comes here, so that it does not come later. (g++ drops a region
/// that does nothing.)
inline void leave_place_of_starter() {
#pragma omp parallel num_threads(1)
  { asm volatile(""); }
  cpu_set_t processors;
  CPU_ZERO(&processors);
  for (int place = 0; place < omp_get_num_places(); ++place) {
    std::vector<int> ids(static_cast<std::size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, ids.data());
    for (const int id : ids) CPU_SET(id, &processors);
  }
  if (CPU_COUNT(&processors) > 0) pthread_setaffinity_np(pthread_self(), sizeof(processors), &processors);
}

}  // namespace detail

/// Runs `function(communicator)` on `ranks` threads, one per rank, and joins them. If a rank throws, the others end with a
/// CommunicatorError at their next collective, and the exception that came first is thrown here. A rank that returns while others
/// still call collectives ends them too.
template <class Function>
void run_ranks(int ranks, Function&& function, ThreadGroupOptions options = {}) {
  ThreadGroup group(ranks, options);
  std::mutex mutex;
  std::exception_ptr first;
  const auto fail = [&](int rank, const std::string& text) {
    {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
    }
    group.fail(rank, text);
  };
  const bool bound = omp_get_proc_bind() != omp_proc_bind_false;
  const auto run_rank = [&](int rank) {
    try {
      if (bound) detail::leave_place_of_starter();
      ThreadCommunicator communicator(group, rank);
      function(communicator);
      group.leave(rank, "it has returned from its function and takes part in no further collective");
    } catch (const std::exception& error) {
      fail(rank, error.what());
    } catch (...) {
      fail(rank, "it threw something that is not a std::exception");
    }
  };
  {
    std::vector<std::jthread> threads;
    threads.reserve(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      try {
        threads.emplace_back(run_rank, rank);
      } catch (const std::exception& error) {
        fail(rank, error.what());  // no thread for this rank: end those that wait for it
        break;
      }
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace tessera::inline v0
