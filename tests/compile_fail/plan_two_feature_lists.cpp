// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A plan has two lists of features.
// expect: Plan: give one Features<...> that lists all features
#include <tessera/sharding/plan.hpp>

using namespace tessera;

using User = Table<"user", 1000, 16>;
using A = Feature<"a", "user">;
using B = Feature<"b", "user">;
#ifdef ALLOWED_TWIN
using Model = Plan<TableWise<User>, Features<A, B>>;
#else
using Model = Plan<TableWise<User>, Features<A>, Features<B>>;
#endif
static_assert(Model::table_count == 1);
