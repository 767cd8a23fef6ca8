// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A training group of an AutoPlan names a table that the model does not have.
// expect: Plan: a training group names a table that the plan does not hold (docs/errors.md)
// first error g++: TableNamed<tessera::v0::FixedString<7>{"querry"}>
// first error clang++: TableNamed<'q', 'u', 'e', 'r', 'r', 'y'>
#include <tessera/planner/auto_plan.hpp>
#include <tessera/tessera.hpp>

using namespace tessera;

using Query = Table<"query", 1'000'000, 128>;
#ifdef ALLOWED_TWIN
using Group = Train<Sgd, Query>;
#else
using Group = Train<Sgd, Table<"querry", 1'000'000, 128>>;
#endif
static_assert(AutoPlan<Query, Cluster{.ranks = 4}, Workload{}, Group>::table_count == 1);
