#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""serve_model against the trainer whose model it serves, and against bad clients.

    serve_model.py BIN [--seconds N] [--requests N]    BIN: the folder of train_dlrm, train_sequence, serve_model and evaluate_model

Scores over HTTP, JSON and binary, are compared with train_dlrm's --predictions: of binary tensors to the last bit. Wrong requests must be
answered with a status and a text that helps. Clients that die, are slow, or send nonsense come for N seconds (default 3). SIGTERM comes
while requests are being sent. A training's saves are followed with --watch. With tritonclient[http] installed, that talks to the server,
too. evaluate_model's figures are those of the trainer's predictions. Exit code 77: the programs are missing.
"""
import argparse
import array
import atexit
import gzip
import http.client
import json
import math
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

BATCH = 256
TEST = 1024
LINES = 5 * TEST
TRAINING = f"--ranks 1 --epochs 1 --test-fraction 0.2 --batch-size 128 --eval-batch-size {BATCH} --top-mlp 32,16".split()
MODEL, WIDE = [*TRAINING, "--bottom-mlp", "16"], [*TRAINING, "--model", "wide-deep"]


def check(good, *what):
    if not good:
        raise AssertionError(" ".join(str(w) for w in what))


def write_criteo(path):
    rng = random.Random(1)
    with open(path, "w") as out:
        for _ in range(LINES):
            numbers = ["" if rng.random() < 0.1 else str(int(rng.paretovariate(0.5)) % 100000 - 2) for _ in range(13)]
            words = ["" if rng.random() < 0.1 else f"{int(rng.paretovariate(0.7)) % 3000:08x}" for _ in range(26)]
            out.write("\t".join([str(int(rng.random() < 0.3)), *numbers, *words]) + "\n")


SCHEMA = """
label: clicked
numeric:
  - price
  - {name: age, transform: [log1p, standardize], empty: 1.5}
  - {name: score, transform: standardize}
categorical:
  - device
  - {name: city, rows: 50}
  - {name: seen, table: item, list: "|", pooling: mean, min_count: 3}
  - {name: item, table: item}
"""


def write_csv(path):
    rng = random.Random(2)
    item = lambda: f"item {int(rng.paretovariate(0.8)) % 300}"
    with open(path, "w") as out:
        out.write("clicked,price,age,score,device,city,seen,item\n")
        for _ in range(LINES):
            number = lambda: "" if rng.random() < 0.1 else f"{rng.uniform(-5, 90):.3f}"
            seen = "|".join(item() for _ in range(rng.randrange(5)))
            city = "" if rng.random() < 0.1 else f"city {rng.randrange(500)}"
            out.write(f"{int(rng.random() < 0.4)},{number()},{number()},{number()},{rng.choice('abc')},{city},{seen},{item()}\n")


def train(binaries, folder, *options, model=MODEL):
    folder = pathlib.Path(folder)
    subprocess.run([binaries / "train_dlrm", *options, *model, "--save", folder], check=True, stdout=subprocess.DEVNULL)
    return predictions(binaries, folder, *options, *model)


def predictions(binaries, folder, *options):
    """Of the last checkpoint."""
    out = folder.with_suffix(".npy")
    subprocess.run([binaries / "train_dlrm", *options, "--save", folder, "--mode", "eval", "--resume", "--predictions", out],
                   check=True, stdout=subprocess.DEVNULL)
    data = out.read_bytes()
    return array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])


class Server:
    def __init__(self, binaries, *options):
        self.process = subprocess.Popen([binaries / "serve_model", "--port", "0", *options], stdout=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)  # where a check fails
        self.lines = []
        for line in self.process.stdout:
            self.lines.append(line)
            if found := re.search(r"serving on http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found[1])
                return
        raise AssertionError(f"serve_model ended with {self.process.wait()}")

    def call(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            reply = connection.getresponse()
            return reply.status, reply.read(), reply.headers
        finally:
            connection.close()

    def json(self, method, path, body=None):
        status, text, _ = self.call(method, path, body if body is None or isinstance(body, bytes) else json.dumps(body))
        return status, json.loads(text)

    def infer(self, columns, binary, model="model"):
        """Scores of columns {name: (datatype, shape, values)}."""
        inputs, tail = [], b""
        for name, (datatype, shape, values) in columns.items():
            one = {"name": name, "datatype": datatype, "shape": shape}
            if binary:
                data = encode(datatype, values)
                one["parameters"] = {"binary_data_size": len(data)}
                tail += data
            else:
                one["data"] = [None if isinstance(v, float) and math.isnan(v) else v for v in values]
            inputs.append(one)
        head = json.dumps({"id": "7", "inputs": inputs, "outputs": [{"name": "score", "parameters": {"binary_data": binary}}]}).encode()
        status, text, headers = self.call("POST", f"/v2/models/{model}/infer", head + tail,
                                          {"Inference-Header-Content-Length": str(len(head))} if binary else {})
        check(status == 200, status, text[:300])
        size = int(headers.get("Inference-Header-Content-Length", len(text)))
        reply = json.loads(text[:size])
        check(reply["id"] == "7" and reply["model_name"] == model, reply)
        output = reply["outputs"][0]
        check(output["name"] == "score" and output["datatype"] == "FP32", output)
        scores = array.array("f", text[size:]) if binary else array.array("f", output["data"])
        check(output["shape"] == [len(scores), 1], output["shape"], len(scores))
        return scores

    def end(self, signal_number=signal.SIGTERM):
        self.process.send_signal(signal_number)
        check(self.process.wait(timeout=60) == 0, "exit code", self.process.returncode)
        check("all requests are answered" in self.process.stdout.read())


def encode(datatype, values):
    if datatype == "FP32":
        return array.array("f", values).tobytes()
    if datatype == "INT64":
        return array.array("q", values).tobytes()
    return b"".join(struct.pack("<I", len(v.encode())) + v.encode() for v in values)


def number(field):
    return float(field) if field else math.nan


def criteo_columns(rows):
    columns = {}
    for c in range(13):
        columns[f"I{c + 1}"] = ("FP32", [len(rows), 1], [number(row[1 + c]) for row in rows])
    for c in range(26):
        columns[f"C{c + 1}"] = ("BYTES", [len(rows), 1], [row[14 + c] for row in rows])
    return columns


def csv_columns(rows):
    columns = {name: ("FP32", [len(rows), 1], [number(row[1 + i]) for row in rows]) for i, name in enumerate(["price", "age", "score"])}
    for name, place in (("device", 4), ("city", 5), ("item", 7)):
        columns[name] = ("BYTES", [len(rows), 1], [row[place] for row in rows])
    lists = [[v for v in row[6].split("|") if v] for row in rows]
    columns["seen__values"] = ("BYTES", [sum(map(len, lists))], [v for one in lists for v in one])
    columns["seen__lengths"] = ("INT64", [len(rows), 1], [len(one) for one in lists])
    return columns


def compare(server, rows, columns_of, expected, model="model", tolerance=0.0):
    """All test samples in the trainer's batches."""
    for binary in (True, False):
        worst = 0.0
        for begin in range(0, TEST, BATCH):
            scores = server.infer(columns_of(rows[begin:begin + BATCH]), binary, model)
            worst = max(worst, *(abs(a - b) for a, b in zip(scores, expected[begin:begin + BATCH], strict=True)))
        check(worst <= tolerance, model, "binary" if binary else "JSON", "differs by", worst)


