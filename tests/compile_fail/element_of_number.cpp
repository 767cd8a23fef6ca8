// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A number in place of 16 bits: it would be cut to an integer and taken for the bits.
// expect g++: no matching function for call
// expect clang++: no matching conversion
// expect nvcc: no instance of constructor
#include <tessera/core/element.hpp>

using namespace tessera;

#ifdef ALLOWED_TWIN
constexpr BFloat16 one = from_float<BFloat16>(1.0f);
#else
constexpr BFloat16 one = BFloat16(1.0f);
#endif
static_assert(to_float(one) == 1.0f);
