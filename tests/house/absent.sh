#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Without an optional library, the configuration and the targets of the programs that need it say what to install; tests do not count them
# as programs.
#   absent.sh CMAKE COMPILER BUILD_FOLDER
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cmake=$1 compiler=$2 work=$3/absent
rm -rf "$work"
fail() { echo "$1"; cat "$2"; exit 1; }
"$cmake" -S "$root" -B "$work" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DTESSERA_BUILD_BENCH=OFF -DCMAKE_DISABLE_FIND_PACKAGE_Boost=ON \
  -DCMAKE_DISABLE_FIND_PACKAGE_nlohmann_json=ON >"$work.log" 2>&1 || fail "not configured" "$work.log"
asks() { # PROGRAM LIBRARY PACKAGE
  grep -q "without examples/$1.cpp: it needs .*$2.*(Debian: .*$3" "$work.log" || fail "the configuration does not name $3 for $1" "$work.log"
  if "$cmake" --build "$work" --target "$1" >"$work/$1.log" 2>&1; then fail "$1 is built without $2" "$work/$1.log"; fi
  grep -q "$1 needs .*$2.*, which was not found here: install .*$3" "$work/$1.log" || fail "target $1 does not name $3" "$work/$1.log"
}
asks serve_model Boost::headers libboost-dev
asks tessera_plan nlohmann_json::nlohmann_json nlohmann-json3-dev
"${cmake%cmake}ctest" --test-dir "$work" -N >"$work/tests.log"
if grep -q "from_config" "$work/tests.log"; then fail "a test of a program that cannot be built is listed" "$work/tests.log"; fi
