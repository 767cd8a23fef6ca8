// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "embeddings.hpp"

#include <memory>
#include <string_view>

namespace tessera { inline namespace v0 {
class Cuda;
}}

namespace dlrm {

/// `make_embeddings` on a GPU. `routing`: a stream of its own for the thread that routes ahead.
std::unique_ptr<Embeddings> make_cuda_embeddings(tessera::AnyCommunicator& communicator,
                                                 const tessera::Layout& layout,
                                                 const EmbeddingOptions& options,
                                                 const tessera::Cuda& backend,
                                                 const tessera::Cuda& routing);

}  // namespace dlrm
