// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The library's own builds check texts while they are compiled: a string is not a number.
// expect g++: call to non-‘constexpr’ function
// expect clang++: call to consteval function
#define TESSERA_CHECK_FORMATS
#include <tessera/core/error.hpp>

void check(bool holds, const std::string& table) {
#ifdef ALLOWED_TWIN
  tessera::require(holds, "table {:>8}", table);
#else
  tessera::require(holds, "table {:d}", table);
#endif
}
