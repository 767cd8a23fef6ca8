// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/error.cuh>
#include <tessera/cuda/page_locked.cuh>

#include <array>
#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>

namespace tessera { inline namespace v0 { namespace gpu {

/// Stream-ordered device memory: what allocate returns may be used by later work of the stream;
/// what deallocate takes is used by earlier work of its stream alone. Pointers are aligned to 256
/// bytes. allocate throws when there is no memory.
template <class R>
concept MemoryResource = requires(R& resource, std::size_t bytes, void* p, cudaStream_t stream) {
  { resource.allocate(bytes, stream) } -> std::same_as<void*>;
  { resource.deallocate(p, bytes, stream) } noexcept;
};

/// The driver's pool (cudaMallocAsync). It keeps what is freed, unless the program chose another
/// threshold (cudaMemPoolAttrReleaseThreshold): otherwise every wait of the host gives free memory
/// back, and the next growth maps it anew. cudaMemPoolTrimTo gives it back.
class AsyncMemoryResource {
 public:
  void* allocate(std::size_t bytes, cudaStream_t stream) {
    keep_memory();
    void* p = nullptr;
    check(cudaMallocAsync(&p, bytes, stream), "allocating {} bytes of device memory", bytes);
    return p;
  }
  void deallocate(void* p, std::size_t, cudaStream_t stream) noexcept {
    report(cudaFreeAsync(p, stream), "freeing device memory");
  }

 private:
  /// Lets the pool keep its memory, once per device.
  void keep_memory() {
    int device = 0;
    check(cudaGetDevice(&device), "asking which GPU a thread works with");
    if (device >= std::ssize(keeps_) || keeps_[static_cast<std::size_t>(device)].exchange(true))
      return;
    cudaMemPool_t pool = nullptr;
    check(cudaDeviceGetDefaultMemPool(&pool, device), "asking for the memory pool of GPU {}",
          device);
    std::uint64_t threshold = 0;
    check(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold),
          "reading what a memory pool keeps");
    if (threshold != 0) return;
    threshold = UINT64_MAX;
    check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold),
          "telling a memory pool what to keep");
  }

  std::array<std::atomic<bool>, 64> keeps_{};
};
static_assert(MemoryResource<AsyncMemoryResource>);

/// cudaMalloc, for machines whose driver has no memory pools, as some virtual ones. Each call may
/// make the host wait for the GPU.
class PlainMemoryResource {
 public:
  void* allocate(std::size_t bytes, cudaStream_t) {
    void* p = nullptr;
    check(cudaMalloc(&p, bytes), "allocating {} bytes of device memory without a memory pool",
          bytes);
    return p;
  }
  void deallocate(void* p, std::size_t, cudaStream_t stream) noexcept {
    report(cudaStreamSynchronize(stream), "waiting for a stream in order to free device memory");
    report(cudaFree(p), "freeing device memory");
  }
};
static_assert(MemoryResource<PlainMemoryResource>);

/// A reference to anyone's memory resource, which must outlive it and all that was allocated
/// through it. Trivially copyable.
class MemoryResourceRef {
 public:
  /// Takes the driver's pool; cudaMalloc if the GPU that is asked first has none.
  MemoryResourceRef() : MemoryResourceRef(of_driver()) {}

  template <MemoryResource R>
    requires(!std::same_as<R, MemoryResourceRef>)
  MemoryResourceRef(R& resource)  // NOLINT(google-explicit-constructor)
      : resource_(&resource),
        allocate_([](void* r, std::size_t bytes, cudaStream_t stream) {
          return static_cast<R*>(r)->allocate(bytes, stream);
        }),
        deallocate_([](void* r, void* p, std::size_t bytes, cudaStream_t stream) noexcept {
          static_cast<R*>(r)->deallocate(p, bytes, stream);
        }) {}

  /// Throws while the stream is captured.
  void* allocate(std::size_t bytes, cudaStream_t stream) const {
    refuse_growth_of_capture(stream, bytes);
    return allocate_(resource_, bytes, stream);
  }
  void deallocate(void* p, std::size_t bytes, cudaStream_t stream) const noexcept {
    deallocate_(resource_, p, bytes, stream);
  }

 private:
  static const MemoryResourceRef& of_driver() {
    static AsyncMemoryResource pool;
    static PlainMemoryResource plain;
    static const MemoryResourceRef chosen =
        has_pools() ? MemoryResourceRef(pool) : MemoryResourceRef(plain);
    return chosen;
  }
  /// Returns true without a GPU, too: the first allocation says so.
  static bool has_pools() {
    int device = 0, pools = 1;
    if (cudaGetDevice(&device) == cudaSuccess &&
        cudaDeviceGetAttribute(&pools, cudaDevAttrMemoryPoolsSupported, device) == cudaSuccess)
      return pools != 0;
    static_cast<void>(cudaGetLastError());
    return true;
  }

  void* resource_;
  void* (*allocate_)(void*, std::size_t, cudaStream_t);
  void (*deallocate_)(void*, void*, std::size_t, cudaStream_t) noexcept;
};
static_assert(std::is_trivially_copyable_v<MemoryResourceRef>);

/// Owns `size` elements of device memory, uninitialized, allocated and freed in the order of a
/// stream. Move-only.
template <class T>
class DeviceBuffer {
 public:
  static_assert(std::is_trivially_copyable_v<T>, "device memory is copied as bytes");

  DeviceBuffer() = default;
  DeviceBuffer(std::int64_t size, cudaStream_t stream, MemoryResourceRef resource = {})
      : size_(size), stream_(stream), resource_(resource) {
    require(size >= 0, "DeviceBuffer: size is {}", size);
    if (size > 0) data_ = static_cast<T*>(resource_.allocate(bytes(), stream));
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        stream_(other.stream_),
        resource_(other.resource_) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(stream_, other.stream_);
    std::swap(resource_, other.resource_);
    return *this;
  }
  ~DeviceBuffer() { release(); }

  T* data() const noexcept { return data_; }
  std::int64_t size() const noexcept { return size_; }
  std::size_t bytes() const noexcept { return static_cast<std::size_t>(size_) * sizeof(T); }
  cudaStream_t stream() const noexcept { return stream_; }

 private:
  void release() noexcept {
    if (data_ != nullptr) resource_.deallocate(data_, bytes(), stream_);
    data_ = nullptr;
    size_ = 0;
  }

  T* data_ = nullptr;
  std::int64_t size_ = 0;
  cudaStream_t stream_ = nullptr;
  MemoryResourceRef resource_;
};

/// Copies `count` elements between any two memories, in the order of the stream. Pageable host
/// memory makes the host wait.
template <class T>
void copy(T* to, const T* from, std::int64_t count, cudaStream_t stream) {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  if (count > 0)
    PageLockedMemory::of_process().for_each_part(
        to, from, bytes, [&](std::size_t at, std::size_t part) {
          check(cudaMemcpyAsync(reinterpret_cast<std::byte*>(to) + at,
                                reinterpret_cast<const std::byte*>(from) + at, part,
                                cudaMemcpyDefault, stream),
                "copying {} bytes", bytes);
        });
}

/// Sets `count` elements to zero bytes, in the order of the stream.
template <class T>
void zero(T* to, std::int64_t count, cudaStream_t stream) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  if (count > 0) check(cudaMemsetAsync(to, 0, bytes, stream), "setting {} bytes to zero", bytes);
}

}}}  // namespace tessera::v0::gpu
