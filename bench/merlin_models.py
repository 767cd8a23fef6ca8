#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Merlin's synthetic models by train_dlrm: tables cut over ranks beside all tables on every rank.

    python3 bench/merlin_models.py build/release/bin/train_dlrm [--models tiny,small] [--repetitions 3]

Prints a table in Markdown: samples per second, and bytes that a step sends for its tables. The plans
of a model run in turn; each figure is the median of the repetitions.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile

# Scale of the rows, batch and steps: tables of all ranks with Adagrad's state fit 2 GiB, also where
# each of 4 ranks has a copy; a run takes some seconds.
MODELS = {
    "criteo": ("1/1000", 2048, 8),
    "tiny": ("1/100", 2048, 10),
    "small": ("1/1000", 2048, 6),
    "medium": ("1/1000", 512, 6),
    "large": ("1/10000", 128, 6),
    "jumbo": ("1/10000", 64, 4),
    "colossal": ("1/100000", 32, 3),
}
PLANS = ["table-wise", "auto", "replicated"]


def run(trainer, model, ranks, plan):
    scale, batch, steps = MODELS[model]
    with tempfile.TemporaryDirectory() as folder:
        command = [trainer, "--synthetic-model", model, "--scale", scale, "--batch-size", str(batch),
                   "--samples", str(batch * steps + 32), "--test-fraction", "0.001", "--ranks", str(ranks),
                   "--plan", plan, "--json", folder + "/json", "--log", folder + "/log"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}\n{done.stderr}")
        result = json.load(open(folder + "/json"))
        # the last batch is a small one
        sent = max(e["bytes_sent"] for e in map(json.loads, open(folder + "/log")) if "bytes_sent" in e)
        return result["samples_per_second"], sent, result["embedding_parameters"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trainer")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--repetitions", type=int, default=3)
    options = parser.parse_args()
    models = options.models.split(",")
    for model in models:
        if model not in MODELS:
            parser.error(f"--models: '{model}' is none of {', '.join(MODELS)}")
    cases = [(1, "table-wise")] + [(ranks, plan) for ranks in (2, 4) for plan in PLANS]
    print("| model, scale, batch | ranks | " + " | ".join(PLANS) + " | auto / replicated |")
    print("|---|---|" + "---|" * (len(PLANS) + 1))
    for model in models:
        rates, sent = {case: [] for case in cases}, {}
        for _ in range(options.repetitions):
            for case in cases:
                rate, sent[case], parameters = run(options.trainer, model, *case)
                rates[case].append(rate)
        rate = {case: statistics.median(rates[case]) for case in cases}
        cell = lambda case: f"{rate[case]:,.0f}, {sent[case] / 1e6:,.1f} MB"
        scale, batch, _ = MODELS[model]
        print(f"| {model}, {scale} ({parameters / 1e6:,.1f} M parameters), {batch:,} | 1 | {rate[cases[0]]:,.0f} | | | |")
        for ranks in (2, 4):
            ratio = rate[ranks, "auto"] / rate[ranks, "replicated"]
            print(f"| | {ranks} | " + " | ".join(cell((ranks, plan)) for plan in PLANS) + f" | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
