#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# compile_fail.sh must refuse files that compile, that fail with another message, whose twin fails, or that lack either part.
#   compile_fail_catch.sh COMPILER
set -uo pipefail
harness=$(cd "$(dirname "$0")" && pwd)/compile_fail.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
try() { # NAME EXPECTED_EXIT SOURCE
  printf '%b' "$3" >"$work/$1.cpp"
  bash "$harness" --twin "$work/$1.cpp" "$compiler" -std=c++20 -fsyntax-only >/dev/null 2>&1
  [ $? = "$2" ] || { echo "$1: exit code is not $2"; failed=1; }
}
compiler=$1
fault='#ifndef ALLOWED_TWIN\nstatic_assert(false, "seven");\n#endif\n'
try short_enough 0 "// expect: seven\n// at most: 9 lines\n$fault"
try too_long 1 "// expect: seven\n// at most: 1 lines\n$fault"
try good 0 "// expect: seven\n$fault"
try other_message 1 "// expect: eight\n$fault"
try one_of_two_messages 1 "// expect: seven\n// expect: eight\n$fault"
try for_another_compiler 1 "// expect nvcc: seven\n$fault"
try no_message 1 "$fault"
two='#ifndef ALLOWED_TWIN\nstatic_assert(false, "six");\nstatic_assert(false, "seven");\n#endif\n'
try first_error 0 "// expect: seven\n// first error: six\n$two"
try second_error 1 "// expect: seven\n// first error: seven\n$two"
try broken_line 1 "// expect: seven\n// words expect: eight\n$fault"
try compiles 1 '// expect: seven\n#ifdef ALLOWED_TWIN\n#endif\n'
try no_twin 1 '// expect: seven\nstatic_assert(false, "seven");\n'
try twin_fails 1 '// expect: seven\nstatic_assert(false, "seven");\n#ifdef ALLOWED_TWIN\n#endif\n'
exit $failed
