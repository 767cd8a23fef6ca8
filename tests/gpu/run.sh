#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs the programs of build/gpu (tests/gpu/build.sh) on this machine's GPU: each plainly, then under compute-sanitizer's memcheck,
# racecheck and initcheck where it is installed. Prints a table; the exit code is 0 if nothing failed.
#   bash run.sh [FOLDER]        default: where this script lies, or build/gpu
set -uo pipefail
folder=${1:-$(dirname "${BASH_SOURCE[0]}")}
ls "$folder"/test_* >/dev/null 2>&1 || folder=$(dirname "${BASH_SOURCE[0]}")/../../build/gpu
checks=(plain)
if command -v compute-sanitizer >/dev/null; then checks+=(memcheck racecheck initcheck); fi

failed=0
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null
printf '%-16s' program
printf '%12s' "${checks[@]}"
echo
for program in "$folder"/test_*; do
  case $program in *.log) continue ;; esac
  printf '%-16s' "$(basename "$program")"
  for check in "${checks[@]}"; do
    log=$program.$check.log
    if [ "$check" = plain ]; then
      "$program" >"$log" 2>&1
    else
      compute-sanitizer --tool "$check" --error-exitcode 99 "$program" >"$log" 2>&1
    fi
    case $? in
      0) printf '%12s' passed ;;
      77) printf '%12s' 'no GPU' ;;
      *) printf '%12s' FAILED; failed=1 ;;
    esac
  done
  echo
done
exit "$failed"
