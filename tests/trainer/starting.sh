#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# examples/restart.sh and examples/hosts.sh, the latter with a shell in place of ssh; with a trainer that has Gloo, a job of it, too.
#   starting.sh [TRAIN_DLRM]
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "$1" >&2; [ ! -e out ] || cat out >&2; exit 1; }
# expect CODE TEXT COMMAND...: its exit code, and a line that it says
expect() {
  local code=0 wanted=$1 text=$2
  shift 2
  timeout 60 "$@" >out 2>&1 || code=$?
  [ "$code" = "$wanted" ] || fail "exit code $code in place of $wanted: $*"
  grep -qF -- "$text" out || fail "not said: '$text': $*"
}
restart=(bash "$root/examples/restart.sh") hosts=(bash "$root/examples/hosts.sh")

# A job that fails twice after a while, then ends well.
cat >job.sh <<'END'
starts=$(($(cat starts 2>/dev/null || echo 0) + 1))
echo "$starts" >starts
[ "$starts" -lt "${1:-3}" ] && exit "${2:-1}"
echo "start $starts ends well"
END
expect 0 "start 3 ends well" "${restart[@]}" bash job.sh
grep -qF "restart.sh: exit code 1 after" out || fail "a start is not told"
rm starts; expect 9 "not again: it has failed three times at once" "${restart[@]}" bash job.sh 9 9
rm starts; expect 1 "not again: it was started 1 times again" "${restart[@]}" --times 1 bash job.sh 9
rm starts; expect 2 "not again: its options are wrong (exit code 2)" "${restart[@]}" bash job.sh 9 2
expect 127 "not again: it cannot be started" "${restart[@]}" ./no_such_command
expect 2 "--times needs a number, got 'x'" "${restart[@]}" --times x true
expect 2 "give the command to run" "${restart[@]}"
expect 2 "unknown option '--time'" "${restart[@]}" --time 3 true
expect 0 "bash examples/restart.sh [--times N] COMMAND..." "${restart[@]}" --help
# A signal ends the job, and there is no other start.
cat >long.sh <<'END'
echo start >>begun
exec sleep 100
END
"${restart[@]}" bash long.sh >out 2>&1 & pid=$!
until [ -s begun ]; do sleep 0.05; done
kill -TERM $pid
code=0; wait $pid || code=$?
[ "$code" = 143 ] || fail "exit code $code after SIGTERM"
[ "$(wc -l <begun)" = 1 ] || fail "it was started again after SIGTERM"
code=0; timeout --preserve-status -s INT -k 5 1 "${restart[@]}" sleep 100 >out 2>&1 || code=$?
[ "$code" = 130 ] || fail "exit code $code after SIGINT"

# "ssh MACHINE COMMAND" of machines that are this one, but for one that does not answer. What ends it does not end the command, as of ssh.
cat >ssh.sh <<'END'
[ "$1" != dead ] || exit 255
setsid --fork --wait bash -c "$2"
END
export TESSERA_SSH="bash $work/ssh.sh"
unset MASTER_PORT
printf 'user@one # the first\n\ndead\ntwo\n' >list
mkdir "a folder's" && cd "a folder's"
cat >rank.sh <<'END'
echo "$RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, $MASTER_ADDR:$MASTER_PORT, ${#TESSERA_JOB_TOKEN}, $1 $2"
echo "$TESSERA_JOB_TOKEN" >>../tokens
END
expect 0 "hosts.sh: dead does not answer, and is left out" "${hosts[@]}" ../list 2 bash rank.sh "two words" '$HOME'
sort out >sorted
diff - <(grep -v ^hosts.sh sorted) <<'END' || fail "the ranks are not told right"
0 of 4, 0 of 2, one:29500, 32, two words $HOME
1 of 4, 1 of 2, one:29500, 32, two words $HOME
2 of 4, 0 of 2, one:29500, 32, two words $HOME
3 of 4, 1 of 2, one:29500, 32, two words $HOME
END
MASTER_PORT=4444 "${hosts[@]}" <(echo two) 1 bash rank.sh 3 4 >one
grep -qF "0 of 1, 0 of 1, 127.0.0.1:4444, 32, 3 4" one || fail "one machine, one rank"
[ "$(sort -u ../tokens | wc -l)" = 2 ] || fail "the token is not one for each start"
cd ..

