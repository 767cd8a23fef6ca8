#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# What each header costs who includes it, in processor time: of g++ -fsyntax-only (the best of three runs), beside <fmt/format.h> as the
# yardstick, or of nvcc for sm_90 (one run), beside CUB's radix sort. Budgets are multiples of the yardstick, so that they hold on any
# machine; of collections, of including the umbrella alone. What goes beyond is marked.
#   bash bench/compile_time.sh [COMPILER] [HEADER...]      default: g++; every .hpp, or of nvcc every .cuh
#   bash bench/compile_time.sh --instantiations            what collections cost, by g++ -O2 and, where it is installed, by nvcc
#   bash bench/compile_time.sh --plans [COMPILER...]       what plans cost beside their number of shards; default: g++ and clang++
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# instantiation BUDGET NAME FILE COMPILER...: processor time, its multiple of the first one's, and size of the object.
instantiation() {
  local most=$1 name=$2 file=$3 seconds TIMEFORMAT='%U %S'
  shift 3
  if ! { time "$@" -c "$file" -o "$work/object.o" 2>"$work/errors"; } 2>"$work/time"; then
    head -n 20 "$work/errors" >&2
    exit 1
  fi
  seconds=$(awk '{ print $1 + $2 }' "$work/time")
  [ "$most" != 1 ] || alone=$seconds
  printf '%-60s %8d %8.1f %8.1f %8s %s\n' "$name" $(($(stat -c %s "$work/object.o") / 1024)) "$seconds" \
    "$(awk "BEGIN { print $seconds / $alone }")" "$most" "$(awk "BEGIN { if ($seconds > $most * $alone) print \"over\" }")"
}

# collection BACKEND INCLUDE OPTIMIZERS WIDTH...: a source that makes, looks up and updates tables of these widths.
collection() {
  local backend=$1 include=$2 optimizers=$3 plan='' n=0
  shift 3
  printf '#include <%s>\nusing namespace tessera;\n' "$include"
  for width in "$@"; do plan+="${plan:+, }TableWise<Table<\"t$((n++))\", 1000, $width>>"; done
  printf 'using Ranks = BasicSelfCommunicator<%s>;\n' "$([ "$backend" = Cuda ] && echo CudaTransfer || echo HostTransfer)"
  printf 'void step(Ranks& ranks, %s& backend, KeyedJagged<int> batch, MatrixView<const float> gradient) {\n' "$backend"
  printf '  EmbeddingCollection<Plan<%s>, %s, %s, Ranks> tables(ranks, backend, {});\n' "$plan" "$optimizers" "$backend"
  printf '  %s\n}\n' "${step:-tables.backward(tables.forward(batch), gradient);}"
}

# instantiations LABEL BUDGET BACKEND EXTENSION INCLUDE COMPILER...: the rows of one compiler.
instantiations() {
  local label=$1 most=$2 backend=$3 source=$work/source.$4 include=$5 widths
  shift 5
  printf '#include <%s>\n' "$include" >"$source"
  instantiation 1 "$label: <$include> alone" "$source" "$@"
  for widths in 64 '16 32 64 128'; do
    # shellcheck disable=SC2086  # a list
    collection "$backend" "$include" RowWiseAdagrad $widths >"$source"
    instantiation "$most" "$label: a collection, widths $widths" "$source" "$@"
  done
  collection "$backend" "$include" 'Train<RowWiseAdagrad>, Train<Adagrad, Table<"t1", 1000, 64>>' 64 64 >"$source"
  instantiation "$most" "$label: two training groups, width 64" "$source" "$@"
  # clipping that no call asks for is not compiled
  for widths in '' 'ClipByGlobalNorm{1}'; do
    step="tables.accumulate(tables.forward(batch), gradient); tables.apply($widths);" collection "$backend" "$include" RowWiseAdagrad 64 >"$source"
    instantiation "$most" "$label: width 64, accumulate, apply($widths)" "$source" "$@"
    [ -n "$widths" ] || ! nm -C "$work/object.o" | grep -q 'op::\(AddSquares\|ClipValues\|ClipRows\)' || { echo 'compile_time.sh: clipping is compiled where no call asks for it' >&2; exit 1; }
  done
}

