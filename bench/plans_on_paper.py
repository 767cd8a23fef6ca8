#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""The tables of docs/cost_model.md on Merlin's synthetic models: plans_on_paper.py TESSERA_PLAN MODELS.json [MODEL...]

Runs tessera_plan on every model and number of A100s, once as it is and once with --memory-share 1.05, and prints two tables: predicted steps
beside the published ones, and balance beside the best that Merlin's three strategies reach.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

GPUS = {"tiny": [1, 2, 8, 16, 128], "small": [1, 8, 16, 32, 128], "medium": [8, 16, 32, 128], "large": [32, 128], "jumbo": [128]}
MERLIN = ("table-wise, round robin", "memory balanced", "memory optimized")


def plans(command, file, model, gpus, *options):
    """{name of the plan: its figures} as tessera_plan predicts them."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "plan.json"
        subprocess.run([command, file, "--model", model, "--ranks", str(gpus), "--optimizer", "adagrad", "--json", str(out), *options], check=True,
                       stdout=subprocess.DEVNULL)
        return {plan["name"]: plan for plan in json.loads(out.read_text())["plans"]}


def imbalance(plan):
    return f'{plan["memory_imbalance"]:.2f}, {plan["time_imbalance"]:.2f}'


def main(command, file, models):
    published = json.loads(pathlib.Path(file).read_text())["models"]
    steps = ["| model | GPUs | published ms | planned ms | GiB on the fullest rank | max/mean memory, time | `memory_balanced` ms | its max/mean memory, time |",
             "|---|---|---|---|---|---|---|---|"]
    balance = ["| model | GPUs | planned: max/mean memory, time | `--memory-share 1.05` | its step | Merlin's best memory, and time |", "|---|---|---|---|---|---|"]
    for model in models or GPUS:
        times = published[model].get("published", {}).get("step_time_ms_by_gpus", {})
        for gpus in GPUS[model]:
            free, level = plans(command, file, model, gpus), plans(command, file, model, gpus, "--memory-share", "1.05")
            planned, even, merlin = free["planned"], level["planned"], [free[name] for name in MERLIN]
            balanced = free["memory balanced"]
            gib = planned["most_bytes"] / 2**30
            steps.append(f'| {model} | {gpus} | {times.get(str(gpus), "")} | {1e3 * planned["step_seconds"]:.2f} | {gib:.1f} | {imbalance(planned)} | '
                         f'{1e3 * balanced["step_seconds"]:.2f}{"" if balanced["fits"] else " (does not fit)"} | {imbalance(balanced)} |')
            balance.append(f'| {model} | {gpus} | {imbalance(planned)} | {imbalance(even)} | {100 * (even["step_seconds"] / planned["step_seconds"] - 1):+.0f} % | '
                           f'{min(p["memory_imbalance"] for p in merlin):.2f}, {min(p["time_imbalance"] for p in merlin):.2f} |')
    print("\n".join(steps + [""] + balance))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
