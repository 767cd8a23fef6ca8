// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/collective_checks.hpp>
#include <tessera/comm/nccl_session.hpp>
#include <tessera/concepts/communicator.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// One rank of an NCCL communicator, for the memory of one GPU. Calls whose buffers are in device
/// memory go to a stream and return at once: their results are there in the order of the stream,
/// and `wait` waits for them. Buffers in host memory (sizes, small things) are copied to the device
/// and back, and such a call returns when its result is there. A call's buffers are all of one
/// kind. Whatever fails aborts the NCCL communicator and throws CommunicatorError; later calls
/// throw the same. One thread at a time.
///
/// Sums of float and double are in NCCL's order, which is that of its algorithm: the same bits on
/// every rank and on every run of the same job, but not those of the other communicators.
/// Everything else is exact.
class NcclCommunicator {
 public:
  /// Joins the communicator of `id`: a collective call of `size` ranks.
  NcclCommunicator(const ncclUniqueId& id, int rank, int size, NcclOptions options = {})
      : session_(std::make_unique<detail::NcclSession>(id, rank, size, options)) {}
  /// Uses the caller's, whose current device must be this one's. It stays the caller's to destroy,
  /// unless a failure has aborted it (`failed()`). Made with `blocking = 0` its waits can end; a
  /// blocking one has no watchdog and may hang inside NCCL when a peer dies.
  explicit NcclCommunicator(ncclComm_t user, NcclOptions options = {})
      : session_(std::make_unique<detail::NcclSession>(user, options)) {}
  /// Joins with an id that rank 0 makes and writes to `file`, which all ranks see; it is removed
  /// when all have joined. The name must be new to each job: put the job's number into it.
  static NcclCommunicator from_file(const std::filesystem::path& file, int rank, int size,
                                    NcclOptions options = {}) {
    NcclCommunicator result(share_nccl_id(file, rank, options.timeout), rank, size, options);
    if (rank == 0) std::filesystem::remove(file);
    return result;
  }

  /// Returns a communicator of the ranks that give the same `color` (not negative), in the order of
  /// their ranks here, with the options and the stream of this one. A collective call (NCCL 2.18).
  /// It has a life of its own: a failure in one is seen by the other as a late peer.
  NcclCommunicator split(int color) const { return NcclCommunicator(session_->split(color)); }

  /// Calls on device memory go to the stream and return.
  static constexpr bool queues_calls() { return true; }
  /// Makes the wait under way, or the next call, abort and throw `text`; from any thread.
  void interrupt(const std::string& text) { session_->interrupt(text); }

  int rank() const { return session_->rank(); }
  int size() const { return session_->size(); }
  ncclComm_t get() const { return session_->get(); }
  bool failed() const { return session_->failed(); }

  cudaStream_t stream() const { return session_->stream(); }
  /// Sends later calls to `stream`. The caller orders it after the old one if they share
  /// buffers.
  void set_stream(cudaStream_t stream) { session_->set_stream(stream); }

  /// Waits for all work of the stream, for `NcclOptions::timeout` at most, and until NCCL says that
  /// a peer has failed.
  void wait() { session_->wait(); }

  /// Gives the collectives that `calls` makes to NCCL as one group: they start together, none
  /// before the end. Device memory only.
  template <class Calls>
  void group(Calls&& calls) {
    session_->begin_group();
    try {
      calls();
    } catch (...) {
      session_->abandon_group();
      throw;
    }
    session_->end_group();
  }

  /// Gives rank r block r of every rank's `send`, in rank order. Counts in elements, one per rank.
  template <Exchangeable T>
  void all_to_all(std::type_identity_t<std::span<const T>> send,
                  std::span<const std::size_t> send_counts, std::span<T> receive,
                  std::span<const std::size_t> receive_counts) {
    detail::check_counts(Collective::all_to_all, rank(), size(), "send", send.size(), send_counts);
    detail::check_counts(Collective::all_to_all, rank(), size(), "receive", receive.size(),
                         receive_counts);
    session_->run(
        detail::make_header<T>(Collective::all_to_all, send.size()), send_counts, receive_counts,
        std::as_bytes(send), std::as_writable_bytes(receive),
        [&](const std::byte* from, std::byte* to) {
          for (int peer = 0; peer < size(); ++peer) {
            const std::size_t out = sizeof(T) * send_counts[static_cast<std::size_t>(peer)];
            const std::size_t in = sizeof(T) * receive_counts[static_cast<std::size_t>(peer)];
            if (out != 0)
              session_->check("ncclSend", ncclSend(from, out, ncclInt8, peer, get(), stream()));
            if (in != 0)
              session_->check("ncclRecv", ncclRecv(to, in, ncclInt8, peer, get(), stream()));
            from += out;
            to += in;
          }
        });
  }

  /// Does the same with blocks of one size on every rank: one call of NCCL where its version has it
  /// (2.28.3). Buffers are two.
  template <Exchangeable T>
  void all_to_all(std::type_identity_t<std::span<const T>> send, std::span<T> receive) {
    const auto ranks = static_cast<std::size_t>(size());
    require(send.size() == receive.size() && send.size() % ranks == 0,
            "all_to_all on rank {}: {} elements to send and {} to receive, must be equal and "
            "divisible by {} ranks",
            rank(), send.size(), receive.size(), ranks);
    const std::vector<std::size_t> counts(ranks, send.size() / ranks);
#if NCCL_VERSION_CODE >= 22803
    if (detail::nccl_library_version() >= 22803) {
      session_->run(detail::make_header<T>(Collective::all_to_all, send.size()), counts, counts,
                    std::as_bytes(send), std::as_writable_bytes(receive),
                    [&](const std::byte* from, std::byte* to) {
                      if (send.empty()) return;
                      session_->check("ncclAlltoAll", ncclAlltoAll(from, to, counts[0] * sizeof(T),
                                                                   ncclInt8, get(), stream()));
                    });
      return;
    }
#endif
    all_to_all<T>(send, counts, receive, counts);
  }

