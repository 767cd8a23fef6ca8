#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs a job again until it ends well. One that lost a rank goes on from its newest checkpoint, on the ranks that it is then given:
#   bash examples/restart.sh [--times N] COMMAND...          N: how often again at most, 10 unless given
#   bash examples/restart.sh mpirun -np 4 train_dlrm --communicator mpi --save model --save-every 1000 --resume
#   bash examples/restart.sh bash examples/hosts.sh hosts 2 train_dlrm --communicator gloo --save model --save-every 1000 --resume
# Wrong options (exit code 2) are not tried again, nor what fails three times within 5 seconds of its start, nor what a signal to this
# script has ended. The exit code is the command's last one.
set -uo pipefail
times=10
while [ $# -gt 0 ]; do
  case "$1" in
    --times)
      [[ ${2:-} =~ ^[0-9]{1,6}$ ]] || { echo "restart.sh: --times needs a number, got '${2:-}'" >&2; exit 2; }
      times=$2
      shift 2
      ;;
    -h | --help) sed -n '5,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"; exit 0 ;;
    -*) echo "restart.sh: unknown option '$1'; try --help" >&2; exit 2 ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || { echo "restart.sh: give the command to run; try --help" >&2; exit 2; }
[[ " $* " != *train_* || " $* " == *" --resume "* ]] ||
  echo "restart.sh: without --resume each start begins anew" >&2

told=0 child=
trap 'told=143; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' TERM HUP
trap 'told=130; [ -z "$child" ] || kill -TERM "$child" 2>/dev/null' INT  # a command behind & ignores INT
at_once=0
for ((start = 0; ; ++start)); do
  began=$SECONDS
  "$@" &
  child=$!
  code=0
  wait "$child" || code=$?
  # a signal to this script ends the wait before the command has ended
  while kill -0 "$child" 2>/dev/null; do wait "$child" || code=$?; done
  child=
  [ "$told" = 0 ] || exit "$told"
  [ "$code" != 0 ] || exit 0
  ran=$((SECONDS - began))
  if [ "$ran" -lt 5 ]; then at_once=$((at_once + 1)); else at_once=0; fi
  why=
  if [ "$code" = 2 ]; then why="its options are wrong (exit code 2)"
  elif [ "$code" = 126 ] || [ "$code" = 127 ]; then why="it cannot be started"
  elif [ "$at_once" -ge 3 ]; then why="it has failed three times at once"
  elif [ "$start" -ge "$times" ]; then why="it was started $times times again"
  fi
  if [ -n "$why" ]; then
    echo "restart.sh: exit code $code after $ran s; not again: $why" >&2
    exit "$code"
  fi
  echo "restart.sh: exit code $code after $ran s; start $((start + 2))" >&2
done
