// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A pin names a table that the model does not have.
// expect: AutoPlan: a pin names a table that the plan does not hold (docs/errors.md)
// first error g++: TableNamed<tessera::v0::FixedString<7>{"querry"}>
// first error clang++: TableNamed<'q', 'u', 'e', 'r', 'r', 'y'>
#include <tessera/planner/auto_plan.hpp>

using namespace tessera;

using Query = Table<"query", 1'000'000, 128>;
#ifdef ALLOWED_TWIN
using Pinned = Pin<"query", Cut::row_wise>;
#else
using Pinned = Pin<"querry", Cut::row_wise>;
#endif
static_assert(AutoPlan<Query, Cluster{.ranks = 4}, Workload{}, Pinned>::table_count == 1);
