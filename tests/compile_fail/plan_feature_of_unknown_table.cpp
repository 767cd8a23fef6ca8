// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A feature reads a table that the plan does not have: the missing table is named, then the feature, which bears the name of a table.
// expect: Plan: a feature reads a table that the plan does not hold (docs/errors.md)
// first error g++: TableNamed<tessera::v0::FixedString<7>{"querry"}>, tessera::v0::detail::FeatureNamed<tessera::v0::FixedString<6>{"query"}>
// first error clang++: TableNamed<'q', 'u', 'e', 'r', 'r', 'y'>, tessera::detail::FeatureNamed<'q', 'u', 'e', 'r', 'y'>
// first error nvcc: TableNamed<'q', 'u', 'e', 'r', 'r', 'y'>, tessera::v0::detail::FeatureNamed<'q', 'u', 'e', 'r', 'y'>
// at most: 18 lines
#include <tessera/sharding/plan.hpp>

using namespace tessera;

using Query = Table<"query", 1000, 16>;
#ifdef ALLOWED_TWIN
using Reader = Feature<"query", "query">;
#else
using Reader = Feature<"query", "querry">;
#endif
static_assert(Plan<TableWise<Query>, Features<Reader>>::table_count == 1);
