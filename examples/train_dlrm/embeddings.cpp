// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "embeddings.hpp"

#include "embeddings_of.hpp"

#include <tessera/tessera.hpp>

namespace dlrm {

// Widths of whole tables, and of their halves under a plan that cuts columns.
using HostWidths = tessera::Widths<4, 8, 16, 32, 64, 128>;

std::unique_ptr<Embeddings> make_embeddings(tessera::AnyCommunicator& communicator,
                                            const tessera::Layout& layout,
                                            const EmbeddingOptions& options) {
  const tessera::Host backend({.threads = options.threads}), routing({.threads = options.threads});
  return std::make_unique<EmbeddingsOf<tessera::Host, HostWidths>>(communicator, layout, options,
                                                                   backend, routing);
}

}  // namespace dlrm
