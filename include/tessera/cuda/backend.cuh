// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/backend.hpp>
#include <tessera/cuda/launch.cuh>
#include <tessera/cuda/memory.cuh>
#include <tessera/cuda/scratch_slot.cuh>
#include <tessera/cuda/stream.cuh>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace tessera { inline namespace v0 {

/// The backend for NVIDIA GPUs. A small handle: copies share the scratch memory. All work goes to
/// one stream, in order, and nothing waits for it. One Cuda belongs to one rank and one device; its
/// calls come from one thread at a time.
class Cuda {
 public:
  struct Options {
    cudaStream_t stream = nullptr;
    gpu::MemoryResourceRef memory{};
  };

  Cuda() : Cuda(Options{}) {}
  explicit Cuda(Options options)
      : stream_(options.stream), memory_(options.memory), scratch_(std::make_shared<Scratch>()) {}

  cudaStream_t stream() const { return stream_; }
  gpu::MemoryResourceRef memory() const { return memory_; }

  /// The host cannot read or write this backend's memory.
  static constexpr bool host_readable = false;

  /// Returns memory of the user's resource for `count` elements, uninitialized.
  template <class T>
  gpu::DeviceBuffer<T> buffer(std::int64_t count) const {
    return {count, stream_, memory_};
  }
  void* allocate(std::size_t bytes) const {
    return memory_.allocate(bytes == 0 ? 1 : bytes, stream_);
  }
  void deallocate(void* p, std::size_t bytes) const noexcept {
    memory_.deallocate(p, bytes == 0 ? 1 : bytes, stream_);
  }

  /// Returns whether the stream is captured: what is given to it now runs when the graph does.
  bool recording() const { return gpu::capturing(stream_); }

  /// Throws while the stream is captured. Asked before memory is freed in order to grow.
  void before_growth(std::size_t bytes) const { gpu::refuse_growth_of_capture(stream_, bytes); }

  /// Throws InvalidArgument for more rows than kernels count; asked before tables are made.
  static void before_arena(std::int64_t rows) {
    require(rows < UINT32_MAX,
            "{} rows of one width on one GPU; it holds less than 2^32 - 1: cut the tables by rows",
            rows);
  }

  /// Makes a thread that calls what this returns work with the GPU of this thread.
  static auto thread_setup() {
    int device = 0;
    gpu::check(cudaGetDevice(&device), "asking which GPU a thread works with");
    return [device] { gpu::check(cudaSetDevice(device), "choosing GPU {}", device); };
  }

  /// Allocates memory of the host that the GPU reads and writes, too, and that copies do not wait
  /// for.
  static void* allocate_host(std::size_t bytes) {
    return gpu::PageLockedMemory::of_process().allocate(bytes);
  }
  static void deallocate_host(void* p, std::size_t) noexcept {
    gpu::PageLockedMemory::of_process().deallocate(p);
  }

  /// Copies between any two memories, in the order of the stream. Memory of the host that is not
  /// from allocate_host makes the host wait.
  void copy(void* to, const void* from, std::size_t bytes) const {
    gpu::copy(static_cast<std::byte*>(to), static_cast<const std::byte*>(from),
              static_cast<std::int64_t>(bytes), stream_);
  }
  /// A point in the order of work whose time can be asked for.
  using TimeMark = gpu::TimedEvent;
  void mark(TimeMark& mark) const { mark.record(stream_); }
  /// Waits for all work of the stream; throws what the work met.
  void synchronize() const { gpu::check(cudaStreamSynchronize(stream_), "waiting for a stream"); }
  /// Lets later work start after what `other` was given so far; the host does not wait. Not for
  /// cudaStreamPerThread where several threads work with a backend, as it names another stream in
  /// each of them.
  void wait_for(const Cuda& other) const {
    if (other.stream_ == stream_) return;
    std::optional<gpu::Event>& event = scratch_->event;
    if (!event) event.emplace();
    event->record(other.stream_);
    event->block(stream_);
  }

  void fill_zero(void* p, std::size_t bytes) const {
    gpu::zero(static_cast<std::byte*>(p), static_cast<std::int64_t>(bytes), stream_);
  }

  /// Returns a backend of the same GPU and memory with a stream of its own, which lives as long as
  /// it and its copies.
  Cuda beside() const {
    Cuda other({.memory = memory_});
    other.stream_ = other.scratch_->stream.emplace().get();
    return other;
  }

  /// Returns scratch memory of at least `bytes`, kept between calls. Each slot is one block, valid
  /// until the slot is asked for more. Throws if a slot would grow while the stream is captured.
  void* scratch(gpu::ScratchSlot slot, std::size_t bytes) const {
    gpu::DeviceBuffer<std::byte>& block = scratch_->blocks[static_cast<std::size_t>(slot)];
    if (block.bytes() < bytes) {
      before_growth(bytes);
      block = {};
      block = buffer<std::byte>(static_cast<std::int64_t>(bytes + bytes / 4));
    }
    return block.data();
  }
  template <class T>
  T* scratch_for(gpu::ScratchSlot slot, std::int64_t count) const {
    return static_cast<T*>(scratch(slot, static_cast<std::size_t>(count) * sizeof(T)));
  }

  template <class... Parameters, class... Arguments>
  void launch(std::string_view name, std::int64_t blocks, int threads,
              void (*kernel)(Parameters...), Arguments&&... arguments) const {
    gpu::launch(name, {.blocks = blocks, .threads = threads, .stream = stream_}, kernel,
                std::forward<Arguments>(arguments)...);
  }

 private:
  struct Scratch {
    std::optional<gpu::Stream> stream;  ///< first: blocks are freed in its order
    std::array<gpu::DeviceBuffer<std::byte>, static_cast<std::size_t>(gpu::ScratchSlot::count)>
        blocks;
    std::optional<gpu::Event> event;
  };

  cudaStream_t stream_;
  gpu::MemoryResourceRef memory_;
  std::shared_ptr<Scratch> scratch_;
};

static_assert(Backend<Cuda>);

}}  // namespace tessera::v0
