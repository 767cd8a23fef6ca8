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

for way in package subdirectory; do
  "$cmake" -S "$here/consumer" -B "$work/$way" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DWAY=$way \
    -DCMAKE_PREFIX_PATH="$work/prefix" -DTESSERA_SOURCE="$here/../.."
  "$cmake" --build "$work/$way"
  "$work/$way/consumer"
  "$work/$way/portable"
done
for folder in tests bench examples; do
  if [ -e "$work/subdirectory/tessera/$folder" ]; then
    echo "add_subdirectory took $folder/ with it"
    exit 1
  fi
done
"$work/package/trainer"
objects=$work/package/CMakeFiles/trainer.dir
code=' [TWtw] .*(LayoutCollection<.*::update<int>|TableStore<.*::TableStore|Kernel<.*::run)'
nm -C "$objects/model.cpp.o" | grep -E "$code" >"$work/model_code" || { echo "model.cpp has no code of the collection"; exit 1; }
if nm -C "$objects/trainer.cpp.o" | grep -E "$code"; then
  echo "trainer.cpp has code (above) that CompiledOnce leaves to model.cpp"
  exit 1
fi
if grep -rlF "$(cd "$here/../.." && pwd)" "$work/prefix"; then
  echo "installed files name the source folder"
  exit 1
fi