if [ "${1:-}" = --instantiations ]; then
  printf '%-60s %8s %8s %8s %8s\n' 'what is compiled, with row-wise Adagrad' KiB seconds 'x alone' budget
  instantiations 'g++ -O2' 5 Host cpp tessera/tessera.hpp g++ -std=c++20 -O2 -fopenmp -march=native -I include
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  [ -x "$nvcc" ] || exit 0
  nvcc+=('-std=c++20' -O2 -Xcompiler -fopenmp -I include -DFMT_HEADER_ONLY '-gencode=arch=compute_90,code=sm_90')
  instantiations 'nvcc, sm_90' 3 Cuda cu tessera/tessera.cuh "${nvcc[@]}"
  instantiations 'nvcc, sm_80 and sm_90' 3 Cuda cu tessera/tessera.cuh "${nvcc[@]}" -gencode=arch=compute_80,code=sm_80
  exit
fi
# plan COMPILER TABLES COLUMNS EXPRESSION: processor time of a plan of so many tables (or columns of one), by a syntax check.
plan() {
  local seconds TIMEFORMAT='%U %S'
  {
    [[ $4 != AutoPlan* ]] || printf '#include <tessera/planner.hpp>\n'
    printf '#include <tessera/tessera.hpp>\nusing namespace tessera;\n'
    printf 'constexpr auto names = [] { std::array<std::array<char, 4>, %d> n{}; for (int i = 0; i < %d; ++i)\n' "$2" "$2"
    printf "  n[i] = {'t', char('0' + i / 100), char('0' + i / 10 %% 10), char('0' + i %% 10)}; return n; }();\n"
    printf 'constexpr auto specs = [] { std::array<TableSpec, %d> s{}; for (int i = 0; i < %d; ++i)\n' "$2" "$2"
    printf '  s[i] = {.name = std::string_view(names[i].data(), 4), .rows = 1000 + i, .width = %d}; return s; }();\n' "$3"
    printf 'static_assert(%s);\n' "$4"
  } >"$work/plan.cpp"
  { time "$1" -std=c++20 -fsyntax-only -fopenmp -I include "$work/plan.cpp" 2>"$work/errors"; } 2>"$work/time" || { head -n 5 "$work/errors" >&2; seconds=fails; }
  [ -n "${seconds:-}" ] || seconds=$(awk '{ print $1 + $2 }' "$work/time")
  printf '%-10s %-70s %8s\n' "$1" "${4//Tables<specs>/$2 tables}" "$seconds"
}

if [ "${1:-}" = --plans ]; then
  shift
  printf '%-10s %-70s %8s\n' compiler 'a plan that is checked' seconds
  for compiler in "${@:-g++ clang++}"; do
    for compiler in $compiler; do
      plan "$compiler" 1 8 'sizeof(TableSpec) > 0'
      for parts in 64 256 1024; do plan "$compiler" 1 1024 "Plan<ColumnWise<$parts, Tables<specs>>>::table_count == 1"; done
      plan "$compiler" 1 257 'Plan<Grid<257, Tables<specs>>>::table_count == 1'
      for tables in 40 300 600 1000; do
        plan "$compiler" $tables 16 "Plan<TableWise<Tables<specs>>>::table_count == $tables"
        plan "$compiler" $tables 16 'Plan<RowWise<Tables<specs>>>::layout({8}).fault.ok()'
      done
      for tables in 20 40 100 300; do plan "$compiler" $tables 16 'AutoPlan<Tables<specs>, dgx_a100(8), Workload{}>::widths.size() > 0'; done
    done
  done
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

# The budget of a header that costs so many times the yardstick. CUB's sort is looked for where the budget without it does not do.
budget() {
  case $1 in
    tessera/tessera.hpp) echo 5 ;;
    tessera/tessera.cuh) echo 3.5 ;;
    *.hpp) echo 4.5 ;;
    tessera/*)
      printf '#include <%s>\n' "$1" >"$source"
      if awk "BEGIN { exit $2 <= 1.25 }" && "$compiler" -M "${flags[@]:0:5}" "$source" | grep -q device_radix_sort; then echo 1.9; else echo 1.25; fi ;;
  esac
}

unit=$(cost "${yardsticks[0]}")
printf '%-44s %8s %8s %8s\n' "header ($("$compiler" --version | grep -o -m 1 '[0-9]*[.][0-9.]*' | head -n 1))" ms "x ${yardsticks[0]%%/*}" budget
for header in "${yardsticks[@]}" "${headers[@]}"; do
  ms=$(cost "$header")
  if [ "$ms" = - ] || [ "$unit" = - ]; then
    printf '%-44s %8s\n' "$header" "$ms"
  else
    share=$(awk "BEGIN { printf \"%.2f\", $ms / $unit }") most=
    [[ $header != tessera/* ]] || most=$(budget "$header" "$share")
    printf '%-44s %8d %8s %8s %s\n' "$header" "$ms" "$share" "$most" "$(awk "BEGIN { if (${most:-0} && $share > ${most:-0}) print \"over\" }")"
  fi
done
