// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A collection is given two policies of one kind; which of them should hold?
// expect: EmbeddingCollection: two policies for codecs; give one of EncodeWith<F, B>, EncodeWithOneOf<C...>
#include <tessera/tessera.hpp>

namespace ts = tessera;

using Model = ts::Plan<ts::TableWise<ts::Table<"user", 1000, 16>>>;
template <class... Policies>
using Embeddings =
    ts::EmbeddingCollection<Model, ts::Sgd, ts::Host, ts::SelfCommunicator, Policies...>;
#ifdef ALLOWED_TWIN
static_assert(sizeof(Embeddings<ts::Storage<ts::Half>, ts::EncodeWith<ts::Bf16>>) > 0);
#else
static_assert(sizeof(Embeddings<ts::EncodeWith<ts::Bf16>, ts::Storage<ts::Half>,
                                ts::EncodeWithOneOf<ts::Fp32, ts::Int8>>) > 0);
#endif
