#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# examples/from_config as somebody else's project, with the installed package: three models make three trainers, a change of a file plans
# again what is made of it, and a mistake is told with file and line. Then the sources by add_subdirectory, and what is missing.
#   from_config.sh CMAKE COMPILER BUILD_FOLDER
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cmake=$1 compiler=$2 build=$3
work=$build/from_config
rm -rf "$work" && mkdir -p "$work"
fail() { echo "$1"; [ ! -e "${2:-}" ] || cat "$2"; exit 1; }
says() { grep -qF -- "$2" "$1" || fail "not said: $2" "$1"; }
says_not() { ! grep -qF -- "$2" "$1" || fail "said: $2" "$1"; }

"$cmake" --install "$build" --prefix "$work/prefix" >"$work/install.log"
cp -r "$root/examples/from_config" "$work/project"
configure() { # FOLDER OPTION...
  local folder=$1
  shift
  "$cmake" -S "$work/project" -B "$work/$folder" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS=-O0 "$@"
}
make() { # LOG [TARGET...]
  local log=$1
  shift
  "$cmake" --build "$work/package" ${1:+--target "$@"} >"$work/$log" 2>&1
}

# tessera_plan is built from the package's sources, and the plans are printed with their reasons.
configure package -DCMAKE_PREFIX_PATH="$work/prefix" >"$work/configure.log"
make build.log || fail "the project is not built" "$work/build.log"
says "$work/build.log" "query: row-wise: pinned"
says "$work/build.log" "shop: 3 tables, 4 features, 4 ranks, batch 256"
for trainer in films shop ads; do
  "$work/package/train_$trainer" || fail "train_$trainer has not learned"
done
make again.log
says "$work/again.log" "no work to do"

# A model and the data that it names: what is made of them is planned again, and nothing else.
plan=tessera_plans/train_shop/plan.hpp
sed -i 's/cardinality: 4000/cardinality: 4321/' "$work/project/shop_data.yaml"
make data.log "$plan"
says "$work/data.log" "Planning shop.yaml for train_shop"
says "$work/package/$plan" ".rows = 4321"
sed -i 's/rows: 200/rows: 210/' "$work/project/films.yaml"
"$cmake" --build "$work/package" -- -n >"$work/change.log"
says "$work/change.log" "Planning films.yaml for train_films"
says "$work/change.log" "train_films.dir/train.cpp.o"
says_not "$work/change.log" "ads.json"
says_not "$work/change.log" "train_ads.dir"

# A mistake stops the build, and is told with file and line.
sed -i 's/optimizer: adam/optimizer: adamw/' "$work/project/shop.yaml"
if make mistake.log "$plan"; then fail "an unknown optimizer is built"; fi
says "$work/mistake.log" "project/shop.yaml:4: optimizer: adamw not in {sgd,adagrad,rowwise-adagrad,adam}"
sed -i 's/optimizer: adamw/optimizer: adam/; s/memory: 1 .*/memory: 1e-6/' "$work/project/shop.yaml"
if make memory.log "$plan"; then fail "a model that does not fit is built"; fi
says "$work/memory.log" "project/shop.yaml:8: cluster.memory: no plan fits: the tables take"

# A model of 300 tables is planned, and its trainer passes the compiler.
mkdir "$work/many"
{
  printf 'name: many\ncluster: {name: dgx-a100, ranks: 8}\ntables:\n'
  for table in $(seq 300); do echo "- {name: t$table, rows: $((table * table * 100)), width: $((16 << table % 3))}"; done
} >"$work/many/many.yaml"
"$work/package/tessera_plan" "$work/many/many.yaml" --header "$work/many/plan.hpp" >"$work/many.log"
"$compiler" -std=c++20 -fsyntax-only -I "$root/include" -I "$work/many" "$work/project/train.cpp" || fail "300 tables do not compile"

# What cannot be configured says what to do. The sources by add_subdirectory; a tessera_plan that is built already.
refused() { # TEXT OPTION...
  local text=$1
  shift
  if configure refused "$@" >"$work/refused.log" 2>&1; then fail "configured, and must not be: $text"; fi
  tr -s ' \n' ' ' <"$work/refused.log" >"$work/refused.line"
  says "$work/refused.line" "$text"
  rm -rf "$work/refused"
}
refused "tessera_plan cannot be built here; install libcli11-dev, or set TESSERA_PLAN_PROGRAM" -DTESSERA_SOURCE="$root" \
  -DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON
refused "there is no TESSERA_PLAN_PROGRAM '/nowhere'" -DTESSERA_SOURCE="$root" -DTESSERA_PLAN_PROGRAM=/nowhere
configure subdirectory -DTESSERA_SOURCE="$root" -DTESSERA_PLAN_PROGRAM="$work/package/tessera_plan" -DCMAKE_DISABLE_FIND_PACKAGE_CLI11=ON \
  >"$work/subdirectory.log" 2>&1
"$cmake" --build "$work/subdirectory" --target tessera_plans/train_ads/plan.hpp >"$work/ads.log"
says "$work/subdirectory/tessera_plans/train_ads/plan.hpp" "using Optimizer = tessera::Adagrad;"
# A target of another folder.
mkdir "$work/project/below"
echo 'add_executable(below ../train.cpp)' >"$work/project/below/CMakeLists.txt"
printf 'add_subdirectory(below)\ntessera_generate_plan(films.yaml TARGET below)\n' >>"$work/project/CMakeLists.txt"
configure subdirectory >"$work/subdirectory.log" 2>&1
"$cmake" --build "$work/subdirectory" -- -n below/all >"$work/below.log"
says "$work/below.log" "Planning films.yaml for below"
sed -i 's/films.yaml shop.yaml ads.json/flims.yaml/' "$work/project/CMakeLists.txt"
refused "tessera_generate_plan(flims.yaml): there is no file" -DTESSERA_SOURCE="$root"
sed -i 's/flims.yaml/films.yaml/; s/TARGET train_/TARGET trian_/' "$work/project/CMakeLists.txt"
refused "there is no target 'trian_films'" -DTESSERA_SOURCE="$root"
