# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""--tensorboard and --metrics-port of train_dlrm, read by a decoder of their formats that is written here.

    python3 watching.py TRAIN_DLRM
"""
import glob
import json
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

program = sys.argv[1]
if not os.path.exists(program):
    print(f"skipped: there is no {program}")
    sys.exit(77)
MODEL = "--samples 60000 --max-rows 300 --bottom-mlp 8 --top-mlp 8 --embedding-width 4 --ranks 2 --batch-size 64".split()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


assert crc32c(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF


def fields(data):
    """(number, value) of a protocol buffer's fields."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        wire = key & 7
        if wire == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(wire) or varint()
            value = data[at : at + size]
            at += size
        yield key >> 3, value


def events(folder):
    (path,) = glob.glob(folder + "/events.out.tfevents.*")
    data = open(path, "rb").read()
    at, found = 0, []
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        assert struct.unpack_from("<I", data, at + 8)[0] == crc32c(data[at : at + 8])
        body = data[at + 12 : at + 12 + length]
        assert struct.unpack_from("<I", data, at + 12 + length)[0] == crc32c(body)
        at += 16 + length
        event = dict(fields(body))
        values = {}
        for number, value in fields(event.get(5, b"")):
            assert number == 1
            entry = dict(fields(value))
            values[entry[1].decode()] = struct.unpack("<f", entry[2])[0]
        found.append((struct.unpack("<d", event[1])[0], event.get(2, 0), values, event.get(3)))
    return found


with tempfile.TemporaryDirectory() as folder:
    began = time.time()
    log = folder + "/log.jsonl"
    subprocess.run([program, *MODEL, "--evals-per-epoch", "2", "--print-every", "200", "--log", log,
                    "--tensorboard", folder + "/board"], check=True, stdout=subprocess.DEVNULL)
    found = events(folder + "/board")
    assert found[0][3] == b"brain.Event:2"
    lines = [json.loads(line) for line in open(log)]
    lines = [line for line in lines if line["event"] in ("report", "test")]
    assert len(lines) == len(found) - 1 > 4, (len(lines), len(found))
    for line, (seconds, step, values, _) in zip(lines, found[1:]):
        assert began <= seconds <= time.time() and step == line["step"]
        for name, value in line.items():
            if isinstance(value, (int, float)) and name != "step":
                close = values[line["event"] + "/" + name]
                assert abs(close - value) <= 1e-6 * abs(value), (name, close, value)
        for stage, value in line.get("stages", {}).items():
            assert abs(values["stages/" + stage] - value) <= 1e-6 * abs(value)
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        print("without the package tensorboard: read by this test's decoder alone")
    else:
        accumulator = EventAccumulator(folder + "/board").Reload()
        assert len(accumulator.Scalars("test/auc")) == sum(line["event"] == "test" for line in lines)

    run = subprocess.Popen([program, *MODEL, "--epochs", "1000", "--print-every", "20", "--metrics-port", "0"],
                           stdout=subprocess.PIPE, text=True)
    try:
        url = next(re.search(r"http://127\.0\.0\.1:\d+/metrics", line)[0] for line in run.stdout if "metrics:" in line)
        port = int(re.search(r":(\d+)/", url)[1])
        idle = socket.create_connection(("127.0.0.1", port))  # says nothing: the next one must wait 2 s at most
        text, steps = "", []
        for _ in range(100):
            text = urllib.request.urlopen(url, timeout=10).read().decode()
            if "tessera_step" in text:
                steps.append(float(re.search(r"^tessera_step (\S+)$", text, re.M)[1]))
            if len(set(steps)) > 1:
                break
            time.sleep(0.1)
        assert steps[-1] > steps[0] and steps == sorted(steps), steps
        for name in ("tessera_report_loss", "tessera_report_samples_per_second"):
            assert float(re.search(rf"^{name} (\S+)$", text, re.M)[1]) > 0
            assert f"# TYPE {name} gauge\n" in text
        assert re.search(r'^tessera_stage_seconds\{stage="[^"]+"\} \S+$', text, re.M)
        assert text.count("# TYPE tessera_stage_seconds gauge") == 1
        for path, method, code in (("/other", "GET", 404), ("/metrics", "POST", 405)):
            try:
                urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method), timeout=10)
                raise AssertionError("was answered")
            except urllib.error.HTTPError as error:
                assert error.code == code
        with socket.create_connection(("127.0.0.1", port)) as nonsense:
            nonsense.sendall(os.urandom(50_000))
        assert "tessera_step" in urllib.request.urlopen(url, timeout=10).read().decode()
        taken = subprocess.run([program, *MODEL, "--metrics-port", str(port)], capture_output=True, text=True)
        assert taken.returncode == 1 and f"--metrics-port {port}: " in taken.stderr, taken.stderr
        idle.close()
    finally:
        run.kill()
        run.wait()
    bad = subprocess.run([program, *MODEL, "--tensorboard", program], capture_output=True, text=True)
    assert bad.returncode == 1 and "--tensorboard: cannot write to the folder" in bad.stderr, bad.stderr
    bad = subprocess.run([program, *MODEL, "--metrics-port", "65536"], capture_output=True, text=True)
    assert bad.returncode == 2 and "is not a number from 0 to 65535" in bad.stderr, bad.stderr
print("as it should be")
