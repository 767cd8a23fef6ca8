// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/backend.hpp>
#include <tessera/core/error.hpp>
#include <tessera/core/memory.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>

namespace tessera { inline namespace v0 {

namespace detail {

/// Slots of the host's scratch memory, by what operations keep there. Those of one name's place are
/// never in use together.
struct ScratchSlot {
  enum : std::size_t {
    bag_costs,
    sources,
    counts,
    entries,
    buckets,
    workers,
    merge,
    strips,
    mean_squares = merge,
    last_bags = bag_costs,
    rows_of_ids = bag_costs,
  };
};

}  // namespace detail

/// The backend for CPUs. A small handle: copies share the scratch memory, of which each calling
/// thread has its own. One Host belongs to one rank; an operation uses `threads` OpenMP threads.
///
///     const Host host({.threads = 4});
class Host {
 public:
  struct Options {
    int threads = 1;
  };

  Host() : Host(Options{}) {}
  explicit Host(Options options)
      : threads_(options.threads), scratch_(std::make_shared<Scratch>()) {
    require(options.threads >= 1 && options.threads <= 4096, "Host: {} threads; give 1 to 4,096",
            options.threads);
  }

  int threads() const { return threads_; }

  /// The host can read and write this backend's memory.
  static constexpr bool host_readable = true;

  static void* allocate(std::size_t bytes) { return detail::allocate_large(bytes); }
  static void deallocate(void* memory, std::size_t) noexcept { std::free(memory); }

  /// Allocates memory of the host that the backend can read and write, too.
  static void* allocate_host(std::size_t bytes) { return allocate(bytes); }
  static void deallocate_host(void* memory, std::size_t bytes) noexcept {
    deallocate(memory, bytes);
  }

  /// Copies between memories of the host and of the backend.
  static void copy(void* to, const void* from, std::size_t bytes) {
    detail::copy_bytes(to, from, bytes);
  }
  /// Waits for all work that was given to the backend.
  static void synchronize() {}
  /// Lets later work start after what `other` was given so far.
  static void wait_for(const Host&) {}

  static void fill_zero(void* memory, std::size_t bytes) {
    if (bytes != 0) std::memset(memory, 0, bytes);
  }

  /// Returns scratch memory of at least `bytes`, kept between calls: after the first steps an
  /// operation allocates nothing. Each slot is one block of the calling thread, valid until the
  /// slot is asked for more. Slots 0-7 belong to the operations, 8-15 to their callers.
  void* scratch(std::size_t slot, std::size_t bytes) const {
    Block& block = scratch_->of_this_thread().blocks.at(slot);
    if (block.bytes < bytes) {
      const std::size_t grown = bytes + bytes / 4;
      block.reset();
      block.memory = allocate(grown);
      block.bytes = grown;
    }
    return block.memory;
  }

 private:
  struct Block {
    void* memory = nullptr;
    std::size_t bytes = 0;
    void reset() noexcept {
      std::free(memory);
      memory = nullptr;
      bytes = 0;
    }
  };
  struct ThreadBlocks {
    std::thread::id thread{};
    std::array<Block, 16> blocks{};
    ThreadBlocks* next = nullptr;
  };
  /// A list that only grows: who finds its thread's blocks does not wait. They go to a later
  /// thread of the same id.
  struct Scratch {
    std::atomic<ThreadBlocks*> first = nullptr;

    Scratch() = default;
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    ~Scratch() {
      for (ThreadBlocks* each = first.load(); each != nullptr;) {
        for (Block& block : each->blocks) block.reset();
        delete std::exchange(each, each->next);
      }
    }

    ThreadBlocks& of_this_thread() {
      const std::thread::id self = std::this_thread::get_id();
      ThreadBlocks* const seen = first.load(std::memory_order_acquire);
      for (ThreadBlocks* each = seen; each != nullptr; each = each->next)
        if (each->thread == self) return *each;
      auto* const own = new ThreadBlocks{.thread = self, .next = seen};
      while (!first.compare_exchange_weak(own->next, own, std::memory_order_acq_rel)) {
      }
      return *own;
    }
  };

  int threads_;
  std::shared_ptr<Scratch> scratch_;
};

static_assert(Backend<Host>);

}}  // namespace tessera::v0
