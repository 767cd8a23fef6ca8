// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The trainer's model on a GPU, which ranks share: they are threads with a stream each.
#include "../support/step_graph.cuh"
#include "backends.hpp"
#include "cuda_layers.cuh"
#include "model.hpp"
#include "vector_ops.cuh"

#include <tessera/comm/rank_memory.cuh>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/comm/thread_communicator.hpp>
#include <tessera/cuda/kernels.cuh>
#include <tessera/dense/dense.cuh>
#include <tessera/sequence/sampled_softmax.cuh>

#include <cstdint>
#include <memory>

namespace sequence { namespace {

using namespace tessera;

/// A rank's stream, and a communicator that moves device memory in its order. Made before the model
/// and gone after it.
struct CudaRank {
  explicit CudaRank(ThreadCommunicator& threads)
      : of_threads(threads.group(), threads.rank(), CudaTransfer(backend)),
        communicator(threads.size() > 1 ? AnyCommunicator(of_threads) : AnyCommunicator(self)) {}

  support::CountedMemory memory;
  gpu::Stream stream;
  Cuda backend{{.stream = stream.get(), .memory = memory}};
  BasicSelfCommunicator<CudaTransfer> self{CudaTransfer(backend)};  ///< of one rank: waits for none
  BasicThreadCommunicator<CudaTransfer> of_threads;
  AnyCommunicator communicator;
};

class CudaModel final : private CudaRank, public Model<Cuda, AnyCommunicator> {
 public:
  CudaModel(ThreadCommunicator& ranks, const Options& options, std::int64_t items)
      : CudaRank(ranks),
        Model<Cuda, AnyCommunicator>(
            ranks, communicator, backend, options,
            make_parts(backend, communicator, options, items, make_cuda_block, make_cuda_items),
            options.graph ? support::StepGraph<Cuda>(backend, memory)
                          : support::StepGraph<Cuda>()) {}
};

std::unique_ptr<RankModel> make_cuda_model(ThreadCommunicator& ranks, const Options& options,
                                           std::int64_t items) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  require<Error>(error == cudaSuccess && count > 0,
                 "--backend cuda: there is no GPU that CUDA can use here ({})",
                 error == cudaSuccess ? "no device" : cudaGetErrorString(error));
  return std::make_unique<CudaModel>(ranks, options, items);
}

[[maybe_unused]] const bool added = backends().emplace("cuda", &make_cuda_model).second;

}}  // namespace sequence
