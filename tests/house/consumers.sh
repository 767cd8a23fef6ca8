#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Two projects of somebody else: one finds the installed package, the other takes the sources by add_subdirectory. Both are built
# from tests/house/consumer, and neither sees a flag, a test or a target of this project.
#   consumers.sh CMAKE COMPILER BUILD_FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cmake=$1 compiler=$2 build=$3
work=$build/consumers
rm -rf "$work" && mkdir -p "$work"

"$cmake" --install "$build" --prefix "$work/prefix" >"$work/install.log"
test -f "$work/prefix/include/tessera/version.hpp"

# A component that is not there is said with what to install; README's command to install configures no tests, examples, benchmarks.
mkdir "$work/asks" && cat >"$work/asks/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(asks LANGUAGES CXX)
find_package(tessera REQUIRED COMPONENTS ${COMPONENT})
END
"$cmake" -S "$here/../.." -B "$work/bare" -DCMAKE_CXX_COMPILER="$compiler" -DTESSERA_BUILD_TESTS=OFF -DTESSERA_BUILD_EXAMPLES=OFF \
  -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON >"$work/bare.log"
"$cmake" --install "$work/bare" --prefix "$work/bare_prefix" >>"$work/bare.log"
for folder in tests bench examples; do
  [ ! -e "$work/bare/$folder" ] || { echo "README's command to install configures $folder/"; exit 1; }
done
asks() { # COMPONENT EXPECTED_TEXT
  if "$cmake" -S "$work/asks" -B "$work/asks/$1" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$work/bare_prefix" -DCOMPONENT="$1" \
       >"$work/asks/$1.log" 2>&1; then
    echo "component $1 is found, and must not be"; exit 1
  fi
  grep -qF "$2" <(tr -s ' \n' ' ' <"$work/asks/$1.log") || { echo "component $1: not said: $2"; cat "$work/asks/$1.log"; exit 1; }
}
# Serving needs no library: it is always there.
"$cmake" -S "$work/asks" -B "$work/asks/serving" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_PREFIX_PATH="$work/bare_prefix" -DCOMPONENT=serving >"$work/asks/serving.log"
asks mpi "mpi: this installation was configured without MPI; install libopenmpi-dev and install tessera again"
asks mpo "mpo: there is no such component; there are serving, dense, data, mpi, gloo, nccl and uring"

for way in package subdirectory; do
  "$cmake" -S "$here/consumer" -B "$work/$way" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DWAY=$way \
    -DCMAKE_PREFIX_PATH="$work/prefix" -DTESSERA_SOURCE="$here/../.."
  "$cmake" --build "$work/$way"
  "$work/$way/consumer"
  "$work/$way/portable"
  "$work/$way/companions"
done
for folder in tests bench examples; do
  if [ -e "$work/subdirectory/tessera/$folder" ]; then
    echo "add_subdirectory took $folder/ with it"
    exit 1
  fi
done
"$cmake" --build "$work/package" --target trainer_by_tessera trainer_by_compiled
code=' [TWtw] .*(StageCalls<.*::update\(|::merge_rows<|::update_rows<|Kernel<.*Lookup<.*::run\()'
for library in tessera compiled; do
  "$work/package/trainer_by_$library"
  nm -C "$work/package/CMakeFiles/trainer_by_$library.dir/trainer.cpp.o" | grep -E "$code" >"$work/code_by_$library" || true
done
[ -s "$work/code_by_tessera" ] || { echo "trainer.cpp has no code of steps and kernels"; exit 1; }
if [ -s "$work/code_by_compiled" ]; then
  cat "$work/code_by_compiled"
  echo "a program with tessera::compiled has code (above) that the library has"
  exit 1
fi
if grep -rlF "$(cd "$here/../.." && pwd)" "$work/prefix"; then
  echo "installed files name the source folder"
  exit 1
fi
