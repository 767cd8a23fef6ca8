// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simt/sanitizer.hpp>
#include <simt/streams.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace simt {

/// Device memory: malloc's, filled with 0xff bytes. Under the address sanitizer it may be touched
/// only while a kernel or a copy runs: host code that reads a device pointer is caught, unless
/// another thread's kernel runs at that moment. A workspace of cuBLASLt, which has none of its own
/// here, may never be touched. Where streams are deferred, memory is filled when its stream comes to
/// the allocation and again when it comes to the free; what was freed is given away again as soon as
/// CUDA might.
class DeviceHeap {
 public:
  static DeviceHeap& instance() {
    static DeviceHeap heap;
    return heap;
  }

  void* allocate(std::size_t bytes, cudaStream_t stream) {
    if (Streams::instance().deferred()) return allocate_later(bytes, queue_of(stream));
    const std::lock_guard lock(mutex_);
    const char* const p = take(bytes);
    if (p != nullptr) open_block(p, bytes);
    return const_cast<char*>(p);
  }
  void free(void* p, cudaStream_t stream) {
    if (p == nullptr) return;
    {
      const std::lock_guard lock(mutex_);
      const auto block = blocks_.find(static_cast<const char*>(p));
      // not device memory, or freed twice
      if (block == blocks_.end() || !block->second.live) std::abort();
      block->second.live = false;
      if (!Streams::instance().deferred()) return give_back(block);
    }
    const auto& queue = queue_of(stream);
    Streams::instance().add(queue, {.work = {[this, p] {
                                      const std::lock_guard lock(mutex_);
                                      close_block(static_cast<const char*>(p));
                                    }}});
    const auto freed = Streams::instance().mark(queue);
    const std::lock_guard lock(mutex_);
    freed_.push_back({static_cast<const char*>(p), queue, freed});
  }
  bool holds(const void* p) {
    const std::lock_guard lock(mutex_);
    const auto after = blocks_.upper_bound(static_cast<const char*>(p));
    if (after == blocks_.begin()) return false;
    const auto block = std::prev(after);
    return block->second.live && static_cast<const char*>(p) <= block->first + block->second.bytes;
  }

  /// Bytes that are allocated, and the most that were at a time since `forget_most`. For streams that
  /// work at once.
  std::size_t bytes() {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }
  std::size_t most_bytes() {
    const std::lock_guard lock(mutex_);
    return most_bytes_;
  }
  void forget_most() {
    const std::lock_guard lock(mutex_);
    most_bytes_ = bytes_;
  }

  /// Blocks that are allocated.
  std::size_t count() {
    const std::lock_guard lock(mutex_);
    std::size_t live = 0;
    for (const auto& [p, block] : blocks_) live += block.live;
    return live;
  }

  /// At the end of deferred streams: what has been freed.
  void give_all_back() {
    const std::lock_guard lock(mutex_);
    freed_.clear();
    for (auto block = blocks_.begin(); block != blocks_.end();) {
      const auto next = std::next(block);
      if (!block->second.live) give_back(block);
      block = next;
    }
  }

  void open() {
    if (!has_asan) return;
    const std::lock_guard lock(mutex_);
    if (accesses_++ == 0)
      for (const auto& [p, block] : blocks_) asan::unpoison(p + block.workspace, block.touched());
  }
  void close() {
    if (!has_asan) return;
    const std::lock_guard lock(mutex_);
    if (--accesses_ == 0)
      for (const auto& [p, block] : blocks_) asan::poison(p + block.workspace, block.touched());
  }

  /// To be called when a stream comes to a product: a block's first bytes are cuBLASLt's.
  void reserve_workspace(const void* p, std::size_t bytes) {
    if (!has_asan || bytes == 0) return;
    const std::lock_guard lock(mutex_);
    const auto block = blocks_.find(static_cast<const char*>(p));
    if (block == blocks_.end() || block->second.workspace == bytes) return;
    block->second.workspace = bytes;
    asan::poison(p, bytes);
  }

 private:
  static constexpr std::size_t alignment = 256;
  static std::size_t rounded(std::size_t bytes) {
    return (bytes + alignment) / alignment * alignment;
  }

  struct Block {
    std::size_t capacity = 0, bytes = 0;
    bool live = true;           ///< to the host
    std::size_t open = 0;       ///< bytes that streams may touch now
    std::size_t workspace = 0;  ///< of these, the first ones, which they may not
    std::size_t touched() const { return open > workspace ? open - workspace : 0; }
  };
  using Blocks = std::map<const char*, Block>;
  struct Freed {
    const char* p;
    std::shared_ptr<Queue> queue;
    std::shared_ptr<Mark> mark;
  };

  const char* take(std::size_t bytes) {
    // no GPU has it, and the address sanitizer would end the program
    if (bytes >= std::size_t{1} << 39) return nullptr;
    auto* p = static_cast<char*>(std::aligned_alloc(alignment, rounded(bytes)));
    if (p == nullptr) return nullptr;
    blocks_[p] = {.capacity = rounded(bytes), .bytes = bytes};
    bytes_ += rounded(bytes);
    most_bytes_ = std::max(most_bytes_, bytes_);
    asan::poison(p, rounded(bytes));
    return p;
  }
  void give_back(Blocks::iterator block) {
    asan::unpoison(block->first, block->second.capacity);
    bytes_ -= block->second.capacity;
    std::free(const_cast<char*>(block->first));
    blocks_.erase(block);
  }
  void fill(const char* p, const Block& block) {
    asan::unpoison(p, block.capacity);
    std::memset(const_cast<char*>(p), 0xff, block.capacity);
    asan::poison(p, block.capacity);
  }
  void open_block(const char* p, std::size_t bytes) {
    Block& block = blocks_.at(p);
    fill(p, block);
    block.open = bytes;
    block.workspace = 0;
    if (accesses_ > 0) asan::unpoison(p, bytes);
  }
  void close_block(const char* p) {
    Block& block = blocks_.at(p);
    fill(p, block);
    block.open = 0;
  }

