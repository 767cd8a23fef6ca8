// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simt/device_heap.hpp>
#include <simt/intrinsics.hpp>
#include <simt/streams.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

// The part of the CUDA runtime that Tessera calls. Streams do their work at once, so no result
// shows a missing wait, unless they are told to do it late (streams.hpp); stream_waits() tells
// which streams waited for which. Device memory (device_heap.hpp) is filled with 0xff bytes (NaN,
// -1), and out of the host's reach under the address sanitizer.

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureUnmatched = 903,
  cudaErrorStreamCaptureUnjoined = 904,
  cudaErrorStreamCaptureIsolation = 905,
  cudaErrorCapturedEvent = 907
};
inline const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
    case cudaErrorStreamCaptureUnmatched:
      return "cudaErrorStreamCaptureUnmatched";
    case cudaErrorStreamCaptureUnjoined:
      return "cudaErrorStreamCaptureUnjoined";
    case cudaErrorStreamCaptureIsolation:
      return "cudaErrorStreamCaptureIsolation";
    case cudaErrorCapturedEvent:
      return "cudaErrorCapturedEvent";
  }
  return "unknown";
}
inline const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }
namespace simt {
inline cudaError_t& last_error() {
  static thread_local cudaError_t error = cudaSuccess;
  return error;
}
/// What a call returns: an error stays the thread's last one until it is asked for.
inline cudaError_t noted(cudaError_t error) {
  if (error != cudaSuccess) last_error() = error;
  return error;
}
/// What waiting for a stream meets, until a test takes it back: a kernel plants it that stands for
/// one with a fault.
inline cudaError_t& planted_fault() {
  static cudaError_t fault = cudaSuccess;
  return fault;
}
}  // namespace simt
inline cudaError_t cudaGetLastError() { return std::exchange(simt::last_error(), cudaSuccess); }
inline cudaError_t cudaPeekAtLastError() { return simt::last_error(); }

struct CUevent_st {
  int device = simt::current_device();
  cudaStream_t recorded = nullptr;
  std::shared_ptr<simt::Mark> mark{};        // null: nothing was recorded, or in a capture
  std::shared_ptr<simt::Capture> capture{};  // where it was recorded, and after which nodes
  std::vector<std::size_t> after{};
};
using cudaEvent_t = CUevent_st*;
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2;
namespace simt {
/// How often each stream was made to wait for another: (waiting, awaited).
struct StreamWaits {
  std::mutex mutex;
  std::map<std::pair<cudaStream_t, cudaStream_t>, int> counts;

  void forget(cudaStream_t stream) {
    const std::lock_guard lock(mutex);
    std::erase_if(counts, [&](const auto& count) {
      return count.first.first == stream || count.first.second == stream;
    });
  }
};
inline StreamWaits& stream_waits() {
  static StreamWaits waits;
  return waits;
}
}  // namespace simt
/// CUDA's handle of the default stream, whatever a program was compiled with.
inline const cudaStream_t cudaStreamLegacy = nullptr;

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
/// Work that the stream still has is done all the same.
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  simt::stream_waits().forget(stream);  // the next stream may have its address
  delete stream;
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (simt::planted_fault() != cudaSuccess) return simt::noted(simt::planted_fault());
  if (simt::capturing(stream)) return simt::noted(cudaErrorStreamCaptureUnsupported);
  if (simt::Streams::instance().deferred())
    simt::Streams::instance().wait(simt::Streams::instance().mark(simt::queue_of(stream)));
  return cudaSuccess;
}
/// A stream is always ready: who asks does what it still has.
inline cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }

enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal = 1 };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone = 0, cudaStreamCaptureStatusActive = 1 };
inline cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = simt::capturing(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr || simt::capturing(stream))
    return simt::noted(cudaErrorStreamCaptureUnsupported);
  stream->capture = std::make_shared<simt::Capture>();
  stream->capture->origin = stream;
  stream->last.clear();
  return cudaSuccess;
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (!simt::capturing(stream)) return simt::noted(cudaErrorStreamCaptureUnsupported);
  if (stream->capture->origin != stream) return simt::noted(cudaErrorStreamCaptureUnmatched);
  stream->capture->ended = true;
  const auto capture = std::exchange(stream->capture, nullptr);
  if (!capture->joined(stream->last)) return simt::noted(cudaErrorStreamCaptureUnjoined);
  *graph = capture->graph.release();
  return cudaSuccess;
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                        unsigned long long) {
  *exec = new CUgraphExec_st{*graph};
  return cudaSuccess;
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return cudaSuccess;
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (simt::capturing(stream)) return simt::noted(cudaErrorStreamCaptureUnsupported);
  auto& streams = simt::Streams::instance();
  for (const std::size_t node : streams.order(*exec))
    streams.add(simt::queue_of(stream), {.work = exec->nodes[node].work});
  return cudaSuccess;
}

/// A stream that waits for what is being captured is captured, too.
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned = 0) {
  if (event->capture != nullptr) {
    if (event->capture->ended) return simt::noted(cudaErrorCapturedEvent);
    if (stream == nullptr) return simt::noted(cudaErrorStreamCaptureUnsupported);
    if (simt::capturing(stream) && stream->capture != event->capture)
      return simt::noted(cudaErrorStreamCaptureIsolation);
    if (simt::capturing(stream)) {
      stream->last.insert(stream->last.end(), event->after.begin(), event->after.end());
    } else {
      stream->capture = event->capture;
      // so that a fork without work must be joined, too
      stream->last = {stream->capture->add({[] {}}, event->after)};
    }
  } else {
    if (simt::capturing(stream)) return simt::noted(cudaErrorStreamCaptureIsolation);
    if (event->mark != nullptr && !event->mark->done)
      simt::Streams::instance().add(simt::queue_of(stream), {.work = {}, .awaits = event->mark});
  }
  const std::lock_guard lock(simt::stream_waits().mutex);
  ++simt::stream_waits().counts[{stream, event->recorded}];
  return cudaSuccess;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (!simt::is_of(stream, event->device)) return simt::noted(cudaErrorInvalidResourceHandle);
  event->recorded = stream;
  event->capture = simt::capturing(stream) ? stream->capture : nullptr;
  event->after = event->capture != nullptr ? stream->last : std::vector<std::size_t>();
  event->mark =
      event->capture == nullptr ? simt::Streams::instance().mark(simt::queue_of(stream)) : nullptr;
  return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->capture != nullptr) return simt::noted(cudaErrorCapturedEvent);
  if (event->mark != nullptr && !event->mark->done) simt::Streams::instance().wait(event->mark);
  return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = simt::device_count;
  return cudaSuccess;
}
struct cudaDeviceProp {
  char name[256];
  std::size_t totalGlobalMem;
};
/// TESSERA_SIMT_GPU: what this process's devices are called.
inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* about, int) {
  const char* const name = std::getenv("TESSERA_SIMT_GPU");
  std::snprintf(about->name, sizeof(about->name), "%s", name == nullptr ? "emulated" : name);
  about->totalGlobalMem = std::size_t{1} << 36;
  return cudaSuccess;
}
inline cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, static_cast<std::size_t>(size), "0000:%02x:00.0", device);
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = simt::current_device();
  return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= simt::device_count) return simt::noted(cudaErrorInvalidDevice);
  simt::current_device() = device;
  return cudaSuccess;
}
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrCanUseHostPointerForRegisteredMem = 91,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrHostRegisterSupported = 99,
  cudaDevAttrMemoryPoolsSupported = 115,
  cudaDevAttrHostNumaId = 134
};
namespace simt {
/// Whether the driver has memory pools.
inline bool& has_memory_pools() {
  static bool has = true;
  return has;
}
/// Whether memory of the host can be registered and used by its own pointer, and the memory node
/// that is nearest to the device; -1: there is but one.
inline bool& can_register() {
  static bool can = true;
  return can;
}
inline int& host_numa_node() {
  static int node = -1;
  return node;
}
}  // namespace simt
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  // Few multiprocessors, so that grids that loop over their work do loop.
  *value = attribute == cudaDevAttrMultiProcessorCount    ? 2
           : attribute == cudaDevAttrMemoryPoolsSupported ? (simt::has_memory_pools() ? 1 : 0)
           : attribute == cudaDevAttrHostNumaId           ? simt::host_numa_node()
           : attribute == cudaDevAttrHostRegisterSupported ||
                   attribute == cudaDevAttrCanUseHostPointerForRegisteredMem
               ? (simt::can_register() ? 1 : 0)
               : static_cast<int>(simt::SharedMemory::max_dynamic_bytes);
  return cudaSuccess;
}