def test_scores(binaries, folder):
    criteo, csv = folder / "clicks.tsv", folder / "clicks.csv"
    (folder / "schema.yaml").write_text(SCHEMA)
    write_criteo(criteo)
    write_csv(csv)
    models = {
        "dot": train(binaries, folder / "dot", "--data", criteo, "--min-count", "3"),
        "cross": train(binaries, folder / "cross", "--data", criteo, "--vocabulary", "--min-count", "2", "--max-rows", "500",
                       "--interaction", "cross", "--cross-rank", "8", "--embedding-width", "8"),
        "csv": train(binaries, folder / "csv", "--data", csv, "--schema", folder / "schema.yaml", "--embedding-width", "8"),
        "shared": train(binaries, folder / "shared", "--data", criteo, "--min-count", "1", "--max-rows", "100"),
        "projected": train(binaries, folder / "projected", "--data", csv, "--schema", folder / "schema.yaml", "--embedding-width", "8,4,16",
                           "--interaction-width", "8"),
        "files": train(binaries, folder / "files", "--data", criteo, "--min-count", "1", "--max-rows", "500", "--embedding-width", "64",
                       "--table-files", folder / "rows", "--host-memory", "1MiB"),
        "concat": train(binaries, folder / "concat", "--data", criteo, "--interaction", "concat", "--max-rows", "100"),
        "wide": train(binaries, folder / "wide", "--data", csv, "--schema", folder / "schema.yaml", "--embedding-width", "8,4,16",
                      model=WIDE),
    }
    tail = lambda path, separator: [line.split(separator) for line in path.read_text().splitlines()[-TEST:]]
    server = Server(binaries, *(word for name in models for word in ("--model", f"{name}={folder / name}")))
    for name, expected in models.items():
        of_csv = name in ("csv", "projected", "wide")
        compare(server, tail(csv, ",") if of_csv else tail(criteo, "\t"), csv_columns if of_csv else criteo_columns, expected, name)
    # rows in the place of texts, one sample and none
    rows = tail(criteo, "\t")[:3]
    columns = criteo_columns(rows)
    columns["C1"] = ("INT64", [3], [0, 0, 0])
    empty = criteo_columns([["0", *[""] * 39]] * 3)
    plain = criteo_columns(rows)
    plain["C1"] = empty["C1"]
    check(server.infer(columns, True, "dot") == server.infer(plain, True, "dot"))
    check(len(server.infer(criteo_columns([]), True, "dot")) == 0)
    triton_doors(server, models)
    server.end()
    # other formats of rows
    for format, tolerance in (("bf16", 3e-3), ("int8", 3e-3), ("int4", 3e-2)):
        server = Server(binaries, "--checkpoint", folder / "dot", "--format", format)
        compare(server, tail(criteo, "\t"), criteo_columns, models["dot"], tolerance=tolerance)
        server.end()
    triton(binaries, folder, tail(criteo, "\t"), models["dot"])


def triton_doors(server, models):
    """What Triton's clients ask for beside scores, by plain HTTP."""
    status, config = server.json("GET", "/v2/models/wide/config")
    metadata = server.json("GET", "/v2/models/wide")[1]
    check(status == 200 and config["name"] == "wide" and config["backend"] == "tessera", config)
    check([i["name"] for i in config["input"]] == [i["name"] for i in metadata["inputs"]])
    kinds = {"FP32": "TYPE_FP32", "FP64": "TYPE_FP64", "INT64": "TYPE_INT64", "BYTES": "TYPE_STRING"}
    check([i["data_type"] for i in config["input"]] == [kinds[i["datatype"]] for i in metadata["inputs"]])
    lists = any(i["name"].endswith("__lengths") for i in config["input"])
    check((config["max_batch_size"] == 0) == lists, config)
    before = server.json("GET", "/v2/models/dot/stats")[1]["model_stats"]
    check(len(before) == 1 and before[0]["version"] == "1" and before[0]["execution_count"] > 0, before)
    check(before[0]["inference_stats"]["success"]["count"] == before[0]["execution_count"])
    check(server.json("GET", "/v2/models/dot/versions/1/stats")[1]["model_stats"][0]["inference_count"] == before[0]["inference_count"])
    check(server.json("POST", "/v2/repository/index")[1] == [{"name": name, "version": "1", "state": "READY"} for name in sorted(models)])
    for method, path, status in (("POST", "/v2/models/dot/config", 405), ("GET", "/v2/repository/index", 405),
                                 ("GET", "/v2/models/none/stats", 404), ("GET", "/v2/models/dot/versions/7/stats", 404)):
        check(server.json(method, path)[0] == status, method, path)


def triton(binaries, folder, rows, expected):
    try:
        import numpy as np
        import tritonclient.http as client
    except (ImportError, RuntimeError):  # the latter if it is installed for gRPC alone
        print("no tritonclient[http]: its part is skipped")
        return
    server = Server(binaries, "--checkpoint", folder / "dot")
    triton_client = client.InferenceServerClient(f"127.0.0.1:{server.port}")
    check(triton_client.is_server_live() and triton_client.is_server_ready() and triton_client.is_model_ready("model"))
    check(triton_client.is_model_ready("model", "1"))
    check("binary_tensor_data" in triton_client.get_server_metadata()["extensions"])
    metadata = triton_client.get_model_metadata("model")
    check([i["name"] for i in metadata["inputs"]] == [*(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))], metadata)
    for binary in (True, False):
        inputs = []
        for name, (datatype, shape, values) in criteo_columns(rows).items():
            inputs.append(triton_input(client, np, name, (datatype, shape, values), binary))
        for outputs, coding in ((None, None), ([client.InferRequestedOutput("score", binary_data=binary)], None), (None, "gzip"), (None, "deflate")):
            scores = triton_client.infer("model", inputs, outputs=outputs, request_id="x", request_compression_algorithm=coding,
                                         response_compression_algorithm=coding).as_numpy("score")
            check(scores.shape == (TEST, 1) and scores.dtype == np.float32, scores.shape)
            if binary:
                check(np.abs(scores[:, 0] - np.array(expected)).max() <= 1e-6)
    try:
        triton_client.infer("model", inputs[1:])
        check(False, "a request without I1 was answered")
    except client.InferenceServerException as error:
        check("I1" in str(error), error)
    config = triton_client.get_model_config("model")
    check(config["max_batch_size"] > 0 and config["input"][0] == {"name": "I1", "data_type": "TYPE_FP32", "dims": ["1"]}, config)
    check(config["input"][13]["data_type"] == "TYPE_STRING" and config["output"][0]["name"] == "score", config)
    (statistics,) = triton_client.get_inference_statistics("model", "1")["model_stats"]
    check(statistics["inference_count"] == 8 * TEST and statistics["execution_count"] == 8, statistics)
    check(statistics["inference_stats"]["success"]["count"] == 8 and statistics["inference_stats"]["success"]["ns"] > 0)
    check(abs(statistics["last_inference"] / 1e3 - time.time()) < 60, statistics)
    check(triton_client.get_model_repository_index() == [{"name": "model", "version": "1", "state": "READY"}])
    triton_client.close()
    server.end()
    print("tritonclient: the trainer's predictions to 1e-6")


def auc_and_loss(scores, labels):
    """By the definitions, in double."""
    order = sorted(range(len(scores)), key=lambda i: scores[i])
    below = pairs = at = 0
    while at < len(order):
        end = at
        while end < len(order) and scores[order[end]] == scores[order[at]]:
            end += 1
        positives = sum(labels[i] for i in order[at:end])
        pairs += positives * (below + (end - at - positives) / 2)
        below += end - at - positives
        at = end
    loss = -sum(math.log(s if y else 1 - s) for s, y in zip(scores, labels)) / len(labels)
    return pairs / (below * (len(labels) - below)), loss


