// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/collective_checks.hpp>
#include <tessera/comm/rank_memory.hpp>
#include <tessera/comm/thread_group.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/core/error.hpp>

#include <omp.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// One rank of a ThreadGroup: a handle to copy freely, to be used by one thread at a time. Buffers
/// of one call must not overlap, on one rank or between ranks. Sums are in rank order, the same
/// bits on every rank. Throws CommunicatorError (a peer failed, is late or disagrees),
/// InvalidArgument (this rank's counts contradict its buffers; `run_ranks` then ends the other
/// ranks). `Memory` moves the bytes: HostTransfer, or a backend's (comm/rank_memory.hpp says what
/// it offers).
template <class Memory>
class BasicThreadCommunicator {
 public:
  BasicThreadCommunicator(ThreadGroup& group, int rank, Memory memory = {})
      : group_(&group), rank_(rank), memory_(std::move(memory)) {
    require(rank >= 0 && rank < group.size(), "ThreadCommunicator: rank {} is not in 0..{}", rank,
            group.size() - 1);
  }

  int rank() const { return rank_; }
  int size() const { return group_->size(); }
  ThreadGroup& group() const { return *group_; }
  /// Ends the group because this rank gives up: waits in it throw. Any thread may call it.
  void interrupt(const std::string& text) { group_->fail(rank_, text); }

  /// Gives rank r block r of every rank's `send`, in rank order. Counts in elements, one per rank.
  template <Exchangeable T>
  void all_to_all(std::type_identity_t<std::span<const T>> send,
                  std::span<const std::size_t> send_counts, std::span<T> receive,
                  std::span<const std::size_t> receive_counts) {
    exchange_blocks(make_call<T>(Collective::all_to_all, send, receive), send_counts,
                    receive.size(), receive_counts);
  }

  /// Gives every rank all ranks' `send`, in rank order; `counts[r]` is the size of rank r's.
  template <Exchangeable T>
  void all_gather(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                  std::span<const std::size_t> counts) {
    gather_blocks(make_call<T>(Collective::all_gather, send, receive), receive.size(), counts);
  }

  /// Replaces `values` on every rank by the reduction over all ranks, element by element.
  template <Reducible T>
  void all_reduce(std::span<T> values, Reduction reduction = Reduction::sum) {
    Call call = make_call<T>(Collective::all_reduce, values, values);
    call.header.reduction = reduction;
    run(call, nothing_more, [&] {
      // Rank r alone touches slice r of anybody's values: it reduces the slice and writes the
      // result to all.
      const std::size_t ranks = static_cast<std::size_t>(size());
      const std::size_t begin =
          detail::slice_begin(values.size(), ranks, static_cast<std::size_t>(rank_));
      const std::size_t end =
          detail::slice_begin(values.size(), ranks, static_cast<std::size_t>(rank_) + 1);
      memory_.template reduce<T>(
          size(), [&](int peer) { return elements<T>(peer_call(peer)) + begin; }, size(),
          [&](int peer) { return reinterpret_cast<T*>(peer_call(peer).receive) + begin; },
          end - begin, reduction);
    });
  }

  /// Adds up all ranks' `send`; rank r gets block r of the sum, of counts[r] elements.
  template <Reducible T>
  void reduce_scatter(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                      std::span<const std::size_t> counts) {
    detail::check_counts(Collective::reduce_scatter, rank_, size(), "send", send.size(), counts);
    detail::check_own_count(Collective::reduce_scatter, rank_, "receive", receive.size(), counts);
    Call call = make_call<T>(Collective::reduce_scatter, send, receive);
    call.send_counts = counts.data();
    // All counts, not only this rank's: they say where its block begins in the peers' memory.
    const auto check = [&](const detail::CallHeader& header) {
      for (int to = 0; to < size(); ++to)
        if (detail::Disagreement found = detail::disagreement_of_counts(
                header, to, size(), [&](int peer) { return peer_call(peer).send_counts[to]; },
                [&](int) { return peer_call(to).send_counts[to]; });
            !found.text.empty())
          return found;
      return detail::Disagreement{};
    };
    run(call, check, [&] {
      const std::size_t begin = offset(counts.data(), rank_);
      memory_.template reduce<T>(
          size(), [&](int peer) { return elements<T>(peer_call(peer)) + begin; }, 1,
          [&](int) { return receive.data(); }, receive.size(), Reduction::sum);
    });
  }

