// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simt/sanitizer.hpp>

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>

namespace simt {

/// A fault of a kernel, found by the emulator; the text names what, block, thread, file and line.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The shared memory of the running block: first the dynamic part, then static variables in the
/// order of their first use, with red zones between them. Every block finds it filled with 0xff
/// bytes (NaN, -1), so that a read of what nobody wrote shows.
class SharedMemory {
 public:
  static constexpr std::size_t max_static_bytes = 48 * 1024;
  static constexpr std::size_t max_dynamic_bytes = 227 * 1024;

  SharedMemory() = default;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() {
    if (arena_ == nullptr) return;
    // whoever is given these addresses next knows nothing of this
    asan::unpoison(arena_, capacity);
    munmap(arena_, capacity);
  }

  void* dynamic() const { return arena_; }

  SIMT_RUNTIME void begin_block(std::size_t dynamic_bytes) {
    // another block's shared memory is other memory: forget who touched it
    if (has_tsan && arena_ != nullptr) {
      munmap(arena_, capacity);
      arena_ = nullptr;
    }
    if (arena_ == nullptr) {
      void* p = mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (p == MAP_FAILED) throw std::bad_alloc();
      arena_ = static_cast<char*>(p);
    }
    asan::unpoison(arena_, capacity);
    fill(arena_, dynamic_bytes);
    asan::poison(arena_ + dynamic_bytes, capacity - dynamic_bytes);
    used_ = next_start(dynamic_bytes);
    static_bytes_ = 0;
    variables_ = 0;
  }

  /// The variable known by `key`, made at its first use in a block. Null if the block has no room
  /// for it.
  SIMT_RUNTIME void* variable(const void* key, std::size_t bytes) {
    for (std::size_t i = 0; i < variables_; ++i)
      if (keys_[i] == key) return arena_ + offsets_[i];
    static_bytes_ += bytes;
    if (static_bytes_ > max_static_bytes || variables_ == max_variables) return nullptr;
    char* p = arena_ + used_;
    keys_[variables_] = key;
    offsets_[variables_++] = used_;
    used_ = next_start(used_ + bytes);
    asan::unpoison(p, bytes);
    fill(p, bytes);
    return p;
  }

 private:
  static constexpr std::size_t max_variables = 32;
  static constexpr std::size_t red_zone = 64;
  static constexpr std::size_t capacity = 320 * 1024;
  static_assert(capacity >=
                max_dynamic_bytes + max_static_bytes + (max_variables + 1) * (red_zone + 16));

  static constexpr std::size_t next_start(std::size_t end) {
    return (end + 15) / 16 * 16 + red_zone;
  }

  // Volatile stores: a call of memset would be seen by the thread sanitizer as an access.
  SIMT_RUNTIME static void fill(char* p, std::size_t bytes) {
    std::size_t i = 0;
    for (; i + 8 <= bytes; i += 8)
      *reinterpret_cast<volatile std::uint64_t*>(p + i) = ~std::uint64_t{0};
    for (; i < bytes; ++i) *reinterpret_cast<volatile char*>(p + i) = static_cast<char>(-1);
  }

  char* arena_ = nullptr;
  std::size_t used_ = 0;
  std::size_t static_bytes_ = 0;
  std::size_t variables_ = 0;
  const void* keys_[max_variables] = {};
  std::size_t offsets_[max_variables] = {};
};

}  // namespace simt
