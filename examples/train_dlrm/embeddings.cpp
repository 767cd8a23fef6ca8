// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "embeddings.hpp"

#include <tessera/core/error.hpp>

#include <utility>

namespace dlrm {

std::unique_ptr<Embeddings> make_embeddings(tessera::ThreadCommunicator& communicator, const EmbeddingOptions& options) {
  tessera::require(options.rows.size() == kFeatures, "{} tables' rows are given, must be {}", options.rows.size(), kFeatures);
  switch (options.width) {
    case 8:
      return make_embeddings_of_width<8>(communicator, options);
    case 16:
      return make_embeddings_of_width<16>(communicator, options);
    case 32:
      return make_embeddings_of_width<32>(communicator, options);
    case 64:
      return make_embeddings_of_width<64>(communicator, options);
    case 128:
      return make_embeddings_of_width<128>(communicator, options);
    default:
      throw tessera::InvalidArgument(fmt::format("embeddings of width {} are not compiled in; choose 8, 16, 32, 64 or 128", options.width));
  }
}

}  // namespace dlrm
