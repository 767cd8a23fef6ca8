// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda_embeddings.hpp"
#include "embeddings_of.hpp"

#include <tessera/tessera.cuh>

std::unique_ptr<dlrm::Embeddings> dlrm::make_cuda_embeddings(tessera::AnyCommunicator& communicator,
                                                             const tessera::Layout& layout,
                                                             const EmbeddingOptions& options,
                                                             const tessera::Cuda& backend,
                                                             const tessera::Cuda& routing) {
  return std::make_unique<EmbeddingsOf<tessera::Cuda, tessera::Widths<16, 32, 64, 128>>>(
      communicator, layout, options, backend, routing);
}
