#!/usr/bin/env bash
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
#
# A batch script for Slurm: trains on several machines, and goes on from the newest checkpoint if a rank or a machine is lost.
#   sbatch examples/slurm_multinode.sh --data /data/clicks --save /shared/model      options go to the trainer
#   sbatch --nodes=8 --ntasks-per-node=4 examples/slurm_multinode.sh ...             other machines, other ranks
# A rank that fails ends the others, and srun starts all again in this allocation; a machine that fails gives the job back to the queue
# (--requeue), which may then give it fewer or more machines. TRAINER names another program.
#SBATCH --job-name=tessera --nodes=4 --ntasks-per-node=1 --exclusive --requeue --open-mode=append
set -euo pipefail
# Slurm runs a copy of this file: the checkout is where sbatch was called.
cd "${SLURM_SUBMIT_DIR:-.}"
trainer=${TRAINER:-build/release/bin/train_dlrm}
[ -x "$trainer" ] || { echo "slurm_multinode.sh: there is no program '$trainer'; build it, or say TRAINER=..." >&2; exit 2; }
threads=$(($(nproc) / ${SLURM_NTASKS_PER_NODE:-1}))
# a secret of this job: its number, which ranks take otherwise, is none
TESSERA_JOB_TOKEN=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
export TESSERA_JOB_TOKEN
exec bash examples/restart.sh srun --kill-on-bad-exit=1 --cpu-bind=none \
  "$trainer" --communicator gloo --threads-per-rank "$((threads > 0 ? threads : 1))" --save-every 1000 --resume "$@"
