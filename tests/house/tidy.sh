#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# clang-tidy with the checks of .clang-tidy on the headers of include/ that differ from the previous commit, at most 12 of them. All of
# them at once take a few minutes: tidy.sh --all. CUDA's headers are read as the emulator's tests compile them, for the processor (tests/simt).
# Those whose library is missing are left out.
#   tidy.sh [--all | HEADER...]
cd "$(dirname "$0")/../.." || exit 1
tool=$(command -v clang-tidy-19 || command -v clang-tidy || command -v clang-tidy-14) || { echo "no clang-tidy (Debian: clang-tidy)"; exit 77; }
case ${1:-} in
  '')
    git rev-parse -q --verify HEAD~1 >/dev/null || { echo "no previous commit to compare with"; exit 77; }
    mapfile -t headers < <(git diff --name-only --diff-filter=d HEAD~1 -- 'include/*.hpp' 'include/*.cuh'; git ls-files -o --exclude-standard 'include/*.hpp' 'include/*.cuh')
    ;;
  --all) mapfile -t headers < <(find include -name '*.hpp' -o -name '*.cuh' | sort) ;;
  *) headers=("$@") ;;
esac
[ ${#headers[@]} -gt 0 ] || { echo "no header differs from the previous commit"; exit 0; }
if [ "${1:-}" = '' ] && [ ${#headers[@]} -gt 12 ]; then
  echo "of ${#headers[@]} headers the first 12 are checked; for all: bash tests/house/tidy.sh --all"
  headers=("${headers[@]:0:12}")
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(-std=c++20 -fopenmp "-I$PWD/include")
read -r -a mpi <<<"$(mpicxx --showme:compile 2>/dev/null)"
pattern=$(printf '|%s' "${headers[@]}")
checked=0
# One unit includes all of the host's, another all of CUDA's: most of the time goes to the standard library's headers. Each must be there by
# itself.
for kind in hpp cuh; do
  [ $kind = cuh ] && flags=("-I$PWD/tests/simt/toolkit" "-I$PWD/tests" "${flags[@]}")
  for header in "${headers[@]}"; do
    [[ $header == *.$kind ]] || continue
    printf '#include "%s"\n' "$(realpath "$header")" >"$work/one.cpp"
    if "${CXX:-g++}" -E "${flags[@]}" "${mpi[@]}" "$work/one.cpp" >/dev/null 2>"$work/missing"; then
      cat "$work/one.cpp" >>"$work/$kind.cpp"
      checked=$((checked + 1))
    else
      echo "$header is left out: $(grep -m 1 -o 'error: .*\|#error .*' "$work/missing")"
    fi
  done
  [ -e "$work/$kind.cpp" ] || continue
  "$tool" --quiet --config-file=.clang-tidy --header-filter="(${pattern:1})\$" "$work/$kind.cpp" -- "${flags[@]}" "${mpi[@]}" 2>"$work/log" || { cat "$work/log"; exit 1; }
done
[ $checked -gt 0 ] || exit 77
echo "$checked headers"
