// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// No plan fits into a cluster: the table, its bytes, the bytes of a rank, and the cheapest change that would fit.
// expect: Plan: see PlanFault in this error for the kind of fault and the table or feature (docs/errors.md)
// expect g++: PlanFault::Kind::no_plan_fits, "query", 516000000, 60000000, tessera::v0::PlanFault::Remedy::more_ranks, 9}
#include <tessera/sharding/auto_plan.hpp>

using namespace tessera;

using Query = Table<"query", 1'000'000, 128>;
using Country = Table<"country", 1000, 16>;
#ifdef ALLOWED_TWIN
constexpr Cluster kCluster{.ranks = 9, .memory_per_rank = 60'000'000};
#else
constexpr Cluster kCluster{.ranks = 4, .memory_per_rank = 60'000'000};
#endif
using Model = AutoPlan<TableList<Query, Country>, kCluster, Workload{.batch = 4096}>;
static_assert(Model::table_count == 2);
