// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A compiler that takes NaN for impossible would drop the checks for it.
// expect: Tessera looks for NaN and infinity: compile without -ffast-math and -ffinite-math-only
#ifndef ALLOWED_TWIN
#undef __FINITE_MATH_ONLY__
#define __FINITE_MATH_ONLY__ 1
#endif
#include <tessera/config.hpp>