  void* allocate_later(std::size_t bytes, const std::shared_ptr<Queue>& queue) {
    Streams& streams = Streams::instance();
    const bool ahead = streams.deferral().reuse_ahead && !streams.meetings_pending();
    const char* p = nullptr;
    std::shared_ptr<Mark> awaits;
    {
      const std::lock_guard lock(mutex_);
      for (auto freed = freed_.rbegin(); freed != freed_.rend(); ++freed) {
        Block& block = blocks_.at(freed->p);
        const bool is_free = freed->queue == queue || freed->mark->done;
        if (block.capacity < rounded(bytes) || block.capacity > 4 * rounded(bytes) ||
            !(is_free || ahead))
          continue;
        if (!is_free) awaits = freed->mark;
        p = freed->p;
        block.live = true;
        block.bytes = bytes;
        freed_.erase(std::next(freed).base());
        break;
      }
      if (p == nullptr) p = take(bytes);
    }
    if (p == nullptr) return nullptr;
    if (awaits) streams.add(queue, {.work = {}, .awaits = awaits});
    streams.add(queue, {.work = {[this, p, bytes] {
                          const std::lock_guard lock(mutex_);
                          open_block(p, bytes);
                        }}});
    return const_cast<char*>(p);
  }

  std::mutex mutex_;
  Blocks blocks_;
  std::vector<Freed> freed_;  // may be given away again; the latest last
  int accesses_ = 0;
  std::size_t bytes_ = 0, most_bytes_ = 0;
};

/// While it lives, device memory may be touched.
class DeviceAccess {
 public:
  DeviceAccess() { DeviceHeap::instance().open(); }
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
  ~DeviceAccess() { DeviceHeap::instance().close(); }
};

/// Page-locked memory of the host. Where streams are deferred, what is freed is filled with 0xff
/// bytes and kept from use to their end.
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
    const auto block = blocks_.find(static_cast<const char*>(p));
    if (block == blocks_.end()) return;
    if (Streams::instance().deferred()) {
      std::memset(p, 0xff, block->second);
      asan::poison(p, block->second);
      freed_.emplace_back(p, block->second);
    } else {
      std::free(p);
    }
    blocks_.erase(block);
  }
  bool holds(const void* p) {
    const std::lock_guard lock(mutex_);
    return within(blocks_, p) != 0 || within(registered_, p) != 0;
  }

  /// Registers memory of the host; false where less than that is left of `limit` bytes, or it is
  /// registered.
  bool lock(void* p, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (locked_ + bytes > limit_ || within(registered_, p) != 0) return false;
    registered_[static_cast<const char*>(p)] = bytes;
    locked_ += bytes;
    return true;
  }
  bool unlock(void* p) {
    const std::lock_guard lock(mutex_);
    const auto block = registered_.find(static_cast<const char*>(p));
    if (block == registered_.end()) return false;
    locked_ -= block->second;
    registered_.erase(block);
    return true;
  }
  /// Whether some of the bytes, but not all, are in the piece of registered memory of the first.
  bool crosses(const void* p, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const std::size_t left = within(registered_, p);
    return left != 0 && left < bytes;
  }
  /// Bytes that are registered, and the most that may be.
  std::size_t locked() {
    const std::lock_guard lock(mutex_);
    return locked_;
  }
  void limit(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    limit_ = bytes;
  }

  /// At the end of deferred streams: what has been freed. Ends the process if that was written
  /// since.
  void give_all_back() {
    const std::lock_guard lock(mutex_);
    for (const auto& [p, bytes] : freed_) {
      asan::unpoison(p, bytes);
      const auto* const first = static_cast<const unsigned char*>(p);
      if (!std::all_of(first, first + bytes, [](unsigned char byte) { return byte == 0xff; })) {
        std::fprintf(stderr, "simt: page-locked memory was written after it had been freed\n");
        std::abort();
      }
      std::free(p);
    }
    freed_.clear();
  }

 private:
  using Blocks = std::map<const char*, std::size_t>;

  /// Bytes of the block behind p; 0 where it is in none.
  static std::size_t within(const Blocks& blocks, const void* p) {
    const auto* const at = static_cast<const char*>(p);
    const auto after = blocks.upper_bound(at);
    if (after == blocks.begin()) return 0;
    const auto& [first, bytes] = *std::prev(after);
    return at < first + bytes ? static_cast<std::size_t>(first + bytes - at) : 0;
  }

  std::mutex mutex_;
  Blocks blocks_, registered_;
  std::size_t locked_ = 0, limit_ = SIZE_MAX;
  std::vector<std::pair<void*, std::size_t>> freed_;
};

inline DeferredStreams::~DeferredStreams() {
  Streams::instance().end_deferral(std::uncaught_exceptions() > 0);
  DeviceHeap::instance().give_all_back();
  HostPages::instance().give_all_back();
}

/// Calls `function` with streams that do their work at once, and under every deferral, and two
/// seeds of the random one.
template <class Function>
void under_every_deferral(Function&& function) {
  function();
  using First = Deferral::First;
  for (const Deferral deferral :
       {Deferral{.first = First::awaited}, Deferral{.first = First::others},
        Deferral{.first = First::any, .seed = 1},
        Deferral{.first = First::any, .seed = 2, .reuse_ahead = true}}) {
    const DeferredStreams scope(deferral);
    function();
  }
}

}  // namespace simt
