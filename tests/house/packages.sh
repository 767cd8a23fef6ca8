#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Makes one package of cmake/packages/ and builds a program with what is in it (cmake/packages/conan/test_package), without network.
#   packages.sh CMAKE COMPILER BUILD_FOLDER debian|vcpkg|conan|conda
set -euo pipefail
cmake=$1 compiler=$2 way=$4
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$3/packages/$way
packages=$root/cmake/packages
export CXX=$compiler
rm -rf "$work" && mkdir -p "$work"
fail() { echo "$way: $1"; exit 1; }

version=$(sed -n 's/^#define TESSERA_VERSION_[A-Z]* //p' "$root/include/tessera/version.hpp" | paste -sd.)
off=(-DTESSERA_BUILD_TESTS=OFF -DTESSERA_BUILD_EXAMPLES=OFF -DTESSERA_BUILD_BENCH=OFF)

consume() { # PREFIX: the package is found there, and in no other place
  "$cmake" -S "$packages/conan/test_package" -B "$work/program" -G Ninja -DCMAKE_CXX_FLAGS=-O0 -DCMAKE_PREFIX_PATH="$1" >"$work/program.log"
  grep -q "^tessera_DIR:PATH=$1/" "$work/program/CMakeCache.txt" || fail "the program found another Tessera: $(grep ^tessera_DIR "$work/program/CMakeCache.txt")"
  "$cmake" --build "$work/program" >>"$work/program.log" || { cat "$work/program.log"; exit 1; }
  "$work/program/test_package" | tee "$work/said"
  grep -q "tessera $version cuts the table into 4 shards" "$work/said" || fail "the program of version $version does not say so"
}
whole() { # PREFIX: every header, and no path of this machine
  for folder in "$root"/include/*/; do
    diff -r "$folder" "$1/include/$(basename "$folder")" || fail "the package's headers are others"
  done
  if grep -rlF -e "$root" -e "$work" "$1"; then fail "installed files (above) name folders of this machine"; fi
}

case $way in
  debian)
    for tool in cpack dpkg-deb; do command -v $tool >/dev/null || { echo "no $tool"; exit 77; }; done
    "$cmake" -S "$root" -B "$work/build" -G Ninja "${off[@]}" >"$work/build.log"
    cpack --config "$work/build/CPackConfig.cmake" -B "$work" >>"$work/build.log"
    deb=$work/libtessera-dev_${version}_all.deb
    for field in "Depends: libfmt-dev (>= 9)" "Architecture: all" "Version: $version"; do
      dpkg-deb -f "$deb" | grep -qxF "$field" || fail "the package does not say '$field'"
    done
    dpkg-deb -x "$deb" "$work/root"
    cmp "$root/LICENSE" "$work/root/usr/share/doc/libtessera-dev/copyright"
    whole "$work/root/usr"
    consume "$work/root/usr"
    ;;
  vcpkg)
    port=$packages/vcpkg/tessera
    "$cmake" -DPORT_DIR="$port" -DFEATURES=data -DPACKAGES_DIR="$work/packages" -DBUILD_DIR="$work/build" -DCOMPILER="$compiler" \
      -P "$packages/vcpkg_stub.cmake" >"$work/build.log"
    python3 - "$port/vcpkg.json" "$version" <<'END' || fail "the port's vcpkg.json is wrong"
import json, sys
port = json.load(open(sys.argv[1]))
assert (port["name"], port["version"]) == ("tessera", sys.argv[2]), (port["name"], port["version"], sys.argv[2])
assert sorted(port["features"]) == ["data", "dense", "gloo", "mpi", "nccl", "uring"], sorted(port["features"])
END
    for folder in lib debug bin; do [ ! -e "$work/packages/$folder" ] || fail "a port of headers has no $folder/"; done
    for file in copyright usage tesseraConfig.cmake; do test -s "$work/packages/share/tessera/$file"; done
    for component in dense mpi nccl uring; do
      [ ! -e "$work/packages/share/tessera/tessera_${component}_targets.cmake" ] || fail "feature $component was not asked for, and is there"
    done
    whole "$work/packages"
    consume "$work/packages"
    ;;
  conan)
    venv=$3/conan_venv
    if ! [ -x "$venv/bin/conan" ]; then
      rm -rf "$venv"
      if ! python3 -m venv "$venv" || ! "$venv/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 15 conan==2.34.0; then
        rm -rf "$venv"
        echo "conan is not here and could not be installed"
        exit 77
      fi
    fi
    export CONAN_HOME=$work/home
    fmt=$(echo '#include <fmt/core.h>
FMT_VERSION' | "$compiler" -E -x c++ - | tail -n 1)
    "$venv/bin/conan" profile detect >"$work/create.log" 2>&1
    sed -i 's/^compiler.cppstd=.*/compiler.cppstd=20/' "$CONAN_HOME/profiles/default"
    printf '[platform_requires]\nfmt/%d.%d.%d\n' $((fmt / 10000)) $((fmt / 100 % 100)) $((fmt % 100)) >>"$CONAN_HOME/profiles/default"
    "$venv/bin/conan" create "$packages/conan" --no-remote -c tools.cmake.cmaketoolchain:generator=Ninja -c tools.build:jobs=1 \
      -c tools.cmake.cmake_layout:test_folder="$work/test" -c tools.cmake.cmaketoolchain:user_presets= -s "&:build_type=Debug" >>"$work/create.log" 2>&1 || { tail -n 60 "$work/create.log"; exit 1; }
    grep -F "tessera $version cuts the table into 4 shards" "$work/create.log" || fail "the test package of version $version does not say so"
    prefix=$("$venv/bin/conan" cache path "$("$venv/bin/conan" list "tessera/$version:*" --format=compact 2>/dev/null | grep -o "tessera/[^ ]*:[0-9a-f]*" | tail -n 1)")
    whole "$prefix"
    ;;
  conda)
    python3 -c 'import yaml' || { echo "no PyYAML (Debian: python3-yaml)"; exit 77; }
    # As conda build does: build.sh in a copy of the sources, then the recipe's test commands in a copy of its files.
    mkdir "$work/source" "$work/test" "$work/prefix"
    cp -r "$root"/{CMakeLists.txt,LICENSE,include,cmake,examples} "$work/source"
    (cd "$work/source" && PREFIX=$work/prefix bash "$packages/conda/build.sh") >"$work/build.log"
    python3 - "$packages/conda/meta.yaml" "$version" >"$work/commands" <<'END' || fail "the recipe is wrong"
import sys, yaml
recipe = yaml.safe_load(open(sys.argv[1]))
assert (recipe["package"]["name"], recipe["package"]["version"]) == ("tessera", sys.argv[2]), recipe["package"]
assert recipe["build"]["noarch"] == "generic" and "fmt >=9" in recipe["requirements"]["run"]
print("set -e", *recipe["test"]["commands"], sep="\n")
END
    (cd "$work/test" && mkdir -p cmake/packages/conan && cp -r "$packages/conan/test_package" cmake/packages/conan/ \
      && PREFIX=$work/prefix bash "$work/commands") | tee "$work/said" | tail -n 1
    grep -q "tessera $version cuts the table into 4 shards" "$work/said" || fail "the recipe's test of version $version does not say so"
    whole "$work/prefix"
    ;;
  *) echo "a package is debian, vcpkg, conan or conda"; exit 2 ;;
esac
