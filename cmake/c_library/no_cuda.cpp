// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// In the place of cuda_collections.cu, in a library without CUDA.
#include "collections.hpp"

#include <fmt/format.h>

std::shared_ptr<tessera_c::Collection> tessera_c::make_cuda_collection(
    const tessera_layout&, const tessera_communicator&, const tessera_collection_options& options,
    std::span<const std::int32_t>) {
  throw Unsupported(fmt::format(
      "tessera_collection_create: options.device is {}, but this library was built without CUDA; "
      "build it with TESSERA_C_CUDA=ON, or give -1 (host memory)",
      options.device));
}
