// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "embeddings.hpp"

#include "embeddings_of.hpp"

#include <tessera/tessera.hpp>

namespace dlrm {
namespace {

/// By the kernels for any width alone: those for some widths would take as long to compile again.
template <tessera::Element T>
using EmbeddingsOn = EmbeddingsOf<tessera::Host, tessera::Widths<>, T>;

}  // namespace

std::unique_ptr<Embeddings> make_16bit_embeddings(tessera::AnyCommunicator& communicator,
                                                  const tessera::Layout& layout,
                                                  const EmbeddingOptions& options) {
  const tessera::Host backend({.threads = options.threads}), routing({.threads = options.threads});
  if (options.table_precision == "bf16")
    return std::make_unique<EmbeddingsOn<tessera::BFloat16>>(communicator, layout, options, backend,
                                                             routing);
  return std::make_unique<EmbeddingsOn<tessera::Half>>(communicator, layout, options, backend,
                                                       routing);
}

}  // namespace dlrm
