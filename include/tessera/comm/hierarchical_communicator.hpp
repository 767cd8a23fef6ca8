// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/collective_checks.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/memory.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// Ranks on nodes: what goes from node to node is first brought together within the node, so that a
/// rank sends one message to each other node instead of one to each rank there. Made of two
/// communicators: `local` of the ranks of this node, `cross` of the ranks with this rank's place on
/// every node. Rank = node * ranks per node + place; all nodes have as many ranks. The same bits as
/// any other communicator: sums run in rank order, and are not formed node by node. Host memory
/// alone: collections and buckets whose tables or gradients are on a device refuse it;
/// errors of the inner communicators number ranks as these do. An all-to-all copies every byte four
/// times instead of once: for networks where messages cost more than bytes.
template <class Local, class Cross = Local>
class HierarchicalCommunicator {
 public:
  HierarchicalCommunicator(Local local, Cross cross)
      : local_(std::move(local)), cross_(std::move(cross)) {
    static_assert(explain_communicator<Local>() && explain_communicator<Cross>());
  }

  int rank() const { return cross_.rank() * local_.size() + local_.rank(); }
  int size() const { return cross_.size() * local_.size(); }
  /// Returns true: messages are put together and taken apart by the host.
  static constexpr bool host_memory_only() { return true; }
  Local& local() { return local_; }
  Cross& cross() { return cross_; }

  template <Exchangeable T>
  void all_to_all(std::type_identity_t<std::span<const T>> send,
                  std::span<const std::size_t> send_counts, std::span<T> receive,
                  std::span<const std::size_t> receive_counts) {
    detail::check_counts(Collective::all_to_all, rank(), size(), "send", send.size(), send_counts);
    detail::check_counts(Collective::all_to_all, rank(), size(), "receive", receive.size(),
                         receive_counts);
    exchange(Collective::all_to_all, Reduction::sum, sizeof(T), std::as_bytes(send), send_counts,
             std::as_writable_bytes(receive), receive_counts);
  }

  template <Exchangeable T>
  void all_gather(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                  std::span<const std::size_t> counts) {
    detail::check_counts(Collective::all_gather, rank(), size(), "receive", receive.size(), counts);
    detail::check_own_count(Collective::all_gather, rank(), "send", send.size(), counts);
    // From the ranks with this one's place on every node, then from the node's.
    std::vector<std::size_t> of_place(nodes()), of_local(places(), 0);
    for (std::size_t p = 0; p < places(); ++p)
      for (std::size_t n = 0; n < nodes(); ++n) of_local[p] += counts[n * places() + p] * sizeof(T);
    for (std::size_t n = 0; n < nodes(); ++n)
      of_place[n] = counts[n * places() + index(local_.rank())] * sizeof(T);
    first_.resize(of_local[index(local_.rank())]);
    second_.resize(receive.size_bytes());
    cross_.all_gather(std::as_bytes(send), std::span(first_), of_place);
    local_.all_gather(std::span<const std::byte>(first_), std::span(second_), of_local);
    const std::byte* from = second_.data();
    const std::vector<std::size_t> begin = offsets(counts, sizeof(T));
    for (std::size_t p = 0; p < places(); ++p)
      for (std::size_t n = 0; n < nodes(); ++n) {
        const std::size_t r = n * places() + p, bytes = counts[r] * sizeof(T);
        detail::copy_bytes(std::as_writable_bytes(receive).data() + begin[r], from, bytes);
        from += bytes;
      }
  }

  template <Reducible T>
  void all_reduce(std::span<T> values, Reduction reduction = Reduction::sum) {
    const std::size_t ranks = index(size()), mine = index(rank());
    std::vector<std::size_t> counts(ranks);
    for (std::size_t r = 0; r < ranks; ++r)
      counts[r] = detail::slice_begin(values.size(), ranks, r + 1) -
                  detail::slice_begin(values.size(), ranks, r);
    const std::span<T> slice =
        values.subspan(detail::slice_begin(values.size(), ranks, mine), counts[mine]);
    reduce_blocks<T>(Collective::all_reduce, reduction, values, counts, slice);
    const std::vector<T> own(slice.begin(), slice.end());
    all_gather<T>(own, values, counts);
  }

  template <Reducible T>
  void reduce_scatter(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                      std::span<const std::size_t> counts) {
    detail::check_counts(Collective::reduce_scatter, rank(), size(), "send", send.size(), counts);
    detail::check_own_count(Collective::reduce_scatter, rank(), "receive", receive.size(), counts);
    reduce_blocks<T>(Collective::reduce_scatter, Reduction::sum, send, counts, receive);
  }

