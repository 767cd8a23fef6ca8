// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A collection is given two element types for its outputs.
// expect: EmbeddingCollection: two policies OutputType<T>; give one
#include <tessera/tessera.hpp>

namespace ts = tessera;

using Model = ts::Plan<ts::TableWise<ts::Table<"user", 1000, 16>>>;
template <class... Policies>
using Embeddings =
    ts::EmbeddingCollection<Model, ts::Sgd, ts::Host, ts::SelfCommunicator, Policies...>;
#ifdef ALLOWED_TWIN
static_assert(sizeof(Embeddings<ts::Storage<ts::Half>, ts::OutputType<ts::BFloat16>>) > 0);
#else
static_assert(sizeof(Embeddings<ts::OutputType<ts::Half>, ts::Storage<ts::Half>,
                                ts::OutputType<ts::BFloat16>>) > 0);
#endif
