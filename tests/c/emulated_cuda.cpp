// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// libtessera_c's tables on GPUs as a C++ compiler builds them for the emulator (tests/simt), with
// kernels of one width for two optimizers.
#include <c_library/cuda_collection.cuh>

#include "gpu_memory.cuh"

std::shared_ptr<tessera_c::Collection> tessera_c::make_cuda_collection(
    const tessera_layout& layout, const tessera_communicator& ranks,
    const tessera_collection_options& options, std::span<const std::int32_t> devices) {
  using Widths = tessera::WidthsFor<tessera::Widths<16>, tessera::Sgd, tessera::Adam>;
  return make_cuda_collection_of<Widths>(layout, ranks, options, devices);
}
