// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/gloo_device.hpp>

#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Gloo's connections with every peer: one, on which it also waits for a message that never comes.
class GlooConnections {
 public:
  using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

  GlooConnections(gloo::transport::Device& device, int rank, int size,
                  std::chrono::nanoseconds timeout)
      : rank_(rank),
        size_(size),
        context_(device.createContext(rank, size)),
        settled_(static_cast<std::size_t>(size)) {
    // Gloo waits five times as long for a peer.
    context_->setTimeout(
        std::max(std::chrono::milliseconds(1),
                 std::chrono::duration_cast<std::chrono::milliseconds>(timeout) / 5));
    for_each_peer([&](int peer) { context_->createPair(peer); });
  }

  std::vector<char> address_for(int peer) { return context_->getPair(peer)->address().bytes(); }

  /// Waits until the peer is connected. Throws what Gloo throws if it does not come in time. Another
  /// thread than the one that posts may call it.
  void connect(int peer, const std::vector<char>& address) {
    try {
      context_->getPair(peer)->connect(address);
    } catch (const std::exception&) {
      settle(peer);
      throw;
    }
    settle(peer);
  }
  /// Posts a message, whose bytes stay in use. Throws what Gloo throws if the peer's connection is
  /// closed. Any thread may call it.
  Buffer post(int peer, std::span<std::byte> bytes, std::uint64_t slot, bool receive) {
    const std::lock_guard lock(mutex_);
    Buffer buffer = context_->createUnboundBuffer(bytes.data(), bytes.size());
    if (closed_) return buffer;  // the waits find out why
    const PipeSignalHeld held;
    receive ? buffer->recv(peer, slot) : buffer->send(peer, slot);
    return buffer;
  }

  /// Closes all, behind what has been sent. Nothing is written into a buffer after it. A `connect`
  /// that still waits closes its connection itself: to break it off would send a reset, at which
  /// Gloo's thread in a peer ends that process.
  void close() noexcept {
    const std::lock_guard lock(mutex_);
    if (std::exchange(closed_, true)) return;
    for_each_peer([&](int peer) {
      if (settled_[static_cast<std::size_t>(peer)]) context_->getPair(peer).reset();
    });
  }

  template <class Visit>
  void for_each_peer(Visit visit) const {
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_) visit(peer);
  }

 private:
  void settle(int peer) {
    const std::lock_guard lock(mutex_);
    settled_[static_cast<std::size_t>(peer)] = true;
    if (closed_) context_->getPair(peer).reset();
  }

  int rank_, size_;
  std::shared_ptr<gloo::transport::Context> context_;
  std::mutex mutex_;  // guards the connections' ends
  std::vector<bool> settled_;
  bool closed_ = false;
};

}}}  // namespace tessera::v0::detail
