// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A table is in no training group.
// expect: EmbeddingCollection: a table is in no training group; name it in a Train<O, ...> or Frozen<...>
// first error g++: TableNamed<tessera::v0::FixedString<5>{"item"}>
// first error clang++: TableNamed<'i', 't', 'e', 'm'>
#include <tessera/tessera.hpp>

namespace ts = tessera;

using User = ts::Table<"user", 1000, 16>;
using Item = ts::Table<"item", 1000, 16>;
using Model = ts::Plan<ts::TableWise<User, Item>>;
#ifdef ALLOWED_TWIN
using Embeddings = ts::EmbeddingCollection<Model, ts::Train<ts::Ftrl, User>, ts::Frozen<Item>,
                                           ts::Host, ts::SelfCommunicator>;
#else
using Embeddings =
    ts::EmbeddingCollection<Model, ts::Train<ts::Ftrl, User>, ts::Host, ts::SelfCommunicator>;
#endif
static_assert(sizeof(Embeddings) > 0);
