// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Collections behind tessera.h whose tables are in the memory of a GPU.
#pragma once

#include "collection_of.hpp"

#include <tessera/checkpoint/agreement.hpp>
#include <tessera/comm/rank_memory.cuh>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#if TESSERA_C_NCCL
#include <tessera/comm/nccl_communicator.hpp>
#endif
#include <tessera/tessera.cuh>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera_c {

/// Makes a GPU the thread's. Returns which one was before.
inline int choose_gpu(int device) {
  int before = 0;
  tessera::gpu::check(cudaGetDevice(&before), "asking which GPU a thread works with");
  if (before != device) tessera::gpu::check(cudaSetDevice(device), "choosing GPU {}", device);
  return before;
}

/// A rank's stream, and what moves memory in its order: copies if all ranks are threads of one GPU, else NCCL.
class Link {
 public:
  Link(const tessera_communicator& ranks, const tessera_collection_options& options,
       std::span<const std::int32_t> devices)
      : backend_({.stream = static_cast<cudaStream_t>(options.stream)}) {
    tessera::AnyCommunicator& control = *ranks.any;
    const tessera::CudaTransfer transfer(backend_);
    if (control.size() == 1)
      keep(std::make_shared<tessera::BasicSelfCommunicator<tessera::CudaTransfer>>(transfer));
    else if (ranks.threads != nullptr &&
             std::count(devices.begin(), devices.end(), options.device) == control.size())
      keep(std::make_shared<tessera::BasicThreadCommunicator<tessera::CudaTransfer>>(
          *ranks.threads, control.rank(), transfer));
    else
      connect(ranks);
  }

 protected:
  const tessera::Cuda& backend() const { return backend_; }
  tessera::AnyCommunicator& batches() { return *any_; }

 private:
  void connect([[maybe_unused]] const tessera_communicator& ranks) {
#if TESSERA_C_NCCL
    tessera::NcclOptions options{.stream = backend_.stream()};
    if (ranks.timeout) options.timeout = *ranks.timeout;
    tessera::AnyCommunicator& control = *ranks.any;
    const auto nccl = std::make_shared<tessera::NcclCommunicator>(
        tessera::share_nccl_id(control), control.rank(), control.size(), options);
    ranks.waits->add([weak = std::weak_ptr(nccl)](const std::string& text) {
      if (const auto one = weak.lock()) one->interrupt(text);
    });
    keep(nccl);
#else
    throw Unsupported(
        "tessera_collection_create: ranks with a GPU each need NCCL, and this library was built "
        "without it; install libnccl-dev (NVIDIA's) and build it again, or give threads of one "
        "GPU");
#endif
  }

  template <class C>
  void keep(const std::shared_ptr<C>& communicator) {
    owner_ = communicator;
    any_ = std::make_unique<tessera::AnyCommunicator>(*communicator);
  }

  tessera::Cuda backend_;
  std::shared_ptr<void> owner_;  ///< of what any_ refers to
  std::unique_ptr<tessera::AnyCommunicator> any_;
};

template <class Widths>
class CudaCollection final : private Link, public CollectionOf<tessera::Cuda, Widths> {
 public:
  CudaCollection(const tessera_layout& layout, const tessera_communicator& ranks,
                 const tessera_collection_options& options, std::span<const std::int32_t> devices)
      : Link(ranks, options, devices),
        CollectionOf<tessera::Cuda, Widths>(layout, ranks, batches(), backend(), options),
        device_(options.device) {}

  int enter() const override { return choose_gpu(device_); }
  void leave(int before) const override { static_cast<void>(cudaSetDevice(before)); }
  void require_memory(const void* memory, std::string_view call,
                      std::string_view what) const override {
    cudaPointerAttributes is{};
    tessera::gpu::check(cudaPointerGetAttributes(&is, memory), "asking what memory {} is in", what);
    tessera::require(is.type == cudaMemoryTypeManaged ||
                         (is.type == cudaMemoryTypeDevice && is.device == device_),
                     "{}: {} is in {}; this collection's tables, and all that its steps read and "
                     "write, are on GPU {}",
                     call, what,
                     is.type == cudaMemoryTypeDevice
                         ? fmt::format("the memory of GPU {}", is.device)
                         : "host memory",
                     device_);
  }

 private:
  int device_;
};

/// What make_cuda_collection does, with kernels for rows of these widths.
template <class Widths>
std::shared_ptr<Collection> make_cuda_collection_of(const tessera_layout& layout,
                                                    const tessera_communicator& ranks,
                                                    const tessera_collection_options& options,
                                                    std::span<const std::int32_t> devices) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  const std::vector<int> counts =
      tessera::detail::gather_one(*ranks.any, error == cudaSuccess ? count : 0);
  for (std::size_t rank = 0; rank < counts.size(); ++rank)
    tessera::require(devices[rank] < counts[rank],
                     "tessera_collection_create: options.device of rank {} is {}, but CUDA sees {} "
                     "GPUs there{}",
                     rank, devices[rank], counts[rank],
                     error == cudaSuccess ? "" : fmt::format(" ({})", cudaGetErrorString(error)));
  const int device = options.device, before = choose_gpu(device);
  const auto back = [](int gpu) { static_cast<void>(cudaSetDevice(gpu)); };
  const std::shared_ptr<void> at_end(nullptr, [&](void*) { back(before); });
  return {new CudaCollection<Widths>(layout, ranks, options, devices),
          [device, back](CudaCollection<Widths>* gone) {
            int other = device;
            static_cast<void>(cudaGetDevice(&other));
            back(device);
            delete gone;
            back(other);
          }};
}

}  // namespace tessera_c
