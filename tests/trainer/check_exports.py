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

checkpoint, onnx_file, clicks, predictions, examples = map(pathlib.Path, sys.argv[1:])
sys.path.insert(0, str(examples))

from load_in_torch import encode, load, torch

model = json.loads((checkpoint / "model.json").read_text())
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
    inputs = []
    for group in groups:
        columns = {"history": group[0]["history"].split("|"), "candidate": [s["candidate"] for s in group]}
        if model["numeric"]:
            columns["history_labels"] = group[0]["history_labels"].split("|")
        inputs.append(encode(checkpoint / "model.json", columns))
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
    if torch is None:
        print("torch: not installed")
    else:
        built, logits = load(checkpoint), []
        with torch.no_grad():
            for history, labels, candidates in inputs:
                logits.append(built(history, labels, candidates))
        compare("torch", torch.sigmoid(torch.cat(logits).double()).tolist())


if model["interaction"] == "hstu":
    histories()
    sys.exit(1 if worst > 1e-5 else 0)
data = predictions.read_bytes()
(header,) = struct.unpack("<H", data[8:10])
expected = array.array("f", data[10 + header :])
samples = list(csv.DictReader(clicks.open()))[-len(expected) :]
lists = {feature["name"] for feature in model["features"] if feature["list"]}
columns = {c: [(s[c].split("|") if s[c] else []) if c in lists else s[c] for s in samples] for c in samples[0]}
numbers, ids = encode(checkpoint / "model.json", columns)

try:
    import numpy
    import onnxruntime
except ImportError:
    print("onnxruntime: not installed")
else:
    session = onnxruntime.InferenceSession(str(onnx_file), providers=["CPUExecutionProvider"])
    types = {i.name: numpy.float64 if i.type == "tensor(double)" else numpy.float32 for i in session.get_inputs()}
    inputs = {c["name"]: numpy.array([[n[i]] for n in numbers], types[c["name"]]) for i, c in enumerate(model["numeric"])}
    for name, rows in ids.items():
        if name in lists:
            inputs[name] = numpy.array(rows[0], numpy.int64)
            inputs[name + "_samples"] = numpy.searchsorted(rows[1], numpy.arange(len(rows[0])), side="right") - 1
        else:
            inputs[name] = numpy.array(rows, numpy.int64)[:, None]
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

if torch is None:
    print("torch: not installed")
else:
    with torch.no_grad():
        logits = load(checkpoint)(numbers, ids)
    compare("torch", torch.sigmoid(logits.double()).tolist())

sys.exit(1 if worst > 1e-5 else 0)
