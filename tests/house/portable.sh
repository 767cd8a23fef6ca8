#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Other machines than this one: compiles the host's kernels for a processor, unoptimized and as users do, with all warnings, and runs
# them if that can be done here; or what a user includes, with another version of fmt. Exit code 77: something that is named is missing.
#   portable.sh x86-64-v2|x86-64-v3|x86-64-v4|aarch64 [COMPILER]      default: g++
#   portable.sh fmt12
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
target=${1:?give a processor or fmt12} compiler=${2:-g++}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=(-std=c++20 -fopenmp -I include -Wall -Wextra -Werror -DFMT_HEADER_ONLY)
[[ $(basename "$compiler") != g++* ]] || flags+=(-Wno-restrict) # false reports of g++ 12: GCC bug 105651

if [ "$target" = fmt12 ]; then
  # A source package that carries fmt's headers; version and sum are fixed.
  echo 'floatium==0.14.4 --hash=sha256:e38cbdcbc1a4db0403e21a76504336ac20a5eb1fe6225ea7518da30ad0547971' >"$work/requirements.txt"
  python3 -m pip download -q --no-deps --no-binary :all: --require-hashes -r "$work/requirements.txt" -d "$work" >"$work/log" 2>&1 &&
    tar -xzf "$work"/floatium-*.tar.gz -C "$work" --strip-components=2 --wildcards '*/third_party/fmt/*' ||
    { tail -n 2 "$work/log"; echo "no headers of fmt 12 (python3 -m pip download floatium)"; exit 77; }
  grep -q 'define FMT_VERSION 12' "$work/fmt/base.h" || { echo "these are not fmt 12"; exit 1; }
  "$compiler" "${flags[@]}" -I "$work" -O0 tests/house/portable/kernels.cpp -o "$work/kernels" && "$work/kernels"
  exit
fi

run=()
case $target in
  aarch64)
    compiler=aarch64-linux-gnu-g++
    command -v $compiler >/dev/null || { echo "no $compiler (Debian: g++-aarch64-linux-gnu)"; exit 77; }
    # fmt's headers, beside no others of this machine's.
    mkdir "$work/include" && cp -r "$(dirname "$(echo '#include <fmt/core.h>' | g++ -E -x c++ - | sed -n 's|^# 1 "\(.*\)/core.h".*|\1|p' | head -n 1)")/fmt" "$work/include" || exit 1
    flags+=(-I "$work/include" -march=armv8.2-a+fp16 -Wno-restrict -Wno-psabi)
    if command -v qemu-aarch64 >/dev/null; then run=(qemu-aarch64 -L /usr/aarch64-linux-gnu); else run=(); fi
    ;;
  x86-64-v*) flags+=("-march=$target") ;;
  *) echo "there is no processor '$target'; see the head of this file" >&2; exit 2 ;;
esac
for optimization in -O0 -O3; do
  "$compiler" "${flags[@]}" $optimization tests/house/portable/kernels.cpp -o "$work/kernels" || exit 1
  if [ $target = aarch64 ] && [ ${#run[@]} = 0 ]; then
    echo "$target $optimization: compiled; not run: no qemu-aarch64 (Debian: qemu-user)"
  elif [[ $target == x86-64-v4 ]] && ! grep -qE '^flags.* avx512vl( |$)' /proc/cpuinfo; then
    echo "$target $optimization: compiled; not run: this processor has no AVX-512"
  elif [[ $target == x86-64-v3 ]] && ! grep -qE '^flags.* avx2( |$)' /proc/cpuinfo; then
    echo "$target $optimization: compiled; not run: this processor has no AVX2"
  else
    result=$(OMP_WAIT_POLICY=passive ${run[@]+"${run[@]}"} "$work/kernels") || { echo "$target $optimization: $result"; exit 1; }
    echo "$target $optimization: $result"
  fi
done
