// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "embeddings.hpp"

#include "embeddings_of.hpp"

#include <tessera/tessera.hpp>

#include <algorithm>
#include <iterator>

namespace dlrm {
namespace {

// Narrow rows gain by kernels of their own (1.6 to 2 times at 8 to 32 columns); from 64 columns on
// those for any width are as fast. Common optimizers get them: each takes seconds to compile.
using HostWidths = tessera::WidthsFor<tessera::Widths<8, 16, 32>, tessera::Sgd, tessera::Adagrad,
                                      tessera::RowWiseAdagrad, tessera::Adam>;

// Groups of one collection, by kTablePrecisions: more collections would be compiled as often.
template <class Groups>
struct InEachPrecision;
template <class... Groups>
struct InEachPrecision<tessera::TrainingGroups<Groups...>> {
  using type = tessera::TrainingGroups<
      Groups..., typename Groups::template with<tessera::Storage<tessera::BFloat16>>...,
      typename Groups::template with<tessera::Storage<tessera::Half>>...>;
};

}  // namespace

std::unique_ptr<Embeddings> make_embeddings(tessera::AnyCommunicator& communicator,
                                            const tessera::Layout& layout,
                                            const EmbeddingOptions& options) {
  const tessera::Host backend({.threads = options.threads}), routing({.threads = options.threads});
  const auto precision =
      std::find(kTablePrecisions.begin(), kTablePrecisions.end(), options.precision);
  return std::make_unique<
      EmbeddingsOf<tessera::Host, HostWidths, InEachPrecision<TableOptimizers>::type>>(
      communicator, layout, options, backend, routing,
      static_cast<int>((precision - kTablePrecisions.begin()) * std::ssize(kOptimizers)));
}

}  // namespace dlrm
