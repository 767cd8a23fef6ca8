// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The dot interaction of a plan whose features have different widths.
// expect: DotFor: the features of the plan have different widths; a dot product needs one (docs/concepts/interaction.md)
// at most: 14 lines
#include <tessera/interaction/dot.hpp>
#include <tessera/sharding/plan.hpp>

using namespace tessera;

using User = Table<"user", 1000, 16>;
#ifdef ALLOWED_TWIN
using Item = Table<"item", 1000, 16>;
#else
using Item = Table<"item", 1000, 32>;
#endif
static_assert(DotFor<Plan<TableWise<User, Item>>, 1>::input_columns() > 0);
