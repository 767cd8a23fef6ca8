// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/nccl_communicator.hpp>

#include <cuda_runtime_api.h>

#include <span>
#include <type_traits>

// What tests of NcclCommunicator share, over the double and on a GPU.

/// Neither waits for the legacy stream nor holds it up. Nothing here works on that one: arrays are
/// made, filled, read and freed in this stream's order, in which NcclCommunicator works, too. Beside
/// a blocking stream whatever uses the legacy one would wait for peers.
struct Stream {
  cudaStream_t get = nullptr;
  Stream() { cudaStreamCreateWithFlags(&get, cudaStreamNonBlocking); }
  ~Stream() { cudaStreamDestroy(get); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
};

/// An array in device memory, in the order of a stream.
template <class T>
struct Device {
  Device(std::span<const T> values, cudaStream_t stream_) : stream(stream_), size(values.size()) {
    cudaMallocAsync(&data, values.size_bytes(), stream);
    if (size != 0)
      cudaMemcpyAsync(data, values.data(), values.size_bytes(), cudaMemcpyDefault, stream);
  }
  ~Device() { cudaFreeAsync(data, stream); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  std::span<T> span() const { return {static_cast<T*>(data), size}; }
  void read(std::span<T> values) const {
    if (size != 0)
      cudaMemcpyAsync(values.data(), data, values.size_bytes(), cudaMemcpyDefault, stream);
    cudaStreamSynchronize(stream);
  }
  cudaStream_t stream;
  void* data = nullptr;
  std::size_t size;
};

/// A communicator of spans in host memory whose calls go through device memory: runs the laws on
/// that. `C` works in the order of `nccl`'s stream, if it is not NCCL's itself.
template <class C>
class ThroughDevice {
 public:
  explicit ThroughDevice(C& nccl) : ThroughDevice(nccl, nccl) {}
  ThroughDevice(C& c, tessera::NcclCommunicator& nccl) : c_(c), nccl_(nccl) {}
  int rank() const { return c_.rank(); }
  int size() const { return c_.size(); }

  template <tessera::Exchangeable T>
  void all_to_all(std::type_identity_t<std::span<const T>> send,
                  std::span<const std::size_t> send_counts, std::span<T> receive,
                  std::span<const std::size_t> receive_counts) {
    move<T>(send, receive, [&](auto from, auto to) {
      c_.template all_to_all<T>(from, send_counts, to, receive_counts);
    });
  }
  template <tessera::Exchangeable T>
  void all_gather(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                  std::span<const std::size_t> counts) {
    move<T>(send, receive,
            [&](auto from, auto to) { c_.template all_gather<T>(from, to, counts); });
  }
  template <tessera::Reducible T>
  void all_reduce(std::span<T> values, tessera::Reduction reduction = tessera::Reduction::sum) {
    move<T>(values, values, [&](auto from, auto) { c_.all_reduce(from, reduction); }, true);
  }
  template <tessera::Reducible T>
  void reduce_scatter(std::type_identity_t<std::span<const T>> send, std::span<T> receive,
                      std::span<const std::size_t> counts) {
    move<T>(send, receive,
            [&](auto from, auto to) { c_.template reduce_scatter<T>(from, to, counts); });
  }
  template <tessera::Exchangeable T>
  void broadcast(std::span<T> values, int root) {
    move<T>(values, values, [&](auto from, auto) { c_.broadcast(from, root); }, true);
  }
  void barrier() { c_.barrier(); }

 private:
  template <class T, class Call>
  void move(std::span<const T> send, std::span<T> receive, Call call, bool in_place = false) {
    const Device<T> from(send, nccl_.stream());
    const Device<T> to(receive, nccl_.stream());
    call(from.span(), to.span());
    nccl_.wait();
    (in_place ? from : to).read(receive);
  }
  C& c_;
  tessera::NcclCommunicator& nccl_;
};