  /// Gives every rank the `values` of rank `root`.
  template <Exchangeable T>
  void broadcast(std::span<T> values, int root) {
    copy_root(make_call<T>(Collective::broadcast, values, values), root);
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

  /// Visits the peers. Each rank begins with itself and goes round, so that not all read from the
  /// same peer at once.
  template <class Visit>
  void for_each_peer(Visit visit) const {
    for (int i = 0; i < size(); ++i) visit((rank_ + i) % size());
  }

  /// Checks nothing more, for collectives whose headers say it all.
  static detail::Disagreement nothing_more(const detail::CallHeader&) { return {}; }

  // What moves and is not summed, in bytes, for all types of elements.

  void exchange_blocks(Call call, std::span<const std::size_t> send_counts, std::size_t received,
                       std::span<const std::size_t> receive_counts) {
    detail::check_counts(Collective::all_to_all, rank_, size(), "send", call.header.size,
                         send_counts);
    detail::check_counts(Collective::all_to_all, rank_, size(), "receive", received,
                         receive_counts);
    call.send_counts = send_counts.data();
    const auto check = [&](const detail::CallHeader& header) {
      return detail::disagreement_of_counts(
          header, rank_, size(), [&](int peer) { return peer_call(peer).send_counts[rank_]; },
          [&](int peer) { return receive_counts[peer]; });
    };
    const std::size_t bytes = call.header.element_size;
    run(call, check, [&] {
      for_each_peer([&](int peer) {
        const Call& from = peer_call(peer);
        memory_.copy(call.receive + offset(receive_counts.data(), peer) * bytes,
                     from.send + offset(from.send_counts, rank_) * bytes,
                     receive_counts[peer] * bytes);
      });
    });
  }

  void gather_blocks(const Call& call, std::size_t received, std::span<const std::size_t> counts) {
    detail::check_counts(Collective::all_gather, rank_, size(), "receive", received, counts);
    const auto check = [&](const detail::CallHeader& header) {
      return detail::disagreement_of_counts(
          header, rank_, size(), [&](int peer) { return peer_call(peer).header.size; },
          [&](int peer) { return counts[peer]; });
    };
    const std::size_t bytes = call.header.element_size;
    run(call, check, [&] {
      for_each_peer([&](int peer) {
        memory_.copy(call.receive + offset(counts.data(), peer) * bytes, peer_call(peer).send,
                     counts[peer] * bytes);
      });
    });
  }

  void copy_root(Call call, int root) {
    detail::check_root(rank_, size(), root);
    call.header.root = root;
    run(call, nothing_more, [&] {
      if (rank_ != root)
        memory_.copy(call.receive, peer_call(root).send,
                     call.header.size * call.header.element_size);
    });
  }

  template <class T>
  static const T* elements(const Call& call) {
    return reinterpret_cast<const T*>(call.send);
  }

  static std::size_t offset(const std::size_t* counts, int rank) {
    return std::accumulate(counts, counts + rank, std::size_t{0});
  }

  template <class T>
  static Call make_call(Collective collective, std::span<const T> send, std::span<T> receive) {
    return {.header = detail::make_header<T>(collective, send.size()),
            .send = reinterpret_cast<const std::byte*>(send.data()),
            .receive = reinterpret_cast<std::byte*>(receive.data())};
  }

  /// Runs one collective, with this rank's memory ready before peers use it and this rank's own
  /// work done before they go on.
  template <class Check, class Move>
  void run(const Call& call, const Check& check, const Move& move) {
    struct Own final : ThreadGroup::Work {
      Own(Memory& m, const Check& c, const Move& f) : memory(m), checks(c), moves(f) {}
      detail::Disagreement check(const detail::CallHeader& header) const override {
        return checks(header);
      }
      void move() const override {
        moves();
        memory.complete();
      }
      Memory& memory;
      const Check& checks;
      const Move& moves;
    };
    memory_.publish(call.send);
    memory_.publish(call.receive);
    group_->run(rank_, call, Own(memory_, check, move));
  }

  ThreadGroup* group_;
  int rank_;
  Memory memory_;
};

/// Ranks whose buffers are in host memory.
///
///     run_ranks(4, [](ThreadCommunicator& communicator) {
///       std::vector<float> values(8, 1.0f);
///       communicator.all_reduce(std::span(values));  // 4 everywhere
///     });
class ThreadCommunicator : public BasicThreadCommunicator<detail::HostTransfer> {
 public:
  using BasicThreadCommunicator::BasicThreadCommunicator;

