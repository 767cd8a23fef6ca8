# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Scores of other programs beside the trainer's: check_exports.py CHECKPOINT MODEL.onnx CLICKS.csv PREDICTIONS.npy EXAMPLES

CLICKS.csv: what the predictions are of, its last lines the test samples; columns as model.json of the checkpoint names them, lists with '|'.
Prints a line for each run time: its name and the largest difference of a probability, or "not installed"; exit code 1 above 1e-5.
"""
import array
import csv
import json
import math
import pathlib
import struct
import sys

MASK = (1 << 64) - 1
checkpoint, onnx_file, clicks, predictions, examples = map(pathlib.Path, sys.argv[1:])
sys.path.insert(0, str(examples))


def mix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def text_key(text):
    hash = 0xCBF29CE484222325
    for byte in text.encode():
        hash = ((hash ^ byte) * 0x100000001B3) & MASK
    return mix64(hash) or 1


def signed(key):
    return key - (1 << 64) if key >> 63 else key


def tensors(file):
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    for name, info in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__":
            begin, end = info["data_offsets"]
            yield name, list(array.array({"I64": "q", "I32": "i"}[info["dtype"]], data[8 + length + begin : 8 + length + end]))


model = json.loads((checkpoint / "model.json").read_text())
lists = dict(tensors(checkpoint / "inputs.safetensors")) if (checkpoint / "inputs.safetensors").exists() else {}
tables = {table["name"]: table for table in model["tables"]}
rows_of = {}
for name, table in tables.items():
    if table["rows_by"] == "list":
        keys = lists[name + ".keys"]
        rows_of[name] = dict(zip(keys, lists.get(name + ".rows", range(2, 2 + len(keys)))))


def row(table, text):
    if text == "":
        return table["empty_row"]
    key = text_key(text)
    if table["rows_by"] == "hash":
        return 1 + (((mix64(table["hash_seed"] ^ key) >> 32) * (table["rows"] - 1)) >> 32)
    return rows_of[table["name"]].get(signed(key), table["unknown_row"])


worst = 0.0


def compare(name, scores):
    global worst
    difference = max(abs(a - b) for a, b in zip(scores, expected, strict=True))
    worst = max(worst, difference)
    print(f"{name}: {difference:.2g}")


def histories():
    """A model of train_sequence: one history at a time, with its candidates; PREDICTIONS has no part in it."""
    global expected
    samples = list(csv.DictReader(clicks.open(), delimiter="\t"))
    expected = [1 / (1 + math.exp(-float(s["logit"]))) for s in samples]
    groups = []
    for s in samples:
        if not groups or groups[-1][0]["history"] != s["history"] or groups[-1][0].get("history_labels") != s.get("history_labels"):
            groups.append([])
        groups[-1].append(s)
    (table,) = model["tables"]
    if table["rows_by"] == "list":
        row_of = lambda text: rows_of[table["name"]][signed(text_key(text))]
    else:
        row_of = int
    inputs = []
    for group in groups:
        labels = [float(x) for x in group[0]["history_labels"].split("|")] if model["numeric"] else None
        inputs.append(([row_of(x) for x in group[0]["history"].split("|")], labels, [row_of(s["candidate"]) for s in group]))
    try:
        import numpy
        import onnxruntime
    except ImportError:
        print("onnxruntime: not installed")
    else:
        session = onnxruntime.InferenceSession(str(onnx_file), providers=["CPUExecutionProvider"])
        scores = []
        for history, labels, candidates in inputs:
            given = {"history": numpy.array(history, numpy.int64), "candidate": numpy.array(candidates, numpy.int64)[:, None]}
            if labels is not None:
                given["history_labels"] = numpy.array(labels, numpy.float32)
            scores += session.run(["score"], given)[0][:, 0].tolist()
        compare("onnxruntime", scores)
    try:
        import torch
    except ImportError:
        print("torch: not installed")
    else:
        from load_in_torch import load

        built, logits = load(checkpoint), []
        with torch.no_grad():
            for history, labels, candidates in inputs:
                numbers = None if labels is None else torch.tensor(labels)
                logits.append(built(torch.tensor(history), numbers, torch.tensor(candidates)))
        compare("torch", torch.sigmoid(torch.cat(logits).double()).tolist())


if model["interaction"] == "hstu":
    histories()
    sys.exit(1 if worst > 1e-5 else 0)
data = predictions.read_bytes()
(header,) = struct.unpack("<H", data[8:10])
expected = array.array("f", data[10 + header :])
samples = list(csv.DictReader(clicks.open()))[-len(expected) :]
numbers = [[float(s[c["name"]]) if s[c["name"]] else math.nan for c in model["numeric"]] for s in samples]
single, several = {}, {}
for feature in model["features"]:
    table, name = tables[feature["table"]], feature["name"]
    if feature["list"]:
        several[name] = [[row(table, entry) for entry in s[name].split("|")] if s[name] else [] for s in samples]
    else:
        single[name] = [row(table, s[name]) for s in samples]

try:
    import numpy
    import onnxruntime
except ImportError:
    print("onnxruntime: not installed")
else:
    session = onnxruntime.InferenceSession(str(onnx_file), providers=["CPUExecutionProvider"])
    types = {i.name: numpy.float64 if i.type == "tensor(double)" else numpy.float32 for i in session.get_inputs()}
    inputs = {c["name"]: numpy.array([[n[i]] for n in numbers], types[c["name"]]) for i, c in enumerate(model["numeric"])}
    inputs |= {name: numpy.array(rows, numpy.int64)[:, None] for name, rows in single.items()}
    for name, bags in several.items():
        inputs[name] = numpy.array([r for bag in bags for r in bag], numpy.int64)
        inputs[name + "_samples"] = numpy.array([i for i, bag in enumerate(bags) for _ in bag], numpy.int64)
    if "batch_size" in {i.name for i in session.get_inputs()}:
        inputs["batch_size"] = numpy.array([len(samples)], numpy.int64)
    compare("onnxruntime", session.run(["score"], inputs)[0][:, 0])
    try:
        import onnx
    except ImportError:
        print("onnx: not installed")
    else:
        onnx.checker.check_model(str(onnx_file), full_check=True)
        print("onnx: well-formed")

try:
    import torch
except ImportError:
    print("torch: not installed")
else:
    from load_in_torch import load

    ids = {name: torch.tensor(rows) for name, rows in single.items()}
    for name, bags in several.items():
        offsets = [0]
        for bag in bags:
            offsets.append(offsets[-1] + len(bag))
        ids[name] = (torch.tensor([r for bag in bags for r in bag], dtype=torch.int64), torch.tensor(offsets[:-1]))
    with torch.no_grad():
        logits = load(checkpoint)(torch.tensor(numbers, dtype=torch.float64).reshape(len(samples), -1), ids)
    compare("torch", torch.sigmoid(logits.double()).tolist())

sys.exit(1 if worst > 1e-5 else 0)
