// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The trainer's CUDA part as a C++ compiler builds it for the emulator (tests/simt). Of the kernels
// of widths it has those of floats of the tests' models and of few optimizers: each takes seconds to compile.
#include <train_dlrm/embeddings_of.hpp>
#include <train_dlrm/optional_cuda.cu>
#include <train_dlrm/optional_nccl.cu>

#include <tessera/tessera.cuh>

std::unique_ptr<dlrm::Embeddings> dlrm::make_cuda_embeddings(tessera::AnyCommunicator& communicator,
                                                             const tessera::Layout& layout,
                                                             const EmbeddingOptions& options,
                                                             const tessera::Cuda& backend,
                                                             const tessera::Cuda& routing) {
  using Widths = tessera::WidthsFor<tessera::Widths<16>, tessera::Sgd, tessera::RowWiseAdagrad>;
  return std::make_unique<EmbeddingsOf<tessera::Cuda, Widths>>(communicator, layout, options,
                                                               backend, routing);
}
