#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# The header check must find planted faults: a missing include, a missing guard, a function that is not inline; and pass a good header.
#   headers_catch.sh CMAKE COMPILER WORK_FOLDER
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cmake=$1 compiler=$2 work=$3
rm -rf "$work" && mkdir -p "$work/include"
cd "$work" || exit 1
printf '#pragma once\n#include <vector>\ninline std::vector<int> good() { return {}; }\n' >include/good.hpp
printf '#pragma once\ninline std::vector<int> f() { return {}; }\n' >include/missing_include.hpp
printf 'struct S {};\n' >include/missing_guard.hpp
printf '#pragma once\nint g() { return 1; }\n' >include/not_inline.hpp
printf '#pragma once\n#include <missing_include.hpp>\n#include <vector>\n' >include/after_missing_include.hpp
printf '#pragma once\n#ifdef NEVER\n#include <missing_include.hpp>\n#endif\n#include <vector>\n' >include/sometimes_missing_include.hpp
printf '#include <missing_guard.hpp>\n' >include/includes_missing_guard.hpp
printf '#pragma once\n#include <not_inline.hpp>\n' >include/includes_not_inline.hpp
printf '#pragma once\n#include <good.hpp>\n#include <missing_include.hpp>\n' >include/good_and_missing_include.hpp
printf '#pragma once\nstruct P {};\n' >include/plain.hpp
printf '#pragma once\n#include <plain.hpp>\ninline std::vector<P> p() { return {}; }\n' >include/missing_include_after_plain.hpp
cat >CMakeLists.txt <<CMAKE
cmake_minimum_required(VERSION 3.25)
project(headers_catch LANGUAGES CXX)
include("$here/headers.cmake")
include_directories(include)
foreach(name IN ITEMS good missing_include missing_guard not_inline)
  tessera_header_check(\${name} "$work/include" \${name}.hpp)
endforeach()
# Headers that include each other share a unit.
tessera_header_check(first_missing_include "$work/include" missing_include.hpp after_missing_include.hpp)
tessera_header_check(sometimes_missing_include "$work/include" missing_include.hpp sometimes_missing_include.hpp)
tessera_header_check(first_missing_guard "$work/include" missing_guard.hpp includes_missing_guard.hpp)
tessera_header_check(first_not_inline "$work/include" not_inline.hpp includes_not_inline.hpp)
tessera_header_check(behind_good "$work/include" good.hpp missing_include.hpp good_and_missing_include.hpp)
tessera_header_check(last_of_unit "$work/include" plain.hpp missing_include_after_plain.hpp)
CMAKE
"$cmake" -S . -B build -G Ninja -DCMAKE_CXX_COMPILER="$compiler" >log 2>&1 || { cat log; exit 1; }
failed=0
expect() { # TARGET TEXT: the build of TARGET fails and says TEXT
  if "$cmake" --build build --target "$1" >log 2>&1; then
    echo "$1: not found" && failed=1
  elif ! grep -qE "$2" log; then
    echo "$1: failed for another reason:" && cat log && failed=1
  fi
}
"$cmake" --build build --target good >log 2>&1 || { echo "good: refused"; cat log; failed=1; }
for prefix in "" first_; do
  expect "${prefix}missing_include" "vector"
  expect "${prefix}missing_guard" "redefinition"
  expect "${prefix}not_inline" "multiple definition|duplicate symbol"
done
expect sometimes_missing_include "vector"
expect behind_good "vector"
expect last_of_unit "vector"
exit $failed
