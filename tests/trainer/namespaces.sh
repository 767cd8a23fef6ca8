#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# Network namespaces as machines: four that a bridge joins, each with an address of its own, on which examples/hosts.sh trains over Gloo.
# Models must be those of threads, also if a machine's link goes down on the way; who is lost, or has a wrong address, must be named.
#   namespaces.sh TRAIN_DLRM
# Exit code 77: this system makes no such namespaces, or has no `ip`.
set -euo pipefail
PATH=$PATH:/usr/sbin:/sbin
if [ "${2:-}" != inside ]; then
  for how in -Urn -n; do
    why=$(unshare $how sh -c "ip link add one type veth peer name two && ip link add three type bridge" 2>&1) &&
      exec unshare $how bash "$0" "$1" inside
  done
  echo "skipped: this system does not make network namespaces that a bridge joins ($why)"
  exit 77
fi
root=$(cd "$(dirname "$0")/../.." && pwd)
trainer=$1
work=$(mktemp -d)
trap 'kill $(cat "$work"/pid.*) 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
fail() { echo "$1" >&2; [ ! -e out ] || cat out >&2; exit 1; }

ip link add between type bridge
ip link set between up
for n in 1 2 3 4; do
  unshare -n sleep 300 & pid=$!
  echo $pid >pid.192.168.7.$n
  echo 192.168.7.$n >>four
  until [ "$(readlink /proc/$pid/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do sleep 0.01; done
  ip link add machine$n type veth peer name eth0 netns $pid
  ip link set machine$n master between up
  nsenter -t $pid -n sh -c "ip link set lo up && ip address add 192.168.7.$n/24 dev eth0 && ip link set eth0 up"
done
nsenter -t "$(cat pid.192.168.7.2)" -n sh -c "ip link add other type veth peer name none && ip address add 172.30.0.2/24 dev other && ip link set other up"
tail -2 four >two
# "ssh MACHINE COMMAND": it answers if its link is up.
cat >ssh.sh <<'END_OF_FILE'
ip -o link show up dev "machine${1##*.}" | grep -q . || exit 255
exec nsenter -t "$(cat "pid.$1")" -n bash -c "$2"
END_OF_FILE
export TESSERA_SSH="bash $work/ssh.sh"
unset MASTER_PORT
model=("$trainer" --samples 6000 --max-rows 1000 --test-fraction 0.1 --batch-size 400 --virtual-ranks 4 --threads-per-rank 1)
hosts=(bash "$root/examples/hosts.sh")

# Jobs of three ranks with a wrong address, each at a port of its own: none may start, and all say why.
jobs=()
wrong() { # NAME PORT MASTER_ADDR [INTERFACE of the second rank]
  for rank in 0 1 2; do
    said="RANK=$rank WORLD_SIZE=3 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=$3 MASTER_PORT=$2"
    [ $rank != 1 ] || said+="${4:+ GLOO_SOCKET_IFNAME=$4}"
    # shellcheck disable=SC2086  # words
    nsenter -t "$(cat "pid.192.168.7.$((rank + 1))")" -n env $said "$trainer" --samples 1000 --communicator gloo --timeout 8 >"$1.$rank" 2>&1 &
    jobs+=($!)
  done
}
wrong unused 29601 192.168.7.9
wrong far 29602 10.9.9.9
wrong loopback 29603 192.168.7.1 lo
wrong other 29604 192.168.7.1 other

"${model[@]}" --ranks 4 --save threads --predictions threads.npy >out 2>&1 || fail "threads"
GLOO_SOCKET_IFNAME='' "${hosts[@]}" four 1 "${model[@]}" --communicator gloo --save machines --predictions machines.npy >out 2>&1 || fail "machines"
cmp threads.npy machines.npy || fail "machines train another model than threads"
diff -r threads machines || fail "machines save another model than threads"

# A link goes down: both machines name each other's ranks, and the job goes on with the one that is left.
timeout 100 bash "$root/examples/restart.sh" "${hosts[@]}" two 2 "${model[@]}" --communicator gloo --timeout 5 \
  --save loss --save-every 2 --resume --predictions loss.npy >out 2>&1 & pid=$!
until ls loss/*/manifest* >/dev/null 2>&1; do kill -0 $pid || fail "it ended before the link went down"; sleep 0.02; done
ip link set machine4 down
wait $pid || fail "the job did not go on"
for side in "0 [23]" "1 [23]" "2 [01]" "3 [01]"; do
  late="failed: late: rank [0-3] waited 5000 ms in .* for rank\(s\) (${side#* }, )?${side#* };"
  grep -qE "^rank ${side% *}: .* $late" out || fail "rank ${side% *} does not name who is behind the link"
done
for text in "192.168.7.4 does not answer" "start 2" "resumed from loss/"; do grep -qF "$text" out || fail "not said: '$text'"; done
cmp threads.npy loss.npy || fail "another model than without the loss"

for pid in "${jobs[@]}"; do ! wait "$pid" || fail "a job with a wrong address has trained"; done
told() { grep -qF -- "$2" "$1" || { cat "$1"; fail "$1: not said: '$2'"; }; }
told unused.0 "set MASTER_ADDR to an address of rank 0's machine"
for rank in 1 2; do told unused.$rank "rank 0 does not listen at 192.168.7.9:29601"; done
for rank in 0 1 2; do
  told far.$rank "this machine has no way to host '10.9.9.9'"
  told loopback.$rank "rank 1 listens at [127.0.0.1]:"
  told other.$rank "has met it but cannot connect to it"
done
grep -q "rank 1 failed: rank [02] has met it" other.0 other.2 || fail "who listens in another network is not named"
echo "machines: all as said"
