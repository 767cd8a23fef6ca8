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
from_pypi() { # VENV PACKAGE==VERSION: a tool in a folder of its own
  [ -e "$1/${2%%=*}" ] && return
  rm -rf "$1"
  if ! python3 -m venv "$1" || ! "$1/bin/pip" install -q --disable-pip-version-check --retries 1 --timeout 15 "$2"; then
    rm -rf "$1"
    echo "${2%%=*} is not here and could not be installed"
    exit 77
  fi
  touch "$1/${2%%=*}"
}

case $way in
  debian)
    for tool in cpack dpkg-deb; do command -v $tool >/dev/null || { echo "no $tool"; exit 77; }; done
    "$cmake" -S "$root" -B "$work/build" -G Ninja "${off[@]}" >"$work/build.log"
    cpack --config "$work/build/CPackConfig.cmake" -B "$work" >>"$work/build.log"
    deb=$work/libtessera-dev_${version}_all.deb
    for field in "Depends: libfmt-dev (>= 9)" "Architecture: all" "Version: $version"; do
      grep -qxF "$field" <(dpkg-deb -f "$deb") || fail "the package does not say '$field'"
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
    from_pypi "$venv" conan==2.34.0
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
    venv=$3/conda_venv
    from_pypi "$venv" py-rattler-build==0.73.0
    # The recipe packs the checkout that it is in. Tools and fmt are the machine's: empty packages have their names.
    mkdir "$work/source"
    cp -r "$root"/{CMakeLists.txt,LICENSE,include,cmake,examples} "$work/source"
    "$venv/bin/python" - "$work" "$version" >"$work/build.log" 2>&1 <<'END' || { tail -n 60 "$work/build.log"; exit 1; }
import sys, pathlib
from rattler_build import Stage0Recipe, ToolConfiguration
work, version = pathlib.Path(sys.argv[1]), sys.argv[2]
channel = work / "channel"
settings = dict(output_dir=channel, channels=[channel.as_uri()], package_format="tar.bz2")
for name, there in (("cmake", "3.25"), ("ninja", "1"), ("cxx-compiler", "1"), ("fmt", "9")):
    Stage0Recipe.from_dict({"package": {"name": name, "version": there}, "build": {"noarch": "generic", "script": "true"}}).run_build(**settings)
recipe = Stage0Recipe.from_file(work / "source/cmake/packages/conda/recipe.yaml")
(result,) = recipe.run_build(tool_config=ToolConfiguration(test_strategy="native"), **settings)
print(*result.log, sep="\n")
assert (result.name, result.version, result.platform) == ("tessera", version, "noarch"), result
pathlib.Path(result.packages[0]).rename(work / "tessera.tar.bz2")
END
    grep -F "tessera $version cuts the table into 4 shards" "$work/build.log" || fail "the recipe's test of version $version does not say so"
    mkdir "$work/prefix"
    tar -xf "$work/tessera.tar.bz2" -C "$work/prefix" --exclude=info  # the tool's own files
    whole "$work/prefix"
    ;;
  *) echo "a package is debian, vcpkg, conan or conda"; exit 2 ;;
esac