inline cudaError_t cudaMallocAsync(void** p, std::size_t bytes, cudaStream_t stream) {
  if (simt::capturing(stream)) return simt::noted(cudaErrorStreamCaptureUnsupported);
  *p = simt::DeviceHeap::instance().allocate(bytes, stream);
  return simt::noted(*p == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
inline cudaError_t cudaFreeAsync(void* p, cudaStream_t stream) {
  if (simt::capturing(stream)) return simt::noted(cudaErrorStreamCaptureUnsupported);
  simt::DeviceHeap::instance().free(p, stream);
  return cudaSuccess;
}
inline cudaError_t cudaMallocHost(void** p, std::size_t bytes) {
  *p = simt::HostPages::instance().allocate(bytes);
  return simt::noted(*p == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
inline cudaError_t cudaFreeHost(void* p) {
  simt::HostPages::instance().free(p);
  return cudaSuccess;
}
constexpr unsigned cudaHostRegisterDefault = 0;
inline cudaError_t cudaHostRegister(void* p, std::size_t bytes, unsigned) {
  return simt::noted(simt::HostPages::instance().lock(p, bytes) ? cudaSuccess
                                                                : cudaErrorMemoryAllocation);
}
inline cudaError_t cudaHostUnregister(void* p) {
  return simt::noted(simt::HostPages::instance().unlock(p) ? cudaSuccess : cudaErrorInvalidValue);
}
enum cudaMemcpyKind { cudaMemcpyDeviceToDevice = 3, cudaMemcpyDefault = 4 };
namespace simt {
/// Memory of the host that is not page-locked: a copy from it reads it before the call returns, a
/// copy to it is done when the call returns.
inline bool pageable(const void* p) {
  return !DeviceHeap::instance().holds(p) && !HostPages::instance().holds(p);
}

/// Gives a copy to a stream. `bytes`: from the first to the last that is read.
template <class Copy>
cudaError_t enqueue_copy(cudaStream_t stream, const void* to, const void* from, std::size_t bytes,
                         const Copy& copy) {
  // CUDA refuses copies that cross the border of registered memory.
  if (HostPages::instance().crosses(from, bytes) || HostPages::instance().crosses(to, bytes))
    return noted(cudaErrorInvalidValue);
  const bool reads = pageable(from), writes = pageable(to);
  if (capturing(stream) && (reads || writes)) return noted(cudaErrorStreamCaptureUnsupported);
  if (reads && Streams::instance().deferred()) {
    const auto* const source = static_cast<const std::byte*>(from);
    enqueue(stream, [copy, staged = std::vector(source, source + bytes)] {
      const DeviceAccess access;
      copy(staged.data());
    });
  } else {
    enqueue(stream, [copy, from] {
      const DeviceAccess access;
      copy(from);
    });
  }
  return writes ? cudaStreamSynchronize(stream) : cudaSuccess;
}
}  // namespace simt
inline cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                                     std::size_t from_pitch, std::size_t width, std::size_t height,
                                     cudaMemcpyKind, cudaStream_t stream) {
  if (width > to_pitch || width > from_pitch) return simt::noted(cudaErrorInvalidValue);
  if (width == 0 || height == 0) return cudaSuccess;
  return simt::enqueue_copy(
      stream, to, from, (height - 1) * from_pitch + width, [=](const void* source) {
        for (std::size_t row = 0; row < height; ++row)
          std::memmove(static_cast<std::byte*>(to) + row * to_pitch,
                       static_cast<const std::byte*>(source) + row * from_pitch, width);
      });
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                                   cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  return simt::enqueue_copy(stream, to, from, bytes,
                            [=](const void* source) { std::memmove(to, source, bytes); });
}
inline cudaError_t cudaMemsetAsync(void* p, int value, std::size_t bytes, cudaStream_t stream) {
  simt::enqueue(stream, [=] {
    const simt::DeviceAccess access;
    if (bytes != 0) std::memset(p, value, bytes);
  });
  return cudaSuccess;
}
enum cudaMemoryType {
  cudaMemoryTypeUnregistered = 0,
  cudaMemoryTypeHost = 1,
  cudaMemoryTypeDevice = 2,
  cudaMemoryTypeManaged = 3
};
struct cudaPointerAttributes {
  cudaMemoryType type;
  int device;
};
inline cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* p) {
  attributes->type =
      simt::DeviceHeap::instance().holds(p) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  attributes->device = simt::current_device();  // all have one memory
  return cudaSuccess;
}

namespace simt {
/// The most dynamic shared memory that each kernel has asked for leave to use. 48 KiB need no
/// leave.
class SharedMemoryLimits {
 public:
  static SharedMemoryLimits& instance() {
    static SharedMemoryLimits limits;
    return limits;
  }
  void set(const void* kernel, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    limits_[kernel] = bytes;
  }
  std::size_t of(const void* kernel) {
    const std::lock_guard lock(mutex_);
    const auto found = limits_.find(kernel);
    return found == limits_.end() ? SharedMemory::max_static_bytes : found->second;
  }

 private:
  std::mutex mutex_;
  std::map<const void*, std::size_t> limits_;
};
}  // namespace simt

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute, int bytes) {
  if (bytes < 0 || static_cast<std::size_t>(bytes) > simt::SharedMemory::max_dynamic_bytes)
    return simt::noted(cudaErrorInvalidValue);
  simt::SharedMemoryLimits::instance().set(reinterpret_cast<const void*>(kernel),
                                           static_cast<std::size_t>(bytes));
  return cudaSuccess;
}

struct cudaLaunchAttribute {};
struct cudaLaunchConfig_t {
  dim3 gridDim;
  dim3 blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
  cudaLaunchAttribute* attrs = nullptr;
  unsigned numAttrs = 0;
};

namespace simt {
/// Gives to a stream what calls a kernel: body(these bytes), once per CUDA thread.
inline cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, void (*body)(void*),
                          const void* call, std::size_t bytes) {
  const dim3 grid = config.gridDim, block = config.blockDim;
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > Engine::max_threads || block.z > 64)
    return noted(cudaErrorInvalidConfiguration);
  if (!is_of(config.stream, current_device())) return noted(cudaErrorInvalidResourceHandle);
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 ||
      grid.z > 65535)
    return noted(cudaErrorInvalidConfiguration);
  if (config.dynamicSmemBytes > SharedMemoryLimits::instance().of(kernel))
    return noted(cudaErrorInvalidValue);
  std::vector<std::max_align_t> kept(bytes / sizeof(std::max_align_t) + 1);
  std::memcpy(kept.data(), call, bytes);
  enqueue(config.stream, [=, shared = config.dynamicSmemBytes, kept = std::move(kept)]() mutable {
    const DeviceAccess access;
    Engine::instance().run_grid(grid, block, shared, body, kept.data());
  });
  return cudaSuccess;
}
}  // namespace simt

/// Gives the kernel to its stream. A launch that a GPU would refuse returns CUDA's error; a fault
/// of the kernel throws simt::Error.
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  static_assert((std::is_trivially_copyable_v<std::remove_cvref_t<Parameters>> && ...),
                "kernel parameters are copied as bytes");
  using Values = std::tuple<std::remove_cvref_t<Parameters>...>;
  using Call = std::pair<void (*)(Parameters...), Values>;
  static_assert(alignof(Call) <= alignof(std::max_align_t));
  const Call call(
      kernel,
      Values(static_cast<std::remove_cvref_t<Parameters>>(std::forward<Arguments>(arguments))...));
  return simt::launch(
      *config, reinterpret_cast<const void*>(kernel),
      [](void* p) {
        const Call& c = *static_cast<const Call*>(p);
        std::apply(c.first, c.second);
      },
      &call, sizeof(call));
}
