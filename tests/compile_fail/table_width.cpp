// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A table has no columns.
// expect: Table: width must be positive
#include <tessera/sharding/table.hpp>

using namespace tessera;

#ifdef ALLOWED_TWIN
using User = Table<"user", 1000, 1>;
#else
using User = Table<"user", 1000, 0>;
#endif
static_assert(User::specs.size() == 1);
