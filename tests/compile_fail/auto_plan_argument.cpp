// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A policy with tables is given to a plan that chooses policies.
// expect: AutoPlan: after tables, cluster, workload come Pin, PinTo, Consider, Forbid, Reserve, BalanceMemory, training groups and one Features<...> (docs/concepts/plan.md)
#include <tessera/planner/auto_plan.hpp>

using namespace tessera;

using Query = Table<"query", 1'000'000, 128>;
#ifdef ALLOWED_TWIN
using Model = AutoPlan<Query, Cluster{.ranks = 4}, Workload{}, Pin<"query", Cut::row_wise>>;
#else
using Model = AutoPlan<Query, Cluster{.ranks = 4}, Workload{}, RowWise<Query>>;
#endif
static_assert(Model::table_count == 1);
