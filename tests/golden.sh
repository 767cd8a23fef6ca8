#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs every golden case (*.safetensors) of a directory under every sharding policy and rank count, and compares with the numbers stored
# there. A case is a model configuration, so programs are generated and compiled for them. A case that says what is not known here fails.
# Closes with "N passed, N failed".
#
# usage: bash tests/golden.sh DIRECTORY [RANKS...]      default ranks: 1 2 3 4 8
# GOLDEN_OPTIMIZATION in the environment is the compiler's option, -O1 by default.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
if [ $# -lt 1 ] || [ ! -d "$1" ]; then
  echo "usage: bash tests/golden.sh DIRECTORY [RANKS...]   (DIRECTORY holds *.safetensors cases)" >&2
  exit 2
fi
cases=$(cd "$1" && pwd)
shift
for ranks in "$@"; do
  case $ranks in
    '' | *[!0-9]* | 0) echo "golden.sh: '$ranks' is not a number of ranks" >&2; exit 2 ;;
  esac
done
build=$root/build/golden/$(printf %s "$cases" | cksum | cut -d' ' -f1)
log=$build/build.log
mkdir -p "$build"
python3 "$root/tests/golden/generate.py" "$cases" "$build/sources"
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
if ! { cmake -S "$root/tests/golden" -B "$build/cmake" -G Ninja "-DGOLDEN_SOURCES=$build/sources" \
         "-DGOLDEN_OPTIMIZATION=${GOLDEN_OPTIMIZATION:--O1}" "${launcher[@]}" &&
       cmake --build "$build/cmake" --parallel "$(nproc)"; } >"$log" 2>&1; then
  grep -E 'error|Error' "$log" | cut -c 1-300 | head -n 20 >&2 || true
  echo "golden.sh: the cases did not compile; the whole log is $log" >&2
  echo "0 passed, 1 failed"
  exit 1
fi
passed=0 failed=0
for file in "$cases"/*.safetensors; do
  name=$(basename "$file" .safetensors)
  if why=$(grep -F "$name " "$build/sources/refused.txt"); then
    echo "$name: refused: ${why#"$name" }"
    failed=$((failed + 1))
    continue
  fi
  program=$build/cmake/bin/$(awk -v name="$name" '{ unit = $1; sub(/^[^ ]* /, ""); if ($0 == name) print unit }' "$build/sources/cases.txt")
  if [ ! -x "$program" ]; then
    echo "$name: skipped, it needs oneDNN"
    continue
  fi
  status=0
  output=$("$program" "$file" "$@" 2>&1) || status=$?
  last=$(printf '%s\n' "$output" | tail -n 1)
  if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2]))
    if [ "$status" != 0 ] && [ "${BASH_REMATCH[2]}" = 0 ]; then failed=$((failed + 1)); fi
  else
    failed=$((failed + 1))
  fi
  printf '%s\n' "$output" | grep -v ' passed, ' | sed "s/^/$name: /" || true
  echo "$name: $last"
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
