// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/collective_checks.hpp>
#include <tessera/comm/rank_memory.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/memory.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// The collectives of processes, in host memory, made of the point-to-point messages of a
/// `Messenger` (MpiMessenger, GlooMessenger), so that a wait can end: by a peer's failure, by a
/// timeout, by a disagreement (each call begins with a small message between every two ranks that
/// says what it is). Sums are in rank order, the same bits as ThreadCommunicator's. After a
/// CommunicatorError it is dead. One thread at a time; ranks must have one byte order.
template <class Messenger>
class MessageCommunicator {
 public:
  int rank() const { return state_->messenger->rank(); }
  int size() const { return state_->messenger->size(); }

  /// Gives rank r block r of every rank's `send`, in rank order. Counts in elements, one per rank.
  template <Exchangeable T>
  void all_to_all(std::type_identity_t<std::span<const T>> send,
                  std::span<const std::size_t> send_counts, std::span<T> receive,
                  std::span<const std::size_t> receive_counts) {
    check_counts(Collective::all_to_all, rank(), size(), "send", send.size(), send_counts);
    check_counts(Collective::all_to_all, rank(), size(), "receive", receive.size(), receive_counts);
    agree(make_header<T>(Collective::all_to_all, send.size()), send_counts, receive_counts);
    exchange<T>(send, send_counts, receive, receive_counts);
  }

  /// Gives every rank all ranks' `send`, in rank order; `counts[r]` is the size of rank r's.
  template <Exchangeable T>
  void all_gather(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                  std::span<const std::size_t> counts) {
    check_counts(Collective::all_gather, rank(), size(), "receive", receive.size(), counts);
    std::fill(state_->counts.begin(), state_->counts.end(), send.size());
    agree(make_header<T>(Collective::all_gather, send.size()), state_->counts, counts);
    gather<T>(send, receive, counts);
  }

  /// Replaces `values` on every rank by the reduction over all ranks, element by element.
  template <Reducible T>
  void all_reduce(std::span<T> values, Reduction reduction = Reduction::sum) {
    CallHeader header = make_header<T>(Collective::all_reduce, values.size());
    header.reduction = reduction;
    agree(header, {}, {});
    // Each rank reduces one slice, then all gather the slices.
    const auto ranks = static_cast<std::size_t>(size());
    for (std::size_t r = 0; r < ranks; ++r)
      state_->counts[r] =
          slice_begin(values.size(), ranks, r + 1) - slice_begin(values.size(), ranks, r);
    const std::size_t mine = static_cast<std::size_t>(rank());
    const std::span<T> slice =
        values.subspan(slice_begin(values.size(), ranks, mine), state_->counts[mine]);
    reduce_blocks<T>(values, slice, state_->counts, reduction);
    gather<T>(slice, values, state_->counts);
  }

  /// Adds up all ranks' `send`; rank r gets block r of the sum, of counts[r] elements.
  template <Reducible T>
  void reduce_scatter(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                      std::span<const std::size_t> counts) {
    check_counts(Collective::reduce_scatter, rank(), size(), "send", send.size(), counts);
    check_own_count(Collective::reduce_scatter, rank(), "receive", receive.size(), counts);
    std::fill(state_->counts.begin(), state_->counts.end(), receive.size());
    agree(make_header<T>(Collective::reduce_scatter, send.size()), counts, state_->counts);
    reduce_blocks<T>(send, receive, counts, Reduction::sum);
  }

  /// Gives every rank the `values` of rank `root`.
  template <Exchangeable T>
  void broadcast(std::span<T> values, int root) {
    check_root(rank(), size(), root);
    CallHeader header = make_header<T>(Collective::broadcast, values.size());
    header.root = root;
    agree(header, {}, {});
    state_->messenger->begin_transfers();
    if (rank() == root) {
      for (int peer = 0; peer < size(); ++peer)
        if (peer != root) send_block(peer, std::as_bytes(values));
    } else {
      receive_block(root, std::as_writable_bytes(values));
    }
    state_->messenger->wait();
  }

  /// Returns when every rank has called it.
  void barrier() { agree({.collective = Collective::barrier}, {}, {}); }

  /// Says that this rank makes no further call. Returns when all have said so; who calls a
  /// collective instead, throws.
  void finish() { agree({.collective = Collective::none}, {}, {}); }

