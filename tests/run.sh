#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Installs what is missing, builds, and runs tests through ctest, stage by stage (tests/README.md says what each is for). A stage that
# fails does not stop the others; the last line sums all of them up, and the exit code is 0 only if nothing failed.
#
#   bash tests/run.sh                   the optimized build and all its tests, golden vectors among them
#   bash tests/run.sh --all             the same, then sanitizers, clang, other processors, and every CUDA file by nvcc
#   bash tests/run.sh --rest            what --all adds
#   bash tests/run.sh --stage NAME     that stage (may be repeated): release golden asan tsan clang portable cuda
#
# With TESSERA_WERROR=ON warnings are errors, as in CI. With TESSERA_OPTIONAL=ON gRPC, Apache Arrow and NVIDIA's clients are installed, and what
# needs them is built and tested; else those tests are skipped. With TESSERA_REST_FOLLOWS=ON the release stage leaves out the tests that the
# sanitizers' stages run, as --all does: without optimization they would find the same.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

first_stages=(release golden)
rest_stages=(asan tsan clang portable cuda)
all_stages=("${first_stages[@]}" "${rest_stages[@]}")
stages=()
while [ $# -gt 0 ]; do
  case $1 in
    --all) stages=("${all_stages[@]}") ;;
    --rest) stages=("${rest_stages[@]}") ;;
    --stage)
      shift
      [[ " ${all_stages[*]} " == *" ${1:-} "* ]] || { echo "--stage takes one of: ${all_stages[*]}" >&2; exit 2; }
      stages+=("$1")
      ;;
    -h | --help) sed -n '/^#   bash/s/^#   //p' "$0"; exit 0 ;;
    *) echo "unknown option '$1'; try --help" >&2; exit 2 ;;
  esac
  shift
done
[ ${#stages[@]} -gt 0 ] || stages=("${first_stages[@]}")

source cmake/install_packages.sh
packages=(g++ cmake ninja-build ccache git python3 python3-venv python3-yaml clang clang-format-19 clang-tidy libomp-dev libfmt-dev doctest-dev libbenchmark-dev libdnnl-dev
  ocl-icd-opencl-dev libcli11-dev libyaml-cpp-dev zlib1g-dev libzstd-dev liburing-dev nlohmann-json3-dev libboost-dev libgloo-dev libssl-dev libopenmpi-dev openmpi-bin chromium)
[[ " ${stages[*]} " != *san\ * ]] || packages+=(libclang-rt-14-dev)
[[ " ${stages[*]} " != *" portable "* ]] || packages+=(g++-aarch64-linux-gnu qemu-user python3-pip)
install_packages "${packages[@]}" || exit 1
install_packages python3-torch libtorch-dev || echo "Without PyTorch: c.torch is skipped, first_day.libtorch_dlrm left out."
install_packages iproute2 || echo "Without ip: trainer.namespaces is skipped."
install_packages nginx openssl || echo "Without nginx: trainer.tls_proxy is skipped."
# gRPC, and from PyPI Apache Arrow and NVIDIA's clients: 100 MB to fetch, 360 MB on disk.
options=(-DTESSERA_WERROR="${TESSERA_WERROR:-OFF}")
if [ "${TESSERA_OPTIONAL:-OFF}" = ON ]; then
  install_packages libgrpc++-dev libprotobuf-dev protobuf-compiler-grpc python3-venv || exit 1
  python3 -m venv --system-site-packages build/pypi && build/pypi/bin/python3 -m pip install -q pyarrow 'tritonclient[grpc,http]' || exit 1
  options+=(-DArrowCpp_PYTHON="$PWD/build/pypi/bin/python3" -DPython3_EXECUTABLE="$PWD/build/pypi/bin/python3")
fi
# What one checkout has compiled, another need not.
command -v ccache >/dev/null && export CMAKE_CXX_COMPILER_LAUNCHER=ccache CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1

jobs=$(nproc)
passed=0 failed=0 skipped=0
failures=()
log=$(mktemp) kept=$(mktemp -d)
trap 'rm -rf "$log" "$kept"' EXIT

# A command outside ctest that counts as one test.
check() {
  local name=$1
  shift
  "$@"
  case $? in
    0) passed=$((passed + 1)) ;;
    77) skipped=$((skipped + 1)) ;;
    *) failed=$((failed + 1)) failures+=("$name") ;;
  esac
}

configure() {
  cmake --preset "$1" "${options[@]}" >"$log" || { cat "$log"; return 1; }
  grep 'Tessera:' "$log"
  return 0
}

# build PRESET [TARGET...]: goes on after an error, so that one broken test leaves the others to run. Compilers take huge pages: clang, which
# takes gigabytes, is a tenth faster.
build() {
  local preset=$1
  shift
  configure "$preset" || return 1
  local -x GLIBC_TUNABLES=glibc.malloc.hugetlb=1
  if [ -t 1 ]; then
    cmake --build --preset "$preset" ${1:+--target "$@"} -- -k 0
  else
    cmake --build --preset "$preset" ${1:+--target "$@"} -- -k 0 --quiet
  fi
}