  /// Returns a communicator of the ranks that give the same `color`, in the order of their ranks
  /// here. A collective call. It lives as long as this rank's group, may be used by another thread
  /// than this one, and ends with the group; errors that began here number ranks as here.
  ThreadCommunicator split(int color);
};

static_assert(Communicator<ThreadCommunicator>);

namespace detail {

/// Leaves the core of the thread that started this one. A new thread inherits the processors of the
/// one that starts it. With OMP_PROC_BIND that is a single core, and all ranks would share it: this
/// thread takes back all the places that OpenMP was given. A refusal costs speed only. GNU's OpenMP
/// binds every thread of the user's to its first place in the thread's first parallel region: that
/// comes here, so that it does not come later. (g++ drops a region that does nothing.)
void leave_place_of_starter();

/// What the first rank that failed threw; or nothing.
struct FirstFailure {
  int rank = -1;
  std::exception_ptr error;
  std::string text;
};

/// What every rank calls: `call(function, communicator)`.
struct RankFunction {
  void* function;
  void (*call)(void* function, ThreadCommunicator& communicator);
};
FirstFailure try_ranks(int ranks, ThreadGroupOptions options, RankFunction function);

template <class Function>
FirstFailure try_ranks(int ranks, Function& function, ThreadGroupOptions options) {
  auto call = [&](ThreadCommunicator& communicator) { function(communicator); };
  return try_ranks(ranks, options, {&call, [](void* of, ThreadCommunicator& communicator) {
                                      (*static_cast<decltype(call)*>(of))(communicator);
                                    }});
}

#ifdef TESSERA_INLINE
TESSERA_INLINE void leave_place_of_starter() {
#pragma omp parallel num_threads(1)
  {
    asm volatile("");
  }
  cpu_set_t processors;
  CPU_ZERO(&processors);
  for (int place = 0; place < omp_get_num_places(); ++place) {
    std::vector<int> ids(static_cast<std::size_t>(omp_get_place_num_procs(place)));
    omp_get_place_proc_ids(place, ids.data());
    for (const int id : ids) CPU_SET(id, &processors);
  }
  if (CPU_COUNT(&processors) > 0)
    pthread_setaffinity_np(pthread_self(), sizeof(processors), &processors);
}

TESSERA_INLINE FirstFailure try_ranks(int ranks, ThreadGroupOptions options,
                                      RankFunction function) {
  ThreadGroup group(ranks, options);
  std::mutex mutex;
  FirstFailure first;
  const auto fail = [&](int rank, const std::string& text,
                        const std::exception_ptr& error = std::current_exception()) {
    if (const std::lock_guard lock(mutex); !first.error) first = {rank, error, text};
    group.fail(rank, text);
  };
  const bool bound = omp_get_proc_bind() != omp_proc_bind_false;
  const auto run_rank = [&](int rank) {
    try {
      if (bound) leave_place_of_starter();
      ThreadCommunicator communicator(group, rank);
      function.call(function.function, communicator);
      group.leave(rank,
                  "it has returned from its function and takes part in no further collective");
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
        const Error none("cannot start a thread for each rank: " + std::string(error.what()) +
                         "; give fewer ranks, or raise ulimit -u (threads) or -v (memory)");
        fail(rank, none.what(), std::make_exception_ptr(none));  // end those that wait for it
        break;
      }
    }
  }
  return first;
}
#endif

}  // namespace detail

/// Runs `function(communicator)` on `ranks` threads, one per rank, and joins them. If a rank
/// throws, the others end with a CommunicatorError at their next collective, and the exception that
/// came first is thrown here. A rank that returns while others still call collectives ends them
/// too. In a program's `main` run_thread_ranks says what went wrong, and on which rank.
template <class Function>
void run_ranks(int ranks, Function&& function, ThreadGroupOptions options = {}) {
  if (const detail::FirstFailure first = detail::try_ranks(ranks, function, options); first.error)
    std::rethrow_exception(first.error);
}

/// Does the same for a program's `main`, as run_mpi_rank: returns the program's exit code. If a
/// rank throws, "rank R: text" goes to stderr, R being the one that threw first, and the code is 1.
template <class Function>
int run_thread_ranks(int ranks, Function&& function, ThreadGroupOptions options = {}) {
  const detail::FirstFailure first = detail::try_ranks(ranks, function, options);
  if (!first.error) return 0;
  std::fprintf(stderr, "rank %d: %s\n", first.rank, first.text.c_str());
  return 1;
}

#ifdef TESSERA_INLINE
TESSERA_INLINE ThreadCommunicator ThreadCommunicator::split(int color) {
  const std::size_t ranks = static_cast<std::size_t>(size());
  const std::vector<std::size_t> ones(ranks, 1);
  std::vector<int> colors(ranks);
  all_gather(std::span<const int>(&color, 1), std::span<int>(colors), ones);
  std::vector<int> members;
  for (std::size_t r = 0; r < ranks; ++r)
    if (colors[r] == color) members.push_back(static_cast<int>(r));
  const int place =
      static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  const std::size_t first = static_cast<std::size_t>(members.front());
  ThreadGroup* made = place == 0 ? &group().add_part(std::move(members)) : nullptr;
  std::vector<ThreadGroup*> groups(ranks);
  all_gather(std::span<ThreadGroup* const>(&made, 1), std::span<ThreadGroup*>(groups), ones);
  return {*groups[first], place};
}
#endif

}}  // namespace tessera::v0