def test_evaluate(binaries, folder):
    """evaluate_model's figures are those of the trainer's predictions, and of what a client may measure."""
    def run(*options, code=0):
        ended = subprocess.run([binaries / "evaluate_model", *map(str, options)], capture_output=True, text=True)
        check(ended.returncode == code, options, ended)
        return ended.stdout if code == 0 else ended.stderr

    for name, data, separator, extra in (("dot", "clicks.tsv", "\t", []), ("wide", "clicks.csv", ",", ["--label", "clicked"])):
        labels = [int(line.split(separator)[0]) for line in (folder / data).read_text().splitlines()[-TEST:]]
        trained = array.array("f", (folder / name).with_suffix(".npy").read_bytes()[-4 * TEST:])
        text = run("accuracy", "--checkpoint", folder / name, "--data", folder / data, "--test-fraction", "0.2", *extra).splitlines()
        check(text[0] == f"{TEST:,} samples", text)
        rows = {row[0]: [float(x.replace(",", "")) for x in row[1:]] for row in map(str.split, text[2:])}
        check(list(rows) == ["fp32", "bf16", "fp16", "int8", "int8-half", "int4"], text)
        auc, loss = auc_and_loss(trained, labels)
        check(abs(rows["fp32"][2] - auc) < 2e-6 and abs(rows["fp32"][4] - loss) < 1e-4, rows["fp32"], auc, loss)
        for format, (_, share, auc_, change, loss_, loss_change, largest) in rows.items():
            check(abs(auc_ - change - auc) < 3e-6 and abs(loss_ - loss_change - loss) < 1e-4, format, rows[format])
            check(share == 1 and largest == 0 if format == "fp32" else share < 1 and 0 < largest < 0.05, format, rows[format])
    lines = (folder / "clicks.csv").read_text().splitlines()
    for label in ("-1", "2", "nan", "0.5.5", ""):
        fields = lines[7].split(",")
        fields[lines[0].split(",").index("clicked")] = label
        (folder / "label.csv").write_text("\n".join([*lines[:7], ",".join(fields), *lines[8:], ""]))
        error = run("accuracy", "--checkpoint", folder / "csv", "--data", folder / "label.csv", "--label", "clicked", code=1)
        check(f"line 8: the label '{label}' is no number from 0 to 1" in error and error.count("\n") == 1, error)
    given = ["--checkpoint", folder / "csv", "--label", "clicked", "--formats", "fp32", "--test-fraction", "0.2"]
    plain = run("accuracy", *given, "--data", folder / "clicks.csv")
    (folder / "other.txt").write_text("\n".join(line.replace(",", ";;") for line in lines[1:]))
    check(run("accuracy", *given, "--data", folder / "other.txt", "--separator", ";;", "--columns", lines[0]) == plain)
    (folder / "semicolons.csv").write_text((folder / "clicks.csv").read_text().replace("|", ";"))
    (folder / "semicolons.yaml").write_text(SCHEMA.replace('list: "|"', 'list: ";"'))
    trained = train(binaries, folder / "semicolons", "--data", folder / "semicolons.csv", "--schema", folder / "semicolons.yaml",
                    "--embedding-width", "8")
    run("predict", "--checkpoint", folder / "semicolons", "--data", folder / "semicolons.csv", "--out", folder / "semicolons.csv.npy")
    check(list(array.array("f", (folder / "semicolons.csv.npy").read_bytes()[-4 * TEST:])) == list(trained), "semicolons between entries")
    # what is wrong with samples is told with their file
    lines = (folder / "clicks.csv").read_text().splitlines()
    label, _, *others = lines[-1].split(",")
    (folder / "large.csv").write_text("\n".join([*lines[:-1], ",".join([label, "3e38", *others])]))
    train(binaries, folder / "crossed", "--data", folder / "clicks.csv", "--schema", folder / "schema.yaml", "--interaction", "cross")
    error = run("predict", "--checkpoint", folder / "crossed", "--data", folder / "large.csv", "--out", folder / "large.npy", code=1)
    check(f"large.csv', samples from 4096 on: sample {LINES - 4096 - 1}: its logit" in error, error)
    page = folder / "latency.html"
    text = run("latency", "--checkpoint", folder / "csv", "--batch-sizes", "1,70", "--threads", "1,2", "--loads", "0.3", "--seconds", "0.05",
               "--page", page, "--user-columns", "price,city,seen").splitlines()
    rows = [line.split() for line in text[1:]]
    check([row[0] for row in rows] == ["closed", "open"] * 4, text)
    for row in rows:
        threads, batch, requests, p50, p95, p99, most = map(float, row[-8:-1])
        check((threads, batch) in ((1, 1), (2, 1), (1, 70), (2, 70)) and requests >= 1 and 0 < p50 <= p95 <= p99 <= most, row)
    html = page.read_text()
    check(html.count("<svg") == 5 and html.count("<tr>") == 9 and not re.search(r"src=|href=", html), html[:300])
    for options, words, code in (
            (["--checkpoint", folder / "none", "--data", folder / "clicks.tsv"], ["none"], 1),
            (["--checkpoint", folder / "dot", "--data", folder / "none.tsv"], ["none.tsv"], 1),
            (["--checkpoint", folder / "csv", "--data", folder / "clicks.csv", "--label", "bought"], ["clicks.csv", "'bought'", "--label"], 1),
            (["--checkpoint", folder / "csv", "--data", folder / "clicks.tsv"], ["--label", "the model is of other columns"], 1),
            (["--checkpoint", folder / "csv", "--data", folder / "clicks.csv", "--label", "device"], ["line 2", "is no number from 0 to 1"], 1),
            (["--checkpoint", folder / "dot", "--data", folder / "clicks.tsv", "--formats", "int3"], ["--formats"], 2),
            (["--checkpoint", folder / "dot", "--data", folder / "clicks.tsv", "--test-fraction", "2"], ["--test-fraction"], 2)):
        error = run("accuracy", *options, code=code)
        check(all(word in error for word in words) and error.count("\n") == 1, options, error)
    for options, words, code in ((["--batch-sizes", "0"], ["--batch-sizes"], 2), (["--user-columns", "colour"], ["'colour'"], 1),
                                 (["--page", folder / "none" / "page.html"], ["--page"], 1)):
        error = run("latency", "--checkpoint", folder / "csv", *options, code=code)
        check(all(word in error for word in words) and error.count("\n") == 1, options, error)


def valid_body(rows=2):
    inputs = [{"name": f"I{i}", "datatype": "FP32", "shape": [rows, 1], "data": [1.5] * rows} for i in range(1, 14)]
    inputs += [{"name": f"C{i}", "datatype": "BYTES", "shape": [rows, 1], "data": ["1f"] * rows} for i in range(1, 27)]
    return {"inputs": inputs}


def history_columns(rows):
    lists = lambda name: [row[name].split("|") if row[name] else [] for row in rows]
    columns = {"candidate": ("BYTES", [len(rows), 1], [row["candidate"] for row in rows])}
    for name, datatype, read in (("history", "BYTES", str), ("history_labels", "FP32", float)):
        if name in rows[0]:
            values = [read(v) for one in lists(name) for v in one]
            columns[name + "__values"] = (datatype, [len(values)], values)
            columns[name + "__lengths"] = ("INT64", [len(rows), 1], [len(one) for one in lists(name)])
    return columns


def test_histories(binaries, folder):
    """A ranking model of train_sequence: its test's logits to the last bit, of whole samples and of a user with candidates."""
    rng = random.Random(4)
    with open(folder / "events.tsv", "w") as out:
        out.write("who\twhat\twhen\tstars\n")
        for user in range(150):
            for event in range(rng.randrange(4, 20)):
                out.write(f"u{user}\titem {int(rng.paretovariate(0.8)) % 90}\t{event}\t{rng.randrange(1, 6)}\n")
    shape = "--model ranking --epochs 2 --ranks 1 --width 16 --heads 2 --blocks 2 --max-length 10 --batch-size 32".split()
    data = ["--data", folder / "events.tsv", "--user-column", "who", "--item-column", "what", "--time-column", "when"]
    runs = {"stars": [*data, "--label-column", "stars", "--label-threshold", "4"], "unlabelled": data, "made-up": ["--users", "100", "--items", "100"]}
    models = {}
    for name, options in runs.items():
        save, out = folder / f"history-{name}", folder / f"{name}.tsv"
        subprocess.run([binaries / "train_sequence", *shape, *options, "--save", save, "--predictions", out, "--json", folder / f"{name}.json"],
                       check=True, stdout=subprocess.DEVNULL)
        header, *lines = [line.split("\t") for line in out.read_text().splitlines()]
        models[name] = [dict(zip(header, line)) for line in lines]
    server = Server(binaries, *(word for name in models for word in ("--model", f"{name}={folder}/history-{name}")))
    as_float = lambda x: struct.unpack("f", struct.pack("f", x))[0]
    score = lambda row: as_float(1 / (1 + math.exp(-as_float(float(row["logit"])))))
    for name, rows in models.items():
        check(("history_labels" in rows[0]) == (name != "unlabelled"), rows[0])
        expected = [score(row) for row in rows]
        for binary in (True, False):
            check(list(server.infer(history_columns(rows), binary, name)) == expected, name, "other bits than the trainer's")
        auc, _ = auc_and_loss(expected, [float(row["label"]) for row in rows])
        check(abs(auc - json.loads((folder / f"{name}.json").read_text())["auc"]) < 1e-6)
        # one user with the candidates of all, who each had his own history
        users = [dict(rows[0], candidate=row["candidate"]) for row in rows]
        together = server.infer(history_columns(users), True, name)
        check(abs(together[0] - expected[0]) < 1e-6 and len(set(together)) > 20)
        for i in (1, 57, len(rows) - 1):
            check(abs(server.infer(history_columns(users[i:i + 1]), True, name)[0] - together[i]) < 1e-6)
        print_of = subprocess.run([binaries / "evaluate_model", "accuracy", "--checkpoint", folder / f"history-{name}", "--data", folder / f"{name}.tsv",
                                   "--label", "label", "--separator", "\t", "--formats", "fp32,int8"], check=True, capture_output=True, text=True).stdout
        check(abs(float(print_of.splitlines()[2].split()[3]) - auc) < 2e-6, print_of, auc)
        subprocess.run([binaries / "evaluate_model", "latency", "--checkpoint", folder / f"history-{name}", "--seconds", "0.02", "--batch-sizes", "1,20",
                        "--threads", "2", "--user-columns", "history" + (",history_labels" if name != "unlabelled" else "")], check=True, capture_output=True)
        # what a thread that measures throws ends the program in one line
        wrong = subprocess.run([binaries / "evaluate_model", "latency", "--checkpoint", folder / f"history-{name}", "--seconds", "0.02", "--batch-sizes", "1",
                                "--user-columns", "candidate"], capture_output=True, text=True)
        check(wrong.returncode == 1 and wrong.stderr.count("\n") == 1 and "'candidate'" in wrong.stderr, wrong)
    inputs = {i["name"]: i["datatype"] for i in server.json("GET", "/v2/models/stars")[1]["inputs"]}
    check(inputs == {"history__values": "BYTES", "history__lengths": "INT64", "history_labels__values": "FP32", "history_labels__lengths": "INT64",
                     "candidate": "BYTES"}, inputs)

    def refused(words, **changed):
        columns = history_columns(models["stars"][:3]) | changed
        body = {"inputs": [{"name": n, "datatype": t, "shape": s, "data": d} for n, (t, s, d) in columns.items()]}
        status, reply = server.json("POST", "/v2/models/stars/infer", body)
        check(status == 400 and words in reply["error"], words, status, reply)

    refused("history_labels", history_labels__lengths=("INT64", [3, 1], [1, 1, 1]))
    refused("FP32", history_labels__values=("INT64", [1], [1]))
    refused("lengths", history__lengths=("INT64", [3, 1], [-1, 1, 1]))
    refused("'nothing'", candidate=("BYTES", [3, 1], ["item 1", "nothing", "item 2"]))
    for name, rows in models.items():
        triton_histories(server, name, rows, [score(row) for row in rows])
    server.end()


