// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

// Streams, and graphs captured from them. A captured step must be one that any replay repeats, so a stream that is being captured
// refuses more than CUDA does: allocations, copies from and to pageable memory, events. (CUDA makes nodes of allocations, and of copies
// that read pageable memory when the graph runs.)

struct CUgraph_st {
  std::vector<std::function<void()>> work;
};
using cudaGraph_t = CUgraph_st*;
struct CUgraphExec_st {
  std::vector<std::function<void()>> work;
};
using cudaGraphExec_t = CUgraphExec_st*;

namespace simt {

/// Two GPUs, of one memory. A thread begins with the first.
inline constexpr int device_count = 2;
inline int& current_device() {
  static thread_local int device = 0;
  return device;
}

}  // namespace simt

struct CUstream_st {
  cudaGraph_t capture = nullptr;
  int device = simt::current_device();
};
using cudaStream_t = CUstream_st*;

namespace simt {

/// Whether a stream is one of a device's. The default stream is that of any.
inline bool is_of(cudaStream_t stream, int device) { return stream == nullptr || stream->device == device; }
inline bool capturing(cudaStream_t stream) { return stream != nullptr && stream->capture != nullptr; }

/// Gives work to a stream: it is done at once, or goes into the graph that is being captured.
template <class Work>
void enqueue(cudaStream_t stream, Work work) {
  if (capturing(stream))
    stream->capture->work.emplace_back(std::move(work));
  else
    work();
}

/// Page-locked memory of the host.
class HostPages {
 public:
  static HostPages& instance() {
    static HostPages pages;
    return pages;
  }
  void* allocate(std::size_t bytes) {
    auto* p = static_cast<char*>(std::malloc(bytes));
    const std::lock_guard lock(mutex_);
    if (p != nullptr) blocks_[p] = bytes;
    return p;
  }
  void free(void* p) {
    const std::lock_guard lock(mutex_);
    blocks_.erase(static_cast<const char*>(p));
    std::free(p);
  }
  bool holds(const void* p) {
    const std::lock_guard lock(mutex_);
    const auto after = blocks_.upper_bound(static_cast<const char*>(p));
    return after != blocks_.begin() && static_cast<const char*>(p) < std::prev(after)->first + std::prev(after)->second;
  }

 private:
  std::mutex mutex_;
  std::map<const char*, std::size_t> blocks_;
};

}  // namespace simt
