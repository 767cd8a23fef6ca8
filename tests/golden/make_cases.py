#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Writes golden cases in which poolings, weights, optimizers per table, accumulation and clipping meet, with the numbers that the definitions
give, in double, computed row by row in plain Python. tests/golden.sh runs them as it runs those that are handed out.

usage: make_cases.py OUTPUT_DIRECTORY
"""
import json
import math
import pathlib
import random
import struct
import sys

TABLES = [("user", 30, 16), ("item", 19, 8), ("tag", 7, 4)]
FEATURES = [("user", "user", "sum", True), ("item", "item", "mean", True), ("best", "item", "max", False), ("tag", "tag", "sum", False),
            ("history", "item", "none", False)]
ADAM = {"kind": "adam", "lr": 0.01, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
ROWWISE = {"kind": "rowwise_adagrad", "lr": 0.1, "eps": 1e-8, "initial_accumulator": 0.1}
L2 = {**ROWWISE, "weight_decay": 0.01, "weight_decay_mode": "l2"}
FTRL = {"kind": "ftrl", "lr": 0.1, "l1": 0.001, "l2": 0.01, "beta": 0.5, "initial_accumulator": 0.1}
MOMENTUM = {"kind": "momentum", "lr": 0.05, "momentum": 0.9}
FROZEN = {"kind": "frozen"}
CASES = {
    "accumulate_weighted": {"optimizer": ROWWISE, "clip": {"kind": "global_norm", "max": 2.0}, "micro_batches": [9, 4, 7], "applies": 2},
    "accumulate_per_table": {"per_table": [L2, ADAM, FROZEN], "clip": None, "micro_batches": [8, 5], "applies": 3},
    "accumulate_per_table_value": {"per_table": [FTRL, MOMENTUM, ROWWISE], "clip": {"kind": "value", "max": 0.4}, "micro_batches": [6, 1, 6], "applies": 2},
    "groups_weighted": {"per_table": [MOMENTUM, L2, FTRL], "batch": 11, "steps": 3},
}


def rounded(x):
    """As a file of float32 has it."""
    return struct.unpack("<f", struct.pack("<f", x))[0]


class Rows:
    """A table, its optimizer and states."""

    STATES = {"adam": ("m", "v"), "ftrl": ("z", "n"), "momentum": ("m",), "frozen": ()}

    def __init__(self, rng, rows, width, optimizer):
        self.weights = [[rounded(rng.uniform(-1, 1)) for _ in range(width)] for _ in range(rows)]
        self.optimizer = optimizer
        if optimizer["kind"] == "rowwise_adagrad":
            self.states = {"sum": [[optimizer["initial_accumulator"]] for _ in range(rows)]}
        else:
            first = {"n": optimizer.get("initial_accumulator", 0)}
            self.states = {s: [[first.get(s, 0.0)] * width for _ in range(rows)] for s in self.STATES[optimizer["kind"]]}

    def update(self, row, gradient, t):
        o, w, s = self.optimizer, self.weights[row], {name: rows[row] for name, rows in self.states.items()}
        if o["kind"] == "rowwise_adagrad":
            h = [g + o.get("weight_decay", 0) * x for g, x in zip(gradient, w)]
            s["sum"][0] += sum(x * x for x in h) / len(h)
            w[:] = [x - o["lr"] * y / (math.sqrt(s["sum"][0]) + o["eps"]) for x, y in zip(w, h)]
            return
        for i, g in enumerate(gradient):
            if o["kind"] == "momentum":
                s["m"][i] = o["momentum"] * s["m"][i] + g
                w[i] -= o["lr"] * s["m"][i]
            elif o["kind"] == "adam":
                s["m"][i] = o["beta1"] * s["m"][i] + (1 - o["beta1"]) * g
                s["v"][i] = o["beta2"] * s["v"][i] + (1 - o["beta2"]) * g * g
                w[i] -= o["lr"] * math.sqrt(1 - o["beta2"] ** t) / (1 - o["beta1"] ** t) * s["m"][i] / (math.sqrt(s["v"][i]) + o["eps"])
            elif o["kind"] == "ftrl":
                n = s["n"][i] + g * g
                s["z"][i] += g - (math.sqrt(n) - math.sqrt(s["n"][i])) / o["lr"] * w[i]
                z, s["n"][i] = s["z"][i], n
                w[i] = 0.0 if abs(z) <= o["l1"] else (math.copysign(o["l1"], z) - z) / ((o["beta"] + math.sqrt(n)) / o["lr"] + 2 * o["l2"])


def look_up(rng, tables, prefix, samples, tensors, merged):
    """One batch: its tensors, and the gradients of its rows, added to `merged`."""
    output = [[] for _ in range(samples)]
    backs = []  # of pooled features: their columns, and what a gradient of them means
    for name, table, pooling, weighted in FEATURES:
        rows, width = tables[table].weights, len(tables[table].weights[0])
        lengths = [rng.choice((0, 1, 2, 3, 5)) for _ in range(samples)]
        ids = [rng.randrange(len(rows)) for _ in range(sum(lengths))]
        offsets = [sum(lengths[:s]) for s in range(samples + 1)]
        weights = [rounded(rng.uniform(-2, 2)) for _ in ids] if weighted else [1.0] * len(ids)
        of = f"{prefix}feature.{name}."
        tensors[of + "offsets"], tensors[of + "ids"] = ("I64", [samples + 1], offsets), ("I64", [len(ids)], ids)
        if weighted:
            tensors[of + "weights"] = ("F32", [len(ids)], weights)
        to = merged.setdefault(table, {})
        for i in ids:
            to.setdefault(i, [0.0] * width)
        if pooling == "none":
            gradients = [[rounded(rng.uniform(-1, 1)) for _ in range(width)] for _ in ids]
            tensors[of + "rows"] = ("F32", [len(ids), width], [x for i in ids for x in rows[i]])
            tensors[of + "grad_rows"] = ("F32", [len(ids), width], [x for g in gradients for x in g])
            for i, g in zip(ids, gradients):
                to[i][:] = [a + b for a, b in zip(to[i], g)]
            continue
        for s in range(samples):
            bag = range(offsets[s], offsets[s + 1])
            if pooling == "max":
                output[s] += [max((rows[ids[k]][c] for k in bag), default=0.0) for c in range(width)]
            else:
                scale = 1 / len(bag) if pooling == "mean" and bag else 1.0
                output[s] += [scale * sum(weights[k] * rows[ids[k]][c] for k in bag) for c in range(width)]
        backs.append((of, to, rows, width, pooling, weighted, ids, offsets, weights))
    columns = sum(back[3] for back in backs)
    gradient = [[rounded(rng.uniform(-1, 1)) for _ in range(columns)] for _ in range(samples)]
    tensors[prefix + "output"] = ("F32", [samples, columns], [x for row in output for x in row])
    tensors[prefix + "grad_output"] = ("F32", [samples, columns], [x for row in gradient for x in row])
    at = 0
    for of, to, rows, width, pooling, weighted, ids, offsets, weights in backs:
        of_weights = [0.0] * len(ids)
        for s in range(samples):
            g, bag = gradient[s][at:at + width], range(offsets[s], offsets[s + 1])
            for c in range(width if pooling == "max" and bag else 0):
                winner = max(bag, key=lambda k: rows[ids[k]][c])  # the first of equal ones
                to[ids[winner]][c] += g[c]
            for k in bag if pooling != "max" else ():
                scale = 1 / len(bag) if pooling == "mean" else 1.0
                of_weights[k] = scale * sum(g[c] * rows[ids[k]][c] for c in range(width))
                to[ids[k]][:] = [a + scale * weights[k] * b for a, b in zip(to[ids[k]], g)]
        if weighted:
            tensors[of + "grad_weights"] = ("F32", [len(ids)], of_weights)
        at += width


def clipped(clip, norm, x):
    if clip is None:
        return x
    return x * min(1, clip["max"] / norm) if clip["kind"] == "global_norm" else max(-clip["max"], min(clip["max"], x))


def make(name, says):
    rng = random.Random(name)
    optimizers = says.get("per_table") or [says["optimizer"]] * len(TABLES)
    tables = {t: Rows(rng, rows, width, o) for (t, rows, width), o in zip(TABLES, optimizers)}
    tensors = {f"table.{t}.initial": ("F32", [rows, width], [x for row in tables[t].weights for x in row]) for t, rows, width in TABLES}
    accumulates = "applies" in says
    for step in range(says["applies"] if accumulates else says["steps"]):
        merged = {}
        if accumulates:
            for m, samples in enumerate(says["micro_batches"]):
                look_up(rng, tables, f"apply{step}.micro{m}.", samples, tensors, merged)
        else:
            look_up(rng, tables, f"step{step}.", says["batch"], tensors, merged)
        merged = {t: rows for t, rows in merged.items() if tables[t].optimizer["kind"] != "frozen"}
        norm = math.sqrt(sum(x * x for rows in merged.values() for g in rows.values() for x in g))
        if accumulates:
            tensors[f"apply{step}.norm"] = ("F32", [1], [norm])
        for t, rows in merged.items():
            for row, g in rows.items():
                tables[t].update(row, [clipped(says.get("clip"), norm, x) for x in g], step + 1)
    for t, rows, width in TABLES:
        tensors[f"table.{t}.final"] = ("F32", [rows, width], [x for row in tables[t].weights for x in row])
        for state, values in tables[t].states.items():
            shape = [rows, width] if len(values[0]) == width else [rows]
            tensors[f"state.{t}.{state}.final"] = ("F32", shape, [x for row in values for x in row])
    case = {"kind": "accumulate" if accumulates else "embedding", **{k: v for k, v in says.items() if k != "per_table"}}
    case["tables"] = [{"name": t, "rows": rows, "width": width, **({"optimizer": o} if "per_table" in says else {})}
                      for (t, rows, width), o in zip(TABLES, optimizers)]
    case["features"] = [{"name": n, "table": t, "pooling": p, "weighted": w} for n, t, p, w in FEATURES]
    return case, tensors


def write(path, case, tensors):
    header, data = {"__metadata__": {"case": json.dumps(case)}}, b""
    for name, (kind, shape, values) in tensors.items():
        packed = struct.pack(f"<{len(values)}{'f' if kind == 'F32' else 'q'}", *values)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, says in CASES.items():
        write(folder / f"{name}.safetensors", *make(name, says))
