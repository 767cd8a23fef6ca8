// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A table is in two training groups.
// expect: EmbeddingCollection: a table is in two training groups; name it in one (docs/errors.md)
// first error g++: TableNamed<tessera::v0::FixedString<5>{"item"}>
// first error clang++: TableNamed<'i', 't', 'e', 'm'>
#include <tessera/tessera.hpp>

namespace ts = tessera;

using User = ts::Table<"user", 1000, 16>;
using Item = ts::Table<"item", 1000, 16>;
using Model = ts::Plan<ts::TableWise<User, Item>>;
#ifdef ALLOWED_TWIN
using Second = ts::Train<ts::Sgd>;
#else
using Second = ts::Train<ts::Sgd, Item>;
#endif
using Embeddings = ts::EmbeddingCollection<Model, ts::Train<ts::Ftrl, User, Item>, Second, ts::Host,
                                           ts::SelfCommunicator>;
static_assert(sizeof(Embeddings) > 0);
