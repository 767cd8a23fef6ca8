// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/launch.cuh>
#include <tessera/cuda/memory.cuh>

#include <array>
#include <cstddef>
#include <memory>

namespace tessera::inline v0 {

/// The backend for NVIDIA GPUs. A small handle: copies share the scratch memory. All work goes to one stream, in order, and nothing
/// waits for it. One Cuda belongs to one rank and one device; its calls come from one thread at a time.
class Cuda {
 public:
  struct Options {
    cudaStream_t stream = nullptr;
    gpu::MemoryResourceRef memory{};
  };

  Cuda() : Cuda(Options{}) {}
  explicit Cuda(Options options) : stream_(options.stream), memory_(options.memory), scratch_(std::make_shared<Scratch>()) {}

  cudaStream_t stream() const { return stream_; }

  void* allocate(std::size_t bytes) const { return memory_.allocate(bytes == 0 ? 1 : bytes, stream_); }
  void deallocate(void* p, std::size_t bytes) const noexcept { memory_.deallocate(p, bytes == 0 ? 1 : bytes, stream_); }
  void fill_zero(void* p, std::size_t bytes) const { gpu::zero(static_cast<std::byte*>(p), static_cast<std::int64_t>(bytes), stream_); }

  /// Scratch memory of at least `bytes`, kept between calls. Each slot is one block, valid until the slot is asked for more. Slots 0-7
  /// belong to the operations, 8-15 to whoever calls them.
  void* scratch(std::size_t slot, std::size_t bytes) const {
    gpu::DeviceBuffer<std::byte>& block = scratch_->at(slot);
    if (block.bytes() < bytes) {
      block = {};
      block = gpu::DeviceBuffer<std::byte>(static_cast<std::int64_t>(bytes + bytes / 4), stream_, memory_);
    }
    return block.data();
  }
  template <class T>
  T* scratch_for(std::size_t slot, std::int64_t count) const {
    return static_cast<T*>(scratch(slot, static_cast<std::size_t>(count) * sizeof(T)));
  }

  template <class... Parameters, class... Arguments>
  void launch(std::string_view name, std::int64_t blocks, int threads, void (*kernel)(Parameters...), Arguments&&... arguments) const {
    gpu::launch(name, {.blocks = blocks, .threads = threads, .stream = stream_}, kernel, std::forward<Arguments>(arguments)...);
  }

 private:
  using Scratch = std::array<gpu::DeviceBuffer<std::byte>, 16>;

  cudaStream_t stream_;
  gpu::MemoryResourceRef memory_;
  std::shared_ptr<Scratch> scratch_;
};

}  // namespace tessera::inline v0
