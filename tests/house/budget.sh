#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# What a first program is made of, in numbers that do not depend on the machine: lines that the compiler reads of the umbrella, and bytes of
# object code of its tables. More than a budget fails; what has become much smaller gets a smaller budget here.
#   budget.sh COMPILED COMPILER FLAGS...   COMPILED: the folder of tessera_compiled.hpp; g++ 12's numbers, exit code 77 with another compiler
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
compiled=$1
shift
[ "$("$1" -dumpversion | cut -d. -f1)" = 12 ] || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

failed=0
within() { # WHAT NUMBER BUDGET
  printf '%-60s %8d of %8d\n' "$1" "$2" "$3"
  [ "$2" -le "$3" ] || { failed=1; echo "$1: over its budget"; }
}
echo '#include <tessera/tessera.hpp>' >"$work/umbrella.cpp"
within 'lines of <tessera/tessera.hpp> and all that it includes' "$("$@" -E "$work/umbrella.cpp" | grep -vcE '^(#|[[:space:]]*$)')" 86200
"$@" -O2 -march=x86-64-v3 -c "$here/budget_tables.cpp" -o "$work/tables.o"
within 'bytes of code of three tables, -O2 -march=x86-64-v3' "$(size "$work/tables.o" | awk 'NR == 2 { print $1 }')" 330000
"$@" -O2 -march=x86-64-v3 -DTESSERA_BODIES_COMPILED -DTESSERA_COMPILED -I "$compiled" -c "$here/../../examples/readme_example.cpp" -o "$work/readme.o"
within "bytes of code of the README's program, tessera::compiled" "$(size "$work/readme.o" | awk 'NR == 2 { print $1 }')" 45000
exit $failed
