// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "embeddings_of.hpp"

std::unique_ptr<dlrm::Embeddings> dlrm::make_adagrad_embeddings(tessera::AnyCommunicator& communicator, const tessera::Layout& layout,
                                                                const EmbeddingOptions& options) {
  return std::make_unique<EmbeddingsOf<tessera::Adagrad>>(communicator, layout, options);
}
