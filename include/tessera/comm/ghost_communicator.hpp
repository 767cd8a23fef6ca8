// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/collective_checks.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/core/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

namespace detail {

/// What joins a ghost's rank to its peers; the defaults are an A100's, as Cluster's.
struct GhostLinks {
  int ranks_per_node = 0;             ///< 0: one node
  double node_bandwidth = 2.2e11;     ///< bytes/s to ranks of the node
  double node_latency = 1e-6;         ///< seconds per message
  double network_bandwidth = 2.0e10;  ///< the same to other nodes
  double network_latency = 2e-6;
  double launch_seconds = 8e-6;  ///< per collective
};

/// What one rank received in calls of all_to_all and all_gather, in their order.
using ReceivedCalls = std::vector<std::vector<std::byte>>;

}  // namespace detail

/// One rank of many that runs alone: its peers are made up, so that one machine measures the work,
/// the memory and the messages of any rank of any cluster. `play` says what the peers send; where
/// it says nothing, or another number of bytes, a peer sends zeros, and gathers and reduces what
/// this rank gives. This rank's own blocks arrive unchanged. No call waits: what the links
/// would take is counted in `link_seconds`. Host memory alone; throws InvalidArgument for counts that
/// contradict the buffers.
///
///     GhostCommunicator ghost(3, 64);  // rank 3 of 64
///     const double seconds = ghost.link_seconds();
class GhostCommunicator {
 public:
  GhostCommunicator(int rank, int size, detail::GhostLinks links = {})
      : rank_(rank), size_(size), links_(links) {
    require(size >= 1 && rank >= 0 && rank < size,
            "GhostCommunicator: rank {} is not in 0..{} of {} ranks", rank, size - 1, size);
    require(links.ranks_per_node >= 0 && links.node_bandwidth > 0 && links.network_bandwidth > 0 &&
                links.node_latency >= 0 && links.network_latency >= 0 && links.launch_seconds >= 0,
            "GhostCommunicator: bandwidths must be above 0, latencies and ranks_per_node not "
            "negative");
  }

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool host_memory_only() const { return true; }

  /// Says what peers send in the next calls of all_to_all and all_gather: all that this rank
  /// receives in each, its own block included. Keeps a reference.
  void play(const detail::ReceivedCalls& calls) {
    calls_ = &calls;
    next_ = 0;
  }
  /// Returns the calls since `play` for which nothing was given, or another number of bytes.
  std::size_t made_up() const { return made_up_; }
  /// Returns what the calls would have taken on the links, in seconds, since `reset_links`.
  double link_seconds() const { return link_seconds_; }
  void reset_links() { link_seconds_ = 0, made_up_ = 0; }

  template <Exchangeable T>
  void all_to_all(std::type_identity_t<std::span<const T>> send,
                  std::span<const std::size_t> send_counts, std::span<T> receive,
                  std::span<const std::size_t> receive_counts) {
    constexpr Collective call = Collective::all_to_all;
    detail::check_counts(call, rank_, size_, "send", send.size(), send_counts);
    detail::check_counts(call, rank_, size_, "receive", receive.size(), receive_counts);
    const std::size_t own = static_cast<std::size_t>(rank_);
    require(send_counts[own] == receive_counts[own],
            "all_to_all on rank {}: it sends itself {} elements and expects {}", rank_,
            send_counts[own], receive_counts[own]);
    count_link([&](std::size_t peer) {
      return sizeof(T) * std::max(send_counts[peer], receive_counts[peer]);
    });
    if (played(std::as_writable_bytes(receive))) return;
    const std::span<std::byte> bytes = std::as_writable_bytes(receive);
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
    copy<T>(send.data() + begin(send_counts, own), receive.data() + begin(receive_counts, own),
            send_counts[own]);
  }

  template <Exchangeable T>
  void all_gather(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                  std::span<const std::size_t> counts) {
    constexpr Collective call = Collective::all_gather;
    detail::check_counts(call, rank_, size_, "receive", receive.size(), counts);
    detail::check_own_count(call, rank_, "send", send.size(), counts);
    count_link([&](std::size_t peer) { return sizeof(T) * std::max(send.size(), counts[peer]); });
    if (played(std::as_writable_bytes(receive))) return;
    const std::span<std::byte> bytes = std::as_writable_bytes(receive);
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
    for (std::size_t peer = 0; peer < counts.size(); ++peer)
      copy<T>(send.data(), receive.data() + begin(counts, peer),
              std::min(send.size(), counts[peer]));
  }

  template <Reducible T>
  void all_reduce(std::span<T> values, Reduction reduction = Reduction::sum) {
    count_link(
        [&](std::size_t) { return 2 * values.size_bytes() / static_cast<std::size_t>(size_); });
    if (reduction == Reduction::sum)
      for (T& value : values) value = times_ranks(value);
  }

