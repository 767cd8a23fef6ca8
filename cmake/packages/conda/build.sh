#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# rattler-build calls this in a copy of the sources, with PREFIX set to the package's folder.
set -euo pipefail
# Components are targets that name their library, no code: those whose libraries conda's prefix has not are left out.
cmake -S . -B build_conda -G Ninja -DCMAKE_INSTALL_PREFIX="$PREFIX" -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_PREFIX_PATH="$PREFIX" \
  -DTESSERA_BUILD_TESTS=OFF -DTESSERA_BUILD_EXAMPLES=OFF -DTESSERA_BUILD_BENCH=OFF
cmake --install build_conda
