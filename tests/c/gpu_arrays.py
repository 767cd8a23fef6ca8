#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""examples/torch/tessera.py with tables on GPUs, which are emulated: what it takes of arrays there, beside tables in host memory; processes
with a GPU each, joined by NCCL's double, beside threads that share one; no PyTorch.

    gpu_arrays.py ROOT LIBRARY    LIBRARY: libtessera_c_emulated.so
"""
import ctypes
import hashlib
import os
import random
import socket
import subprocess
import sys
import threading

root, os.environ["TESSERA_LIBRARY"] = sys.argv[1:3]
sys.path.insert(0, os.path.join(root, "examples/torch"))
sys.modules["torch"] = None  # Debian's knows no GPU
import tessera
from tessera import Collection, Error, InvalidArgument, Table

gpu = ctypes.CDLL(os.environ["TESSERA_LIBRARY"])
gpu.gpu_allocate.restype, gpu.gpu_allocate.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
gpu.gpu_free.argtypes = [ctypes.c_void_p]
gpu.gpu_copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
CODES = {ctypes.c_int32: (0, 32), ctypes.c_int64: (0, 64), ctypes.c_float: (2, 32)}


class Array:
    """Numbers in host memory (`device` -1) or on a GPU, as DLPack hands them on."""

    def __init__(self, kind, values, shape=None, device=-1):
        self.host, self.kind, self.device = (kind * max(len(values), 1))(*values), kind, device
        self.shape, self.streams = shape or (len(values),), []
        self.bytes = len(values) * ctypes.sizeof(kind)
        self.memory = ctypes.addressof(self.host)
        if device >= 0:
            self.memory = gpu.gpu_allocate(self.bytes + 8)
            assert gpu.gpu_copy(self.memory, self.host, self.bytes) == 0

    def __del__(self):
        if self.device >= 0:
            gpu.gpu_free(self.memory)

    def read(self):
        assert gpu.gpu_copy(self.host, self.memory, self.bytes) == 0
        return list(self.host)[:self.bytes // ctypes.sizeof(self.kind)]

    def __dlpack_device__(self):
        return (1, 0) if self.device < 0 else (2, self.device)

    def __dlpack__(self, stream=None):
        self.streams.append(stream)
        self.extents = (ctypes.c_int64 * len(self.shape))(*self.shape)
        self.tensor = tessera._Tensor(self.memory, *self.__dlpack_device__(), len(self.shape), *CODES[self.kind], 1,
                                      ctypes.cast(self.extents, tessera.c_extents), None, 0)
        return new_capsule(ctypes.addressof(self.tensor), b"dltensor", None)


def empty(rows, columns, device=-1):
    array = Array(ctypes.c_float, [0] * (rows * columns), (rows, columns), device)
    return array, array.memory


tessera._empty = empty
TABLES = [Table("user", 50, 16, policy="row-wise"), Table("film", 20, 8, "mean", policy="column-wise:2")]
SAMPLES, COLUMNS = 6, 24


def refused(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), f"'{error}' does not say '{text}'"
        return
    raise AssertionError(f"no {kind.__name__} that says '{text}'")


def batch(step, device, kind=ctypes.c_int64):
    numbers = random.Random(step)
    lengths = [numbers.randrange(4) for _ in range(2 * SAMPLES)]
    offsets = [sum(lengths[:n]) for n in range(len(lengths) + 1)]
    ids = [numbers.randrange(50 if n < offsets[SAMPLES] else 20) for n in range(offsets[-1])]
    weights = [numbers.random() for _ in ids]
    return Array(kind, ids, device=device), Array(ctypes.c_int64, offsets, device=device), Array(ctypes.c_float, weights, device=device)


def train(device, ranks=None):
    tables = Collection(TABLES, ranks, weighted=True, optimizer="adam", learning_rate=0.1, seed=5, device=None if device < 0 else f"cuda:{device}")
    seen, step = [], tables.step()
    for n in range(5):
        arrays = batch(10 * tables.communicator.rank + n, device, ctypes.c_int32 if n == 3 else ctypes.c_int64)
        pooled = tables.lookup(step, *arrays)
        assert pooled.device == device
        values = pooled.read()
        of_weights = Array(ctypes.c_float, [0] * len(arrays[0].host), device=device)
        gradient = Array(ctypes.c_float, [0.5 * v + 0.1 for v in values], (SAMPLES, COLUMNS), device)
        if n == 2:
            tables.update(step, gradient, accumulate=True)
            seen.append(tables.apply(0.5))
        else:
            tables.update(step, gradient, of_weights)
        seen += values + of_weights.read()
        if device >= 0:
            assert arrays[0].streams == [1], arrays[0].streams  # the default stream's name in DLPack
    seen += tables.evaluate(tables.step(), *batch(9, device)).read()
    for table in ("user", "film"):
        for state in tables.states(table):
            whole = tables.read(table, state)
            assert whole.device == -1
            seen += whole.read()
    tables.write("film", Array(ctypes.c_float, range(160), (20, 8)))
    assert tables.read("film").read() == list(range(160))
    return seen


def digest(numbers):
    return hashlib.sha256(repr(numbers).encode()).hexdigest()


if "RANK" in os.environ:  # one of the processes below
    print(digest(train(int(os.environ["RANK"]), tessera.Communicator.gloo(60))))
    sys.exit()
host, on_gpu = train(-1), train(0)
assert len(host) == len(on_gpu) > 1000
assert max(abs(a - b) for a, b in zip(host, on_gpu)) < 1e-5 and any(host)

tables, of_host = Collection(TABLES, weighted=True, device=0), Collection(TABLES, weighted=True)
step = tables.step()
good, hosts, others = batch(0, 0), batch(0, -1), batch(0, 1)
for wrong in (hosts, others):
    refused(InvalidArgument, "ids is on another device; these tables are on GPU 0: give ids.to('cuda:0')", lambda: tables.lookup(step, *wrong))
    refused(InvalidArgument, "offsets is on another device", lambda: tables.lookup(step, good[0], wrong[1], good[2]))
    refused(InvalidArgument, "weights is on another device", lambda: tables.evaluate(step, *good[:2], wrong[2]))
refused(InvalidArgument, "ids is on another device; these tables are in host memory: give ids.cpu()", lambda: of_host.lookup(of_host.step(), *good))
pooled = tables.lookup(step, *good)
refused(InvalidArgument, "gradient is on another device", lambda: tables.update(step, empty(SAMPLES, COLUMNS)[0]))
refused(InvalidArgument, "film is on another device", lambda: tables.write("film", empty(20, 8, 0)[0]))
place_of = tessera._place_of
tessera._place_of = lambda device: (0, 7)
refused(InvalidArgument, "another stream is current than when the collection was made", lambda: tables.evaluate(tables.step(), *good))
refused(InvalidArgument, "another stream is current than when the collection was made", lambda: tables.update(step, pooled))
tessera._place_of = place_of
tables.update(step, pooled)
refused(InvalidArgument, "device 'tpu:0': tables are in host memory ('cpu') or on a GPU ('cuda:0')", lambda: Collection(TABLES, device="tpu:0"))
refused(InvalidArgument, "options.device of rank 0 is 9, but CUDA sees 4 GPUs there", lambda: Collection(TABLES, device=9))
shared = {}
threads = [threading.Thread(target=lambda rank=rank: shared.update({rank.rank: digest(train(0, rank))})) for rank in tessera.Communicator.threads(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "WORLD_SIZE": "2", "TESSERA_NCCL_DOUBLE_PROCESSES": "1"}
processes = [subprocess.Popen([sys.executable, "-B", *sys.argv], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env={**os.environ, **address, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(2)]
for rank, process in enumerate(processes):
    out, error = process.communicate(timeout=120)
    assert process.returncode == 0 and out.split() == [shared[rank]] or "built without Gloo" in error, (rank, out, shared, error)
print(f"{len(on_gpu)} numbers as in host memory")
