#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds every tests/gpu/{test,check,bench}_*.cu with nvcc into build/gpu/, as programs that need the driver alone on the machine that
# runs them, and for some cuBLASLt or NCCL:
#   bash tests/gpu/build.sh [-a ARCHITECTURE]... [PROGRAM...]        default: sm_90, all programs
# Golden vectors of ../shared/golden go with them. Then, on a machine with a GPU: bash tests/gpu/run.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
targets=() programs=()
while [ $# -gt 0 ]; do
  case $1 in
    -a) targets+=(-gencode "arch=compute_${2#sm_},code=$2"); shift ;;
    *) programs+=("$1") ;;
  esac
  shift
done
[ ${#targets[@]} -gt 0 ] || targets=(-gencode arch=compute_90,code=sm_90)
if [ ${#programs[@]} = 0 ]; then
  for source in tests/gpu/{test,check,bench}_*.cu; do programs+=("$(basename "$source" .cu)"); done
fi

mkdir -p build/gpu
for name in "${programs[@]}"; do
  source=tests/gpu/$name.cu main=(tests/support/main.cpp) libraries=()
  # Libraries of the other machine, or files beside the program: no build of them is static.
  if [ "$name" = test_nccl ]; then libraries+=(-lnccl); fi
  if grep -q 'cuda/dense[.]cuh\|gpu/dense_cases\|gpu/graph_cases\|gpu/golden_model' "$source"; then libraries+=(-lcublasLt); fi
  if [[ $name == bench_* ]]; then
    main=()
    libraries+=(-lbenchmark)
    benchmark=$("${CXX:-g++}" -print-file-name=libbenchmark.so)
    cp -Lf "$benchmark" "build/gpu/$(objdump -p "$benchmark" | awk '$1 == "SONAME" {print $2}')"
  fi
  echo "building $name"
  "$nvcc" -std=c++20 -O3 "${targets[@]}" -I include -I tests -DFMT_HEADER_ONLY -cudart static \
    -Xcompiler -fopenmp,-static-libgcc,-static-libstdc++ -Xlinker -rpath '-Xlinker=$ORIGIN' \
    "$source" ${main[@]+"${main[@]}"} -o "build/gpu/$name" ${libraries[@]+"${libraries[@]}"}
done
cp tests/gpu/run.sh tests/gpu/bench_torch.py build/gpu/
cp -Lf "$("${CXX:-g++}" -print-file-name=libgomp.so.1)" build/gpu/  # no part of the driver or the toolkit
if [ -d ../shared/golden ]; then
  mkdir -p build/gpu/golden
  cp ../shared/golden/*.safetensors build/gpu/golden/
fi
