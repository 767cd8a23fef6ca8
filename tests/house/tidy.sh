#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# clang-tidy with the checks of .clang-tidy on the headers of include/ that differ from the previous commit, at most 12 of them. All of
# them at once take a minute: tidy.sh --all. CUDA's headers, and those whose library is missing, are left out.
#   tidy.sh [--all | HEADER...]
cd "$(dirname "$0")/../.." || exit 1
tool=$(command -v clang-tidy-19 || command -v clang-tidy || command -v clang-tidy-14) || { echo "no clang-tidy (Debian: clang-tidy)"; exit 77; }
case ${1:-} in
  '')
    git rev-parse -q --verify HEAD~1 >/dev/null || { echo "no previous commit to compare with"; exit 77; }
    mapfile -t headers < <(git diff --name-only --diff-filter=d HEAD~1 -- 'include/*.hpp'; git ls-files -o --exclude-standard 'include/*.hpp')
    ;;
  --all) mapfile -t headers < <(find include -name '*.hpp' | sort) ;;
  *) headers=("$@") ;;
esac
[ ${#headers[@]} -gt 0 ] || { echo "no header differs from the previous commit"; exit 0; }
if [ "${1:-}" = '' ] && [ ${#headers[@]} -gt 12 ]; then
  echo "of ${#headers[@]} headers the first 12 are checked; for all: bash tests/house/tidy.sh --all"
  headers=("${headers[@]:0:12}")
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# One unit that includes them all: most of the time goes to the standard library's headers. Each must be there by itself.
flags=(-std=c++20 -fopenmp "-I$PWD/include")
read -r -a mpi <<<"$(mpicxx --showme:compile 2>/dev/null)"
for header in "${headers[@]}"; do
  printf '#include "%s"\n' "$(realpath "$header")" >"$work/one.cpp"
  if "${CXX:-g++}" -E "${flags[@]}" "${mpi[@]}" "$work/one.cpp" >/dev/null 2>"$work/missing"; then
    cat "$work/one.cpp" >>"$work/all.cpp"
  else
    echo "$header is left out: $(grep -m 1 -o 'fatal error: .*' "$work/missing")"
  fi
done
[ -e "$work/all.cpp" ] || exit 77
pattern=$(printf '|%s' "${headers[@]}")
"$tool" --quiet --config-file=.clang-tidy --header-filter="(${pattern:1})\$" "$work/all.cpp" -- "${flags[@]}" "${mpi[@]}" 2>"$work/log" || { cat "$work/log"; exit 1; }
echo "${#headers[@]} headers"
