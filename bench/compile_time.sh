#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# What each header costs who includes it, in processor time: of g++ -fsyntax-only (the best of three runs), beside <fmt/format.h> as the
# yardstick, or of nvcc for sm_90 (one run), beside CUB's radix sort. The budgets are half a second for the umbrella of the host, two for
# what nvcc takes for a .cuh without CUB.
#   bash bench/compile_time.sh [COMPILER] [HEADER...]      default: g++; every .hpp, or of nvcc every .cuh
#   bash bench/compile_time.sh --instantiations            what collections cost, by g++ -O2 and, where it is installed, by nvcc
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# instantiation NAME FILE COMPILER...: processor time and size of the object.
instantiation() {
  local name=$1 file=$2 TIMEFORMAT='%U %S'
  shift 2
  if ! { time "$@" -c "$file" -o "$work/object.o" 2>"$work/errors"; } 2>"$work/time"; then
    head -n 20 "$work/errors" >&2
    exit 1
  fi
  printf '%-72s %8.1f %8d\n' "$name" "$(awk '{ print $1 + $2 }' "$work/time")" $(($(stat -c %s "$work/object.o") / 1024))
}

# collection BACKEND INCLUDE WIDTH...: a source that makes, looks up and updates tables of these widths.
collection() {
  local backend=$1 include=$2 plan= n=0
  shift 2
  printf '#include <%s>\nusing namespace tessera;\n' "$include"
  for width in "$@"; do plan+="${plan:+, }TableWise<Table<\"t$((n++))\", 1000, $width>>"; done
  printf 'using Ranks = BasicSelfCommunicator<%s>;\n' "$([ "$backend" = Cuda ] && echo CudaMemory || echo HostMemory)"
  printf 'void step(Ranks& ranks, %s& backend, KeyedJagged<int> batch, MatrixView<const float> gradient) {\n' "$backend"
  printf '  EmbeddingCollection<Plan<%s>, RowWiseAdagrad, %s, Ranks> tables(ranks, backend, {});\n' "$plan" "$backend"
  printf '  tables.backward(tables.forward(batch), gradient);\n}\n'
}

# instantiations LABEL BACKEND EXTENSION INCLUDE COMPILER...: the rows of one compiler.
instantiations() {
  local label=$1 backend=$2 source=$work/source.$3 include=$4 widths
  shift 4
  printf '#include <%s>\n' "$include" >"$source"
  instantiation "$label: <$include> alone" "$source" "$@"
  for widths in 64 '16 32 64 128'; do
    # shellcheck disable=SC2086  # a list
    collection "$backend" "$include" $widths >"$source"
    instantiation "$label: a collection with row-wise Adagrad, widths $widths" "$source" "$@"
  done
}

if [ "${1:-}" = --instantiations ]; then
  printf '%-72s %8s %8s\n' 'what is compiled' seconds KiB
  instantiations 'g++ -O2' Host cpp tessera/tessera.hpp g++ -std=c++20 -O2 -fopenmp -march=native -I include
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  [ -x "$nvcc" ] || exit 0
  nvcc+=('-std=c++20' -O2 -Xcompiler -fopenmp -I include -DFMT_HEADER_ONLY -gencode=arch=compute_90,code=sm_90)
  instantiations 'nvcc, sm_90' Cuda cu tessera/tessera.cuh "${nvcc[@]}"
  instantiations 'nvcc, sm_80 and sm_90' Cuda cu tessera/tessera.cuh "${nvcc[@]}" -gencode=arch=compute_80,code=sm_80
  exit
fi
compiler=${1:-g++}
shift || true
command -v "$compiler" >/dev/null || { echo "compile_time.sh: there is no '$compiler'; name a compiler, with its folder where it is not in PATH" >&2; exit 2; }
headers=("$@")
if [[ $compiler == *nvcc ]]; then
  kind=cuh source=$work/source.cu runs=1 yardsticks=(cub/device/device_radix_sort.cuh string)
  flags=(-std=c++20 -arch=sm_90 -Xcompiler=-fopenmp -I include -c -o "$work/object.o")
else
  kind=hpp source=$work/source.cpp runs=3 yardsticks=(fmt/format.h)
  flags=(-std=c++20 -fsyntax-only -fopenmp -I include)
fi
[ ${#headers[@]} -gt 0 ] || mapfile -t headers < <(cd include && find tessera -name "*.$kind" | sort)

# The least processor time of the runs (the machine may be busy), in milliseconds; "-" where a library is missing.
cost() {
  local best='-' elapsed TIMEFORMAT='%U %S'
  printf '#include <%s>\n' "$1" >"$source"
  for _ in $(seq "$runs"); do
    { time "$compiler" "${flags[@]}" "$source" 2>/dev/null || echo failed >&2; } 2>"$work/time"
    grep -q failed "$work/time" && echo '-' && return
    elapsed=$(awk '{ printf "%d", 1000 * ($1 + $2) }' "$work/time")
    [ "$best" != - ] && [ "$best" -le "$elapsed" ] || best=$elapsed
  done
  echo "$best"
}

unit=$(cost "${yardsticks[0]}")
printf '%-44s %8s %8s\n' "header ($("$compiler" --version | grep -m 1 '[0-9][.][0-9]'))" ms "x ${yardsticks[0]%%/*}"
for header in "${yardsticks[@]}" "${headers[@]}"; do
  ms=$(cost "$header")
  if [ "$ms" = - ] || [ "$unit" = - ]; then
    printf '%-44s %8s\n' "$header" "$ms"
  else
    printf '%-44s %8d %8s\n' "$header" "$ms" "$(awk "BEGIN { printf \"%.2f\", $ms / $unit }")"
  fi
done
