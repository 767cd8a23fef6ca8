// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// An interaction of no vectors.
// expect: DotInteraction: Vectors, Width and PadTo must be at least 1
#include <tessera/interaction/dot.hpp>

#ifdef ALLOWED_TWIN
using Dot = tessera::DotInteraction<27, 16>;
#else
using Dot = tessera::DotInteraction<0, 16>;
#endif
static_assert(Dot::input_columns() >= 0);
