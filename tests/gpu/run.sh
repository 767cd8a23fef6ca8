#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the programs of build/gpu (tests/gpu/build.sh) on this machine's GPU: tests each plainly, then under compute-sanitizer's memcheck,
# racecheck, synccheck and initcheck where it is installed; then the benchmarks, whose results are also written as JSON. Prints tables;
# the exit code is 0 if nothing failed.
#   bash run.sh [--no-bench] [--no-sanitizer] [--out FOLDER] [FOLDER]
# FOLDER: of the programs; default: where this script lies, or build/gpu. Logs and JSON go to the other one, by default the same.
set -uo pipefail
bench=1 sanitizer=1 out= folder=
while [ $# -gt 0 ]; do
  case $1 in
    --no-bench) bench=0 ;;
    --no-sanitizer) sanitizer=0 ;;
    --out) out=$2; shift ;;
    *) folder=$1 ;;
  esac
  shift
done
here=$(dirname "${BASH_SOURCE[0]}")
[ -n "$folder" ] || folder=$here
if [ -e "$folder/build.sh" ]; then folder=$here/../../build/gpu; fi  # where the sources are
out=${out:-$folder}
mkdir -p "$out"
# cuBLASLt and NCCL, where a toolkit or Python's packages of them are installed.
for library in /usr/local/cuda/lib64 $(python3 -c 'import glob, os, sys; print(*{os.path.dirname(f) for p in sys.path for n in ("libcublasLt", "libnccl") for f in glob.glob(os.path.join(p, "nvidia", "*", "lib", n + ".so*"))})' 2>/dev/null); do
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$library
done
[ -d "$folder/golden" ] && export TESSERA_GOLDEN=${TESSERA_GOLDEN:-$folder/golden}

checks=(plain)
export PATH=$PATH:/usr/local/cuda/bin
if [ $sanitizer = 1 ] && command -v compute-sanitizer >/dev/null; then checks+=(memcheck racecheck synccheck initcheck); fi
failed=0
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null
printf '%-18s' program
printf '%12s' "${checks[@]}"
echo
for program in "$folder"/test_* "$folder"/check_*; do
  case $program in *.log | *'*') continue ;; esac
  name=$(basename "$program")
  printf '%-18s' "$name"
  for check in "${checks[@]}"; do
    log=$out/$name.$check.log
    if [ "$check" = plain ]; then
      "$program" >"$log" 2>&1
    else
      timeout 300 compute-sanitizer --tool "$check" --error-exitcode 99 "$program" --test-case-exclude='more than 2^31*' >"$log" 2>&1
    fi
    case $? in
      0) printf '%12s' passed ;;
      77) printf '%12s' 'no GPU' ;;
      124) printf '%12s' 'too long' ;;
      *) printf '%12s' FAILED; failed=1 ;;
    esac
  done
  echo
done

if [ $bench = 1 ]; then
  for program in "$folder"/bench_*; do
    case $program in *.json | *.log | *.py | *'*') continue ;; esac
    name=$(basename "$program")
    echo "== $name"
    "$program" --benchmark_out="$out/$name.json" --benchmark_out_format=json --benchmark_counters_tabular=true 2>"$out/$name.log"
    case $? in
      0) ;;
      77) echo 'no GPU' ;;
      *) echo FAILED; failed=1; cat "$out/$name.log" ;;
    esac
  done
  echo "== PyTorch beside them"
  python3 "$folder/bench_torch.py" "$out" 2>"$out/bench_torch.log"
  case $? in
    0) ;;
    77) echo 'none here' ;;
    *) echo FAILED; tail -n 5 "$out/bench_torch.log" ;;  # a peer's, not ours
  esac
fi
exit "$failed"
