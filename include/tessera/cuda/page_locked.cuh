// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/error.cuh>

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <string>

namespace tessera { inline namespace v0 { namespace gpu {

/// Page-locked memory of the host in pieces: one range of addresses, which kernels read and write
/// by the host's pointers, of which each piece is placed on the memory node that is nearest to the
/// GPU and page-locked by a call of its own. One call for all of it would hold the driver's lock
/// for minutes, and drivers refuse half a terabyte. CUDA copies do not cross the border of two
/// pieces: `for_each_part` cuts them. Thread-safe.
class PageLockedMemory {
 public:
  struct Options {
    std::size_t piece = std::size_t{1} << 30;  ///< bytes; a multiple of 4096
    std::size_t least = std::size_t{1} << 20;  ///< bytes; less is left to cudaMallocHost
    long (*place)(void*, std::size_t,
                  int) = bind;  ///< asks for a node; what it answers is not used
  };

  explicit PageLockedMemory(Options options) : options_(options) {}
  PageLockedMemory() : PageLockedMemory(Options{}) {}
  PageLockedMemory(const PageLockedMemory&) = delete;
  PageLockedMemory& operator=(const PageLockedMemory&) = delete;
  ~PageLockedMemory() = default;

  /// Returns that of all backends.
  static PageLockedMemory& of_process() {
    static PageLockedMemory* const memory =
        new PageLockedMemory;  // freed by buffers that end later
    return *memory;
  }

  /// Sets the options, only while no pieces are locked.
  void configure(Options options) {
    const std::lock_guard lock(mutex_);
    require(blocks_.empty() && options.piece > 0 && options.piece % page == 0,
            "page-locked memory: pieces of {} bytes while {} bytes are locked; give a multiple of "
            "{}, before any memory is taken",
            options.piece, bytes_, page);
    options_ = options;
  }

  /// Throws CudaError if there is no memory, or not as much may be page-locked; nothing is kept.
  void* allocate(std::size_t bytes) {
    int device = 0;
    if (bytes < options_.least || cudaGetDevice(&device) != cudaSuccess ||
        !attribute(cudaDevAttrHostRegisterSupported, device) ||
        !attribute(cudaDevAttrCanUseHostPointerForRegisteredMem, device))
      return allocate_whole(bytes);
    const std::size_t mapped = (bytes + page - 1) / page * page;
    void* const p =
        mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
      fail(cudaErrorMemoryAllocation,
           tessera::detail::formatted("reserving {} bytes of host memory to be page-locked: {}",
                                      bytes, std::strerror(errno)));
    auto* const start = static_cast<std::byte*>(p);
    int node = -1;
    if (cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, device) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // a driver that does not know
      node = -1;
    }
    std::size_t locked = 0;
    while (locked < mapped) {
      const std::size_t size = std::min(options_.piece, mapped - locked);
      if (node >= 0) options_.place(start + locked, size, node);
      const cudaError_t code = cudaHostRegister(start + locked, size, cudaHostRegisterDefault);
      if (code != cudaSuccess) {
        give_back(start, mapped, locked);
        fail(code, tessera::detail::formatted(
                       "page-locking {} bytes of host memory: {} bytes were locked, the next "
                       "{} could not be; keep fewer rows on the host, or raise the limit of "
                       "locked memory (ulimit -l)",
                       bytes, locked, size));
      }
      locked += size;
    }
    const std::lock_guard lock(mutex_);
    blocks_[start] = mapped;
    if (mapped > options_.piece) ++of_many_pieces_;
    bytes_ += mapped;
    return p;
  }

  void deallocate(void* p) noexcept {
    std::size_t mapped = 0;
    {
      const std::lock_guard lock(mutex_);
      const auto block = blocks_.find(static_cast<const std::byte*>(p));
      if (block != blocks_.end()) {
        mapped = block->second;
        blocks_.erase(block);
        if (mapped > options_.piece) --of_many_pieces_;
        bytes_ -= mapped;
      }
    }
    if (mapped == 0)
      report(cudaFreeHost(p), "freeing page-locked host memory");
    else
      give_back(static_cast<std::byte*>(p), mapped, mapped);
  }

  /// Returns the bytes of pieces that are locked now; what cudaMallocHost gave is not counted.
  std::size_t bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }

  /// Calls f(offset, bytes) for the parts of a copy of `count` bytes that are in one piece at
  /// either end; other memory is one piece.
  template <class F>
  void for_each_part(const void* to, const void* from, std::size_t count, F&& f) const {
    std::size_t done = 0;
    if (of_many_pieces_.load(std::memory_order_acquire) != 0)
      for (std::size_t part = 0; done < count; done += part) {
        part = std::min({count - done, to_border(static_cast<const std::byte*>(to) + done),
                         to_border(static_cast<const std::byte*>(from) + done)});
        if (part == count - done) break;
        f(done, part);
      }
    f(done, count - done);
  }

 private:
  static constexpr std::size_t page = 4096;

  static bool attribute(cudaDeviceAttr which, int device) {
    int value = 0;
    if (cudaDeviceGetAttribute(&value, which, device) == cudaSuccess) return value != 0;
    static_cast<void>(cudaGetLastError());
    return false;
  }
  static void* allocate_whole(std::size_t bytes) {
    void* p = nullptr;
    check(cudaMallocHost(&p, bytes == 0 ? 1 : bytes),
          "allocating {} bytes of page-locked host memory", bytes);
    return p;
  }

  /// Binds memory to a node: new pages come from the node if it has room, else from others.
  static long bind(void* p, std::size_t bytes, int node) {
    constexpr int bits = 8 * sizeof(unsigned long);
    std::array<unsigned long, 16> nodes{};
    if (node >= bits * static_cast<int>(nodes.size())) return -1;
    nodes[static_cast<std::size_t>(node / bits)] = 1ul << (node % bits);
    return syscall(SYS_mbind, p, bytes, MPOL_PREFERRED, nodes.data(), bits * nodes.size() + 1, 0);
  }

  void give_back(std::byte* start, std::size_t mapped, std::size_t locked) const noexcept {
    for (std::size_t at = 0; at < locked; at += options_.piece)
      report(cudaHostUnregister(start + at), "unlocking pages of the host");
    munmap(start, mapped);
  }

  std::size_t to_border(const std::byte* p) const {
    const std::lock_guard lock(mutex_);
    const auto after = blocks_.upper_bound(p);
    if (after == blocks_.begin()) return SIZE_MAX;
    const auto& [start, bytes] = *std::prev(after);
    const std::size_t at = static_cast<std::size_t>(p - start);
    return at < bytes ? options_.piece - at % options_.piece : SIZE_MAX;
  }

  Options options_;
  mutable std::mutex mutex_;
  std::map<const std::byte*, std::size_t> blocks_;
  std::size_t bytes_ = 0;
  std::atomic<int> of_many_pieces_ = 0;
};

}}}  // namespace tessera::v0::gpu