# The first failed rank's code; the others are ended if they do not end.
cat >one_fails.sh <<'END'
[ "$RANK" = 1 ] && exit 7
echo $$ >>alive
exec sleep "$1"
END
expect 7 "hosts.sh: rank 1 on user@one ended with exit code 7" "${hosts[@]}" list 2 bash one_fails.sh 1
none_alive() {
  local pid i
  while read -r pid; do
    for ((i = 0; ; ++i)); do
      case $(cat "/proc/$pid/stat" 2>/dev/null) in "" | *") Z "*) break ;; esac
      [ $i -lt 600 ] || fail "rank $pid lives on"
      sleep 0.1
    done
  done <alive
}
rm alive; expect 7 "hosts.sh: 3 rank(s) have not ended, and are ended" "${hosts[@]}" list 2 bash one_fails.sh 1000
none_alive
# Nor do ranks outlive this script, even one that stands still.
for signal in TERM KILL; do
  rm alive; "${hosts[@]}" <(echo two) 1 bash one_fails.sh 1000 >out 2>&1 & pid=$!
  until [ -s alive ]; do sleep 0.05; done
  kill -STOP "$(cat alive)"
  kill -$signal $pid
  wait $pid && fail "no exit code after SIG$signal"
  none_alive
done
printf 'two\r\n' >windows; "${hosts[@]}" windows 1 true || fail "a file with Windows' ends of lines"
expect 2 "give HOSTS, PER_HOST and a command" "${hosts[@]}" list 2
expect 2 "cannot read the file of machines 'none'" "${hosts[@]}" none 2 true
expect 2 "PER_HOST is '0'" "${hosts[@]}" list 0 true
printf '# nothing\n' >empty; expect 2 "names no machine" "${hosts[@]}" empty 1 true
echo '-oProxyCommand=x' >bad; expect 2 "is no name of a machine" "${hosts[@]}" bad 1 true
echo dead >gone; expect 1 "no machine of 'gone' answers" "${hosts[@]}" gone 1 true
expect 0 "bash examples/hosts.sh HOSTS PER_HOST COMMAND..." "${hosts[@]}" --help

# The batch script, with a program in place of srun that starts two ranks.
mkdir -p bin checkout/build/release/bin && ln -s "$root/examples" checkout/examples
cat >bin/srun <<'END'
#!/bin/bash
while [[ $1 == --* ]]; do shift; done
for rank in 0 1; do SLURM_PROCID=$rank "$@" || exit; done
END
cat >checkout/build/release/bin/train_dlrm <<'END'
#!/bin/bash
echo "rank $SLURM_PROCID, token ${#TESSERA_JOB_TOKEN}: $*"
[ -e once ] || { touch once; exit 1; }
END
chmod +x bin/srun checkout/build/release/bin/train_dlrm
batch=(env PATH="$work/bin:$PATH" SLURM_SUBMIT_DIR="$work/checkout" SLURM_NTASKS_PER_NODE=100000 bash "$root/examples/slurm_multinode.sh")
for text in "restart.sh: exit code 1 after" "rank 1, token 32: --communicator gloo --threads-per-rank 1 --save-every 1000 --resume --save a b"; do
  rm -f checkout/once
  expect 0 "$text" "${batch[@]}" --save "a b"
done
expect 2 "there is no program 'none'" env TRAINER=none "${batch[@]}"

# A trainer of two machines loses one, goes on with the other, and ends with the model of a run that lost nothing.
if [ $# -gt 0 ]; then
  cat >ssh.sh <<'END'
[ "$1" != two ] || [ ! -e lost ] || exit 255
exec bash -c "$2"
END
  cat >trainer.sh <<'END'
# the machines are one
export MASTER_ADDR=127.0.0.1 LOCAL_RANK=$RANK LOCAL_WORLD_SIZE=$WORLD_SIZE
echo $$ >"pid.$RANK"
exec "$@"
END
  printf 'one\ntwo\n' >list
  MASTER_PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  export MASTER_PORT
  job=("${hosts[@]}" list 1 bash trainer.sh "$1" --communicator gloo --samples 120000 --test-fraction 0.05
    --batch-size 1000 --save-every 2 --virtual-ranks 2 --threads-per-rank 1)
  timeout 120 "${job[@]}" --save a --predictions a.npy >out 2>&1 || fail "a job of two machines"
  timeout 120 "${restart[@]}" "${job[@]}" --save b --resume --predictions b.npy >out 2>&1 & pid=$!
  until ls b/*/manifest* >/dev/null 2>&1; do kill -0 $pid || fail "it ended before a rank was killed"; sleep 0.02; done
  touch lost
  kill -KILL "$(cat pid.1)"
  wait $pid || fail "the job did not go on"
  for text in "rank 1 failed" "start 2" "two does not answer"; do grep -qF "$text" out || fail "not said: '$text'"; done
  cmp a.npy b.npy || fail "another model than without the loss"
fi
echo "restarts and machines: all as said"
