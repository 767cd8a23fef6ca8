#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# A program of tessera_add_portable_executable: every level that this processor has runs with its own vectors and gives the right
# results, the others are refused, no level can call another's code, and wrong calls are refused when CMake runs.
#   instruction_sets.sh PROGRAM LEVELS_FOLDER CMAKE COMPILER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
program=$1 folder=$2 cmake=$3 compiler=$4
for tool in nm objdump readelf; do command -v $tool >/dev/null || { echo "no $tool (Debian: binutils)"; exit 77; }; done
export OMP_WAIT_POLICY=passive
unset TESSERA_INSTRUCTION_SET

fail() {
  echo "$*"
  exit 1
}

# expect_refusal 'PATTERN' COMMAND...
expect_refusal() {
  local pattern=$1 output
  shift
  output=$("$@" 2>&1 </dev/null) && fail "not refused: $*"
  grep -qE -- "$pattern" <<<"${output//$'\n'/ }" || fail "refused without '$pattern': $output"
}

# What the kernel says of the processor, by other names than the program asks for.
has() {
  local flag
  for flag in "$@"; do grep -qE "^flags.* $flag( |$)" /proc/cpuinfo || return 1; done
}
works=x86-64
if has avx2 bmi1 bmi2 f16c fma abm movbe xsave; then
  works+=", x86-64-v3"
  if has avx512f avx512bw avx512cd avx512dq avx512vl; then works+=", x86-64-v4"; fi
fi
echo "this processor: $works"

declare -A lanes=([x86-64]=4 [x86-64-v3]=8 [x86-64-v4]=16)
for level in x86-64 x86-64-v3 x86-64-v4 best; do
  if [ $level = best ]; then
    output=$("$program" one)
    level=${works##*, }
  elif [[ ", $works," == *", $level,"* ]]; then
    output=$(TESSERA_INSTRUCTION_SET=$level "$program" one)
  else
    expect_refusal "TESSERA_INSTRUCTION_SET=$level: this processor cannot do that; what works here: $works *$" \
      env TESSERA_INSTRUCTION_SET=$level "$program" one
    continue
  fi
  echo "$level: ${output%%$'\n'*}"
  # Initializers once, by priority and then by source; the exception caught; a thread's variable; destructors in the opposite order.
  ends=" events=123 count=4 thread=thread arguments=2:one"$'\ndestroyed\nlast\ndestroyed\ndestroyed\nfinished'
  [[ $output == "lanes=${lanes[$level]} "*"$ends" ]] ||
    fail "wrong output: $output"
  read -r error checksum < <(sed -nE 's/.* error=(\S+) checksum=(\S+) .*/\1 \2/p' <<<"$output")
  awk -v e="$error" -v c="$checksum" -v f="${first:=$checksum}" 'BEGIN { exit !(e < 1e-5 && c - f < 1e-3 && f - c < 1e-3) }' ||
    fail "results differ from the reference in double, or from $first"
done
expect_refusal "TESSERA_INSTRUCTION_SET=x86-64-v9: not a level of this program; what works here: $works *$" \
  env TESSERA_INSTRUCTION_SET=x86-64-v9 "$program"

# Each level is one object, whose only symbol that others see is its main: so none calls into another, nor shares a variable.
avx='\sv[a-z0-9]+ .*%[xyz]mm' ymm='%ymm' zmm='%zmm'
vectors() { objdump -d --no-show-raw-insn "$folder/$1.o" | grep -cE "$2" || true; }
for level in x86_64 x86_64_v3 x86_64_v4; do
  others=$(nm -g --defined-only "$folder/$level.o" | awk '{ print $3 }')
  [ "$others" = "tessera_main_$level" ] || fail "$level shows others: $others"
  if nm -u "$folder/$level.o" | grep tessera_; then fail "$level needs what it should define"; fi
  if readelf -gSW "$folder/$level.o" | grep -E 'GROUP|\.(init|fini)_array'; then fail "$level keeps what the linker would merge"; fi
  echo "$level: $(vectors $level "$avx") AVX instructions, $(vectors $level $ymm) of 256 bits, $(vectors $level $zmm) of 512"
done
[ "$(vectors x86_64 "$avx")" = 0 ] || fail "AVX in the baseline"
[ "$(vectors x86_64_v3 $ymm)" -gt 0 ] && [ "$(vectors x86_64_v3 $zmm)" = 0 ] || fail "x86-64-v3 is not AVX2"
[ "$(vectors x86_64_v4 $zmm)" -gt 0 ] || fail "no 512-bit vectors in x86-64-v4"
if objdump -d --no-show-raw-insn --disassemble=main "$program" | grep -E "$avx"; then fail "AVX in main()"; fi
if readelf -lW "$program" | grep -E 'GNU_STACK.* RWE'; then fail "the stack may be executed"; fi

module=$here/../../cmake/TesseraInstructionSets.cmake script=$folder/call.cmake
call() { printf 'include("%s")\n%s\n' "$module" "$1" >"$script" && "$cmake" -P "$script"; }
expect_refusal 'tessera_add_portable_executable\(a\): no SOURCES' call 'tessera_add_portable_executable(a)'
expect_refusal "unknown level 'avx2'; +there are +x86-64," call 'tessera_add_portable_executable(a SOURCES a.cpp LEVELS avx2)'
expect_refusal "'b.cpp' follows none of" call 'tessera_add_portable_executable(a b.cpp)'
check() {
  "$compiler" -march="$1" -DTESSERA_LEVEL_"${1//-/_}" "${@:2}" -include "$here/../../cmake/instruction_set_check.hpp" -x c++ -fsyntax-only -
}
for level in x86-64 x86-64-v2 x86-64-v3 x86-64-v4; do check $level </dev/null; done
expect_refusal 'not compiled for x86-64;' check x86-64 -mavx2
expect_refusal 'not compiled for x86-64-v2;' check x86-64-v2 -mavx
expect_refusal 'not compiled for x86-64-v3;' check x86-64-v3 -mavx512f
expect_refusal 'not compiled for x86-64-v4;' check x86-64-v4 -march=x86-64-v3
expect_refusal 'more than the level' check x86-64-v4 -march=skylake-avx512
