#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the programs of tests/gpu/build.sh on this machine's GPU, by phases. Each phase ends within its time, whatever hangs:
#   bash run.sh [PHASE...] [OPTION...] [FOLDER]          default: --probe --tests --bench kernels --bench step
#   --probe             10 s: device, driver, memory, a capture, libraries, copies (at most 30 s)
#   --tests             all tests, several at a time; one that fails again under compute-sanitizer's memcheck (8 min)
#   --bench kernels     each operation alone (4 min); --bench step: whole training steps (6 min); both with PyTorch beside them, if installed
#   --peer              benchmarks of other libraries beside this one, peer_*, if there are any in the folder (1 min)
#   --sanitize NAMES    programs, with commas between, each under racecheck and initcheck (9 min)
#   --profile           Nsight Compute's counters of the main kernels, and the times of a step's kernels (6 min)
#   --out FOLDER        for the results ($OUT, or the folder of the programs + /results): results.tar.xz, results.md
#   --timeout SECONDS   for one program (120; benchmarks: their phase's time)
#   --phase SECONDS     for each phase, in place of the times above
#   --jobs N            tests at a time (8)
# FOLDER: of the programs; default: where this script lies, or build/gpu. Verdicts and a line per benchmark are printed last, in less
# than 12,000 characters; all else is in results.tar.xz. The exit code is 0 if nothing failed and nothing took too long.
set -uo pipefail
folder='' out=${OUT:-} timeout=120 phase_seconds='' jobs=8
phases=()
while [ $# -gt 0 ]; do
  case $1 in
    --probe | --tests | --peer | --profile) phases+=("${1#--}") ;;
    --bench)
      case ${2:-} in kernels | step) ;; *) echo "--bench takes kernels or step" >&2; exit 2 ;; esac
      phases+=("bench $2"); shift ;;
    --sanitize) phases+=("sanitize ${2:?--sanitize takes names of programs}"); shift ;;
    --out) out=$2; shift ;;
    --timeout) timeout=$2; shift ;;
    --phase) phase_seconds=$2; shift ;;
    --jobs) jobs=$2; shift ;;
    -h | --help) sed -n '/^#   /s/^#   //p' "$0"; exit 0 ;;
    -*) echo "unknown option '$1'; try --help" >&2; exit 2 ;;
    *) folder=$1 ;;
  esac
  shift
