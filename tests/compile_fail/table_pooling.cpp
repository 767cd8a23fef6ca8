// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The fourth argument of Table is not a pooling.
// expect g++: expected a constant of type
// expect clang++: template argument for non-type template parameter must be an expression
#include <tessera/sharding/table.hpp>

using namespace tessera;

struct Least {};
#ifdef ALLOWED_TWIN
using User = Table<"user", 1000, 16, Mean>;
#else
using User = Table<"user", 1000, 16, Least>;
#endif
static_assert(User::name.view() == "user");
