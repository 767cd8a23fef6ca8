// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// train_sequence's CUDA part as a C++ compiler builds it for the emulator (tests/simt), with the
// shapes and widths of the tests' models: each takes seconds to compile.
#include <train_sequence/blocks_of.hpp>
#include <train_sequence/optional_cuda.cu>

#include <tessera/sequence/hstu.cuh>
#include <tessera/tessera.cuh>
#include <train_sequence/items_of.hpp>

namespace {

struct Shapes {
  template <class F>
  static void for_each(const F& f) {
    f(std::integral_constant<int, 1>(), std::integral_constant<int, 16>());
    f(std::integral_constant<int, 2>(), std::integral_constant<int, 8>());
  }
};

}  // namespace

std::unique_ptr<sequence::Block> sequence::make_cuda_block(const tessera::Cuda& backend, int width,
                                                           int heads, std::int64_t max_length) {
  return make_block_of<Shapes>(backend, width, heads, max_length);
}

std::unique_ptr<sequence::Items> sequence::make_cuda_items(tessera::AnyCommunicator& ranks,
                                                           const tessera::Cuda& backend,
                                                           const ItemsOptions& options) {
  using Table = ItemTable<tessera::Cuda, tessera::AnyCommunicator, tessera::Widths<8, 16>>;
  return std::make_unique<Table>(ranks, backend, options);
}
