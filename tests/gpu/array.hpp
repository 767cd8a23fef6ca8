// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/tessera.cuh>

#include <cstddef>
#include <span>
#include <vector>

// What tests of both backends share.

namespace {

using namespace tessera;

/// An array in a backend's memory.
template <class T, class Backend>
class Array {
 public:
  Array(const Backend& backend, std::span<const T> values) : backend_(backend) {
    buffer_.resize(backend, values.size());
    backend.copy(buffer_.data(), values.data(), values.size_bytes());
    backend.synchronize();
  }
  std::span<T> span() const { return buffer_.span(); }
  T* data() const { return buffer_.data(); }
  std::vector<T> read() const {
    std::vector<T> values(buffer_.size());
    backend_.copy(values.data(), buffer_.data(), values.size() * sizeof(T));
    backend_.synchronize();
    return values;
  }

 private:
  Backend backend_;
  Buffer<T, Backend> buffer_;
};

/// The communicator of a backend's thread ranks.
template <class Backend>
struct ThreadRanks {
  using type = ThreadCommunicator;
  static type make(ThreadCommunicator& host, const Backend&) { return host; }
};
template <>
struct ThreadRanks<Cuda> {
  using type = BasicThreadCommunicator<CudaMemory>;
  static type make(ThreadCommunicator& host, const Cuda& backend) { return type(host.group(), host.rank(), CudaMemory(backend)); }
};

}  // namespace