def triton_input(client, np, name, column, binary):
    datatype, shape, values = column
    given = client.InferInput(name, shape, datatype)
    array_ = np.array([v.encode() for v in values], object) if datatype == "BYTES" else np.array(values, {"FP32": np.float32, "INT64": np.int64}[datatype])
    given.set_data_from_numpy(array_.reshape(shape), binary_data=binary)
    return given


def triton_histories(server, name, rows, expected):
    try:
        import numpy as np
        import tritonclient.http as client
    except (ImportError, RuntimeError):  # the latter if it is installed for gRPC alone
        print("no tritonclient[http]: its part is skipped")
        return
    triton_client = client.InferenceServerClient(f"127.0.0.1:{server.port}")
    check(triton_client.is_model_ready(name, "1"))
    metadata = triton_client.get_model_metadata(name)
    columns = history_columns(rows)
    check({i["name"] for i in metadata["inputs"]} == set(columns) and [o["name"] for o in metadata["outputs"]] == ["score"], metadata)
    for binary in (True, False):
        inputs = [triton_input(client, np, column, content, binary) for column, content in columns.items()]
        for outputs in (None, [client.InferRequestedOutput("score", binary_data=binary)]):
            scores = triton_client.infer(name, inputs, outputs=outputs).as_numpy("score")
            check(scores.shape == (len(rows), 1) and scores.dtype == np.float32, scores.shape)
            check(np.abs(scores[:, 0] - np.array(expected)).max() <= 1e-6, name, "differs from the trainer")
    try:
        triton_client.infer(name, inputs[1:])
        check(False, "a request without candidates was answered")
    except client.InferenceServerException as error:
        check("candidate" in str(error), error)
    triton_client.close()
    print(f"tritonclient: a ranking model's test of {len(rows)} samples ({name}) to 1e-6")


