#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds tests/gpu/probe.cu and every tests/gpu/{test,check,bench}_*.cu with nvcc, as programs that need the driver alone on the machine
# that runs them, and for some cuBLASLt or NCCL; strips them and packs them, with run.sh, golden vectors of ../shared/golden and
# ../shared/golden2, and the libraries of g++ that they need, into FOLDER/tessera_gpu.tar.xz:
#   bash tests/gpu/build.sh [-a ARCHITECTURE]... [-I FOLDER]... [-o FOLDER] [PROGRAM...]     default: sm_90, build/gpu, all programs
# -I: a folder of headers more. PROGRAM: a name, or the path of a .cu file that lies elsewhere; peer_*.cu are benchmarks of another
# library beside this one, which run.sh --peer runs: the repository has none.
# A program that cannot be built does not stop the others; those are named at the end, and the exit code is 1. Then, on a machine with a
# GPU: tar xf tessera_gpu.tar.xz && bash tessera_gpu/run.sh
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1

nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
targets=() headers=() programs=() folder=build/gpu
while [ $# -gt 0 ]; do
  case $1 in
    -a) targets+=(-gencode "arch=compute_${2#sm_},code=$2"); shift ;;
    -I) headers+=(-I "$2"); shift ;;
    -o) folder=$2; shift ;;
    -*) echo "unknown option '$1'" >&2; exit 2 ;;
    *) programs+=("$1") ;;
  esac
  shift
done
[ ${#targets[@]} -gt 0 ] || targets=(-gencode arch=compute_90,code=sm_90)
if [ ${#programs[@]} = 0 ]; then
  for source in tests/gpu/probe.cu tests/gpu/{test,check,bench}_*.cu; do programs+=("$(basename "$source" .cu)"); done
fi

mkdir -p "$folder" || exit 1
packed=() failed=()
for name in "${programs[@]}"; do
  source=tests/gpu/$name.cu
  case $name in *.cu) source=$name name=$(basename "$name" .cu) ;; esac
  main=(tests/support/main.cpp) libraries=() host=-O1  # of the host's code; the GPU's is always optimized
  # Libraries of the other machine, or files beside the program: no build of them is static.
  if [ "$name" = test_nccl ]; then libraries+=(-lnccl); fi
  # Those that multiply no matrices do not name it in the end.
  if [ "$name" != probe ]; then libraries+=(-Xlinker --as-needed -lcublasLt); fi
  if [ "$name" = probe ]; then main=(); fi
  if [ "$name" = test_c_library ]; then  # nvcc does not take the host's vectors
    main+=(cmake/c_library/cuda_collections.cu)
    for part in cmake/c_library/*.cpp; do
      [[ $part != */no_cuda.cpp ]] || continue
      main+=("$folder/c_$(basename "$part" .cpp).o")
      "${CXX:-g++}" -std=c++20 -O1 -fopenmp -I include -DFMT_HEADER_ONLY -c "$part" -o "${main[-1]}"
    done
  fi
  if [[ $name == bench_* || $name == peer_* ]]; then
    main=() host=-O3
    libraries+=(-lbenchmark)
    benchmark=$("${CXX:-g++}" -print-file-name=libbenchmark.so)
    soname=$(objdump -p "$benchmark" 2>/dev/null | awk '$1 == "SONAME" {print $2}')
    if [ -n "$soname" ]; then cp -Lf "$benchmark" "$folder/$soname" && packed+=("$soname"); fi
  fi
  echo "building $name"
  rm -f "$folder/$name"
  if "$nvcc" -std=c++20 $host "${targets[@]}" -I include -I tests ${headers[@]+"${headers[@]}"} -DFMT_HEADER_ONLY -cudart static \
    -Xcompiler -fopenmp,-static-libgcc,-static-libstdc++ -Xlinker -rpath '-Xlinker=$ORIGIN' \
    "$source" ${main[@]+"${main[@]}"} -o "$folder/$name" ${libraries[@]+"${libraries[@]}"}; then
    strip "$folder/$name" || true
    packed+=("$name")
  else
    failed+=("$name")
  fi
done

cp tests/gpu/run.sh tests/gpu/bench_torch.py "$folder/"
packed+=(run.sh bench_torch.py)
if cp -Lf "$("${CXX:-g++}" -print-file-name=libgomp.so.1)" "$folder/"; then packed+=(libgomp.so.1); fi  # no part of driver or toolkit
rm -rf "$folder/golden"
for case in ../shared/golden{,2}/*.safetensors; do  # as one folder
  [ -e "$case" ] || continue
  if [ -e "$folder/golden/${case##*/}" ]; then echo "two golden cases have the name ${case##*/}" >&2; exit 1; fi
  mkdir -p "$folder/golden" && cp "$case" "$folder/golden/" || exit 1
done
if [ -d "$folder/golden" ]; then packed+=(golden); fi
archive=$folder/tessera_gpu.tar.xz
mapfile -t packed < <(printf '%s\n' "${packed[@]}" | sort -u)
tar -C "$folder" --transform 's,^,tessera_gpu/,' -cJf "$archive" "${packed[@]}" || exit 1
bytes=$(stat -c %s "$archive")
echo "$archive: $(((bytes + 1048575) / 1048576)) MiB, $((${#programs[@]} - ${#failed[@]})) of ${#programs[@]} programs"
if [ "$bytes" -gt $((24 * 1048576)) ]; then echo "the archive is larger than 24 MiB: build fewer architectures or programs" >&2; exit 1; fi
for name in ${failed[@]+"${failed[@]}"}; do echo "NOT BUILT  $name" >&2; done
[ ${#failed[@]} = 0 ]
