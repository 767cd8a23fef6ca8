#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# nvcc must refuse nvcc_alone.cu, which g++ takes with the emulator's toolkit. Exit code 0 if both hold.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
g++ -std=c++20 -fsyntax-only -I simt/toolkit -I . -I ../include -x c++ planted/nvcc_alone.cu || exit 1
if text=$("$nvcc" -std=c++20 -c -o /dev/null planted/nvcc_alone.cu 2>&1); then
  echo "nvcc took tests/planted/nvcc_alone.cu"
  exit 1
fi
[[ $text == *"calling a __host__ function"* ]] || { echo "nvcc says something else: $text"; exit 1; }
