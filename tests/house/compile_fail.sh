#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
#   compile_fail.sh [--twin] FILE COMPILER [OPTIONS...]
#
# FILE must not compile, and the compiler's output must hold every text that FILE names in a line `// expect: TEXT` (or, where
# compilers differ, `// expect g++: TEXT`, `// expect clang++: TEXT`, `// expect nvcc: TEXT`), and its first line with an error that of
# `// first error: TEXT` (`// first error g++: TEXT`). A line `// at most: 14 lines` (or `// at most g++: 14 lines`) limits the output.
# With -DALLOWED_TWIN it must compile without a warning: the twin differs in the fault alone, so that the test can't pass for another
# reason. The test compile_fail.twins compiles all twins at once; --twin: this one, too.
set -uo pipefail
twin=
[ "$1" != --twin ] || { twin=1; shift; }
file=$1
shift
name=$(basename "$1")
case $name in
  *clang*) name=clang++ ;;
  *nvcc*) name=nvcc ;;
  *) name=g++ ;;
esac

mapfile -t expected < <(sed -nE "s@^// expect( ${name//+/\\+})?: (.*)@\2@p" "$file")
[ ${#expected[@]} -gt 0 ] || { echo "$file: no line '// expect: TEXT'"; exit 1; }
broken=$(grep -nE '^//.*(expect|first error|at most)( g\+\+| clang\+\+| nvcc)?: ' "$file" | grep -vE '^[0-9]+:// (expect|first error|at most)')
[ -z "$broken" ] || { printf '%s: a line must begin with what it asks:\n%s\n' "$file" "$broken"; exit 1; }
grep -q ALLOWED_TWIN "$file" || { echo "$file: no allowed twin (#ifdef ALLOWED_TWIN)"; exit 1; }

failed=0
if output=$("$@" "$file" 2>&1); then
  echo "$file compiles, and must not" && failed=1
fi
for text in "${expected[@]}"; do
  if ! grep -qF -- "$text" <<<"$output"; then
    printf '%s: expected in the compiler'"'"'s output:\n  %s\nbut it says:\n%s\n' "$file" "$text" "$(head -n 40 <<<"$output")" && failed=1
  fi
done
if grep -qF invalid-pch <<<"$output"; then
  printf '%s: it does not use the precompiled umbrella:\n%s\n' "$file" "$(grep -m 3 pch <<<"$output")" && failed=1
fi
first=$(grep -m 1 'error' <<<"$output")
while read -r text; do
  if ! grep -qF -- "$text" <<<"$first"; then
    printf '%s: expected in the first error:\n  %s\nbut it is:\n%s\n' "$file" "$text" "$first" && failed=1
  fi
done < <(sed -nE "s@^// first error( ${name//+/\\+})?: (.*)@\2@p" "$file")
limit=$(sed -nE "s@^// at most( ${name//+/\\+})?: ([0-9]+) lines@\2@p" "$file")
lines=$(wc -l <<<"$output")
if [ -n "$limit" ] && [ "$lines" -gt "$limit" ]; then
  printf '%s: the compiler says %s lines, at most %s are allowed:\n%s\n' "$file" "$lines" "$limit" "$output" && failed=1
fi
if [ -n "$twin" ] && ! output=$("$@" -DALLOWED_TWIN "$file" 2>&1); then
  printf '%s: its allowed twin does not compile:\n%s\n' "$file" "$(head -n 40 <<<"$output")" && failed=1
fi
exit $failed
