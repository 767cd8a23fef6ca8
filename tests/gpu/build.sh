#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds every tests/gpu/test_*.cu with nvcc into build/gpu/, as programs that need the driver alone on the machine that runs them:
#   bash tests/gpu/build.sh [ARCHITECTURE...]        default: sm_90
# Then, on a machine with a GPU: bash tests/gpu/run.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
targets=()
for architecture in "${@:-sm_90}"; do
  targets+=(-gencode "arch=compute_${architecture#sm_},code=$architecture")
done
mkdir -p build/gpu
for source in tests/gpu/test_*.cu; do
  name=$(basename "$source" .cu)
  libraries=()
  # The other machine's NCCL, or the file beside the program: no build of it is static.
  if [ "$name" = test_nccl ]; then libraries=(-lnccl -Xlinker -rpath '-Xlinker=$ORIGIN'); fi
  echo "building $name"
  "$nvcc" -std=c++20 -O3 "${targets[@]}" -I include -I tests -DFMT_HEADER_ONLY -cudart static -Xcompiler -fopenmp,-static-libgcc,-static-libstdc++ \
    "$source" tests/support/main.cpp -o "build/gpu/$name" ${libraries[@]+"${libraries[@]}"}
done
cp tests/gpu/run.sh build/gpu/
