// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/stream.cuh>

namespace {

using namespace tessera;

/// The work that `give` gives to a stream, to be done as often as wanted.
class Graph {
 public:
  template <class Give>
  Graph(const gpu::Stream& stream, const Give& give) : stream_(stream.get()) {
    cudaGraph_t recorded = nullptr;
    gpu::check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capturing");
    try {
      give();
    } catch (...) {
      cudaStreamEndCapture(stream_, &recorded);
      if (recorded != nullptr) cudaGraphDestroy(recorded);
      throw;
    }
    gpu::check(cudaStreamEndCapture(stream_, &recorded), "capturing");
    gpu::check(cudaGraphInstantiate(&graph_, recorded, 0), "instantiating a graph");
    cudaGraphDestroy(recorded);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { cudaGraphExecDestroy(graph_); }
  void launch() const { gpu::check(cudaGraphLaunch(graph_, stream_), "launching a graph"); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace
