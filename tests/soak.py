#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Trains for a long time, kills the trainer again and again, and lets it go on under another plan, on other ranks.

    python3 tests/soak.py [--minutes 20] [--seed 1] [--trainer build/release/bin/train_dlrm] [--folder DIR] [--table-files | --vocabulary [--gloo]]

Every training is cut into lives: each with its own ranks (threads, or processes of mpirun), plan, loader and way to save, all but the
last killed with SIGKILL at a random moment (of an MPI job one process, which must end the others). Checked: each life goes on from the
newest checkpoint; checkpoints never go back and do not pile up; the loss where a life begins is the loss where the one before it ended;
a training's loss falls; the memory of a life does not grow; the finished model beats chance.
With --vocabulary rows come and go with the categories of a file that drifts, and each training's predictions must be, byte for byte, those of
the same training on one rank that nothing disturbed. With --gloo lives are processes over Gloo, of which one is killed or, as often,
stopped (SIGSTOP); the others must name it. Exit code 1 and the life's command at the first fault; a summary at the end.
"""
import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

PLANS = ["mixed", "table-wise", "column-wise", "row-wise", "grid", "replicated"]
MODEL = ("--samples 1600000 --test-fraction 0.02 --max-rows 2000 --batch-size 256 --epochs 4 --power 1.05 --embedding-width 8 "
         "--bottom-mlp 32 --top-mlp 64 --constant-rates --save-every 200 --keep 3").split()
SAVING = [[], ["--save-async"], ["--save-increments", "3"]]
SAVING_KEYS = [*SAVING, ["--save-async", "--save-increments", "2"]]
FILES = ["--host-memory", "1MiB"]  # of up to 5 MiB with states: caches of two batches and a little more
# of a vocabulary that is too small for the file's categories: all that a life may differ in must give one model
KEYS = ("--embedding-width 8 --bottom-mlp 16 --top-mlp 16 --batch-size 128 --epochs {epochs} --vocabulary --min-count 2 --max-rows 300 "
        "--shuffle-window 1 --test-fraction 0.05 --virtual-ranks 4")
POLICIES = [["--eviction", "oldest"], ["--eviction", "least-frequent", "--time-to-live", "40"],
            ["--eviction", "oldest", "--admit-probability", "0.5", "--time-to-live", "30", "--cold-keys", "2000"],
            ["--eviction", "none", "--time-to-live", "50"]]
# ranks as a launcher starts them; exit code 0 if all of theirs are
GLOO = ("export MASTER_ADDR=127.0.0.1 MASTER_PORT=$0 WORLD_SIZE=$1 LOCAL_WORLD_SIZE=$1; shift; for ((r = 0; r < WORLD_SIZE; ++r)); do "
        'RANK=$r LOCAL_RANK=$r "$@" --communicator gloo --timeout 4 & p[r]=$!; done; code=0; for one in ${p[*]}; do '
        "wait $one || code=$?; done; exit $code")
GROWTH = 16 << 20  # bytes that a process may gain after its first seconds


class Fault(Exception):
    pass


def processes(pid):
    """This process and its descendants."""
    found = [pid]
    for child in subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split():
        found += processes(int(child))
    return found


def trainers(pid):
    return [p for p in processes(pid) if command(p) == "train_dlrm"]


def command(pid):
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read().strip()
    except OSError:
        return ""


def rank_of(pid):
    with open(f"/proc/{pid}/environ") as file:
        return int(re.search(r"\0RANK=(\d+)", "\0" + file.read())[1])


def resident(pid):
    try:
        with open(f"/proc/{pid}/status") as file:
            return int(re.search(r"VmRSS:\s+(\d+) kB", file.read())[1]) << 10
    except (OSError, TypeError):
        return 0


def checkpoints(folder):
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return sorted(int(name[5:]) for name in names if re.fullmatch(r"step-\d+", name))


def write_drifting_clicks(folder, lines):
    """A CSV file in which old categories give way to new ones, and its schema."""
    draw = random.Random(5)
    with open(os.path.join(folder, "clicks.csv"), "w") as file:
        file.write("y,n,user,item,tag\n")
        for i in range(lines):
            user, item = int(2000 * draw.random() ** 3) + i // 15, int(1000 * draw.random() ** 3) + i // 25
            file.write(f"{int(draw.random() < (0.8 if user % 3 == 0 else 0.2))},{draw.randint(0, 9)},u{user},i{item},t{item % 50}\n")
    with open(os.path.join(folder, "schema.yaml"), "w") as file:
        file.write("label: y\nnumeric: [n]\ncategorical: [user, item, tag]\n")
    return ["--data", os.path.join(folder, "clicks.csv"), "--schema", os.path.join(folder, "schema.yaml")]


class Soak:
    def __init__(self, arguments):
        self.random = random.Random(arguments.seed)
        self.trainer = os.path.abspath(arguments.trainer)
        self.folder = arguments.folder
        self.table_files = ["--table-files", os.path.join(self.folder, "tables"), *FILES] if arguments.table_files else []
        self.end = time.monotonic() + 60 * arguments.minutes
        self.has_mpi = shutil.which("mpirun") is not None and "mpi" in subprocess.run([self.trainer, "--help"], capture_output=True, text=True).stdout
        self.gloo = arguments.gloo
        self.same = self.trainings = self.lives = self.kills = self.stops = self.steps = self.useful = self.measured = 0
        self.most_growth = 0
        self.kinds, self.losses = {}, []
        self.small = arguments.minutes < 1  # of a test: a few seconds
        self.data = write_drifting_clicks(self.folder, 6000 if self.small or self.gloo else 40000) if arguments.vocabulary else None

    def life(self, save, model):
        """One process or MPI job. Answers its results if it was allowed to end, else None."""
        r = self.random
        ranks, plan, mpi = r.choice([2, 4] if self.gloo else [1, 2, 4]) if self.data else r.randint(1, 4), r.choice(PLANS), self.has_mpi and not self.gloo and r.random() < 0.4
        words = [self.trainer, *model, "--plan", plan, "--save", save, "--resume", *r.choice(SAVING_KEYS if self.data else SAVING), *self.table_files,
                 "--json", os.path.join(self.folder, "results.json")]
        if self.data:
            words += ["--predictions", os.path.join(self.folder, "predictions"), "--save-every", "20", "--keep", "3"]
        else:
            words += ["--loader", r.choice(["every-rank", "first-rank"])]
        if r.random() < 0.3:
            words.append("--overlap")
        if self.gloo:
            words = ["bash", "-c", GLOO, str(r.randint(20000, 30000)), str(ranks), *words]
        elif mpi:
            words = ["mpirun", "--oversubscribe", "-np", str(ranks), *words, "--communicator", "mpi"]
        else:
            words += ["--ranks", str(ranks)]
        self.command = " ".join(words)
        kind = f"{'gloo' if self.gloo else 'mpi' if mpi else 'threads'} x {ranks}"
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        self.lives += 1
        before = checkpoints(save)
        latest = 2 if self.small else 4 if self.gloo else 15 if self.data else 40
        kill_at = time.monotonic() + r.uniform(latest / 8, latest) if r.random() < 0.85 else float("inf")
        with open(os.path.join(self.folder, "output.txt"), "w+") as output:
            job = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                                   env=os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                                                     "OMP_WAIT_POLICY": "passive"})
            started, first, last, killed, named = time.monotonic(), {}, {}, False, None
            while job.poll() is None:
                now = time.monotonic()
                if now > kill_at:
                    alive = trainers(job.pid)
                    if alive:
                        victim = r.choice(alive)
                        named = rank_of(victim) if self.gloo else None
                        stops = self.gloo and r.random() < 0.5
                        os.kill(victim, signal.SIGSTOP if stops else signal.SIGKILL)
                        self.stops += stops
                        killed = True
                        while stops and trainers(job.pid) != [victim] and time.monotonic() < now + 60:
                            time.sleep(0.1)
                        if stops:
                            os.kill(victim, signal.SIGCONT)
                        break
                elif now > started + 8:
                    for pid in trainers(job.pid):
                        last[pid] = resident(pid)
                        first.setdefault(pid, last[pid])
                time.sleep(0.1 if self.small or self.gloo else 0.5)
            try:
                code = job.wait(timeout=90)
            except subprocess.TimeoutExpired:
                os.killpg(job.pid, signal.SIGKILL)
                raise Fault("90 s after one process was killed the others still run") from None
            output.seek(0)
            text = output.read()
        if not killed and code != 0:
            raise Fault(f"exit code {code}:\n{text[-2000:]}")
        if named is not None:
            others = [rank for rank in range(ranks) if rank != named]
            naming = [rank for rank in others if re.search(rf"^rank {rank}: .*(?:\brank {named} failed: |\bfor rank\(s\) (?:\d+, )*{named}\b)", text, re.MULTILINE)]
            if naming != others:
                raise Fault(f"of ranks {others} these name rank {named}: {naming}\n{text[-2000:]}")
        self.kills += killed
        self.check_memory(first, last)
        self.check_checkpoints(save, before, text)
        if not before:  # killed before it saved anything: this one began anew
            self.losses = []
        self.check_losses(text)
        if killed:
            return None
        with open(os.path.join(self.folder, "results.json")) as file:
            return json.load(file)

    def check_memory(self, first, last):
        for pid, bytes_then in first.items():
            growth = last[pid] - bytes_then
            self.measured += 1
            self.most_growth = max(self.most_growth, growth)
            if growth > GROWTH:
                raise Fault(f"a process grew from {bytes_then >> 20} to {last[pid] >> 20} MiB")

    def check_checkpoints(self, save, before, text):
        now = checkpoints(save)
        if before:
            resumed = re.search(r"resumed from .*step-(\d+)", text)
            if resumed is None and "loss" in text:
                raise Fault(f"did not resume from step {before[-1]}:\n{text[-2000:]}")
            if resumed is not None and int(resumed[1]) != before[-1]:
                raise Fault(f"resumed from step {int(resumed[1])}, the newest was {before[-1]}")
            if not now or now[-1] < before[-1]:
                raise Fault(f"checkpoint {before[-1]} was lost; there are {now}")
        # The last three, the base of increments, one that was to be removed when the process died.
        if len(now) > 5:
            raise Fault(f"checkpoints pile up: {now}")
        self.useful += bool(now and (not before or now[-1] > before[-1]))
        self.steps += (now[-1] if now else 0) - (before[-1] if before else 0)

    def check_losses(self, text):
        lines = [(int(step), float(loss)) for step, loss in re.findall(r"step (\d+)/\d+ .*loss ([0-9.]+)", text)]
        if lines and self.losses and lines[0][1] > self.losses[-1][1] + 0.05:
            raise Fault(f"the loss jumped from {self.losses[-1]} to {lines[0]}")
        self.losses += lines

    def training(self):
        self.trainings += 1
        save = os.path.join(self.folder, "checkpoints")
        shutil.rmtree(save, ignore_errors=True)
        self.losses = []
        optimizer = self.random.choice(["sgd", "adagrad", "rowwise-adagrad", "adam"])
        model = ["--optimizer", optimizer]
        if self.data:
            policy, accumulate = self.random.choice(POLICIES), self.random.choice(["1", "3"])
            model += [*self.data, *KEYS.format(epochs=10 if self.small or self.gloo else 30).split(), *policy, "--accumulate", accumulate]
            undisturbed = os.path.join(self.folder, "undisturbed")
            words = [self.trainer, *model, "--ranks", "1", "--predictions", undisturbed]
            self.command = " ".join(words)
            whole = subprocess.run(words, capture_output=True, text=True)
            if whole.returncode != 0:
                raise Fault(f"undisturbed: exit code {whole.returncode}:\n{whole.stderr[-2000:]}")
        else:
            model += MODEL
        results = None
        while results is None:
            if time.monotonic() > self.end and self.trainings > 1:
                return
            results = self.life(save, model)
        if self.data:
            with open(undisturbed, "rb") as one, open(os.path.join(self.folder, "predictions"), "rb") as other:
                if one.read() != other.read():
                    raise Fault("its predictions are not those of the training that nothing disturbed")
            self.same += 1
        tenth = max(1, len(self.losses) // 10)
        begin, end = (sum(loss for _, loss in part) / tenth for part in (self.losses[:tenth], self.losses[-tenth:]))
        print(f"training {self.trainings}, {optimizer}: loss {begin:.4f} -> {end:.4f}, AUC {results['auc']:.4f}, {self.lives} lives so far", flush=True)
        if not self.data and not end < begin:
            raise Fault(f"the loss did not fall: {begin} -> {end}")
        if not self.data and not results["auc"] > 0.6:
            raise Fault(f"AUC {results['auc']}")

    def run(self):
        began = time.monotonic()
        try:
            while time.monotonic() < self.end:
                self.training()
        except Fault as fault:
            print(f"FAULT: {fault}\nin life {self.lives}: {self.command}")
            return 1
        print(f"{(time.monotonic() - began) / 60:.0f} minutes: {self.trainings} trainings, {self.lives} lives, {self.kills} kills ({self.stops} of them stops), {self.useful} lives saved "
              f"something new, {self.steps} steps kept; {self.measured} processes' memory followed, most growth {self.most_growth / 2**20:.1f} MiB")
        if self.data:
            print(f"{self.same} trainings ended with the bytes of predictions that the undisturbed one has")
        print("lives: " + ", ".join(f"{kind} {count}" for kind, count in sorted(self.kinds.items())))
        return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trainer", default=os.path.join(os.path.dirname(__file__), "..", "build", "release", "bin", "train_dlrm"))
    parser.add_argument("--table-files", action="store_true", help="rows of tables are in files behind caches")
    parser.add_argument("--vocabulary", action="store_true", help="rows come and go with categories; compare with undisturbed trainings")
    parser.add_argument("--gloo", action="store_true", help="with --vocabulary: ranks are processes over Gloo")
    parser.add_argument("--folder", help="where to work [a temporary folder]")
    arguments = parser.parse_args()
    if arguments.gloo and not arguments.vocabulary:
        parser.error("--gloo needs --vocabulary: its trainings are compared with undisturbed ones")
    if not os.access(arguments.trainer, os.X_OK):
        parser.error(f"there is no trainer {arguments.trainer}: build it, or say --trainer")
    if arguments.folder:
        os.makedirs(arguments.folder, exist_ok=True)
        return Soak(arguments).run()
    with tempfile.TemporaryDirectory() as arguments.folder:
        return Soak(arguments).run()


if __name__ == "__main__":
    sys.exit(main())
