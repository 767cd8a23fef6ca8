#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Starts the ranks of a job on machines without a scheduler, by ssh:
#   bash examples/hosts.sh HOSTS PER_HOST COMMAND...
#   bash examples/hosts.sh hosts 2 build/release/bin/train_dlrm --communicator gloo --data /data/clicks
# HOSTS is a file with a machine a line (# begins a comment); PER_HOST is the number of ranks on each. Those that answer within 10 seconds
# take part, the first of them has rank 0. The command runs in this folder, which all machines must have at the same path, and is told its
# rank as torchrun tells it (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, ...), with a token that is new at each start.
# If a rank fails, the others are given 10 seconds to end by themselves. The exit code is the first failed rank's. No rank outlives this
# script, however that ends, nor its connection.
# MASTER_PORT chooses rank 0's port (29500), TESSERA_SSH another command for ssh.
set -uo pipefail
if [ "${1:-}" = -h ] || [ "${1:-}" = --help ]; then
  sed -n '5,/^set/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
  exit 0
fi
[ $# -ge 3 ] || { echo "hosts.sh: give HOSTS, PER_HOST and a command; try --help" >&2; exit 2; }
file=$1 per_host=$2
shift 2
[ -r "$file" ] || { echo "hosts.sh: cannot read the file of machines '$file'" >&2; exit 2; }
[[ $per_host =~ ^[1-9][0-9]{0,3}$ ]] || { echo "hosts.sh: PER_HOST is '$per_host', must be a number of ranks from 1" >&2; exit 2; }
read -ra ssh <<<"${TESSERA_SSH:-ssh -o BatchMode=yes -o ConnectTimeout=10}"

mapfile -t names < <(sed 's/#.*//; s/\r$//' "$file" | awk 'NF { print $1 }')
[ ${#names[@]} -gt 0 ] || { echo "hosts.sh: '$file' names no machine" >&2; exit 2; }
for name in "${names[@]}"; do
  [[ $name =~ ^[A-Za-z0-9][A-Za-z0-9._@:-]*$ ]] || { echo "hosts.sh: '$name' in '$file' is no name of a machine" >&2; exit 2; }
done

# Those that are there, in the file's order: all are asked at once.
answers=$(mktemp -d)
trap 'rm -rf "$answers"' EXIT
for i in "${!names[@]}"; do
  { timeout 15 "${ssh[@]}" "${names[i]}" true </dev/null >/dev/null 2>&1 && : >"$answers/$i"; } &
done
wait
hosts=()
for i in "${!names[@]}"; do
  if [ -e "$answers/$i" ]; then hosts+=("${names[i]}"); else echo "hosts.sh: ${names[i]} does not answer, and is left out" >&2; fi
done
[ ${#hosts[@]} -gt 0 ] || { echo "hosts.sh: no machine of '$file' answers" >&2; exit 1; }

token=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
size=$((${#hosts[@]} * per_host)) first=${hosts[0]#*@}
[ ${#hosts[@]} -gt 1 ] || first=127.0.0.1
mkfifo "$answers/ended" "$answers/here"
exec 3<>"$answers/ended" 4<>"$answers/here" 5<"$answers/here"
set -m  # each rank is a process group: all of it can be ended
pids=()
end_all() { for pid in "${pids[@]}"; do kill "-$1" -- "-$pid" 2>/dev/null; done; }
trap 'end_all TERM; exit 143' TERM HUP
trap 'end_all INT; exit 130' INT
quoted() { printf "'%s'" "${1//\'/\'\\\'\'}"; }  # for any shell there
for ((rank = 0; rank < size; ++rank)); do
  # The token goes by standard input, not by a command line that others on the machine can read. That stays open while this script
  # runs: at its end a shell there ends the rank, which ssh alone would leave to run on.
  said="cd $(quoted "$PWD") && read -r TESSERA_JOB_TOKEN && export TESSERA_JOB_TOKEN RANK=$rank WORLD_SIZE=$size"
  said+=" LOCAL_RANK=$((rank % per_host)) LOCAL_WORLD_SIZE=$per_host MASTER_ADDR=$first MASTER_PORT=${MASTER_PORT:-29500} && exec 4<&0 || exit;"
  said+=" { cat <&4; kill -KILL \$\$; } >/dev/null 2>&1 & exec </dev/null 4<&-; exec"
  for word in "$@"; do said+=" $(quoted "$word")"; done
  {
    "${ssh[@]}" "${hosts[rank / per_host]}" "$said" < <(echo "$token" && exec cat <&5 3>&-) 3>&- 5<&-
    echo "$rank $?" >&3
  } 4>&- &
  pids+=($!)
  disown  # what ends it is said below
done

code=0 deadline=
for ((left = size; left > 0; --left)); do
  if [ -z "$deadline" ]; then
    read -r rank one <&3
  elif ! read -r -t $((deadline > SECONDS ? deadline - SECONDS : 0)).1 rank one <&3; then
    echo "hosts.sh: $left rank(s) have not ended, and are ended" >&2
    end_all TERM
    break
  fi
  if [ "$one" != 0 ] && [ "$code" = 0 ]; then
    code=$one deadline=$((SECONDS + 10))
    echo "hosts.sh: rank $rank on ${hosts[rank / per_host]} ended with exit code $one" >&2
  fi
done
exit "$code"
