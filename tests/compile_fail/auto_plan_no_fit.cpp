// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// No plan fits into a cluster: the table, its bytes, the bytes of a rank, and the cheapest change that would fit.
// expect: AutoPlan: no plan fits into the memory of the ranks; this is the largest table, and what would help (docs/errors.md)
// first error g++: TableNamed<tessera::v0::FixedString<6>{"query"}>, tessera::v0::detail::BytesNeeded<516000000>
// first error g++: tessera::v0::detail::BytesOfRank<60000000>, tessera::v0::detail::RemedyIs<tessera::v0::PlanFault::Remedy::more_ranks, 9>
// first error clang++: TableNamed<'q', 'u', 'e', 'r', 'y'>, tessera::detail::BytesNeeded<516000000>
#include <tessera/planner/auto_plan.hpp>

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
