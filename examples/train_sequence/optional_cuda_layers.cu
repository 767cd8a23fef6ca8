// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "blocks_of.hpp"
#include "cuda_layers.cuh"
#include "items_of.hpp"
#include "vector_ops.cuh"

#include <tessera/sequence/hstu.cuh>
#include <tessera/tessera.cuh>

std::unique_ptr<sequence::Block> sequence::make_cuda_block(const tessera::Cuda& backend, int width,
                                                           int heads, std::int64_t max_length) {
  return make_block_of<AllShapes>(backend, width, heads, max_length);
}

std::unique_ptr<sequence::Items> sequence::make_cuda_items(tessera::AnyCommunicator& ranks,
                                                           const tessera::Cuda& backend,
                                                           const ItemsOptions& options) {
  using Table =
      ItemTable<tessera::Cuda, tessera::AnyCommunicator, tessera::Widths<8, 16, 32, 64, 128>>;
  return std::make_unique<Table>(ranks, backend, options);
}
