// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// ColumnWise<K> cuts a width that K does not divide.
// expect: Plan: see PlanFault in this error for the kind of fault and the table or feature (docs/errors.md)
// expect g++: PlanFault::Kind::gap, "user", 8000, 10000
#include <tessera/sharding/plan.hpp>

using namespace tessera;

#ifdef ALLOWED_TWIN
using User = Table<"user", 1000, 12>;
#else
using User = Table<"user", 1000, 10>;
#endif
static_assert(Plan<ColumnWise<4, User>>::table_count == 1);
