// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "cuda_embeddings.hpp"
#include "embeddings_of.hpp"

#include <tessera/tessera.cuh>

#include <memory>
#include <type_traits>

namespace dlrm { namespace {

/// Kernels for rows of 16 bits are compiled for the widths of common optimizers alone: those of
/// others, which any width has, are as right.
struct CudaWidths : tessera::Widths<16, 32, 64, 128> {
  template <class E, class O = void>
  using of = std::conditional_t<
      std::is_same_v<E, float> || std::is_void_v<O> || std::is_same_v<O, tessera::Sgd> ||
          std::is_same_v<O, tessera::Adagrad> || std::is_same_v<O, tessera::RowWiseAdagrad> ||
          std::is_same_v<O, tessera::Adam>,
      tessera::Widths<16, 32, 64, 128>, tessera::Widths<>>;
};

}  // namespace
}  // namespace dlrm

std::unique_ptr<dlrm::Embeddings> dlrm::make_cuda_embeddings(tessera::AnyCommunicator& communicator,
                                                             const tessera::Layout& layout,
                                                             const EmbeddingOptions& options,
                                                             const tessera::Cuda& backend,
                                                             const tessera::Cuda& routing) {
  return std::make_unique<EmbeddingsOf<tessera::Cuda, CudaWidths>>(communicator, layout, options,
                                                                   backend, routing);
}
