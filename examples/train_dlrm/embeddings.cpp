// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "embeddings.hpp"

#include "embeddings_of.hpp"

#include <tessera/tessera.hpp>

namespace dlrm {
namespace {

// Narrow rows gain by kernels of their own (1.6 to 2 times at 8 to 32 columns); from 64 columns on
// those for any width are as fast. Common optimizers get them: each takes seconds to compile.
using HostWidths = tessera::WidthsFor<tessera::Widths<8, 16, 32>, tessera::Sgd, tessera::Adagrad,
                                      tessera::RowWiseAdagrad, tessera::Adam>;

}  // namespace

std::unique_ptr<Embeddings> make_embeddings(tessera::AnyCommunicator& communicator,
                                            const tessera::Layout& layout,
                                            const EmbeddingOptions& options) {
  const tessera::Host backend({.threads = options.threads}), routing({.threads = options.threads});
  return std::make_unique<EmbeddingsOf<tessera::Host, HostWidths>>(communicator, layout, options,
                                                                   backend, routing);
}

}  // namespace dlrm
