// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "items.hpp"

#include "items_of.hpp"

#include <tessera/tessera.hpp>

#include <memory>

std::unique_ptr<sequence::Items> sequence::make_items(tessera::ThreadCommunicator& ranks,
                                                      const tessera::Host& backend,
                                                      const ItemsOptions& options) {
  using Table =
      ItemTable<tessera::Host, tessera::ThreadCommunicator, tessera::Widths<8, 16, 32, 64, 128>>;
  return std::make_unique<Table>(ranks, backend, options);
}