  /// Gives every rank all ranks' `send`, in rank order; `counts[r]` is the size of rank r's.
  template <Exchangeable T>
  void all_gather(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                  std::span<const std::size_t> counts) {
    detail::check_counts(Collective::all_gather, rank(), size(), "receive", receive.size(), counts);
    detail::check_own_count(Collective::all_gather, rank(), "send", send.size(), counts);
    session_->run(detail::make_header<T>(Collective::all_gather, send.size()),
                  std::vector<std::size_t>(counts.size(), send.size()), counts, std::as_bytes(send),
                  std::as_writable_bytes(receive), [&](const std::byte* from, std::byte* to) {
                    if (all_equal(counts)) {
                      if (!send.empty())
                        session_->check("ncclAllGather", ncclAllGather(from, to, send.size_bytes(),
                                                                       ncclInt8, get(), stream()));
                      return;
                    }
                    for (int root = 0; root < size(); ++root) {
                      const std::size_t bytes = sizeof(T) * counts[static_cast<std::size_t>(root)];
                      // Only the root's `from` is read, but NCCL wants a pointer of everyone.
                      if (bytes != 0)
                        session_->check("ncclBroadcast",
                                        ncclBroadcast(root == rank() ? from : to, to, bytes,
                                                      ncclInt8, root, get(), stream()));
                      to += bytes;
                    }
                  });
  }

  /// Replaces `values` on every rank by the reduction over all ranks, element by element.
  template <Reducible T>
  void all_reduce(std::span<T> values, Reduction reduction = Reduction::sum) {
    detail::CallHeader header = detail::make_header<T>(Collective::all_reduce, values.size());
    header.reduction = reduction;
    session_->run(header, {}, {}, std::as_bytes(values), std::as_writable_bytes(values),
                  [&](const std::byte* from, std::byte* to) {
                    if (!values.empty())
                      session_->check("ncclAllReduce",
                                      ncclAllReduce(from, to, values.size(), type_of<T>(),
                                                    operation_of(reduction), get(), stream()));
                  });
  }

  /// Adds up all ranks' `send`; rank r gets block r of the sum, of counts[r] elements.
  template <Reducible T>
  void reduce_scatter(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                      std::span<const std::size_t> counts) {
    detail::check_counts(Collective::reduce_scatter, rank(), size(), "send", send.size(), counts);
    detail::check_own_count(Collective::reduce_scatter, rank(), "receive", receive.size(), counts);
    session_->run(detail::make_header<T>(Collective::reduce_scatter, send.size()), counts,
                  std::vector<std::size_t>(counts.size(), receive.size()), std::as_bytes(send),
                  std::as_writable_bytes(receive), [&](const std::byte* from, std::byte* to) {
                    if (all_equal(counts)) {
                      if (!receive.empty())
                        session_->check("ncclReduceScatter",
                                        ncclReduceScatter(from, to, receive.size(), type_of<T>(),
                                                          ncclSum, get(), stream()));
                      return;
                    }
                    for (int root = 0; root < size(); ++root) {
                      const std::size_t count = counts[static_cast<std::size_t>(root)];
                      if (count != 0)
                        session_->check("ncclReduce", ncclReduce(from, to, count, type_of<T>(),
                                                                 ncclSum, root, get(), stream()));
                      from += count * sizeof(T);
                    }
                  });
  }

  /// Gives every rank the `values` of rank `root`.
  template <Exchangeable T>
  void broadcast(std::span<T> values, int root) {
    detail::check_root(rank(), size(), root);
    detail::CallHeader header = detail::make_header<T>(Collective::broadcast, values.size());
    header.root = root;
    session_->run(header, {}, {}, std::as_bytes(values), std::as_writable_bytes(values),
                  [&](const std::byte* from, std::byte* to) {
                    if (!values.empty())
                      session_->check("ncclBroadcast",
                                      ncclBroadcast(from, to, values.size_bytes(), ncclInt8, root,
                                                    get(), stream()));
                  });
  }

  /// Returns when every rank has called it, and this rank's stream is done.
  void barrier() {
    std::int32_t nothing = 0;
    const std::span<std::int32_t> values(&nothing, 1);
    session_->run({.collective = Collective::barrier}, {}, {}, std::as_bytes(values),
                  std::as_writable_bytes(values), [&](const std::byte* from, std::byte* to) {
                    session_->check("ncclAllReduce", ncclAllReduce(from, to, 1, ncclInt32, ncclSum,
                                                                   get(), stream()));
                  });
  }

 private:
  explicit NcclCommunicator(std::unique_ptr<detail::NcclSession> session)
      : session_(std::move(session)) {}

  static bool all_equal(std::span<const std::size_t> counts) {
    return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to{}) == counts.end();
  }

  template <class T>
  static constexpr ncclDataType_t type_of() {
    if constexpr (std::is_same_v<T, float>) return ncclFloat32;
    if constexpr (std::is_same_v<T, double>) return ncclFloat64;
    if constexpr (std::is_same_v<T, std::int32_t>) return ncclInt32;
    if constexpr (std::is_same_v<T, std::int64_t>) return ncclInt64;
    if constexpr (std::is_same_v<T, std::uint64_t>) return ncclUint64;
  }
  static constexpr ncclRedOp_t operation_of(Reduction reduction) {
    return reduction == Reduction::sum ? ncclSum : reduction == Reduction::min ? ncclMin : ncclMax;
  }

  std::unique_ptr<detail::NcclSession> session_;
};

static_assert(Communicator<NcclCommunicator>);

}}  // namespace tessera::v0
