#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# What each header costs who includes it: processor time of g++ -fsyntax-only (the best of three runs), beside <fmt/format.h> as the yardstick.
# The budget is half a second for the umbrella of the host.
#   bash bench/compile_time.sh [COMPILER] [HEADER...]      default: g++ and every .hpp
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
compiler=${1:-g++}
shift || true
headers=("$@")
[ ${#headers[@]} -gt 0 ] || mapfile -t headers < <(cd include && find tessera -name '*.hpp' | sort)

# The least of three processor times (the machine may be busy), in milliseconds; "-" where a library is missing.
cost() {
  local best='-' elapsed TIMEFORMAT='%U %S'
  for _ in 1 2 3; do
    printf '#include <%s>\n' "$1" >"$work/source.cpp"
    { time "$compiler" -std=c++20 -fsyntax-only -fopenmp -I include "$work/source.cpp" 2>/dev/null || echo failed >&2; } 2>"$work/time"
    grep -q failed "$work/time" && echo '-' && return
    elapsed=$(awk '{ printf "%d", 1000 * ($1 + $2) }' "$work/time")
    [ "$best" != - ] && [ "$best" -le "$elapsed" ] || best=$elapsed
  done
  echo "$best"
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
yardstick=$(cost fmt/format.h)
printf '%-44s %8s %8s\n' "header ($("$compiler" --version | head -n 1))" ms "x fmt"
for header in fmt/format.h "${headers[@]}"; do
  ms=$(cost "$header")
  if [ "$ms" = - ]; then
    printf '%-44s %8s\n' "$header" "-"
  else
    printf '%-44s %8d %8s\n' "$header" "$ms" "$(awk "BEGIN { printf \"%.2f\", $ms / $yardstick }")"
  fi
done