  /// Tells all peers that this rank has failed: their waits end with a CommunicatorError that
  /// carries `text`.
  void fail(const std::string& text) noexcept { state_->messenger->fail(text); }
  /// Ends a wait of another thread in this communicator, for all ranks: it throws
  /// CommunicatorError. A thread that does not wait finds it out when it next does.
  void interrupt(const std::string& text) { state_->messenger->interrupt(text); }
  /// Waits until every peer has called `fail` too, or for `time` at most.
  void await_failures_of_peers(std::chrono::nanoseconds time) noexcept {
    state_->messenger->await_failures_of_peers(time);
  }
  /// Returns whether a rank before this one is known to have called `fail` with the same text.
  bool told_by_lower_rank(const std::string& text) const {
    return state_->messenger->told_by_lower_rank(text);
  }

 protected:
  explicit MessageCommunicator(std::shared_ptr<Messenger> messenger)
      : state_(std::make_unique<State>(std::move(messenger))) {}
  MessageCommunicator(MessageCommunicator&&) = default;
  MessageCommunicator& operator=(MessageCommunicator&&) = delete;
  ~MessageCommunicator() = default;

  Messenger& messenger() const { return *state_->messenger; }
  const std::shared_ptr<Messenger>& shared_messenger() const { return state_->messenger; }
  /// Returns whether this communicator is destroyed after a failure, or by an exception: messages
  /// of a failed call may still be under way, as may those of peers that do not know yet.
  bool ends_in_failure() const {
    return state_ && (state_->messenger->failed() || std::uncaught_exceptions() > exceptions_);
  }
  /// Returns whether this communicator has not been moved from.
  bool alive() const { return state_ != nullptr; }
  /// Gives up what the messages use, which stays.
  void abandon() { static_cast<void>(state_.release()); }

 private:
  static constexpr int kHeaderTag = 1, kDataTag = 2;

  struct WireHeader {
    CallHeader call;
    std::uint64_t pair_count = 0;  // elements for the receiver
  };
  static_assert(std::is_trivially_copyable_v<WireHeader>);

  struct State {
    explicit State(std::shared_ptr<Messenger> given)
        : messenger(std::move(given)),
          sent_headers(static_cast<std::size_t>(messenger->size())),
          headers(static_cast<std::size_t>(messenger->size())),
          counts(static_cast<std::size_t>(messenger->size())) {}

    std::shared_ptr<Messenger> messenger;
    std::vector<WireHeader> sent_headers, headers;
    std::vector<std::size_t> counts;  // of collectives that are given none
    std::vector<std::byte> scratch;
  };

  static std::size_t offset(std::span<const std::size_t> counts, int rank) {
    return std::accumulate(counts.begin(), counts.begin() + rank, std::size_t{0});
  }

  /// Tells every peer which call this is and hears the same from it. With counts: what each peer
  /// gets from, and gives to, this rank.
  void agree(CallHeader header, std::span<const std::size_t> to_peers,
             std::span<const std::size_t> from_peers) {
    header.call = state_->messenger->begin_call(header.collective);
    state_->messenger->begin_transfers();
    state_->headers[static_cast<std::size_t>(rank())] = {
        header, to_peers.empty() ? 0 : to_peers[static_cast<std::size_t>(rank())]};
    for_each_peer([&](int peer) {
      state_->messenger->receive(
          peer,
          std::as_writable_bytes(std::span(&state_->headers[static_cast<std::size_t>(peer)], 1)),
          kHeaderTag);
    });
    for_each_peer([&](int peer) {
      WireHeader& to_peer = state_->sent_headers[static_cast<std::size_t>(peer)];
      to_peer = {header, to_peers.empty() ? 0 : to_peers[static_cast<std::size_t>(peer)]};
      state_->messenger->send(peer, std::as_bytes(std::span(&to_peer, 1)), kHeaderTag);
    });
    state_->messenger->wait();

    const auto header_of = [&](int peer) -> const WireHeader& {
      return state_->headers[static_cast<std::size_t>(peer)];
    };
    const auto call_of = [&](int peer) -> const CallHeader& { return header_of(peer).call; };
    Disagreement fault = disagreement_of_calls(header.collective, size(), call_of);
    if (fault.text.empty() && !from_peers.empty())
      fault = disagreement_of_counts(
          header, rank(), size(), [&](int peer) { return header_of(peer).pair_count; },
          [&](int peer) { return from_peers[static_cast<std::size_t>(peer)]; });
    if (fault.text.empty()) return;
    state_->messenger->announce(fault.rank, fault.text);
    throw CommunicatorError(fault.rank, name_of(header.collective), fault.text);
  }

