// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/collective_checks.hpp>
#include <tessera/comm/rank_memory.hpp>
#include <tessera/concepts/communicator.hpp>

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

namespace tessera { inline namespace v0 {

/// The communicator of a single rank: what it sends it receives. Arguments are checked as with many
/// ranks. `Memory` moves the bytes: HostTransfer, or a backend's (comm/rank_memory.hpp says what
/// it offers), in whose order of work the copies then are.
template <class Memory>
class BasicSelfCommunicator {
 public:
  explicit BasicSelfCommunicator(Memory memory = {}) : memory_(std::move(memory)) {}

  int rank() const { return 0; }
  int size() const { return 1; }

  template <Exchangeable T>
  void all_to_all(std::type_identity_t<std::span<const T>> send,
                  std::span<const std::size_t> send_counts, std::span<T> receive,
                  std::span<const std::size_t> receive_counts) {
    detail::check_counts(Collective::all_to_all, 0, 1, "send", send.size(), send_counts);
    detail::check_counts(Collective::all_to_all, 0, 1, "receive", receive.size(), receive_counts);
    copy<T>(Collective::all_to_all, send, receive);
  }

  template <Exchangeable T>
  void all_gather(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                  std::span<const std::size_t> counts) {
    detail::check_counts(Collective::all_gather, 0, 1, "receive", receive.size(), counts);
    copy<T>(Collective::all_gather, send, receive);
  }

  template <Reducible T>
  void all_reduce(std::span<T>, Reduction = Reduction::sum) {}

  template <Reducible T>
  void reduce_scatter(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                      std::span<const std::size_t> counts) {
    detail::check_counts(Collective::reduce_scatter, 0, 1, "send", send.size(), counts);
    copy<T>(Collective::reduce_scatter, send, receive);
  }

  template <Exchangeable T>
  void broadcast(std::span<T>, int root) {
    detail::check_root(0, 1, root);
  }

  void barrier() {}

 private:
  template <class T>
  void copy(Collective collective, std::span<const T> send, std::span<T> receive) {
    require(send.size() == receive.size(),
            "{} on rank 0: {} elements to send, but room to receive {}",
            detail::name_of(collective), send.size(), receive.size());
    memory_.copy(receive.data(), send.data(), send.size_bytes());
  }

  Memory memory_;
};

/// The single rank whose buffers are in host memory.
class SelfCommunicator : public BasicSelfCommunicator<detail::HostTransfer> {};

static_assert(Communicator<SelfCommunicator>);

}}  // namespace tessera::v0