  template <Reducible T>
  void reduce_scatter(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                      std::span<const std::size_t> counts) {
    constexpr Collective call = Collective::reduce_scatter;
    const std::size_t own = static_cast<std::size_t>(rank_);
    detail::check_counts(call, rank_, size_, "send", send.size(), counts);
    detail::check_own_count(call, rank_, "receive", receive.size(), counts);
    count_link([&](std::size_t peer) { return sizeof(T) * std::max(counts[peer], counts[own]); });
    const T* from = send.data() + begin(counts, own);
    for (T& value : receive) value = times_ranks(*from++);
  }

  /// Changes nothing, also if another rank is the root.
  template <Exchangeable T>
  void broadcast(std::span<T> values, int root) {
    require(root >= 0 && root < size_, "broadcast on rank {}: root {} is not in 0..{}", rank_, root,
            size_ - 1);
    count_link([&](std::size_t) { return values.size_bytes() / static_cast<std::size_t>(size_); });
  }

  void barrier() {}

 private:
  static std::size_t begin(std::span<const std::size_t> counts, std::size_t rank) {
    std::size_t sum = 0;
    for (std::size_t r = 0; r < rank; ++r) sum += counts[r];
    return sum;
  }
  template <class T>
  static void copy(const T* from, T* to, std::size_t count) {
    if (count != 0) std::memcpy(static_cast<void*>(to), from, count * sizeof(T));
  }
  template <class T>
  T times_ranks(T value) const {
    T sum = value;
    for (int r = 1; r < size_; ++r) sum += value;
    return sum;
  }

  /// Copies what `play` gave for this call; false: nothing that fits.
  bool played(std::span<std::byte> receive) {
    const bool given = calls_ != nullptr && next_ < calls_->size();
    const std::vector<std::byte>* const call = given ? &(*calls_)[next_++] : nullptr;
    if (call == nullptr || call->size() != receive.size()) {
      ++made_up_;
      return false;
    }
    copy(call->data(), receive.data(), receive.size());
    return true;
  }

  /// Adds a call in which this rank and each peer have so many bytes for each other.
  template <class Bytes>
  void count_link(const Bytes& bytes) {
    if (size_ == 1) return;
    const int node = links_.ranks_per_node == 0 ? size_ : links_.ranks_per_node;
    double near = 0, far = 0, seconds = links_.launch_seconds;
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      const bool same = peer / node == rank_ / node;
      (same ? near : far) += static_cast<double>(bytes(static_cast<std::size_t>(peer)));
      seconds += same ? links_.node_latency : links_.network_latency;
    }
    link_seconds_ +=
        seconds + std::max(near / links_.node_bandwidth, far / links_.network_bandwidth);
  }

  int rank_, size_;
  detail::GhostLinks links_;
  const detail::ReceivedCalls* calls_ = nullptr;
  std::size_t next_ = 0, made_up_ = 0;
  double link_seconds_ = 0;
};

namespace detail {

/// Wraps a communicator and keeps what this rank receives, for GhostCommunicator::play. Keeps a
/// reference to the wrapped one.
template <class Inner>
class RecordingCommunicator {
 public:
  explicit RecordingCommunicator(Inner& inner) : inner_(inner) {}

  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  /// Appends what the next calls give to `calls`; null: keeps nothing.
  void record(ReceivedCalls* calls) { calls_ = calls; }

  template <Exchangeable T>
  void all_to_all(std::type_identity_t<std::span<const T>> send,
                  std::span<const std::size_t> send_counts, std::span<T> receive,
                  std::span<const std::size_t> receive_counts) {
    inner_.template all_to_all<T>(send, send_counts, receive, receive_counts);
    keep(std::as_bytes(receive));
  }
  template <Exchangeable T>
  void all_gather(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                  std::span<const std::size_t> counts) {
    inner_.template all_gather<T>(send, receive, counts);
    keep(std::as_bytes(receive));
  }
  template <Reducible T>
  void all_reduce(std::span<T> values, Reduction reduction = Reduction::sum) {
    inner_.all_reduce(values, reduction);
  }
  template <Reducible T>
  void reduce_scatter(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                      std::span<const std::size_t> counts) {
    inner_.template reduce_scatter<T>(send, receive, counts);
  }
  template <Exchangeable T>
  void broadcast(std::span<T> values, int root) {
    inner_.broadcast(values, root);
  }
  void barrier() { inner_.barrier(); }

 private:
  void keep(std::span<const std::byte> received) {
    if (calls_ != nullptr) calls_->emplace_back(received.begin(), received.end());
  }

  Inner& inner_;
  ReceivedCalls* calls_ = nullptr;
};

}  // namespace detail

}}  // namespace tessera::v0