# run_tests PRESET [ctest options...]: adds ctest's counts to the sum.
run_tests() {
  local preset=$1 line count bad skips
  shift
  # Shown: all but "Start" lines and the places where ctest looked for a program that was not built.
  ${no_aslr:-} ctest --preset "$preset" -j "$jobs" "$@" 2>&1 | tee "$log" | grep -vE '^ +Start |^/?[^ ]+/bin/[^ ]+$' || true
  line=$(grep -E 'tests passed, [0-9]+ tests failed out of [0-9]+' "$log" | tail -n 1)
  if [ -z "$line" ]; then
    failed=$((failed + 1)) failures+=("$stage: no tests ran")
    return
  fi
  count=${line##* } bad=$(sed -E 's/.*passed, ([0-9]+) .*/\1/' <<<"$line") skips=$(grep -cE '\*\*\*Skipped' "$log")
  passed=$((passed + count - bad - skips)) failed=$((failed + bad)) skipped=$((skipped + skips))
  while read -r line; do failures+=("$stage: $line"); done < <(sed -nE 's/^\t +[0-9]+ - (.*) \((Failed|Timeout|Not Run|SEGFAULT|.*Exception.*|Subprocess aborted|ILLEGAL|BAD_COMMAND)\).*/\1 (\2)/p' "$log")
}

stage_release() {
  if [[ " ${stages[*]} " == *" asan "* ]] || [ "${TESSERA_REST_FOLLOWS:-OFF}" = ON ]; then
    check "release: build" build release examples/all release_tests header_check header_check_cuda
    run_tests release -LE 'golden|sanitized'
  else
    check "release: build" build release all release_tests  # with the laboratory, which is no part of all
    run_tests release -LE golden
  fi
}

stage_golden() {
  if [ ! -f tests/golden.sh ] || [ ! -d ../shared/golden ]; then
    echo "no ../shared/golden: skipped"
    skipped=$((skipped + 1))
    return
  fi
  check "golden: configure" configure release
  run_tests release -L golden --verbose
}

stage_asan() {
  check "asan: build" build asan
  run_tests asan -LE 'house|golden|compile_fail'
}

# The thread sanitizer needs its own corner of the address space, which full randomization may take.
stage_tsan() {
  local no_aslr=
  setarch -R true 2>/dev/null && no_aslr="setarch -R"
  check "tsan: build" build tsan
  run_tests tsan
}

stage_clang() {
  check "clang: build" build clang examples/all benchmarks
  run_tests clang -L compile_fail
}

# A command that another process runs at the same time: what it prints and its exit code are kept in files, and told when asked for.
keep() { # FILE COMMAND...
  "${@:2}" >"$1" 2>&1
  echo $? >"$1.code"
}
export -f keep
tell() { # FILE
  cat "$1"
  return "$(cat "$1.code")"
}

# One compiler per target: a core each.
stage_portable() {
  local target targets=(x86-64-v2 x86-64-v3 x86-64-v4 aarch64 fmt12)
  printf '%s\n' "${targets[@]}" | xargs -P "$jobs" -I '{}' bash -c 'keep "$0" bash tests/house/portable.sh "$1"' "$kept/{}" '{}'
  for target in "${targets[@]}"; do check "portable: $target" tell "$kept/$target"; done
}

stage_cuda() {
  if ! { command -v nvcc || [ -x /usr/local/cuda/bin/nvcc ]; } >/dev/null; then
    echo "no nvcc: skipped"
    skipped=$((skipped + 1))
    return
  fi
  if [ -z "$(git ls-files -co --exclude-standard '*.cu')" ]; then
    echo "no .cu file: skipped"
    skipped=$((skipped + 1))
    return
  fi
  if nvidia-smi -L >/dev/null 2>&1; then
    check "cuda: build" build cuda cuda_files
    run_tests cuda
  else
    keep "$kept/program" bash tests/gpu/build.sh -a sm_80 -a sm_90 -a sm_100 test_dense &
    check "cuda: every file compiles" build cuda_check cuda_files
    check "cuda: a planted fault is refused" bash tests/planted/nvcc_alone.sh
    wait
    check "cuda: a program of the GPU suite is built" tell "$kept/program"
  fi
}

started=$SECONDS
times=
for stage in "${stages[@]}"; do
  printf '\n=== %s\n' "$stage"
  stage_started=$SECONDS
  "stage_$stage"
  times+="$(printf '  %-8s %5d s' "$stage" $((SECONDS - stage_started)))"$'\n'
done

printf '\n=== all stages: %d s\n%s' $((SECONDS - started)) "$times"
for failure in ${failures[@]+"${failures[@]}"}; do echo "FAILED  $failure"; done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
