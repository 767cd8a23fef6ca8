// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda_collection.cuh"

std::shared_ptr<tessera_c::Collection> tessera_c::make_cuda_collection(
    const tessera_layout& layout, const tessera_communicator& ranks,
    const tessera_collection_options& options, std::span<const std::int32_t> devices) {
  using Widths = tessera::WidthsFor<tessera::Widths<16, 32, 64, 128>, tessera::Sgd,
                                    tessera::Adagrad, tessera::RowWiseAdagrad, tessera::Adam>;
  return make_cuda_collection_of<Widths>(layout, ranks, options, devices);
}
