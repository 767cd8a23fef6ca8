// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A feature reads a table that the plan does not have.
// expect: Plan: see PlanFault in this error for the kind of fault and the table or feature (docs/errors.md)
// expect g++: PlanFault::Kind::unknown_table, "clicked"
#include <tessera/sharding/plan.hpp>

using namespace tessera;

using User = Table<"user", 1000, 16>;
#ifdef ALLOWED_TWIN
using Clicked = Feature<"clicked", "user">;
#else
using Clicked = Feature<"clicked", "item">;
#endif
static_assert(Plan<TableWise<User>, Features<Clicked>>::table_count == 1);