  template <Exchangeable T>
  void broadcast(std::span<T> values, int root) {
    detail::check_root(rank(), size(), root);
    std::vector<int> roots(index(size()));
    all_gather<int>({&root, 1}, roots, std::vector<std::size_t>(roots.size(), 1));
    for (std::size_t r = 0; r < roots.size(); ++r)
      if (roots[r] != root)
        throw CommunicatorError(static_cast<int>(r), "broadcast",
                                detail::formatted("broadcast: rank {} names root {}, rank {} {}",
                                                  rank(), root, r, roots[r]));
    if (local_.rank() == root % local_.size()) cross_.broadcast(values, root / local_.size());
    local_.broadcast(values, root % local_.size());
  }

  void barrier() {
    local_.barrier();
    cross_.barrier();
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  std::size_t nodes() const { return index(cross_.size()); }
  std::size_t places() const { return index(local_.size()); }

  static std::vector<std::size_t> offsets(std::span<const std::size_t> counts, std::size_t scale) {
    std::vector<std::size_t> begin(counts.size() + 1, 0);
    for (std::size_t r = 0; r < counts.size(); ++r) begin[r + 1] = begin[r] + counts[r] * scale;
    return begin;
  }

  /// Returns what a call is, for peers to compare.
  std::uint64_t signature(Collective collective, Reduction reduction, std::size_t element_size) {
    return ++calls_ << 24 | static_cast<std::uint64_t>(element_size & 0xfff) << 12 |
           static_cast<std::uint64_t>(reduction) << 8 | static_cast<std::uint64_t>(collective);
  }
  void check_call(Collective collective, int peer, std::uint64_t own, std::uint64_t other) const {
    if (own == other) return;
    throw CommunicatorError(
        peer, detail::name_of(collective),
        detail::formatted("{} (call {}) on rank {}: rank {} makes another call, or "
                          "has elements of another size; all ranks must "
                          "make the same calls in the same order",
                          detail::name_of(collective), calls_, rank(), peer));
  }

  /// Makes an all-to-all of bytes in two stages. Counts in elements.
  void exchange(Collective collective, Reduction reduction, std::size_t element_size,
                std::span<const std::byte> send, std::span<const std::size_t> send_counts,
                std::span<std::byte> receive, std::span<const std::size_t> receive_counts) {
    const std::size_t nodes = this->nodes(), places = this->places();
    const std::uint64_t call = signature(collective, reduction, element_size);
    // Places of this node learn how much there will be for their twins on the other nodes.
    counts_out_.assign(places * (nodes + 1), call);
    counts_in_.resize(counts_out_.size());
    for (std::size_t p = 0; p < places; ++p)
      for (std::size_t n = 0; n < nodes; ++n)
        counts_out_[p * (nodes + 1) + n] = send_counts[n * places + p];
    const std::vector<std::size_t> headers(places, nodes + 1);
    local_.all_to_all(std::span<const std::uint64_t>(counts_out_), headers, std::span(counts_in_),
                      headers);
    for (std::size_t p = 0; p < places; ++p)
      check_call(collective, cross_.rank() * local_.size() + static_cast<int>(p), call,
                 counts_in_[p * (nodes + 1) + nodes]);
    const auto from_place = [&](std::size_t p, std::size_t n) {
      return counts_in_[p * (nodes + 1) + n];
    };

    // Within the node: by place, then node.
    const std::vector<std::size_t> begin = offsets(send_counts, element_size);
    std::vector<std::size_t> out(places, 0), in(places, 0);
    first_.resize(send.size());
    std::byte* to = first_.data();
    for (std::size_t p = 0; p < places; ++p)
      for (std::size_t n = 0; n < nodes; ++n) {
        const std::size_t bytes = send_counts[n * places + p] * element_size;
        detail::copy_bytes(to, send.data() + begin[n * places + p], bytes);
        to += bytes;
        out[p] += bytes;
        in[p] += from_place(p, n) * element_size;
      }
    second_.resize(std::accumulate(in.begin(), in.end(), std::size_t{0}));
    local_.all_to_all(std::span<const std::byte>(first_), out, std::span(second_), in);

    // Between nodes: to each node the sizes of its message's blocks, then the blocks by place.
    const std::size_t prefix = (places + 1) * sizeof(std::uint64_t);
    std::vector<std::size_t> to_nodes(nodes, prefix), from_nodes(nodes, prefix);
    for (std::size_t n = 0; n < nodes; ++n)
      for (std::size_t p = 0; p < places; ++p) {
        to_nodes[n] += from_place(p, n) * element_size;
        from_nodes[n] += receive_counts[n * places + p] * element_size;
      }
    const std::vector<std::size_t> place_begin = offsets(in, 1);
    std::vector<std::size_t> next(place_begin.begin(), place_begin.end() - 1);
    first_.resize(std::accumulate(to_nodes.begin(), to_nodes.end(), std::size_t{0}));
    to = first_.data();
    for (std::size_t n = 0; n < nodes; ++n) {
      std::memcpy(to, &call, sizeof(call));
      to += sizeof(call);
      for (std::size_t p = 0; p < places; ++p, to += sizeof(std::uint64_t)) {
        const std::uint64_t count = from_place(p, n);
        std::memcpy(to, &count, sizeof(count));
      }
      for (std::size_t p = 0; p < places; ++p) {
        const std::size_t bytes = from_place(p, n) * element_size;
        detail::copy_bytes(to, second_.data() + next[p], bytes);
        to += bytes;
        next[p] += bytes;
      }
    }
    second_.resize(std::accumulate(from_nodes.begin(), from_nodes.end(), std::size_t{0}));
    cross_.all_to_all(std::span<const std::byte>(first_), to_nodes, std::span(second_), from_nodes);

    const std::byte* from = second_.data();
    std::byte* target = receive.data();
    for (std::size_t n = 0; n < nodes; ++n) {
      check_blocks(collective, n, call, from, receive_counts);
      const std::size_t bytes = from_nodes[n] - prefix;
      detail::copy_bytes(target, from + prefix, bytes);
      target += bytes;
      from += from_nodes[n];
    }
  }

  /// Checks that the sizes that came from node `n` are those that this rank expects.
  void check_blocks(Collective collective, std::size_t n, std::uint64_t call,
                    const std::byte* sizes, std::span<const std::size_t> receive_counts) const {
    std::uint64_t word = 0;
    std::memcpy(&word, sizes, sizeof(word));
    check_call(collective, static_cast<int>(n * places()) + local_.rank(), call, word);
    for (std::size_t p = 0; p < places(); ++p) {
      std::memcpy(&word, sizes + (p + 1) * sizeof(word), sizeof(word));
      const std::size_t peer = n * places() + p;
      if (word != receive_counts[peer])
        throw CommunicatorError(
            static_cast<int>(peer), detail::name_of(collective),
            detail::formatted(
                "{} (call {}): rank {} sends {} elements to rank {}, which expects {}",
                detail::name_of(collective), calls_, peer, word, rank(), receive_counts[peer]));
    }
  }

  /// Reduces every rank's block for this rank, in rank order; `result` may be the own block of
  /// `send`.
  template <class T>
  void reduce_blocks(Collective collective, Reduction reduction, std::span<const T> send,
                     std::span<const std::size_t> counts, std::span<T> result) {
    const std::size_t ranks = index(size());
    std::vector<T> blocks(ranks * result.size());
    const std::vector<std::size_t> equal(ranks, result.size());
    exchange(collective, reduction, sizeof(T), std::as_bytes(send), counts,
             std::as_writable_bytes(std::span(blocks)), equal);
    for (std::size_t r = 1; r < ranks; ++r)
      detail::reduce_into(blocks.data(), blocks.data() + r * result.size(), result.size(),
                          reduction);
    detail::copy_bytes(result.data(), blocks.data(), result.size_bytes());
  }

  Local local_;
  Cross cross_;
  std::uint64_t calls_ = 0;
  std::vector<std::uint64_t> counts_out_, counts_in_;
  std::vector<std::byte> first_, second_;  // of the two stages in turn
};

/// Makes communicators of `communicator`'s nodes and of places on nodes, `ranks_per_node`
/// neighbouring ranks being a node, which they may or may not be in fact. Collective. Throws
/// InvalidArgument unless ranks_per_node divides the number of ranks.
template <class C>
auto make_hierarchical(C& communicator, int ranks_per_node) {
  require(ranks_per_node >= 1 && communicator.size() % ranks_per_node == 0,
          "make_hierarchical: {} ranks are no whole number of nodes of {}", communicator.size(),
          ranks_per_node);
  auto local = communicator.split(communicator.rank() / ranks_per_node);
  auto cross = communicator.split(communicator.rank() % ranks_per_node);
  return HierarchicalCommunicator<decltype(local), decltype(cross)>(std::move(local),
                                                                    std::move(cross));
}

}}  // namespace tessera::v0
