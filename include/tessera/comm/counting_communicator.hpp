// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/communicator.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

namespace tessera { inline namespace v0 {

/// What one rank has sent to other ranks through one collective. A message is a non-empty block for
/// one other rank; what a rank keeps for itself, and what a transport adds (headers, pieces of
/// large blocks), does not count.
struct Traffic {
  std::uint64_t calls = 0;
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;

  friend constexpr Traffic operator+(Traffic a, Traffic b) {
    return {a.calls + b.calls, a.messages + b.messages, a.bytes + b.bytes};
  }
  friend constexpr Traffic operator-(Traffic a, Traffic b) {
    return {a.calls - b.calls, a.messages - b.messages, a.bytes - b.bytes};
  }
  friend constexpr bool operator==(Traffic, Traffic) = default;
};

/// Wraps any communicator and counts this rank's messages and bytes, exactly and by collective.
/// Reductions count as the exchanges that they are made of: `reduce_scatter` sends every other rank
/// its block, `all_reduce` a slice there and the own slice back. Keeps a reference to the wrapped
/// communicator and offers the collectives that it offers.
///
///     CountingCommunicator counted(communicator);
///     counted.barrier();
///     const auto bytes = counted.traffic(Collective::barrier).bytes;
template <class Inner>
class CountingCommunicator {
 public:
  explicit CountingCommunicator(Inner& inner) : inner_(inner) {
    static_assert(explain_communicator<Inner, Collective::none>());
  }

  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  bool queues_calls() const { return detail::queues_calls(inner_); }
  template <class Calls>
  void group(const Calls& calls) {
    detail::together(inner_, calls);
  }
  Inner& inner() const { return inner_; }
  bool host_memory_only() const { return detail::host_memory_only(inner_); }
  void interrupt(const std::string& text)
    requires requires(Inner& inner) { inner.interrupt(text); }
  {
    inner_.interrupt(text);
  }

  /// Returns the traffic since construction, or the last `reset`.
  const Traffic& traffic(Collective collective) const { return traffic_[index(collective)]; }
  Traffic total() const {
    Traffic sum;
    for (const Traffic& part : traffic_) sum = sum + part;
    return sum;
  }
  void reset() { traffic_ = {}; }

  template <Exchangeable T>
  void all_to_all(std::type_identity_t<std::span<const T>> send,
                  std::span<const std::size_t> send_counts, std::span<T> receive,
                  std::span<const std::size_t> receive_counts)
    requires detail::HasAllToAll<Inner>
  {
    inner_.all_to_all(send, send_counts, receive, receive_counts);
    count_blocks(Collective::all_to_all, send_counts, sizeof(T));
  }

  template <Exchangeable T>
  void all_gather(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                  std::span<const std::size_t> counts)
    requires detail::HasAllGather<Inner>
  {
    inner_.all_gather(send, receive, counts);
    count_copies(Collective::all_gather, size() - 1, send.size_bytes());
  }

  template <Reducible T>
  void all_reduce(std::span<T> values, Reduction reduction = Reduction::sum)
    requires detail::HasAllReduce<Inner>
  {
    inner_.all_reduce(values, reduction);
    const auto ranks = static_cast<std::size_t>(size()), mine = static_cast<std::size_t>(rank());
    Traffic& traffic = count_copies(Collective::all_reduce, size() - 1,
                                    slice_size(values.size(), ranks, mine) * sizeof(T));
    for (std::size_t peer = 0; peer < ranks; ++peer)
      if (peer != mine) add_message(traffic, slice_size(values.size(), ranks, peer) * sizeof(T));
  }

  template <Reducible T>
  void reduce_scatter(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                      std::span<const std::size_t> counts)
    requires detail::HasReduceScatter<Inner>
  {
    inner_.reduce_scatter(send, receive, counts);
    count_blocks(Collective::reduce_scatter, counts, sizeof(T));
  }

  template <Exchangeable T>
  void broadcast(std::span<T> values, int root)
    requires detail::HasBroadcast<Inner>
  {
    inner_.broadcast(values, root);
    count_copies(Collective::broadcast, rank() == root ? size() - 1 : 0, values.size_bytes());
  }

  void barrier()
    requires detail::HasBarrier<Inner>
  {
    inner_.barrier();
    count_copies(Collective::barrier, 0, 0);
  }

 private:
  static std::size_t index(Collective collective) {
    return static_cast<std::size_t>(std::countr_zero(static_cast<unsigned>(collective)));
  }

  static constexpr std::size_t slice_size(std::size_t size, std::size_t ranks, std::size_t rank) {
    return size / ranks + (rank < size % ranks ? 1 : 0);
  }

  static void add_message(Traffic& traffic, std::size_t bytes) {
    traffic.messages += bytes != 0 ? 1 : 0;
    traffic.bytes += bytes;
  }

  Traffic& count_copies(Collective collective, int copies, std::size_t bytes) {
    Traffic& traffic = traffic_[index(collective)];
    ++traffic.calls;
    for (int i = 0; i < copies; ++i) add_message(traffic, bytes);
    return traffic;
  }

  void count_blocks(Collective collective, std::span<const std::size_t> counts,
                    std::size_t element_size) {
    Traffic& traffic = count_copies(collective, 0, 0);
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank())
        add_message(traffic, counts[static_cast<std::size_t>(peer)] * element_size);
  }

  Inner& inner_;
  std::array<Traffic, std::bit_width(static_cast<unsigned>(Collective::all))> traffic_{};
};

}}  // namespace tessera::v0
