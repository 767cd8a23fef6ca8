// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// One table is placed twice.
// expect: Plan: see PlanFault in this error for the kind of fault and the table or feature (docs/errors.md)
// expect g++: PlanFault::Kind::duplicate_table, "user"
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
