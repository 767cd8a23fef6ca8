// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simt/sanitizer.hpp>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

namespace simt {

/// Device memory: malloc's, filled with 0xff bytes. Under the address sanitizer it may be touched only while a kernel or a copy runs:
/// host code that reads a device pointer is caught, unless another thread's kernel runs at that moment.
class DeviceHeap {
 public:
  static DeviceHeap& instance() {
    static DeviceHeap heap;
    return heap;
  }

  void* allocate(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    auto* p = static_cast<char*>(std::aligned_alloc(alignment, rounded(bytes)));
    if (p == nullptr) return nullptr;
    std::memset(p, 0xff, bytes);
    blocks_[p] = bytes;
    asan::poison(p, rounded(bytes));
    if (accesses_ > 0) asan::unpoison(p, bytes);
    return p;
  }
  void free(void* p) {
    const std::lock_guard lock(mutex_);
    if (p == nullptr) return;
    const auto block = blocks_.find(static_cast<const char*>(p));
    if (block == blocks_.end()) std::abort();  // not device memory, or freed twice
    asan::unpoison(p, rounded(block->second));
    blocks_.erase(block);
    std::free(p);
  }
  bool holds(const void* p) {
    const std::lock_guard lock(mutex_);
    const auto after = blocks_.upper_bound(static_cast<const char*>(p));
    if (after == blocks_.begin()) return false;
    const auto block = std::prev(after);
    return static_cast<const char*>(p) <= block->first + block->second;
  }

  /// Blocks that are allocated.
  std::size_t count() {
    const std::lock_guard lock(mutex_);
    return blocks_.size();
  }

  void open() {
    if (!has_asan) return;
    const std::lock_guard lock(mutex_);
    if (accesses_++ == 0)
      for (const auto& [p, bytes] : blocks_) asan::unpoison(p, bytes);
  }
  void close() {
    if (!has_asan) return;
    const std::lock_guard lock(mutex_);
    if (--accesses_ == 0)
      for (const auto& [p, bytes] : blocks_) asan::poison(p, bytes);
  }

 private:
  static constexpr std::size_t alignment = 256;
  static std::size_t rounded(std::size_t bytes) { return (bytes + alignment) / alignment * alignment; }

  std::mutex mutex_;
  std::map<const char*, std::size_t> blocks_;
  int accesses_ = 0;
};

/// While it lives, device memory may be touched.
class DeviceAccess {
 public:
  DeviceAccess() { DeviceHeap::instance().open(); }
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;
  ~DeviceAccess() { DeviceHeap::instance().close(); }
};

}  // namespace simt
