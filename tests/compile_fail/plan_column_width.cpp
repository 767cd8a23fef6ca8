// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// `ColumnWise<K>` cuts a width that K does not divide: table, K, width and policy are named.
// expect: Plan: the policy's parts do not divide the width of its table (docs/errors.md)
// first error g++: TableNamed<tessera::v0::FixedString<5>{"user"}>, tessera::v0::detail::Parts<4>, tessera::v0::detail::Width<10>,
// first error g++: tessera::v0::ColumnWise<4, tessera::v0::Table<tessera::v0::FixedString<5>{"user"}, 1000, 10, tessera::v0::Pooling::sum> > >
// first error clang++: TableNamed<'u', 's', 'e', 'r'>, tessera::detail::Parts<4>, tessera::detail::Width<10>, tessera::ColumnWise<4,
// at most: 18 lines
#include <tessera/sharding/plan.hpp>

using namespace tessera;

#ifdef ALLOWED_TWIN
using User = Table<"user", 1000, 12>;
#else
using User = Table<"user", 1000, 10>;
#endif
static_assert(Plan<ColumnWise<4, User>>::table_count == 1);
