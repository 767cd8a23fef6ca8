#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds and runs the benchmarks, prints a table per bench and writes build/bench/*.json and one page, build/bench/index.html.
#
#   bash bench/run.sh            everything, three repetitions each, medians (about an hour on two cores)
#   bash bench/run.sh --quick    one shape of each kind, one repetition (some minutes)
#   bash bench/run.sh --peers    also beside PyTorch's C++ library, side by side in one process (installs libtorch-dev)
#                                the first run of sharding also measures the machine's constants (four minutes) and keeps them in the user's cache
#   bash bench/run.sh --only A,B these benches: limits lookup update interaction dense dlrm_step exchange exchange_policies sharding data tabular sequence frozen tiers peers
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

benches=(limits lookup update interaction dense dlrm_step exchange exchange_policies sharding data tabular sequence frozen tiers)
quick=false peers=false only=
while [ $# -gt 0 ]; do
  case $1 in
    --quick) quick=true ;;
    --peers) peers=true ;;
    --only)
      shift
      only=${1:?--only takes names with commas between}
      ;;
    -h | --help) sed -n '/^#   bash/s/^#   //p' "$0"; exit 0 ;;
    *) echo "unknown option '$1'; try --help" >&2; exit 2 ;;
  esac
  shift
done
if [ -n "$only" ]; then
  IFS=, read -r -a chosen <<<"$only"
  for name in "${chosen[@]}"; do
    [[ " ${benches[*]} peers " == *" $name "* ]] || { echo "--only: no bench '$name'; there are: ${benches[*]} peers" >&2; exit 2; }
    [ "$name" = peers ] && peers=true
  done
  benches=()
  for name in "${chosen[@]}"; do [ "$name" = peers ] || benches+=("$name"); done
fi
$peers && benches+=(peers)

source cmake/install_packages.sh
packages=(g++ cmake ninja-build python3 libfmt-dev libdnnl-dev ocl-icd-opencl-dev libcli11-dev nlohmann-json3-dev libbenchmark-dev libyaml-cpp-dev zlib1g-dev libzstd-dev liburing-dev)
# PyTorch's matrix products come from the BLAS that is installed: the OpenMP build of OpenBLAS shares its threads.
$peers && packages+=(libtorch-dev libopenblas0-openmp)
install_packages "${packages[@]}"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
targets=("${benches[@]/#/bench_}")
cmake --preset release >"$log" 2>&1 || { cat "$log"; exit 1; }
cmake --build --preset release --target "${targets[@]}" >"$log" || { cat "$log"; exit 1; }

# One thread per core. Threads spin for some microseconds between the parallel parts of an operation, and then sleep: a shared machine has
# other things to do. OpenBLAS 0.3.21 does not know every processor with AVX-512.
export OMP_PROC_BIND=true GOMP_SPINCOUNT=20000
grep -q avx512f /proc/cpuinfo && export OPENBLAS_CORETYPE=SKYLAKEX

declare -A quick_filter=(
  [limits]='multiply_add|copy|row_bytes:(64|512)/threads:2'
  [lookup]='lookup/.*width:(16|128)/bag:(1|10)/.*batch:65536/tables:1/threads:2'
  [update]='update/(sgd|rowwise_adagrad)/.*width:(16|128)/bag:(1|10)/.*batch:65536/tables:1/threads:2'
  [interaction]='.*' [dense]='.*' [exchange]='.*' [exchange_policies]='traffic' [sharding]='ranks:2/width:16' [data]='.*' [tabular]='.*' [sequence]='length:200' [frozen]='width:64/bag:10/uniform/threads:2' [tiers]='width:64/cache:10/zipf:105'
  [dlrm_step]='<16>.*large_top:0' [peers]='dlrm.*/width:16/batch:2048/top:small|width:(16|128)/bag:10/.*threads:2'
)
mkdir -p build/bench
for name in "${benches[@]}"; do
  options=(--benchmark_out="build/bench/$name.json" --benchmark_out_format=json)
  if $quick; then
    options+=("--benchmark_filter=${quick_filter[$name]}")
    # Plans are compared with each other: in turn, so that other work on the machine falls on all.
    [ "$name" = sharding ] && options+=(--benchmark_repetitions=5)
  else
    options+=(--benchmark_repetitions=3)
  fi
  [ "$name" = sharding ] && options+=(--benchmark_enable_random_interleaving=true)
  echo "bench_$name"
  "build/release/bin/bench_$name" "${options[@]}" >"$log" 2>&1 || { cat "$log"; exit 1; }
done
python3 bench/report.py build/bench "${benches[@]}"
