// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "embeddings.hpp"

#include "embeddings_of.hpp"

#include <tessera/tessera.hpp>

namespace dlrm {
namespace {

// Groups of one collection, for any width: a collection per precision would be compiled twice.
template <class Groups>
struct In16Bits;
template <class... Groups>
struct In16Bits<tessera::TrainingGroups<Groups...>> {
  using type = tessera::TrainingGroups<
      typename Groups::template with<tessera::Storage<tessera::BFloat16>>...,
      typename Groups::template with<tessera::Storage<tessera::Half>>...>;
};

}  // namespace

std::unique_ptr<Embeddings> make_16bit_embeddings(tessera::AnyCommunicator& communicator,
                                                  const tessera::Layout& layout,
                                                  const EmbeddingOptions& options) {
  const tessera::Host backend({.threads = options.threads}), routing({.threads = options.threads});
  using Optimizers = In16Bits<TableOptimizers>::type;
  return std::make_unique<EmbeddingsOf<tessera::Host, tessera::Widths<>, Optimizers>>(
      communicator, layout, options, backend, routing,
      options.precision == "bf16" ? 0 : static_cast<int>(kOptimizers.size()));
}

}  // namespace dlrm
