// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// One table is placed twice.
// expect: Plan: a table is placed twice; give each table exactly one policy (docs/errors.md)
// first error g++: TableNamed<tessera::v0::FixedString<5>{"user"}>
// first error clang++: TableNamed<'u', 's', 'e', 'r'>
// at most: 18 lines
#include <tessera/sharding/plan.hpp>

using namespace tessera;

using User = Table<"user", 1000, 16>;
using Query = Table<"query", 1000, 16>;
#ifdef ALLOWED_TWIN
using Model = Plan<TableWise<User>, RowWise<Query>>;
#else
using Model = Plan<TableWise<User>, RowWise<User>>;
#endif
static_assert(Model::table_count == 2);
