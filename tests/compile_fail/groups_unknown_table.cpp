// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A training group names a table that the plan does not have.
// expect: Plan: a training group names a table that the plan does not hold (docs/errors.md)
// first error g++: TableNamed<tessera::v0::FixedString<4>{"usr"}>
// first error clang++: TableNamed<'u', 's', 'r'>
#include <tessera/tessera.hpp>

namespace ts = tessera;

using User = ts::Table<"user", 1000, 16>;
using Model = ts::Plan<ts::TableWise<User>>;
#ifdef ALLOWED_TWIN
using Wide = ts::Train<ts::Ftrl, User>;
#else
using Wide = ts::Train<ts::Ftrl, ts::Table<"usr", 1000, 16>>;
#endif
static_assert(sizeof(ts::EmbeddingCollection<Model, Wide, ts::Train<ts::Sgd>, ts::Host,
                                             ts::SelfCommunicator>) > 0);