  /// Exchanges the data of an all-to-all whose counts agree.
  template <class T>
  void exchange(std::span<const T> send, std::span<const std::size_t> send_counts,
                std::span<T> receive, std::span<const std::size_t> receive_counts) {
    state_->messenger->begin_transfers();
    for_each_peer([&](int peer) {
      receive_block(
          peer, std::as_writable_bytes(receive.subspan(
                    offset(receive_counts, peer), receive_counts[static_cast<std::size_t>(peer)])));
    });
    for_each_peer([&](int peer) {
      send_block(peer, std::as_bytes(send.subspan(offset(send_counts, peer),
                                                  send_counts[static_cast<std::size_t>(peer)])));
    });
    copy_bytes(receive.data() + offset(receive_counts, rank()),
               send.data() + offset(send_counts, rank()),
               send_counts[static_cast<std::size_t>(rank())] * sizeof(T));
    state_->messenger->wait();
  }

  /// Gathers the data of an all-gather whose counts agree; `send` may be its own block of
  /// `receive`.
  template <class T>
  void gather(std::span<const T> send, std::span<T> receive, std::span<const std::size_t> counts) {
    state_->messenger->begin_transfers();
    for_each_peer([&](int peer) {
      receive_block(peer, std::as_writable_bytes(receive.subspan(
                              offset(counts, peer), counts[static_cast<std::size_t>(peer)])));
    });
    for_each_peer([&](int peer) { send_block(peer, std::as_bytes(send)); });
    T* const own = receive.data() + offset(counts, rank());
    if (own != send.data()) copy_bytes(own, send.data(), send.size_bytes());
    state_->messenger->wait();
  }

  /// Brings every rank's block for this rank here and reduces them in rank order; `result` may be
  /// the own block of `send`.
  template <class T>
  void reduce_blocks(std::span<const T> send, std::span<T> result,
                     std::span<const std::size_t> counts, Reduction reduction) {
    const std::size_t count = result.size();
    state_->scratch.resize(
        std::max(state_->scratch.size(), count * sizeof(T) * static_cast<std::size_t>(size())));
    T* const blocks = reinterpret_cast<T*>(state_->scratch.data());
    const auto block_of = [&](int peer) {
      return std::span(blocks + static_cast<std::size_t>(peer) * count, count);
    };
    state_->messenger->begin_transfers();
    for_each_peer([&](int peer) { receive_block(peer, std::as_writable_bytes(block_of(peer))); });
    for_each_peer([&](int peer) {
      send_block(peer, std::as_bytes(send.subspan(offset(counts, peer),
                                                  counts[static_cast<std::size_t>(peer)])));
    });
    copy_bytes(block_of(rank()).data(), send.data() + offset(counts, rank()), count * sizeof(T));
    state_->messenger->wait();
    for (int peer = 1; peer < size(); ++peer)
      reduce_into(blocks, block_of(peer).data(), count, reduction);
    copy_bytes(result.data(), blocks, count * sizeof(T));
  }

  /// Calls f for all but this rank, beginning with the next one, so that not all write to the same
  /// peer at once.
  template <class Visit>
  void for_each_peer(Visit visit) const {
    for (int i = 1; i < size(); ++i) visit((rank() + i) % size());
  }

  void send_block(int peer, std::span<const std::byte> bytes) {
    state_->messenger->send(peer, bytes, kDataTag);
  }
  void receive_block(int peer, std::span<std::byte> bytes) {
    state_->messenger->receive(peer, bytes, kDataTag);
  }

  std::unique_ptr<State> state_;
  int exceptions_ = std::uncaught_exceptions();
};

/// Runs `function(communicator)` as this process's rank and returns the program's exit code. If it
/// throws, the text goes to stderr (unless a rank before this one reports the same) and to all
/// peers, whose collectives then throw too; then, when all have reported, or after `grace`, `end`
/// is called.
template <class C, class Function, class End>
int run_process_rank(C& communicator, Function&& function, std::chrono::nanoseconds grace,
                     End end) {
  const auto failed = [&](const char* text) {
    communicator.fail(text);
    if (communicator.rank() != 0) communicator.await_failures_of_peers(grace / 2);
    if (!communicator.told_by_lower_rank(text)) {
      std::fprintf(stderr, "rank %d: %s\n", communicator.rank(), text);
      std::fflush(stderr);
    }
    communicator.await_failures_of_peers(grace);
    // launchers drop what they have not yet forwarded of peers' texts
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    end();
    return 1;
  };
  try {
    function(communicator);
    communicator.finish();
    return 0;
  } catch (const std::exception& error) {
    return failed(error.what());
  } catch (...) {
    return failed("it threw something that is not a std::exception");
  }
}

}}}  // namespace tessera::v0::detail
