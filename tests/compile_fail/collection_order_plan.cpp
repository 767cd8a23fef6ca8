// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Plan and optimizer of a collection are exchanged.
// expect: EmbeddingCollection: the first argument must be a Plan<...> or AutoPlan<...>; the arguments are Plan, Optimizer, Backend, Communicator, in this order
// at most g++: 14 lines
#include <tessera/tessera.hpp>

namespace ts = tessera;

using Model = ts::Plan<ts::TableWise<ts::Table<"user", 1000, 16>>>;
#ifdef ALLOWED_TWIN
using Embeddings = ts::EmbeddingCollection<Model, ts::Sgd, ts::Host, ts::SelfCommunicator>;
#else
using Embeddings = ts::EmbeddingCollection<ts::Sgd, Model, ts::Host, ts::SelfCommunicator>;
#endif
static_assert(sizeof(Embeddings) > 0);
