// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "blocks.hpp"
#include "items.hpp"

#include <tessera/comm/any_communicator.hpp>
#include <tessera/cuda/backend.cuh>

#include <cstdint>
#include <memory>

// What is compiled by width: seconds each (optional_cuda_layers.cu).

namespace sequence {

/// `make_block` on a GPU.
std::unique_ptr<Block> make_cuda_block(const tessera::Cuda& backend, int width, int heads,
                                       std::int64_t max_length);
/// `make_items` on a GPU.
std::unique_ptr<Items> make_cuda_items(tessera::AnyCommunicator& ranks,
                                       const tessera::Cuda& backend, const ItemsOptions& options);

}  // namespace sequence
