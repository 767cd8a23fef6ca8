// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A policy of a collection comes before the communicator.
// expect: EmbeddingCollection: behind the backend comes the communicator, with int rank() const and int size() const;
// at most g++: 14 lines
#include <tessera/tessera.hpp>

namespace ts = tessera;

using Model = ts::Plan<ts::TableWise<ts::Table<"user", 1000, 16>>>;
#ifdef ALLOWED_TWIN
using Embeddings = ts::EmbeddingCollection<Model, ts::Sgd, ts::Host, ts::SelfCommunicator>;
#else
using Embeddings =
    ts::EmbeddingCollection<Model, ts::Sgd, ts::Host, ts::Storage<ts::Half>, ts::SelfCommunicator>;
#endif
static_assert(sizeof(Embeddings) > 0);
