// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A collection is given two policies of one kind; which of them should hold?
// expect: EmbeddingCollection: two policies for bad ids; give one of Throw, ZeroVector, Clamp, Wrap
#include <tessera/tessera.hpp>

namespace ts = tessera;

using Model = ts::Plan<ts::TableWise<ts::Table<"user", 1000, 16>>>;
template <class... Policies>
using Embeddings =
    ts::EmbeddingCollection<Model, ts::Sgd, ts::Host, ts::SelfCommunicator, Policies...>;
#ifdef ALLOWED_TWIN
static_assert(sizeof(Embeddings<ts::Storage<ts::Half>, ts::Clamp, ts::Deduplicate>) > 0);
#else
static_assert(sizeof(Embeddings<ts::Throw, ts::Storage<ts::Half>, ts::Clamp>) > 0);
#endif
