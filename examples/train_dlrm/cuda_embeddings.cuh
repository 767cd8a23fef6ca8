// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "embeddings_of.hpp"

#include <tessera/tessera.cuh>

#include <memory>

namespace dlrm {

template <class Optimizer>
using CudaEmbeddings = EmbeddingsOf<Optimizer, tessera::Cuda, tessera::Widths<16, 32, 64, 128>>;

using CudaEmbeddingsFactory = std::unique_ptr<Embeddings>(tessera::AnyCommunicator&, const tessera::Layout&, const EmbeddingOptions&,
                                                          const tessera::Cuda& backend, const tessera::Cuda& routing);

CudaEmbeddingsFactory make_cuda_sgd_embeddings, make_cuda_adagrad_embeddings, make_cuda_rowwise_adagrad_embeddings,
    make_cuda_adam_embeddings;

}  // namespace dlrm
