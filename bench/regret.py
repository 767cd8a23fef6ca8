#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""How much slower the planner's plans are than the best of all plans that are measured: regret.py BENCH_SHARDING [--models 20] [--seed 1] ...

Draws random models of 5 to 60 tables, measures each under every plan of the laboratory on each number of ranks, and prints for each the
planner's regret (its plan's time over the fastest plan's), and how far predictions are off. What was measured stays in --out, and is not
measured again. Options behind `--` go to bench_sharding.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys

PLANS = "auto,table-wise,memory-balanced,column-wise,row-wise,replicated,grid"


def random_model(seed, tables):
    """A model as tessera_plan reads it: sizes and exponents vary by table, mostly one id a sample."""
    draw = random.Random(seed)
    widths = draw.choice([[16], [32], [64], [128], [8, 32], [16, 64], [16, 32, 128]])
    most = draw.choice([4e3, 4e4, 4e5])
    several = draw.choice([0, 0.1, 0.4])
    return {
        "name": f"random {seed}",
        "tables": [{
            "name": f"t{t}",
            "rows": int(10 * (most / 10) ** draw.random()),
            "width": draw.choice(widths),
            "hotness": draw.randint(2, 12) if draw.random() < several else 1,
            "skew": round(draw.uniform(0, 1.3), 2)
        } for t in range(tables)],
        "workload": {"batch": draw.choice([1024, 2048, 4096, 8192])}
    }


def measured(options, seed):
    """The laboratory's results of one model."""
    smallest, largest = options.tables
    # as many small models as large ones
    tables = round(smallest * (largest / smallest) ** ((seed * 0.618034) % 1))
    folder = pathlib.Path(options.out) / f"model-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    results = folder / "results.json"
    if not results.exists():
        (folder / "model.json").write_text(json.dumps(random_model(seed, tables), indent=1) + "\n")
        command = [options.bench_sharding, "--model", folder / "model.json", "--plans", PLANS, "--ranks", options.ranks, "--out", folder, *options.rest]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"regret.py: bench_sharding failed on {folder}/model.json: {done.stderr.strip()}")
    return tables, json.loads(results.read_text())["laboratory"]


def main():
    parser = argparse.ArgumentParser(prog="regret.py", description=__doc__.splitlines()[0])
    parser.add_argument("bench_sharding")
    parser.add_argument("--models", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1, help="of the first model")
    parser.add_argument("--tables", type=int, nargs=2, default=[5, 60], metavar=("LEAST", "MOST"))
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--out", default="regret")
    parser.add_argument("--by", choices=["p50", "best"], default="p50", help="the time of a plan; best: if other programs disturb the machine")
    own = sys.argv[1:sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    options = parser.parse_args(own)
    options.rest = sys.argv[len(own) + 2:]
    regrets, off = [], []
    print("| model | tables | ranks | fastest plan, ms | planner's, ms | regret | predicted: fastest, planner's |")
    print("|---|---|---|---|---|---|---|")
    for seed in range(options.seed, options.seed + options.models):
        tables, laboratory = measured(options, seed)
        for ranks in sorted({case["ranks"] for case in laboratory["cases"] if "error" not in case}):
            cases = [case for case in laboratory["cases"] if case.get("ranks") == ranks]
            best = min(cases, key=lambda case: case["step_ms"][options.by])
            planned = next(case for case in cases if case["plan"] == "auto")
            regrets.append(planned["step_ms"][options.by] / best["step_ms"][options.by])
            off += [case["predicted_ms"] / case["step_ms"][options.by] for case in cases]
            print(f'| {seed} | {tables} | {ranks} | {best["plan"]} {best["step_ms"][options.by]:.2f} | {planned["step_ms"][options.by]:.2f} | {regrets[-1]:.2f} '
                  f'| {best["predicted_ms"]:.2f}, {planned["predicted_ms"]:.2f} |', flush=True)
    near = sum(0.75 <= x <= 1.25 for x in off)
    print(f"\nregret: {statistics.median(regrets):.2f} in the median, {max(regrets):.2f} at most; "
          f"predictions within 25 %: {near} of {len(off)}, over measured {statistics.median(off):.2f} in the median")


if __name__ == "__main__":
    main()
