// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Backend and communicator of a collection are exchanged, behind training groups.
// expect: EmbeddingCollection: behind the optimizer comes the backend; the arguments are Plan, Optimizer, Backend, Communicator, in this order
// at most g++: 14 lines
#include <tessera/tessera.hpp>

namespace ts = tessera;

using Model = ts::Plan<ts::TableWise<ts::Table<"user", 1000, 16>>>;
#ifdef ALLOWED_TWIN
using Embeddings = ts::EmbeddingCollection<Model, ts::Sgd, ts::Host, ts::SelfCommunicator>;
#else
using Embeddings =
    ts::EmbeddingCollection<Model, ts::Train<ts::Sgd>, ts::SelfCommunicator, ts::Host>;
#endif
static_assert(sizeof(Embeddings) > 0);