done
[ ${#phases[@]} -gt 0 ] || phases=(probe tests 'bench kernels' 'bench step')
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ -n "$folder" ] || folder=$here
if [ -e "$folder/build.sh" ]; then folder=$here/../../build/gpu; fi  # where the sources are
folder=$(cd "$folder" && pwd) || exit 2
out=${out:-$folder/results}
mkdir -p "$out" || exit 2
logs=$(mktemp -d)

# cuBLASLt and NCCL, where a toolkit or Python's packages of them are installed.
for library in /usr/local/cuda/lib64 $(python3 -c 'import glob, os, sys; print(*{os.path.dirname(f) for p in sys.path for n in ("libcublasLt", "libnccl") for f in glob.glob(os.path.join(p, "nvidia", "*", "lib", n + ".so*"))})' 2>/dev/null); do
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$library
done
export PATH=$PATH:/usr/local/cuda/bin
[ -d "$folder/golden" ] && export TESSERA_GOLDEN=${TESSERA_GOLDEN:-$folder/golden}
export CUDA_MODULE_LOADING=${CUDA_MODULE_LOADING:-EAGER}  # a kernel that is first loaded beside a waiting NCCL kernel waits for it

# Packs what there is so far: also when this script is told to end.
summary=$logs/summary.txt
: >"$summary"
: >"$logs/results.md"
pack() {
  cp "$logs/results.md" "$out/results.md"
  tar -C "$logs" -cJf "$out/results.tar.xz" . 2>/dev/null
}
finish() {
  trap - EXIT INT TERM
  pack
  if [ "$(stat -c %s "$summary")" -gt 11500 ]; then
    head -c 11400 "$summary"
    printf '\n... the rest is in summary.txt of results.tar.xz\n'
  else
    cat "$summary"
  fi
  rm -rf "$logs"
  exit "$1"
}
trap 'finish 1' EXIT
trap 'echo "ended from outside" >>"$summary"; finish 1' INT TERM

# start_phase SECONDS: its time, unless --phase says another.
start_phase() { phase_end=$((SECONDS + ${phase_seconds:-$1})); }

# run NAME SECONDS COMMAND...: within the phase's time too; all its processes end with it. Log NAME.log; exit code and seconds in NAME.code.
run() {
  local name=$1 limit=$2 started=$SECONDS code
  shift 2
  [ "$limit" -le $((phase_end - SECONDS)) ] || limit=$((phase_end - SECONDS))
  if [ "$limit" -le 0 ]; then
    echo 'no time was left in the phase' >"$logs/$name.log"
    code=124
  else
    timeout -k 2 "$limit" "$@" >"$logs/$name.log" 2>&1 </dev/null &
    wait $! 2>/dev/null  # a builtin: a signal to this script is answered at once
    code=$?
  fi
  echo "$code $((SECONDS - started))" >"$logs/$name.code"
  return $code
}

# in_parallel FUNCTION NAME...: several at a time.
in_parallel() {
  local function=$1 name
  shift
  for name in "$@"; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    "$function" "$name" &
  done
  wait
}

failed=0
# verdict NAME: a line of the summary and of the table, with the end of the log where it failed.
verdict() {
  local name=$1 code seconds word
  read -r code seconds <"$logs/$name.code"
  case $code in
    0) word=passed ;;
    77) word='no GPU' ;;
    124 | 137) word='too long'; failed=1 ;;
    *) word="FAILED ($code)"; failed=1 ;;
  esac
  printf '%-34s %-14s %4d s\n' "$name" "$word" "$seconds" >>"$summary"
  echo "| \`$name\` | $word | $seconds |" >>"$logs/results.md"
  if [ "$code" != 0 ] && [ "$code" != 77 ]; then tail -n 4 "$logs/$name.log" | cut -c 1-200 | sed 's/^/    /' >>"$summary"; fi
}
table() { printf '\n## %s\n\n| program | verdict | seconds |\n|---|---|---|\n' "$1" >>"$logs/results.md"; }
sanitizer() { compute-sanitizer --tool "$1" --error-exitcode 99 "$folder/$2" '--test-case-exclude=more than 2^31*'; }
export -f sanitizer
export folder

programs_of() {
  local program
  for program in "$folder"/$1; do
    program=${program##*/}
    case $program in *.* | *'*') ;; *) [ -x "$folder/$program" ] && echo "$program" ;; esac
  done
}

phase_probe() {
  start_phase 30
  table probe
  run probe 30 "$folder/probe"
  cat "$logs/probe.log" >>"$summary"
  verdict probe
}

