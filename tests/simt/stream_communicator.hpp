// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simt/simt.hpp>

#include <tessera/comm/thread_communicator.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

namespace simt {

/// What NcclCommunicator is on GPUs, for ranks that are threads of the emulator: exchanges of device memory are work of a stream, which can
/// be captured; those of host memory are done before the call returns, and cannot.
class StreamCommunicator {
 public:
  StreamCommunicator(tessera::ThreadCommunicator& threads, cudaStream_t stream) : threads_(threads), stream_(stream) {}

  int rank() const { return threads_.rank(); }
  int size() const { return threads_.size(); }

  template <tessera::Exchangeable T>
  void all_to_all(std::type_identity_t<std::span<const T>> send, std::span<const std::size_t> send_counts, std::span<T> receive,
                  std::span<const std::size_t> receive_counts) {
    give(send.empty() ? receive.data() : send.data(),
         [=, this, out = std::vector(send_counts.begin(), send_counts.end()),
          in = std::vector(receive_counts.begin(), receive_counts.end())] { threads_.all_to_all<T>(send, out, receive, in); });
  }
  template <tessera::Exchangeable T>
  void all_gather(std::type_identity_t<std::span<const T>> send, std::span<T> receive, std::span<const std::size_t> counts) {
    give(send.empty() ? receive.data() : send.data(),
         [=, this, all = std::vector(counts.begin(), counts.end())] { threads_.all_gather<T>(send, receive, all); });
  }

 private:
  template <class Work>
  void give(const void* buffer, Work work) {
    if (buffer == nullptr || DeviceHeap::instance().holds(buffer))
      return enqueue(stream_, [work] {
        const DeviceAccess access;
        work();
      });
    if (capturing(stream_)) throw std::logic_error("an exchange of host memory cannot be captured");
    work();
  }

  tessera::ThreadCommunicator& threads_;
  cudaStream_t stream_;
};

}  // namespace simt
