// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "embeddings.hpp"

#include <tessera/core/error.hpp>

namespace dlrm {

std::unique_ptr<Embeddings> make_embeddings(std::string_view optimizer, tessera::AnyCommunicator& communicator,
                                            const tessera::Layout& layout, const EmbeddingOptions& options) {
  if (optimizer == "sgd") return make_sgd_embeddings(communicator, layout, options);
  if (optimizer == "adagrad") return make_adagrad_embeddings(communicator, layout, options);
  if (optimizer == "rowwise-adagrad") return make_rowwise_adagrad_embeddings(communicator, layout, options);
  if (optimizer == "adam") return make_adam_embeddings(communicator, layout, options);
  throw tessera::InvalidArgument(fmt::format("there is no optimizer '{}'", optimizer));
}

}  // namespace dlrm