def test_wrong_requests(binaries, folder):
    server = Server(binaries, "--checkpoint", folder / "dot", "--max-body", "200KiB", "--max-samples", "100", "--request-timeout", "1")
    infer = "/v2/models/model/infer"

    def refused(status, words, body=None, path=infer, method="POST", headers=None, change=None):
        if change is not None:
            body = valid_body()
            change(body["inputs"])
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        got, text, _ = server.call(method, path, body, headers)
        error = json.loads(text)["error"]
        check(got == status, path, "gave", got, error, "for", body[:200])
        for word in words:
            check(word in error, repr(word), "is not in", repr(error))

    def set_(place, **values):
        return lambda inputs: inputs[place].update(values)

    check(server.json("POST", infer, valid_body())[0] == 200)
    refused(400, ["JSON", "offset"], b"{nonsense")
    refused(400, ["JSON"], b"")
    refused(400, ["JSON"], b"\xff\xfe\x00")
    refused(400, ["nested too deep"], b'{"x":' + b"[" * 1000)
    refused(400, ["'inputs'"], {})
    refused(400, ["I1", "missing", "FP32"], {"inputs": []})
    refused(400, ["C26", "missing", "BYTES"], change=lambda inputs: inputs.pop())
    refused(400, ["'I99' is none", "metadata"], change=lambda inputs: inputs.append({**inputs[0], "name": "I99"}))
    refused(400, ["'I1' is given twice"], change=lambda inputs: inputs.append(inputs[0]))
    refused(400, ["I2", "FP64", "FP32"], change=set_(1, datatype="FP64"))
    refused(400, ["I2", "INT64", "give FP32"], change=set_(1, datatype="INT64", data=[1, 2]))
    refused(400, ["C1", "FP32", "BYTES"], change=set_(13, datatype="FP32", data=[1, 2]))
    refused(400, ["I3", "3 elements", "[2,1]"], change=set_(2, data=[1, 2, 3]))
    refused(400, ["I3", "[2,2]", "[n,1]"], change=set_(2, shape=[2, 2], data=[1, 2, 3, 4]))
    refused(400, ["I3", "3 samples", "I1"], change=set_(2, shape=[3, 1], data=[1, 2, 3]))
    refused(400, ["I3", "too many"], change=set_(2, shape=[1 << 40, 1 << 40]))
    refused(400, ["offset", "not negative"], change=set_(2, shape=[-1, 1]))
    refused(400, ["I3", "float"], change=set_(2, data=[1e300, 1]))
    refused(400, ["I3", "neither"], change=lambda inputs: inputs[2].pop("data"))
    refused(400, ["C1", "sample 1", "'xyz'", "hexadecimal"], change=set_(13, data=["1", "xyz"]))
    refused(400, ["C1", "row 123456789"], change=set_(13, datatype="INT64", data=[0, 123456789]))
    refused(400, ["101 samples", "100"], valid_body(101))
    refused(400, ["Inference-Header-Content-Length"], {}, headers={"Inference-Header-Content-Length": "99999"})
    refused(400, ["Inference-Header-Content-Length"], {}, headers={"Inference-Header-Content-Length": "x"})
    refused(400, ["I1", "binary_data_size", "9999"],
            change=lambda inputs: (inputs[0].pop("data"), inputs[0].update(parameters={"binary_data_size": 9999})))
    refused(400, ["no output 'other'"], {**valid_body(), "outputs": [{"name": "other"}]})
    refused(404, ["no model 'other'", "'model'"], valid_body(), path="/v2/models/other/infer")
    refused(404, ["no version '7'", "1"], valid_body(), path="/v2/models/model/versions/7/infer")
    refused(404, ["/v2/health/live"], path="/elsewhere", method="GET")
    refused(405, ["use POST"], path=infer, method="GET")
    refused(405, ["use GET"], path="/v2", method="POST")
    refused(413, ["too large"], b"x" * 300_000)
    for binary_size, tail, words in ((8, b"\0" * 9, ["1 bytes follow"]), (3, b"\0" * 3, ["needs 8 bytes"])):
        body = valid_body()
        body["inputs"][0].pop("data")
        body["inputs"][0]["parameters"] = {"binary_data_size": binary_size}
        head = json.dumps(body).encode()
        refused(400, words, head + tail, headers={"Inference-Header-Content-Length": str(len(head))})
    for sent, status in ((b"NONSENSE\r\n\r\n", 400), (b"GET /v2 HTTP/1.1\r\nx: " + b"y" * 40_000 + b"\r\n\r\n", 431),
                         (b"POST " + infer.encode() + b" HTTP/1.1\r\nContent-Length: 100\r\n\r\nabc", 408)):
        with socket.create_connection(("127.0.0.1", server.port), 30) as client:
            client.sendall(sent)
            reply = client.makefile("rb").readline()
            check(reply.split()[1:2] == [str(status).encode()], sent[:40], reply)
    with socket.create_connection(("127.0.0.1", server.port), 30) as client:  # who speaks HTTP/1.0 is told that it goes on
        for _ in range(2):
            client.sendall(b"GET /v2/health/live HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            reply = client.recv(65536)
            check(b"Connection: keep-alive" in reply, reply)
    for coding in ("xchunked", "gzip, chunked", "identity"):  # what follows is a body of it, and no request
        with socket.create_connection(("127.0.0.1", server.port), 30) as client:
            client.sendall(b"POST %s HTTP/1.1\r\nTransfer-Encoding: %s\r\n\r\nGET /v2 HTTP/1.1\r\n\r\n" % (infer.encode(), coding.encode()))
            client.shutdown(socket.SHUT_WR)
            replies = client.makefile("rb").read()
            check(re.findall(rb"HTTP/1.1 (\d+)", replies) == [b"400"] and coding.encode() in replies, coding, replies)
    with socket.create_connection(("127.0.0.1", server.port), 30) as client:
        client.sendall(b"POST %s HTTP/1.1\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n" % infer.encode())
        check(b"100 Continue" in client.recv(100))
    check(server.json("GET", "/v2/health/live") == (200, {"live": True}))
    check(server.json("GET", "/v2/health/ready")[0] == 200 and server.json("GET", "/v2/models/model/versions/1/ready")[0] == 200)
    check(server.json("GET", "/v2/models/model")[1]["versions"] == ["1"])
    _, metrics, _ = server.call("GET", "/metrics")
    found = dict(re.findall(r'serve_replies_total\{status="(\d+)"\} (\d+)', metrics.decode()))
    check(int(found["400"]) >= 25 and int(found["413"]) == 1 and int(found["408"]) == 1, found)
    check('serve_samples_total{model="model",version="1"} 2' in metrics.decode(), metrics.decode())
    for output, every, binary in ((False, True, False), (True, False, True), (None, True, True)):
        asked = {"parameters": {"binary_data_output": every}, "outputs": [{"name": "score"} if output is None else {"name": "score", "parameters": {"binary_data": output}}]}
        for keys in (["parameters", "outputs"], ["outputs", "parameters"]):
            _, reply = server.call("POST", infer, json.dumps({**{key: asked[key] for key in keys}, **valid_body()}).encode())[:2]
            check((b'"data"' not in reply) == binary, keys, reply)
    server.end(signal.SIGINT)
    # what cannot be served is said before anything is
    for options, words in ((["--checkpoint", folder], "holds none"), (["--checkpoint", folder / "none"], "none"), ([], "--checkpoint"),
                           (["--model", "x"], "NAME=DIR"), (["--checkpoint", folder / "dot", "--host", "example"], "address")):
        ended = subprocess.run([binaries / "serve_model", "--port", "0", *options], capture_output=True, text=True)
        check(ended.returncode in (1, 2) and words in ended.stderr and ended.stderr.count("\n") == 1, options, ended)


PACK = {"gzip": gzip.compress, "deflate": zlib.compress}
UNPACK = {"gzip": gzip.decompress, "deflate": zlib.decompress, None: lambda body: body}


def unpack_strictly(name, body):
    """Throws for what Python passes over: zeros and other bytes behind the end."""
    out = b""
    while True:
        one = zlib.decompressobj(31 if name == "gzip" else 15)
        out += one.decompress(body)
        body = one.unused_data
        if not one.eof or (body and (name == "deflate" or not body.startswith(b"\x1f\x8b"))):
            raise ValueError
        if not body:
            return out


def test_compressed(binaries, folder):
    """Packed bodies and replies say what plain ones say; wrong ones are refused; what zlib of Python cannot unpack, the server does not."""
    server = Server(binaries, "--checkpoint", folder / "dot", "--max-body", "1MiB", "--max-memory", "8MiB")
    infer = "/v2/models/model/infer"
    plain = json.dumps(valid_body(40)).encode()
    body = valid_body(40)
    for one in body["inputs"][:13]:
        one.pop("data")
        one["parameters"] = {"binary_data_size": 160}
    head = json.dumps({**body, "outputs": [{"name": "score", "parameters": {"binary_data": True}}]}).encode()
    binary, sizes = head + array.array("f", [1.5] * 40 * 13).tobytes(), {"Inference-Header-Content-Length": str(len(head))}
    expected = {b: server.call("POST", infer, b, h)[1] for b, h in ((plain, {}), (binary, sizes))}
    for sent, more in ((plain, {}), (binary, sizes)):
        for name, header in (("gzip", "gzip"), ("gzip", "X-GZip"), ("deflate", "Deflate"), ("deflate", "identity, deflate,"), (None, "identity"), (None, "")):
            for accepts, coding in ((None, None), ("gzip", "gzip"), ("deflate", "deflate"), ("deflate, gzip", "gzip"), ("identity", None), ("br", None),
                                    ("gzip;q=0.2, deflate; Q=0.25", "deflate"), ("gzip;q=0.5, identity;q=0.6", None), ("*", "gzip"), ("", None),
                                    ("gzip;q=0, *;q=0.001", "deflate"), ("x-gzip;q=1.000", "gzip"), ("gzip;q=2", None), ("gzip;q=x,,", None),
                                    ("*;q=0, deflate", "deflate"), ("gzip;q=0.0000", None), ("br;q=1, identity;q=0, deflate;q=0.1", "deflate")):
                headers = {"Content-Encoding": header, **more} | ({} if accepts is None else {"Accept-Encoding": accepts})
                status, text, got = server.call("POST", infer, PACK[name](sent) if name else sent, headers)
                check(status == 200 and got.get("Content-Encoding") == coding, header, accepts, status, got, text[:200])
                check(got.get("Vary") == ("Accept-Encoding" if coding else None), got)
                check(UNPACK[coding](text) == expected[sent], header, accepts, "other bytes")
                check(("Inference-Header-Content-Length" in got) == (sent is binary))
    # members that follow each other are one body; all other paths pack, too
    check(server.call("POST", infer, gzip.compress(plain[:99]) + gzip.compress(b"") + gzip.compress(plain[99:]), {"Content-Encoding": "gzip"})[1] == expected[plain])
    _, text, got = server.call("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
    check(b"serve_samples_total" in gzip.decompress(text) and got["Content-Encoding"] == "gzip")
    check(server.call("HEAD", "/v2/models/model", headers={"Accept-Encoding": "gzip"})[2]["Content-Length"] ==
          server.call("GET", "/v2/models/model", headers={"Accept-Encoding": "gzip"})[2]["Content-Length"])

    def refused(status, words, body, encoding, **more):
        got, text, headers = server.call("POST", infer, body, {"Content-Encoding": encoding, **{k.replace("_", "-"): v for k, v in more.items()}})
        error = json.loads(text)["error"]
        check(got == status and all(word in error for word in words), encoding, "gave", got, error)
        check(headers.get("Accept-Encoding") == ("gzip, deflate" if status == 415 else None), headers)

    for encoding in ("br", "zstd", "compress", "gzip, deflate", "gzip,gzip", "gzip;q=1", "g zip"):
        refused(415, [f"'{encoding}'", "gzip or deflate"], gzip.compress(plain), encoding)
    for name, pack in PACK.items():
        whole = pack(plain)
        refused(400, ["damaged", "header", name], plain, name)
        refused(400, ["damaged"], whole[:50] + bytes([whole[50] ^ 255]) + whole[51:], name)
        refused(400, ["cut off"], whole[:-1], name)
        refused(400, ["cut off"], b"", name)
        refused(400, ["followed by 3 other bytes"], whole + b"abc", name)
        refused(400, ["JSON"], pack(b""), name)
        refused(400, ["JSON"], pack(b"{nonsense"), name)
        refused(400, ["Inference-Header-Content-Length"], pack(binary), name, Inference_Header_Content_Length=str(len(binary) + 1))
        refused(413, ["too large", "unpacks", "1048576"], pack(b" " * (1 << 30)), name)
        refused(413, ["unpacks"], pack(b" " * (1 << 20) + b" "), name)
        refused(400, ["JSON"], pack(b" " * (1 << 20)), name)
        refused(413, ["too large"], b"x" * (2 << 20), name)
    refused(400, ["cut off"], gzip.compress(plain) + gzip.compress(b"abc")[:9], "gzip")
    refused(400, ["header"], zlib.compress(plain), "gzip")
    refused(400, ["header"], gzip.compress(plain), "deflate")
    with_dictionary = zlib.compressobj(zdict=plain)
    refused(400, ["dictionary"], with_dictionary.compress(plain) + with_dictionary.flush(), "deflate")
    for accepts in ("identity;q=0", "*;q=0", "gzip;q=0, deflate;q=0, identity;q=0.000"):
        refused(406, [f"'{accepts}'", "leave it out"], plain, "identity", Accept_Encoding=accepts)
    with socket.create_connection(("127.0.0.1", server.port), 60) as client:  # a list on two lines is one list
        client.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}" % infer.encode())
        check(client.makefile("rb").readline().split()[1] == b"415")
    rng, unpacked = random.Random(6), 0
    for turn in range(400):
        name = rng.choice(list(PACK))
        sent = mutate(PACK[name](plain), rng) if turn % 4 else PACK[name](mutate(plain, rng))
        if turn % 4 == 3:
            sent = bytearray(PACK[name](plain))
            sent[rng.randrange(len(sent))] ^= 1 << rng.randrange(8)
        try:
            body = unpack_strictly(name, bytes(sent))
        except (zlib.error, ValueError):
            body = None
        status, text, _ = server.call("POST", infer, bytes(sent), {"Content-Encoding": name})
        if body is None:
            check(status == 400 and " data are " in json.loads(text)["error"], turn, name, status, text)
        else:
            unpacked += 1
            check((status, text) == server.call("POST", infer, body)[:2], turn, name, status, text)
    check(100 <= unpacked < 300, unpacked)
    # eight at once, each of which would unpack to as much as all may hold
    bomb = gzip.compress(b" " * (1 << 30))
    memory = lambda: int(pathlib.Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    before, statuses = memory(), []
    bombs = [threading.Thread(target=lambda: statuses.append(server.call("POST", infer, bomb, {"Content-Encoding": "gzip"})[0])) for _ in range(8)]
    for thread in bombs:
        thread.start()
    for thread in bombs:
        thread.join()
    check(set(statuses) <= {413, 503} and memory() - before < 64 << 20, statuses, memory() - before)
    check(server.call("POST", infer, plain)[1] == expected[plain])
    server.end()


def test_long_replies(binaries, checkpoint):
    """One that does not fit --max-memory is counted as what the client gets."""
    server = Server(binaries, "--max-memory", "10000", "--checkpoint", checkpoint, "--name", "m" * 2000)
    check(server.json("GET", "/metrics")[0] == 503)
    metrics = gzip.decompress(server.call("GET", "/metrics", headers={"Accept-Encoding": "gzip"})[1]).decode()
    check(re.findall(r"serve_replies_total\{.*", metrics) == ['serve_replies_total{status="503"} 1'], metrics)
    server.end()


def test_limits(binaries, checkpoint):
    """What a client announces, sends or does not read takes no more than --max-memory, and does not keep others waiting."""
    infer = b"/v2/models/model/infer"
    server = Server(binaries, "--checkpoint", checkpoint, "--max-memory", "32MiB", "--max-body", "16MiB", "--request-timeout", "120")
    memory = lambda: int(pathlib.Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    good = lambda: server.json("POST", infer.decode(), valid_body())[0]
    connect = lambda: socket.create_connection(("127.0.0.1", server.port), 60)
    post = lambda body, path=infer: b"POST " + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    check(good() == 200)
    before = memory()
    # bodies that are announced, and do not come; whole or in chunks, also to no model
    waiting = [connect() for _ in range(20)]
    for i, client in enumerate(waiting):
        client.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\n" % (infer if i % 4 else b"/nothing") +
                       (b"Content-Length: 16777216\r\n\r\n{" if i % 2 else b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"))
    check(good() == 200, "announced bodies take memory")
    # the path is looked at before the body comes
    with connect() as client:
        client.sendall(b"POST /nothing HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9999999\r\n\r\n")
        check(client.makefile("rb").readline().split()[1] == b"404")
    # 12 bodies of 8 MiB that stop before their ends: the fifth does not fit
    held = [connect() for _ in range(12)]
    refused = 0
    for client in held:
        try:
            client.sendall(post(b"x" * (8 << 20))[:-1])
        except OSError:
            refused += 1
    check(server.json("GET", "/v2/health/live")[0] == 200)
    check(memory() - before < 80 << 20, "held", (memory() - before) >> 20, "MiB")
    for client in held + waiting:
        client.close()
    until = time.monotonic() + 30
    while good() != 200:
        check(time.monotonic() < until, "memory is not given back")
    # long names come back short, also where nobody reads the replies
    silent = [connect() for _ in range(8)]
    for client in silent:
        client.sendall(post(b'{"inputs":[{"name":"' + b"x" * (4 << 20) + b'","datatype":"FP32","shape":[1],"data":[]}]}'))
        check(int(re.search(rb"Content-Length: (\d+)", client.recv(400))[1]) < 300)
    check(good() == 200)
    for client in silent:
        client.close()
    # health does not wait for those who send long bodies of nothing
    over, worst = time.monotonic() + 2, 0.0
    keys = post(b'{"x":0' + b"".join(b',"%x":0' % i for i in range(1 << 20)) + b"}")

    def send():
        while time.monotonic() < over:
            with connect() as client:
                client.sendall(keys)
                client.recv(100)

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    while time.monotonic() < over:
        begin = time.monotonic()
        check(server.json("GET", "/v2/health/live")[0] == 200)
        worst = max(worst, time.monotonic() - begin)
    for thread in threads:
        thread.join()
    print(f"slowest answer of /v2/health/live beside long bodies: {worst:.3f} s")
    # HEAD has no body, URLs are paths
    with connect() as client:
        file = client.makefile("rb")
        client.sendall(b"HEAD /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\nGET http://x/v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n")
        for _ in range(2):
            check(file.readline().split()[1] == b"200")
            check(b"Content-Length: 13\r\n" in list(iter(file.readline, b"\r\n")))
        check(file.read(13) == b'{"live":true}')
    server.end()


def test_end(binaries, checkpoint):
    """New connections until SIGTERM ends the server: each that it has gets its answer. A second signal ends it at once."""
    body = json.dumps(valid_body()).encode()
    request = b"POST /v2/models/model/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    answered = 0
    for _ in range(5):
        server = Server(binaries, "--checkpoint", checkpoint, "--drain", "0.1")
        lost, ended = [], []

        def client():
            while True:
                try:
                    one = socket.create_connection(("127.0.0.1", server.port), 30)
                except OSError:
                    return
                with one:
                    try:
                        one.sendall(request)
                        line = one.makefile("rb").readline()
                        if line.split()[1:2] != [b"200"]:
                            lost.append(line)
                    except OSError as error:
                        lost.append(repr(error))
                ended.append(1)

        threads = [threading.Thread(target=client) for _ in range(8)]
        for thread in threads:
            thread.start()
        until = time.monotonic() + 60
        while len(ended) < 25:
            check(time.monotonic() < until, "requests that ended:", len(ended))
            time.sleep(0.01)
        server.end()
        for thread in threads:
            thread.join()
        check(not lost, lost)
        answered += len(ended)
    server = Server(binaries, "--checkpoint", checkpoint, "--drain", "60")
    server.process.send_signal(signal.SIGTERM)
    until = time.monotonic() + 30
    while server.json("GET", "/v2/health/ready")[0] != 503:
        check(time.monotonic() < until)
    server.process.send_signal(signal.SIGTERM)
    check(server.process.wait(timeout=20) == -signal.SIGTERM)
    print("requests on new connections that were answered while the server ended five times:", answered)


def test_command_line(binaries):
    def run(*options):
        ended = subprocess.run([binaries / "serve_model", *options], capture_output=True, text=True)
        return ended.returncode, ended.stdout, ended.stderr

    code, text, _ = run("--help")
    for word in ("--checkpoint", "--model", "--watch", "--max-memory", "--drain", "--port", "--version"):
        check(word in text, word)
    check(code == 0)
    code, text, _ = run("--version")
    check(code == 0 and re.fullmatch(r"serve_model \d+\.\d+\.\d+\n", text), text)
    for port in ("99999", "-1", "x"):
        code, _, error = run("--checkpoint", "x", "--port", port)
        check(code == 2 and "--port" in error and "65535" in error and error.count("\n") == 1, error)


def test_versions(binaries, folder):
    many = folder / "many"
    many.mkdir()
    for version, name in (("2", "dot"), ("10", "shared")):
        (many / version).symlink_to(folder / name)
    server = Server(binaries, "--checkpoint", many, "--name", "a b")
    check(server.json("GET", "/v2/models/a%20b")[1]["versions"] == ["2", "10"])
    replies = [server.json("POST", f"/v2/models/a%20b{version}/infer", valid_body())[1] for version in ("", "/versions/10", "/versions/2")]
    check([r["model_version"] for r in replies] == ["10", "10", "2"], replies)
    (many / "02").symlink_to(folder / "dot")
    ended = subprocess.run([binaries / "serve_model", "--checkpoint", many, "--port", "0"], capture_output=True, text=True)
    check(ended.returncode == 1 and "are the same version" in ended.stderr, ended)
    (many / "02").unlink()
    check(replies[0]["outputs"] == replies[1]["outputs"] != replies[2]["outputs"])
    server.end()


def test_watch(binaries, folder):
    """The server follows a training's saves, increments and their vocabulary, too; what is damaged is refused, and the old model stays."""
    options = ["--data", folder / "clicks.tsv", "--vocabulary", "--min-count", "2", "--max-rows", "500", *MODEL]
    saving = ["--save-every", "8", "--save-increments", "2"]
    subprocess.run([binaries / "train_dlrm", *options, *saving, "--save", folder / "run"], check=True, stdout=subprocess.DEVNULL)
    saves = sorted((folder / "run").glob("step-*"))
    steps = [int(save.name[5:]) for save in saves]
    check(["base" in json.loads((s / "manifest.json").read_text()) for s in saves[:4]] == [False, True, True, False], saves)
    lines = [line.split("\t") for line in (folder / "clicks.tsv").read_text().splitlines()[-TEST:]]
    expected, live = {}, folder / "live"
    for save, step in zip(saves, steps):
        shutil.copytree(save, folder / "seen" / save.name)
        expected[step] = predictions(binaries, folder / "seen", *options)

    def put(save, change=lambda folder: None):
        shutil.copytree(save, live / "tmp")
        change(live / "tmp")
        (live / "tmp").rename(live / save.name)

    def served(path="model"):
        return server.json("GET", f"/v2/models/{path}")[1]["parameters"]["step"]

    def wait_until(good, *what):
        until = time.monotonic() + 60
        while not good():
            check(time.monotonic() < until, *what)
            time.sleep(0.01)

    live.mkdir()
    put(saves[0])
    server = Server(binaries, "--checkpoint", live, "--watch", "0.02", "--threads", "2")
    body = {"inputs": [{"name": n, "datatype": t, "shape": s, "data": [None if isinstance(v, float) and math.isnan(v) else v for v in d]}
                       for n, (t, s, d) in criteo_columns(lines[:BATCH]).items()]}
    over, seen, faults = threading.Event(), set(), []

    def client():
        try:
            while not over.is_set():
                status, reply = server.json("POST", "/v2/models/model/infer", body)
                check(status == 200, status, reply)
                step, scores = reply["parameters"]["step"], reply["outputs"][0]["data"]
                check(array.array("f", scores) == expected[step][:BATCH], "other scores than those of step", step)
                seen.add(step)
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=client) for _ in range(2)]
    for thread in threads:
        thread.start()
    put(saves[1], lambda folder: (folder / "manifest.json").unlink())  # a copy that has not ended is none
    time.sleep(0.2)
    shutil.rmtree(live / saves[1].name)
    for i, (save, step) in enumerate(zip(saves, steps)):
        if i == 2:  # an increment with one bit changed
            put(save, lambda folder: flip(next(folder.glob("*-C3.safetensors"))))
            refused = lambda: int(re.search(r'refused_total{model="model",version="1"} (\d+)', server.call("GET", "/metrics")[1].decode())[1])
            wait_until(lambda: refused() > 0, "nothing was refused")
            check(served() == steps[1], "a damaged increment is served")
            shutil.rmtree(live / save.name)
        if i > 0:
            put(save)
        wait_until(lambda: served() == step, "step", step, "is not served")
        compare(server, lines, criteo_columns, expected[step])
    over.set()
    for thread in threads:
        thread.join()
    check(not faults, faults)
    check(len(seen) > 1 and seen <= set(steps), seen)
    check(f'serve_model_step{{model="model",version="1"}} {steps[-1]}' in server.call("GET", "/metrics")[1].decode())
    server.process.send_signal(signal.SIGTERM)
    text = server.process.communicate(timeout=60)[0]
    # once; a folder that is seen while it is deleted is refused for what is gone already
    check(server.process.returncode == 0 and len(re.findall("refused: .*-C3.safetensors': the checksum", text)) == 1, text)
    # without --watch: the last one, which may be an increment
    shutil.rmtree(live / saves[-1].name)
    for save in saves[3:-1]:
        shutil.rmtree(live / save.name)
    server = Server(binaries, "--checkpoint", live)
    check(served() == steps[2])
    compare(server, lines, criteo_columns, expected[steps[2]])
    server.end()


def test_day_two(binaries, folder):
    """A run that began with another's checkpoint feeds a server: increments with rows that came and went, each as evaluate_model has them."""
    options = ["--vocabulary", "--eviction", "oldest", "--time-to-live", "20", "--min-count", "1", "--max-rows", "200"]
    today, yesterday = folder / "today.tsv", folder / "clicks.tsv"
    rng = random.Random(9)
    with open(today, "w") as out:  # half of the categories are new
        for line in yesterday.read_text().splitlines():
            fields = line.split("\t")
            out.write("\t".join([*fields[:14], *(f"f{f[1:]}" if f and rng.random() < 0.5 else f for f in fields[14:])]) + "\n")
    train(binaries, folder / "day1", "--data", yesterday, *options)
    run = subprocess.run([binaries / "train_dlrm", "--data", today, *options, *MODEL, "--start-from", folder / "day1", "--save", folder / "day2",
                          "--save-every", "8", "--save-increments", "2"], check=True, capture_output=True, text=True)
    check("table C1: " in run.stdout and "rows come from the checkpoint's 200" in run.stdout, run.stdout[:3000])
    saves = sorted((folder / "day2").glob("step-*"))
    increments = ["base" in json.loads((save / "manifest.json").read_text()) for save in saves]
    check(increments.count(True) >= 2 and not increments[0], increments)
    lines = [line.split("\t") for line in today.read_text().splitlines()[-TEST:]]
    without = folder / "today-test.tsv"
    columns = ",".join(["y", *(f"I{i + 1}" for i in range(13)), *(f"C{i + 1}" for i in range(26))])
    without.write_text("".join("\t".join(line) + "\n" for line in lines))
    live, seen = folder / "live2", folder / "seen2"
    live.mkdir()
    shutil.copytree(saves[0], live / saves[0].name)
    server = Server(binaries, "--checkpoint", live, "--watch", "0.02")
    answers = []
    for save in saves:
        if save != saves[0]:
            shutil.copytree(save, live / "tmp")
            (live / "tmp").rename(live / save.name)
        shutil.copytree(save, seen / save.name)
        step, until = int(save.name[5:]), time.monotonic() + 60
        while server.json("GET", "/v2/models/model")[1]["parameters"]["step"] != step:
            check(time.monotonic() < until, "step", step, "is not served")
            time.sleep(0.01)
        scores = folder / "scores2.npy"
        subprocess.run([binaries / "evaluate_model", "predict", "--checkpoint", seen, "--data", without, "--out", scores, "--separator", "tab",
                        "--columns", columns], check=True, stdout=subprocess.DEVNULL)
        data = scores.read_bytes()
        expected = array.array("f", data[10 + struct.unpack("<H", data[8:10])[0]:])
        compare(server, lines, criteo_columns, expected)
        answers.append(expected.tobytes())
    check(len(set(answers)) == len(answers), "increments change nothing")
    server.end()


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_load(binaries, folder, seconds):
    """Good clients get their scores while bad ones come and go."""
    server = Server(binaries, "--checkpoint", folder / "dot", "--request-timeout", "1", "--idle-timeout", "2", "--max-body", "1MiB",
                    "--threads", "2", "--batch-delay-us", "200", "--max-connections", "64")
    body = json.dumps(valid_body(20)).encode()
    expected = server.json("POST", "/v2/models/model/infer", body)[1]["outputs"][0]["data"]
    until = time.monotonic() + seconds
    counts, faults, lock = {}, [], threading.Lock()

    def client(kind, act):
        rng = random.Random(kind)
        enough = lambda: min(counts.get("good", 0), counts.get("mutated", 0)) > 3
        while not faults and time.monotonic() < (until if enough() else until + 60):
            try:
                act(rng)
            except (OSError, http.client.HTTPException) as error:
                if kind == "good":
                    faults.append(f"{kind}: {error!r}")
            except Exception as error:
                faults.append(f"{kind}: {error!r}")
            with lock:
                counts[kind] = counts.get(kind, 0) + 1

    def good(rng):
        status, reply = server.json("POST", "/v2/models/model/infer", body)
        check(status == 200, status, reply)
        got = reply["outputs"][0]["data"]
        check(all(abs(a - b) < 1e-6 for a, b in zip(got, expected, strict=True)), "other scores")

    def raw(data, timeout=5):
        with socket.create_connection(("127.0.0.1", server.port), timeout) as one:
            one.sendall(data)
            return one.makefile("rb").readline()

    head = b"POST /v2/models/model/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body)

    def killed(rng):
        with socket.create_connection(("127.0.0.1", server.port), 5) as one:
            one.sendall((head + body)[:rng.randrange(len(head + body) + 1)])
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset

    def slow(rng):
        with socket.create_connection(("127.0.0.1", server.port), 10) as one:
            for byte in head + body:
                one.sendall(bytes([byte]))
                time.sleep(0.05)

    def mutated(rng):
        text = mutate(body, rng)
        headers = {"Inference-Header-Content-Length": str(rng.randrange(len(text) + 9))} if rng.random() < 0.3 else {}
        status, reply, _ = server.call("POST", "/v2/models/model/infer", text, headers)
        check(status in (200, 400), status, reply[:200])
        json.loads(reply)

    def oversize(rng):
        line = raw(b"POST /v2/models/model/infer HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * 1000)
        check(line.split()[1] == b"413", line)

    def noise(rng):
        raw(rng.randbytes(rng.randrange(1, 3000)) + b"\r\n\r\n")

    memory = lambda: int(pathlib.Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    kinds = {"good": good, "killed": killed, "slow": slow, "mutated": mutated, "oversize": oversize, "noise": noise}
    threads = [threading.Thread(target=client, args=(kind, act)) for kind, act in kinds.items() for _ in range(2)]
    before = memory()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(not faults, faults)
    check(counts["good"] > 3 and counts["mutated"] > 3, counts)
    good(None)
    grown = memory() - before
    check(grown < 64 << 20, "memory grew by", grown)
    print("clients:", counts, "memory grew by", grown >> 10, "KiB")
    # those who ask when it is told to end get their answers
    answered, lost, begun = [], [], set()

    def last(number):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        while True:
            try:
                connection.request("POST", "/v2/models/model/infer", body)
                reply = connection.getresponse()
                reply.read()
                (answered if reply.status == 200 else lost).append(reply.status)
                begun.add(number)
                if reply.headers.get("Connection") == "close":
                    return
            except (OSError, http.client.HTTPException) as error:
                return lost.append(repr(error))

    threads = [threading.Thread(target=last, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 60
    while len(begun) < len(threads) and not lost:
        check(time.monotonic() < until, "clients that were answered:", len(begun))
        time.sleep(0.01)
    server.end()
    for thread in threads:
        thread.join()
    check(not lost and len(answered) >= 4, lost, len(answered))


def mutate(text, rng):
    text = bytearray(text)
    for _ in range(rng.randrange(1, 20)):
        place = rng.randrange(len(text) + 1)
        change = rng.randrange(4)
        if change == 0 and place < len(text):
            text[place] = rng.randrange(256)
        elif change == 1:
            del text[place:place + rng.randrange(1, 50)]
        elif change == 2:
            text[place:place] = rng.choice([b"[", b"{", b'"', b"-", b"1e999", b"null", b"\\u0000", b"18446744073709551616", b"\r\n", b"\0"])
        else:
            text[place:place] = text[place:place + rng.randrange(1, 50)]
    return bytes(text)


def test_fuzz(binaries, folder, requests):
    """Malformed requests: bodies of text and of binary tensors, paths, headers, whole requests. Each gets a status that is defined, or, where
    no request has arrived, the end of its connection; nothing is kept of them."""
    server = Server(binaries, "--checkpoint", folder / "dot", "--request-timeout", "2", "--max-body", "1MiB", "--threads", "2")
    columns = criteo_columns([["0", *["1"] * 13, *["68fd1e64"] * 26]] * 3)
    plain = json.dumps(valid_body(3)).encode()
    inputs, tail = [], b""
    for name, (datatype, shape, values) in columns.items():
        data = encode(datatype, values)
        inputs.append({"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": len(data)}})
        tail += data
    head = json.dumps({"inputs": inputs}).encode()
    good = server.infer(columns, True)
    memory = lambda: int(pathlib.Path(f"/proc/{server.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    counts, faults, lock = {}, [], threading.Lock()
    defined = {200, 400, 404, 405, 408, 411, 413, 414, 415, 417, 431, 501, 503, 505}

    def request(rng):
        """Its bytes, and whether the connection may go on behind it."""
        path, body, more = "/v2/models/model/infer", plain, ""
        kind = rng.randrange(10)
        if kind < 4:
            body = mutate(plain, rng)
        elif kind < 7:
            cut = mutate(head, rng) if rng.random() < 0.5 else head
            body = cut + (mutate(tail, rng) if rng.random() < 0.7 else tail)
            more = f"Inference-Header-Content-Length: {len(cut) if rng.random() < 0.8 else rng.choice(['-1', 'x', '1e3', str(rng.randrange(1 << 70))])}\r\n"
        elif kind == 7:
            path = "/" + "".join(chr(rng.randrange(33, 127)) for _ in range(rng.randrange(60)))
        text = f"POST {path} HTTP/1.1\r\nHost: x\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body
        return (mutate(text[:200], rng) + text[200:], False) if kind > 7 else (text, True)

    def client(seed, count):
        rng, connection, file = random.Random(seed), None, None
        found = {}
        try:
            for _ in range(count):
                data, goes_on = request(rng)
                if connection is None:
                    connection = socket.create_connection(("127.0.0.1", server.port), 30)
                    file = connection.makefile("rb")
                line = b""
                try:
                    connection.sendall(data)
                    if not goes_on:
                        connection.shutdown(socket.SHUT_WR)
                    line = file.readline()
                    length, ends = 0, not goes_on
                    for header in iter(file.readline, b"\r\n"):
                        if not header:
                            break
                        name, _, value = header.lower().partition(b":")
                        length = int(value) if name == b"content-length" else length
                        ends = ends or (name == b"connection" and value.strip() == b"close")
                    reply = file.read(length)
                except ConnectionError:  # the server has ended it before all was sent
                    ends = True
                status = int(line.split()[1]) if line else 0
                check(status in defined or (status == 0 and ends), status, data[:300])
                if status >= 400:
                    check(json.loads(reply)["error"], reply)
                found[status] = found.get(status, 0) + 1
                if ends:
                    connection.close()
                    connection = None
        except Exception as error:
            faults.append(repr(error))
        with lock:
            for status, n in found.items():
                counts[status] = counts.get(status, 0) + n

    client(99, min(requests // 10, 2000))  # what is needed once
    before = memory()
    threads = [threading.Thread(target=client, args=(seed, requests // 4)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(not faults, faults)
    check(counts.get(400, 0) > requests / 4, counts)
    check(server.infer(columns, True) == good)
    grown = memory() - before
    check(grown < 64 << 20, "memory grew by", grown)
    server.end()
    print("malformed requests by status (0: none, the connection ended):", dict(sorted(counts.items())), "memory grew by", grown >> 10, "KiB")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binaries", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, default=3, help="that bad clients come for")
    parser.add_argument("--requests", type=int, default=1000, help="malformed ones")
    arguments = parser.parse_args()
    for program in ("train_dlrm", "train_sequence", "serve_model", "evaluate_model"):
        if not (arguments.binaries / program).exists():
            print(f"skipped: there is no {program}")
            return 77
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        test_scores(arguments.binaries, folder)
        test_wrong_requests(arguments.binaries, folder)
        test_compressed(arguments.binaries, folder)
        test_command_line(arguments.binaries)
        test_long_replies(arguments.binaries, folder / "shared")
        test_limits(arguments.binaries, folder / "dot")
        test_end(arguments.binaries, folder / "dot")
        test_histories(arguments.binaries, folder)
        test_versions(arguments.binaries, folder)
        test_watch(arguments.binaries, folder)
        test_day_two(arguments.binaries, folder)
        test_evaluate(arguments.binaries, folder)
        test_fuzz(arguments.binaries, folder, arguments.requests)
        test_load(arguments.binaries, folder, arguments.seconds)
    print("all is well")
    return 0


if __name__ == "__main__":
    sys.exit(main())
