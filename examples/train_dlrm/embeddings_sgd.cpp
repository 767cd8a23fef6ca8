// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "host_embeddings.hpp"

std::unique_ptr<dlrm::Embeddings> dlrm::make_sgd_embeddings(tessera::AnyCommunicator& communicator, const tessera::Layout& layout,
                                                            const EmbeddingOptions& options) {
  return make_host_embeddings<tessera::Sgd>(communicator, layout, options);
}
