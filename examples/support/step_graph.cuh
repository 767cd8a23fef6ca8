// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "step_graph.hpp"

#include <tessera/cuda/backend.cuh>
#include <tessera/cuda/memory.cuh>
#include <tessera/cuda/stream.cuh>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <vector>

namespace support {

/// The driver's memory, and how often some of it was asked for: a buffer that grew has left the
/// place that a captured step knows.
class CountedMemory {
 public:
  void* allocate(std::size_t bytes, cudaStream_t stream) {
    ++allocations_;
    return driver_.allocate(bytes, stream);
  }
  void deallocate(void* p, std::size_t bytes, cudaStream_t stream) noexcept {
    driver_.deallocate(p, bytes, stream);
  }
  std::int64_t allocations() const { return allocations_; }

 private:
  tessera::gpu::MemoryResourceRef driver_;
  std::atomic<std::int64_t> allocations_ = 0;
};

/// Captures a step after two that were called with the same sizes, and replays it as long as these
/// and all buffers stay; steps of other sizes are called.
template <>
class StepGraph<tessera::Cuda> {
 public:
  StepGraph() = default;
  /// `memory`: the backend's.
  StepGraph(const tessera::Cuda& backend, const CountedMemory& memory)
      : backend_(backend), memory_(&memory) {}

  bool captures() const { return memory_ != nullptr; }
  bool stale() const { return graph_ != nullptr && memory_->allocations() != allocations_; }
  GraphCounts counts() const { return counts_; }

  template <class Step>
  void run(const std::vector<std::int64_t>& sizes, bool stale, const Step& step) {
    if (!captures()) return step();
    if (graph_ && sizes == captured_) {
      if (stale) capture(step);
      return launch();
    }
    if (sizes != called_) called_ = sizes, calls_ = 0;
    if (++calls_ <= kCalled) return step();
    capture(step);
    captured_ = sizes;
    launch();
  }

 private:
  /// The first gives buffers their sizes, the second finds all of them as they stay.
  static constexpr int kCalled = 2;

  struct Destroy {
    void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  };

  template <class Step>
  void capture(const Step& step) {
    const cudaStream_t stream = backend_.stream();
    graph_.reset();
    cudaGraph_t recorded = nullptr;
    tessera::gpu::check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                        "capturing a step");
    try {
      step();
    } catch (...) {
      cudaStreamEndCapture(stream, &recorded);
      if (recorded != nullptr) cudaGraphDestroy(recorded);
      throw;
    }
    tessera::gpu::check(cudaStreamEndCapture(stream, &recorded), "capturing a step");
    cudaGraphExec_t graph = nullptr;
    const cudaError_t error = cudaGraphInstantiate(&graph, recorded, 0);
    cudaGraphDestroy(recorded);
    tessera::gpu::check(error, "instantiating the graph of a step");
    graph_.reset(graph);
    allocations_ = memory_->allocations();
    ++counts_.captured;
  }
  void launch() {
    tessera::gpu::check(cudaGraphLaunch(graph_.get(), backend_.stream()),
                        "launching the graph of a step");
    ++counts_.replayed;
  }

  tessera::Cuda backend_;
  const CountedMemory* memory_ = nullptr;  ///< null: nothing is captured
  std::vector<std::int64_t> called_, captured_;
  int calls_ = 0;
  std::int64_t allocations_ = 0;
  std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Destroy> graph_;
  GraphCounts counts_;
};

}  // namespace support
