// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A collection's optimizer is something else.
// expect: Optimizer: this type has no member of an optimizer (docs/concepts/optimizer.md)
// at most g++: 14 lines
#include <tessera/tessera.hpp>

namespace ts = tessera;

struct Other {};

using Model = ts::Plan<ts::TableWise<ts::Table<"user", 1000, 16>>>;
#ifdef ALLOWED_TWIN
using Embeddings = ts::EmbeddingCollection<Model, ts::Sgd, ts::Host, ts::SelfCommunicator>;
#else
using Embeddings = ts::EmbeddingCollection<Model, Other, ts::Host, ts::SelfCommunicator>;
#endif

float first(ts::SelfCommunicator& comm, const ts::KeyedJagged<int>& ids) {
  Embeddings embeddings(comm, ts::Host(), {.learning_rate = 0.1f});
  return embeddings.forward(ids).values(0, 0);
}
