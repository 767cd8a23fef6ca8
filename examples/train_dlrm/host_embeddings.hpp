// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "embeddings_of.hpp"

#include <tessera/tessera.hpp>

#include <memory>

namespace dlrm {

// Widths of whole tables, and of their halves under a plan that cuts columns.
using HostWidths = tessera::Widths<4, 8, 16, 32, 64, 128>;

template <class Optimizer>
std::unique_ptr<Embeddings> make_host_embeddings(tessera::AnyCommunicator& communicator, const tessera::Layout& layout,
                                                 const EmbeddingOptions& options) {
  const tessera::Host::Options threads{.threads = options.threads};
  return std::make_unique<EmbeddingsOf<Optimizer, tessera::Host, HostWidths>>(communicator, layout, options, tessera::Host(threads),
                                                                              tessera::Host(threads));
}

}  // namespace dlrm
