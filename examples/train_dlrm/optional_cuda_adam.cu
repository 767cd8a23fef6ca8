// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda_embeddings.cuh"

std::unique_ptr<dlrm::Embeddings> dlrm::make_cuda_adam_embeddings(tessera::AnyCommunicator& communicator, const tessera::Layout& layout,
                                                                  const EmbeddingOptions& options, const tessera::Cuda& backend,
                                                                  const tessera::Cuda& routing) {
  return std::make_unique<CudaEmbeddings<tessera::Adam>>(communicator, layout, options, backend, routing);
}
