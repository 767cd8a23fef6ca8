// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A table is in a plan without a policy.
// expect: Plan: each argument is a sharding policy with tables, as in RowWise<Query>, or one Features<...> (docs/concepts/plan.md)
#include <tessera/sharding/plan.hpp>

using namespace tessera;

using User = Table<"user", 1000, 16>;
#ifdef ALLOWED_TWIN
using Model = Plan<TableWise<User>>;
#else
using Model = Plan<User>;
#endif
static_assert(Model::table_count == 1);