plain_test() { run "$1" "$timeout" "$folder/$1"; }
memcheck_test() { run "$1.memcheck" $((timeout + timeout / 2)) bash -c 'sanitizer memcheck "$0"' "$1"; }
phase_tests() {
  start_phase 480
  table tests
  local names again=() name code
  mapfile -t names < <(programs_of 'test_*'; programs_of 'check_*')
  if [ ${#names[@]} = 0 ]; then echo "no tests in $folder" >>"$summary"; failed=1; return; fi
  in_parallel plain_test "${names[@]}"
  for name in "${names[@]}"; do
    verdict "$name"
    sed -n 's/^golden: /    golden cases: /p' "$logs/$name.log" >>"$summary"
    read -r code _ <"$logs/$name.code"
    case $code in 0 | 77 | 124 | 137) ;; *) [ "$name" = test_nccl ] || again+=("$name") ;; esac  # its ranks are other processes
  done
  if [ ${#again[@]} -gt 0 ] && command -v compute-sanitizer >/dev/null; then
    in_parallel memcheck_test "${again[@]}"
    for name in "${again[@]}"; do verdict "$name.memcheck"; done
  fi
}

phase_bench() {
  local name=bench_$1
  start_phase "$([ "$1" = kernels ] && echo 240 || echo 360)"
  table "$name"
  run "$name" $((phase_end - SECONDS)) "$folder/$name" --benchmark_out="$logs/$name.json" --benchmark_out_format=json --markdown="$logs/$name.md"
  verdict "$name"
  sed -n '/^== missing/,$p' "$logs/$name.log" | cut -c 1-110 >>"$summary"
  if [ -s "$logs/$name.md" ]; then { echo; cat "$logs/$name.md"; } >>"$logs/results.md"; fi
  if [ "$1" = step ] && python3 -c 'import torch' 2>/dev/null; then
    run bench_torch $((phase_end - SECONDS)) python3 "$folder/bench_torch.py" "$logs"
    grep -v '^ *$' "$logs/bench_torch.log" | tail -n 30 | cut -c 1-100 >>"$summary"
  fi
}

phase_peer() {
  start_phase 60
  table 'other libraries'
  local names name
  mapfile -t names < <(programs_of 'peer_*')
  if [ ${#names[@]} = 0 ]; then echo "no peer_* in $folder" >>"$summary"; failed=1; return; fi
  for name in "${names[@]}"; do
    run "$name" $((phase_end - SECONDS)) "$folder/$name" --benchmark_out="$logs/$name.json" --benchmark_out_format=json --markdown="$logs/$name.md"
    verdict "$name"
    sed -n '/^== peer/,$p' "$logs/$name.log" | cut -c 1-110 >>"$summary"
    if [ -s "$logs/$name.md" ]; then { echo; cat "$logs/$name.md"; } >>"$logs/results.md"; fi
  done
}

racecheck_test() { run "$1.racecheck" $((timeout * 3)) bash -c 'sanitizer racecheck "$0"' "$1"; }
initcheck_test() { run "$1.initcheck" $((timeout * 3)) bash -c 'sanitizer initcheck "$0"' "$1"; }
phase_sanitize() {
  start_phase 540
  table sanitizers
  local names name tool
  IFS=, read -ra names <<<"$1"
  if ! command -v compute-sanitizer >/dev/null; then echo 'no compute-sanitizer here' >>"$summary"; failed=1; return; fi
  for tool in racecheck initcheck; do
    in_parallel "${tool}_test" "${names[@]}"
    for name in "${names[@]}"; do verdict "$name.$tool"; done
  done
}

# Kernel and case: one launch of each after two others, with all counters.
profiles=('copy_rows|lookup/width:128/bag:1/uniform' 'copy_rows|lookup/width:16/bag:1/uniform' 'pool_rows|lookup/width:128/bag:10/uniform'
  'merge_windows|update/sgd/width:128/bag:1/uniform' 'merge_windows|update/rowwise adagrad/width:128/bag:1/uniform'
  'dot_forward_tensor|dot forward/27 x 128/bf16' 'dot_backward_tensor|dot backward/27 x 128/bf16')
phase_profile() {
  start_phase 360
  table profile
  local i=0 profile name
  if ! command -v ncu >/dev/null; then echo 'no ncu (Nsight Compute) here' >>"$summary"; failed=1; return; fi
  for profile in "${profiles[@]}"; do
    name=profile_$((++i))_${profile%%|*}
    run "$name" 60 ncu --set full --clock-control none -k "regex:${profile%%|*}" --launch-skip 2 -c 1 -o "$logs/$name" --print-details all \
      "$folder/bench_kernels" "--benchmark_filter=^${profile#*|}/iterations"
    verdict "$name"
  done
  run profile_step 120 ncu --metrics gpu__time_duration.sum --clock-control none --graph-profiling node --launch-skip 2000 -c 400 \
    "$folder/bench_step" '--benchmark_filter=^step/DLRM/bf16/graph/iterations'
  verdict profile_step
}

for phase in "${phases[@]}"; do
  printf '== %s\n' "$phase" >>"$summary"
  # shellcheck disable=SC2086
  phase_${phase%% *} "${phase#* }"
  pack
done
finish "$failed"
