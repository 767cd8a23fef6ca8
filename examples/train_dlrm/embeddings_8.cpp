// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "embeddings_of.hpp"

template std::unique_ptr<dlrm::Embeddings> dlrm::make_embeddings_of_width<8>(tessera::ThreadCommunicator&, const EmbeddingOptions&);
