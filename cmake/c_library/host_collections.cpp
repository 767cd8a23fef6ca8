// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "collection_of.hpp"

#include <tessera/host/kernels.hpp>

// Narrow rows gain by kernels of their own; common optimizers get them.
std::shared_ptr<tessera_c::Collection> tessera_c::make_host_collection(
    const tessera_layout& layout, const tessera_communicator& ranks,
    const tessera_collection_options& options) {
  using Widths = tessera::WidthsFor<tessera::Widths<8, 16, 32, 64>, tessera::Sgd, tessera::Adagrad,
                                    tessera::RowWiseAdagrad, tessera::Adam>;
  return std::make_shared<CollectionOf<tessera::Host, Widths>>(
      layout, ranks, *ranks.any, tessera::Host({.threads = options.threads}), options);
}
