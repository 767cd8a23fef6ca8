// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

// Stands in for CUDA's header of the same name: the calls that the communicator makes, on ordinary memory. A stream is a thread that does
// its work in order and later, so that what does not wait reads too early (and the thread sanitizer says so). Copies from and to
// pageable memory behave as CUDA's do: the source is read at once, the target is there on return.

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorStreamCaptureUnsupported = 900
};
inline const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
  }
  return "unknown";
}
inline const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

/// As CUDA in practice: a stream that is not ready is an error to it, too.
inline cudaError_t& cuda_double_last_error() {
  static thread_local cudaError_t error = cudaSuccess;
  return error;
}
inline cudaError_t cudaGetLastError() { return std::exchange(cuda_double_last_error(), cudaSuccess); }

using CudaTask = std::function<void()>;
struct CUgraph_st {
  std::vector<CudaTask> tasks;
};
using cudaGraph_t = CUgraph_st*;
using cudaGraphExec_t = CUgraph_st*;

struct CUstream_st {
 public:
  CUstream_st() : worker_([this] { work(); }) {}
  ~CUstream_st() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    worker_.join();
  }

  void add(CudaTask task) {
    {
      const std::lock_guard lock(mutex_);
      if (capture_ != nullptr) {
        capture_->tasks.push_back(std::move(task));
        return;
      }
      tasks_.push_back(std::move(task));
    }
    changed_.notify_all();
  }
  bool idle() {
    const std::lock_guard lock(mutex_);
    return tasks_.empty();
  }
  void synchronize() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return tasks_.empty(); });
  }
  CUgraph_st* capture() {
    const std::lock_guard lock(mutex_);
    return capture_;
  }
  void set_capture(CUgraph_st* graph) {
    const std::lock_guard lock(mutex_);
    capture_ = graph;
  }
  cudaError_t sticky = cudaSuccess;  ///< for tests: what a query finds

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const CudaTask task = tasks_.front();
      lock.unlock();
      task();
      lock.lock();
      tasks_.pop_front();
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<CudaTask> tasks_;
  CUgraph_st* capture_ = nullptr;
  bool stop_ = false;
  std::thread worker_;
};
using cudaStream_t = CUstream_st*;

inline constexpr unsigned cudaStreamNonBlocking = 1;  // as all are here: there is no legacy stream
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
inline cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (stream->capture() != nullptr) return cudaErrorStreamCaptureUnsupported;
  const cudaError_t found = stream->sticky != cudaSuccess ? stream->sticky : stream->idle() ? cudaSuccess : cudaErrorNotReady;
  if (found != cudaSuccess) cuda_double_last_error() = found;
  return found;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (stream->capture() != nullptr) return cudaErrorStreamCaptureUnsupported;
  stream->synchronize();
  return cudaSuccess;
}

enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone = 0, cudaStreamCaptureStatusActive = 1 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
inline cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = stream->capture() == nullptr ? cudaStreamCaptureStatusNone : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  stream->set_capture(new CUgraph_st);
  return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = stream->capture();
  stream->set_capture(nullptr);
  return cudaSuccess;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraph_st(*graph);
  return cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  for (const CudaTask& task : exec->tasks) stream->add(task);
  return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return cudaGraphDestroy(exec); }

/// What has been allocated as device memory.
class CudaDoubleMemory {
 public:
  static CudaDoubleMemory& instance() {
    static CudaDoubleMemory memory;
    return memory;
  }
  void* allocate(std::size_t bytes) {
    bytes = bytes == 0 ? 1 : bytes;
    void* const p = std::aligned_alloc(256, (bytes + 255) / 256 * 256);  // as CUDA's
    std::memset(p, 0xff, bytes);
    const std::lock_guard lock(mutex_);
    blocks_[static_cast<std::byte*>(p)] = bytes;
    return p;
  }
  void free(void* p) {
    {
      const std::lock_guard lock(mutex_);
      blocks_.erase(static_cast<std::byte*>(p));
    }
    std::free(p);
  }
  bool on_device(const void* p) {
    const std::lock_guard lock(mutex_);
    auto next = blocks_.upper_bound(const_cast<std::byte*>(static_cast<const std::byte*>(p)));
    if (next == blocks_.begin()) return false;
    --next;
    return static_cast<const std::byte*>(p) < next->first + next->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::byte*, std::size_t> blocks_;
};

namespace cuda_double {
inline std::atomic<bool> memory_pools{true};
inline std::atomic<int> plain_allocations{0};  ///< of cudaMalloc, not yet freed
}  // namespace cuda_double

enum cudaDeviceAttr { cudaDevAttrMemoryPoolsSupported = 115 };
inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = cuda_double::memory_pools ? 1 : 0;
  return cudaSuccess;
}
inline cudaError_t cudaMalloc(void** p, std::size_t bytes) {
  ++cuda_double::plain_allocations;
  *p = CudaDoubleMemory::instance().allocate(bytes);
  return cudaSuccess;
}
inline cudaError_t cudaFree(void* p) {
  --cuda_double::plain_allocations;
  CudaDoubleMemory::instance().free(p);
  return cudaSuccess;
}
inline cudaError_t cudaMallocAsync(void** p, std::size_t bytes, cudaStream_t) {
  if (!cuda_double::memory_pools) return cudaErrorStreamCaptureUnsupported;
  *p = CudaDoubleMemory::instance().allocate(bytes);
  return cudaSuccess;
}
inline cudaError_t cudaFreeAsync(void* p, cudaStream_t stream) {
  stream->add([p] { CudaDoubleMemory::instance().free(p); });
  return cudaSuccess;
}

enum cudaMemoryType { cudaMemoryTypeUnregistered = 0, cudaMemoryTypeHost = 1, cudaMemoryTypeDevice = 2, cudaMemoryTypeManaged = 3 };
struct cudaPointerAttributes {
  cudaMemoryType type;
};
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* p) {
  attributes->type = CudaDoubleMemory::instance().on_device(p) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  return cudaSuccess;
}

/// What NCCL's double asks of a runtime's: to do work in a stream's order, and where memory is.
inline void cuda_double_add(cudaStream_t stream, CudaTask task) { stream->add(std::move(task)); }
inline bool cuda_double_on_device(const void* p) { return CudaDoubleMemory::instance().on_device(p); }

enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (CudaDoubleMemory::instance().on_device(from)) {
    stream->add([=] { std::memcpy(to, from, bytes); });
  } else {
    if (stream->capture() != nullptr) return cudaErrorStreamCaptureUnsupported;
    const auto* source = static_cast<const std::byte*>(from);
    stream->add([to, staged = std::vector<std::byte>(source, source + bytes)] { std::memcpy(to, staged.data(), staged.size()); });
  }
  return CudaDoubleMemory::instance().on_device(to) ? cudaSuccess : cudaStreamSynchronize(stream);
}
