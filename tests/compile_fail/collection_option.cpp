// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// An option is misspelt. Compilers do not name it in a braced list alone; the line that they print says what to write, and then they do.
// expect: a misspelt option? Embeddings::Options{...} names it
// expect: learning_rat
// at most: 24 lines
#include <tessera/tessera.hpp>

namespace ts = tessera;

using Model = ts::Plan<ts::TableWise<ts::Table<"user", 1000, 16>>>;
using Embeddings = ts::EmbeddingCollection<Model, ts::Sgd, ts::Host, ts::SelfCommunicator>;

void construct(ts::SelfCommunicator& comm) {
#ifdef ALLOWED_TWIN
  Embeddings embeddings(comm, ts::Host(), {.learning_rate = 0.1f});
#else
  Embeddings embeddings(comm, ts::Host(), {.learning_rat = 0.1f});
  Embeddings named(comm, ts::Host(), Embeddings::Options{.learning_rat = 0.1f});
#endif
}
