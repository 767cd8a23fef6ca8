#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# tests/gpu/build.sh and run.sh with programs that only pretend: one failure stops nothing, what hangs ends in its time, and verdicts and
# benchmarks come last. Called in the repository's root.
set -uo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
faults=0
expect() {  # expect WHAT COMMAND...
  local what=$1
  shift
  if ! "$@"; then echo "FAILED: $what"; faults=1; fi
}
program() {  # program FILE LINE...
  { echo '#!/usr/bin/env bash'; printf '%s\n' "${@:2}"; } >"$1" && chmod +x "$1"
}

# A compiler that cannot compile test_dot.
mkdir "$work/bin"
program "$work/bin/nvcc" 'while [ $# -gt 0 ]; do case $1 in -o) to=$2 ;; *test_dot.cu) exit 1 ;; esac; shift; done' 'cp /bin/true "$to"'
PATH=$work/bin:$PATH bash tests/gpu/build.sh -o "$work/built" test_dot probe test_lookup >"$work/build.log" 2>&1
expect 'a build with a failure answers 1' [ $? = 1 ]
expect 'the failure is named at the end' grep -q '^NOT BUILT  test_dot' <(tail -n 1 "$work/build.log")
tar -C "$work" -xf "$work/built/tessera_gpu.tar.xz"
expect 'the others are packed, with the script' [ -x "$work/tessera_gpu/probe" -a -x "$work/tessera_gpu/test_lookup" -a -f "$work/tessera_gpu/run.sh" ]
expect 'and nothing else' [ ! -e "$work/tessera_gpu/test_dot" ]
golden=$(basename -a ../shared/golden{,2}/*.safetensors 2>/dev/null | grep -v '^\*' | LC_ALL=C sort)
expect 'golden cases of both folders are packed' [ "$golden" = "$(ls "$work/tessera_gpu/golden" 2>/dev/null | LC_ALL=C sort)" ]
program "$work/bin/nvcc" 'echo "$*" >>'"$work/commands" 'while [ $# -gt 0 ]; do case $1 in -o) to=$2 ;; esac; shift; done' 'cp /bin/true "$to"'
touch "$work/peer_other.cu"
PATH=$work/bin:$PATH bash tests/gpu/build.sh -I "$work/a" -I "$work/b" -o "$work/peer" "$work/peer_other.cu" >"$work/build.log" 2>&1
expect 'a source of elsewhere is built' [ $? = 0 -a -x "$work/peer/peer_other" ]
expect 'with the folders of its headers, as a benchmark' grep -q -- "-I $work/a -I $work/b .*$work/peer_other.cu .*-lbenchmark" "$work/commands"
bash "$work/tessera_gpu/run.sh" --probe --tests >"$work/run.log" 2>&1
expect 'the unpacked archive runs alone' [ $? = 0 ]
expect 'and leaves its results beside the programs' [ -s "$work/tessera_gpu/results/results.tar.xz" ]

# Programs of each kind of end.
suite=$work/suite
mkdir "$suite"
program "$suite/probe" 'echo "ok  device"'
program "$suite/test_passes" 'exit 0'
program "$suite/test_no_gpu" 'exit 77'
program "$suite/test_hangs" ': >"$0.begun"' 'sleep 200 & wait'
program "$suite/test_ignores" 'trap "" TERM' 'while true; do sleep 200; done'
program "$suite/check_fails" 'echo "golden: hstu 4, max 0"' 'echo "the bits differ"' 'exit 3'
program "$suite/bench_kernels" 'echo "chatter of the benchmark"' 'echo "== missing us"' \
  'for i in $(seq 300); do echo "  $((1000 - i)) a case whose line is about as long as those of the benchmarks are $i"; done'
program "$suite/bench_step" 'sleep 200'
program "$suite/peer_other" 'echo "chatter of the benchmark"' 'echo "== peer other: ours, theirs"' 'echo " 2.0 a pair"'
program "$work/bin/compute-sanitizer" 'echo "memcheck of $*"' 'exit 99'
started=$SECONDS
PATH=$work/bin:$PATH bash tests/gpu/run.sh --probe --tests --peer --bench kernels --bench step --timeout 3 --phase 10 --out "$work/out" "$suite" >"$work/run.log" 2>&1
expect 'a run with failures answers 1' [ $? = 1 ]
expect 'what hangs ends in its time' [ $((SECONDS - started)) -lt 180 ]
expect 'a failure' grep -q '^check_fails  *FAILED (3)' "$work/run.log"
expect 'with the end of its log' grep -q '^    the bits differ' "$work/run.log"
expect 'and how many golden cases it ran' grep -q '^    golden cases: hstu 4, max 0' "$work/run.log"
expect 'and again under memcheck' grep -q '^check_fails.memcheck  *FAILED (99)' "$work/run.log"
expect 'a program that hangs' grep -q '^test_hangs  *too long' "$work/run.log"
expect 'a program that does not let itself be ended' grep -q '^test_ignores  *too long' "$work/run.log"
expect 'a program without a GPU' grep -q '^test_no_gpu  *no GPU' "$work/run.log"
expect 'a program that passes' grep -q '^test_passes  *passed' "$work/run.log"
expect 'benchmarks, without their chatter' grep -q '^  999 a case' "$work/run.log"
expect 'pairs with another library' grep -q '^ 2.0 a pair' "$work/run.log"
expect 'no chatter' [ "$(grep -c chatter "$work/run.log")" = 0 ]
expect 'the output fits' [ "$(stat -c %s "$work/run.log")" -lt 12000 ]
expect 'two files come back' [ "$(ls "$work/out" | tr '\n' ' ')" = 'results.md results.tar.xz ' ]
mkdir "$work/logs"
tar -C "$work/logs" -xf "$work/out/results.tar.xz"
expect 'the archive holds the logs' grep -q chatter "$work/logs/bench_kernels.log"
expect 'and the whole summary' grep -q '^bench_step  *too long' "$work/logs/summary.txt"
expect 'the table' grep -q '^| `check_fails` | FAILED (3) |' "$work/out/results.md"

# Ended from outside: what there is is packed.
rm "$suite/test_hangs.begun"
PATH=$work/bin:$PATH bash tests/gpu/run.sh --tests --timeout 200 --out "$work/killed" "$suite" >"$work/killed.log" 2>&1 &
while [ ! -e "$suite/test_hangs.begun" ] && kill -0 $!; do sleep 0.1; done
kill -TERM $!
wait $!
expect 'a run that is ended from outside answers 1' [ $? = 1 ]
expect 'and packs what it has' [ -s "$work/killed/results.tar.xz" ]

[ $faults = 0 ] && echo 'tests/gpu/build.sh and run.sh do as they say' || { cat "$work/build.log" "$work/run.log"; exit 1; }
