// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The fourth argument of Table is not a pooling.
// expect: Table: the fourth argument is a pooling: Sum, Mean, Sqrtn, Max or Sequence
#include <tessera/sharding/table.hpp>

using namespace tessera;

struct Least {};
#ifdef ALLOWED_TWIN
using User = Table<"user", 1000, 16, Mean>;
#else
using User = Table<"user", 1000, 16, Least>;
#endif
static_assert(User::name.view() == "user");
