// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A table has no rows.
// expect: Table: rows must be positive, or dynamic_rows
#include <tessera/sharding/table.hpp>

using namespace tessera;

#ifdef ALLOWED_TWIN
using User = Table<"user", dynamic_rows, 16>;
#else
using User = Table<"user", 0, 16>;
#endif
static_assert(User::specs.size() == 1);
