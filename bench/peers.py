#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""FBGEMM's CPU kernels and PyTorch beside Tessera's, as users install them: peers.py [--tessera FOLDER] [--only lookup,frozen,update,sequence,dlrm] ...

  lookup   a table of 4,000,000 rows, 65,536 bags: FBGEMM's TBE, torch's embedding_bag
  update   forward, backward and optimizer: TBE with the optimizer fused into its backward; embedding_bag with sparse gradients, torch.optim
  sequence a step of a sequence feature, 64 histories of 512 ids of which 2, 10 or 100 percent differ, a vector and a gradient for each:
           torch's nn.Embedding with sparse gradients and SGD
  frozen   lookups in rows of int8 or int4: FBGEMM's IntNBit TBE, and torch.ops.quantized, which calls FBGEMM's kernels on Tessera's bytes
  dlrm     a training step of DLRM with SGD (dlrm.hpp) in eager PyTorch: EmbeddingBags with sparse gradients, or one TBE of all tables

With --tessera, Tessera (peers_library.cpp) runs in the same process, on the same tables and ids. All run in turn on batch after batch;
medians. Ratios are to Tessera, so 2 means that the peer takes twice as long; `/limit` is the ratio of who does nothing else than the least
traffic of lookup and update, or of DLRM the arithmetic of MLPs and interaction (limits.hpp), in turn with the others. `median/best` (of all,
the worst) tells how steady the machine was.

FBGEMM's CPU packages are built without OpenMP from 1.6.0 on: whatever the number of threads, one works. For two threads measure 1.4.2 with
PyTorch 2.9.1 too (pip install torch==2.9.1 fbgemm-gpu-cpu==1.4.2, in an environment of its own); the first line tells which it is.

The peers are measured at their best: huge pages, freed memory that stays with the process, no bounds checks, kernels compiled beforehand.
There is a process per table width and optimizer, with OMP_PROC_BIND=true and GOMP_SPINCOUNT=20000, as run.sh has them, unless the
environment says otherwise: threads that spin on a busy machine make steps tens of times longer. A whole run takes half an hour on two
cores, and 16 GiB.
"""
import argparse
import ctypes
import dataclasses
import gc
import importlib.util
import itertools
import json
import mmap
import multiprocessing
import os
import pathlib
import re
import statistics
import sys
import time
import warnings

PACKAGES = {"torch": "torch==2.14.1", "fbgemm_gpu": "fbgemm-gpu-cpu==1.9.0"}  # a release of FBGEMM goes with one of PyTorch
LIBRARY = "libtessera_peers.so"
PARTS = ("lookup", "frozen", "update", "sequence", "dlrm")
SEQUENCE_ROWS, SEQUENCE_BATCH = 293_000, 32_768
ROWS, BATCH, DLRM_ROWS, DLRM_BATCHES, TABLES = 4_000_000, 65_536, 100_000, (2048, 8192), 26
SKEW = 1.05
OPENMP = {"OMP_PROC_BIND": "true", "GOMP_SPINCOUNT": "20000"}
# Of the peers' processes: malloc keeps what is freed, and asks for huge pages (glibc 2.35).
MALLOC = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


@dataclasses.dataclass(frozen=True)
class Shape:
    part: str
    width: int
    threads: int
    batch: int
    rows: int
    ids: str
    bag: int = 1
    skew: float = SKEW
    optimizer: str = "sgd"
    large_top: bool = False
    distinct: int = 0  # percent of a batch's ids

    @property
    def name(self):
        if self.part == "dlrm":
            return f"dlrm/width:{self.width}/batch:{self.batch}/top:{'large' if self.large_top else 'small'}/threads:{self.threads}"
        if self.part == "sequence":
            return f"sequence/width:{self.width}/distinct:{self.distinct}/batch:{self.batch}/threads:{self.threads}"
        optimizer = f"/{self.optimizer}" if self.part in ("update", "frozen") else ""
        law = f"zipf:{self.skew}" if self.skew else "uniform"
        return f"{self.part}{optimizer}/width:{self.width}/bag:{self.bag}/{law}/batch:{self.batch}/threads:{self.threads}"


def shapes(options):
    """All shapes of the chosen parts; those that share a worker stand together."""
    widths, threads = (16, 64, 128), (1, 2)
    for part, width in itertools.product(options.only, widths):
        common = {"part": part, "width": width, "ids": options.ids}
        if part == "dlrm":
            batches = (options.batch,) if options.batch else DLRM_BATCHES
            for large_top, batch, t in itertools.product((False, True), batches, threads):
                yield Shape(**common, threads=t, batch=batch, rows=options.rows or DLRM_ROWS, large_top=large_top)
            continue
        if part == "sequence":
            for t, distinct in itertools.product(threads, (2, 10, 100)) if width == 64 else ():
                yield Shape(**common, threads=t, batch=options.batch or SEQUENCE_BATCH, rows=options.rows or SEQUENCE_ROWS, distinct=distinct)
            continue
        common |= {"batch": options.batch or BATCH, "rows": options.rows or ROWS}
        for optimizer in {"lookup": ("sgd",), "frozen": ("int8", "int4")}.get(part, ("sgd", "rowwise_adagrad", "adagrad")):
            for t, bag, skew in itertools.product(threads, (1, 10), (0, SKEW)):
                if optimizer != "adagrad" or t == 2:  # PyTorch's takes long
                    yield Shape(**common, threads=t, bag=bag, skew=skew, optimizer=optimizer)


# Everybody who is measured, in a process that does nothing else: only it imports PyTorch, whose OpenMP may bind the process to one core.


class Tessera:
    """The functions of peers_library.cpp."""

    class Table(ctypes.Structure):
        _fields_ = [("optimizer", ctypes.c_char_p),
                    *((name, ctypes.c_int64) for name in ("width", "threads", "id_bytes", "rows", "batch", "bag", "batches")),
                    *((name, ctypes.c_void_p) for name in ("weights", "ids", "gradient", "output"))]

    def __init__(self, library):
        self.functions, self.case = ctypes.CDLL(str(library)), None
        turn = [ctypes.c_void_p, ctypes.c_int64]
        for name, result, arguments in (("table", ctypes.c_void_p, [ctypes.POINTER(self.Table)]),
                                        ("dlrm", ctypes.c_void_p, [ctypes.c_int64] * 4),
                                        ("run", None, turn), ("limit", None, turn), ("free", None, [ctypes.c_void_p])):
            function = getattr(self.functions, f"tessera_{name}")
            function.restype, function.argtypes = result, arguments

    def table(self, **fields):
        return self.contenders(self.functions.tessera_table, ctypes.byref(self.Table(**fields)))

    def dlrm(self, shape):
        return self.contenders(self.functions.tessera_dlrm, shape.width, shape.batch, shape.threads, shape.large_top)

    def contenders(self, make, *arguments):
        if self.case:
            self.functions.tessera_free(self.case)
        self.case = case = make(*arguments)
        if not case:  # it has said why
            sys.exit(1)
        return {"tessera": lambda batch: self.functions.tessera_run(case, batch),
                "limit": lambda batch: self.functions.tessera_limit(case, batch)}


def draw_ids(torch, seed, first, count, rows, skew):
    """draw_id of limits.hpp for the counters first, first + 1, ..., in wrapping int64 arithmetic."""
    def signed(word):
        return word - (1 << 64) if word >> 63 else word

    def shifted(x, bits):  # logically
        return (x >> bits) & ((1 << (64 - bits)) - 1)

    def mix64(x):
        x = x + signed(0x9e3779b97f4a7c15)
        x = (x ^ shifted(x, 30)) * signed(0xbf58476d1ce4e5b9)
        x = (x ^ shifted(x, 27)) * signed(0x94d049bb133111eb)
        return x ^ shifted(x, 31)

    def modulo(x):  # unsigned
        return (shifted(x, 1) % rows * 2 + (x & 1)) % rows

    word = mix64(mix64(torch.tensor(seed)) ^ torch.arange(first, first + count))
    if skew == 0:
        return modulo(word)
    u = shifted(word, 11).double() * 2.0**-53
    rank = (1 + u * ((rows + 1.0) ** (1 - skew) - 1)) ** (1 / (1 - skew)) - 1
    return modulo(mix64(rank.long()))


def huge(torch, count):
    """A float tensor on huge pages."""
    page = 1 << 21
    area = mmap.mmap(-1, count * 4 + page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.madvise(mmap.MADV_HUGEPAGE)
    begin = -ctypes.addressof(ctypes.c_char.from_buffer(area)) % page
    return torch.frombuffer(area, dtype=torch.float32, offset=begin, count=count)


def tbe(tables, rows, width, optimizer, learning_rate, ids, weights=None):
    """FBGEMM's embedding bags, on the given weights if there are some."""
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode, EmbeddingLocation, PoolingMode
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import ComputeDevice, SplitTableBatchedEmbeddingBagsCodegen
    kinds = {"sgd": EmbOptimType.EXACT_SGD, "adagrad": EmbOptimType.EXACT_ADAGRAD, "rowwise_adagrad": EmbOptimType.EXACT_ROWWISE_ADAGRAD}
    module = SplitTableBatchedEmbeddingBagsCodegen(
        [(rows, width, EmbeddingLocation.HOST, ComputeDevice.CPU)] * tables, optimizer=kinds[optimizer], learning_rate=learning_rate,
        pooling_mode=PoolingMode.SUM, bounds_check_mode=BoundsCheckMode.NONE, device="cpu", embedding_table_index_type=ids,
        embedding_table_offset_type=ids)
    if weights is None:
        module.weights_host.data.uniform_(-0.01, 0.01)
    else:
        module.weights_host.data = weights.view(-1)
    return module


class TableWorker:
    """Lookup and update: one table, which both peers use."""
    batches = 5  # shares no factor with the number of contenders, so that each sees all of them

    def __init__(self, torch, shape, tessera):
        self.tessera = tessera
        self.torch, self.weights = torch, huge(torch, shape.rows * shape.width).view(shape.rows, shape.width).uniform_(-0.01, 0.01)
        self.type = getattr(torch, shape.ids)
        self.fbgemm = tbe(1, shape.rows, shape.width, shape.optimizer, 0.01, self.type, self.weights)
        self.optimizer = None
        if shape.part == "update":
            self.weights.requires_grad_(True)
            if shape.optimizer != "rowwise_adagrad":  # which PyTorch does not have
                self.optimizer = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad}[shape.optimizer]([self.weights], lr=0.01)

    def peers(self, shape):
        torch, entries = self.torch, shape.batch * shape.bag
        ids = [draw_ids(torch, 1, b * entries, entries, shape.rows, shape.skew).to(self.type) for b in range(self.batches)]
        offsets = torch.arange(0, entries + 1, shape.bag, dtype=self.type)
        gradient = huge(torch, shape.batch * shape.width).view(shape.batch, shape.width).uniform_(-0.5, 0.5)

        def torch_forward(batch, sparse=False):
            return torch.nn.functional.embedding_bag(ids[batch % self.batches], self.weights, offsets, mode="sum", sparse=sparse,
                                                     include_last_offset=True)

        def fbgemm_forward(batch):
            return self.fbgemm(ids[batch % self.batches], offsets)

        def torch_step(batch):
            torch_forward(batch, sparse=True).backward(gradient)
            self.optimizer.step()
            self.weights.grad = None

        with torch.no_grad():
            torch.testing.assert_close(fbgemm_forward(0), torch_forward(0))  # both measure the same sums
        own = {}
        if self.tessera:
            self.kept = torch.cat(ids), huge(torch, shape.batch * shape.width), gradient  # the library has their addresses alone
            all_ids, output, _ = self.kept
            optimizer = shape.optimizer if shape.part == "update" else ""
            own = self.tessera.table(optimizer=optimizer.encode(), width=shape.width, threads=shape.threads, id_bytes=self.type.itemsize,
                                     rows=shape.rows, batch=shape.batch, bag=shape.bag, batches=self.batches, weights=self.weights.data_ptr(),
                                     ids=all_ids.data_ptr(), gradient=gradient.data_ptr(), output=output.data_ptr())
            with torch.no_grad():
                expected = torch_forward(0)
                own["tessera"](0)
                torch.testing.assert_close(output.view(shape.batch, shape.width), expected)
        if shape.part == "lookup":
            return own | {"fbgemm": torch.no_grad()(fbgemm_forward), "pytorch": torch.no_grad()(torch_forward)}
        steps = own | {"fbgemm": lambda batch: fbgemm_forward(batch).backward(gradient), "pytorch": torch_step}
        if not self.optimizer:
            del steps["pytorch"]
        return steps


class FrozenWorker:
    """Lookups in one table of int8 or int4 rows. The shape's `optimizer` is the format."""
    batches = 5

    def __init__(self, torch, shape, tessera):
        from fbgemm_gpu.split_embedding_configs import SparseType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import BoundsCheckMode, EmbeddingLocation, PoolingMode
        from fbgemm_gpu.split_table_batched_embeddings_ops_inference import IntNBitTableBatchedEmbeddingBagsCodegen
        self.torch, self.tessera, self.type = torch, tessera, getattr(torch, shape.ids)
        bits, fused = int(shape.optimizer[3:]), torch.ops.fbgemm.FloatToFusedNBitRowwiseQuantizedSBHalf
        row = shape.width * bits // 8
        weights = torch.empty(shape.rows, shape.width).uniform_(-0.01, 0.01)
        halves = fused(weights, bits)
        ours = torch.ops.fbgemm.FloatToFused8BitRowwiseQuantized(weights) if bits == 8 else halves
        self.rows = huge(torch, (ours.numel() + 64) // 4 + 16).view(torch.uint8)[: ours.numel()].view(ours.shape)
        self.rows.copy_(ours)
        sparse = {8: SparseType.INT8, 4: SparseType.INT4}[bits]
        self.fbgemm = IntNBitTableBatchedEmbeddingBagsCodegen(
            [("", shape.rows, shape.width, sparse, EmbeddingLocation.HOST)], device="cpu", pooling_mode=PoolingMode.SUM,
            output_dtype=SparseType.FP32, bounds_check_mode=BoundsCheckMode.NONE, row_alignment=1)
        self.fbgemm.initialize_weights()
        codes, scales = self.fbgemm.split_embedding_weights()[0]
        codes.copy_(halves[:, :row])
        scales.copy_(halves[:, row:].reshape(scales.shape))

    def peers(self, shape):
        torch, entries = self.torch, shape.batch * shape.bag
        ids = [draw_ids(torch, 1, b * entries, entries, shape.rows, shape.skew).to(self.type) for b in range(self.batches)]
        offsets = torch.arange(0, entries + 1, shape.bag, dtype=self.type)
        kernel = {"int8": torch.ops.quantized.embedding_bag_byte_rowwise_offsets, "int4": torch.ops.quantized.embedding_bag_4bit_rowwise_offsets}

        def pytorch(batch):
            return kernel[shape.optimizer](self.rows, ids[batch % self.batches], offsets, mode=0, include_last_offset=True)

        def fbgemm(batch):
            return self.fbgemm(ids[batch % self.batches], offsets)

        with torch.no_grad():
            expected = pytorch(0)
            # scales of half and of single precision differ
            torch.testing.assert_close(fbgemm(0), expected, rtol=1e-2, atol=1e-3)
            own = {}
            if self.tessera:
                self.kept = torch.cat(ids), huge(torch, (shape.batch + 1) * shape.width)  # the library has their addresses alone
                all_ids, output = self.kept
                own = self.tessera.table(optimizer=shape.optimizer.encode(), width=shape.width, threads=shape.threads,
                                         id_bytes=self.type.itemsize, rows=shape.rows, batch=shape.batch, bag=shape.bag,
                                         batches=self.batches, weights=self.rows.data_ptr(), ids=all_ids.data_ptr(),
                                         output=output.data_ptr())
                own["tessera"](0)
                torch.testing.assert_close(output[: shape.batch * shape.width].view(shape.batch, shape.width), expected)
        return own | {"fbgemm": torch.no_grad()(fbgemm), "pytorch": torch.no_grad()(pytorch)}


class SequenceWorker:
    """nn.Embedding, and a table of Tessera's own with the same first values. The library keeps addresses alone."""
    batches = 5

    def __init__(self, torch, shape, tessera):
        self.tessera, self.torch, self.type = tessera, torch, getattr(torch, shape.ids)
        self.weights = huge(torch, shape.rows * shape.width).view(shape.rows, shape.width)

    def peers(self, shape):
        torch, width, entries = self.torch, shape.width, shape.batch
        pool = draw_ids(torch, 3, 0, max(1, entries * shape.distinct // 100), shape.rows, 0)
        self.ids = torch.cat([pool[draw_ids(torch, 1, b * entries, entries, len(pool), 0)] for b in range(self.batches)]).to(self.type)
        self.gradient = huge(torch, entries * width).view(entries, width).uniform_(-0.5, 0.5)
        self.output = huge(torch, (entries + 1) * width)
        with torch.no_grad():
            self.weights.uniform_(-0.01, 0.01)
        own = {}
        if self.tessera:
            own = self.tessera.table(optimizer=b"sequence", width=width, threads=shape.threads, id_bytes=self.type.itemsize, rows=shape.rows,
                                     batch=entries, bag=1, batches=self.batches, weights=self.weights.data_ptr(), ids=self.ids.data_ptr(),
                                     gradient=self.gradient.data_ptr(), output=self.output.data_ptr())
        # after it, as the search for the limit writes to these weights
        table = torch.nn.Embedding.from_pretrained(self.weights.clone(), freeze=False, sparse=True)
        optimizer = torch.optim.SGD(table.parameters(), lr=0.01)
        ids = self.ids.view(self.batches, entries)

        def pytorch(batch):
            vectors = table(ids[batch % self.batches])
            vectors.backward(self.gradient)
            optimizer.step()
            optimizer.zero_grad()
            return vectors

        if own:
            for batch in (0, 1):  # the second reads what the first wrote
                own["tessera"](batch)
                torch.testing.assert_close(self.output[: entries * width].view(entries, width), pytorch(batch).detach(), rtol=1e-4, atol=1e-4)
        return own | {"pytorch": pytorch}


class DlrmWorker:
    """DLRM as PeerDlrm of bench_peers.cpp: 26 EmbeddingBags in eager PyTorch, and the same with a TBE in their place."""
    batches = 8 + 1  # 8 as dlrm.hpp has; odd, so that each peer sees all of them

    def __init__(self, torch, shape, tessera):
        self.tessera = tessera
        self.torch, self.type = torch, getattr(torch, shape.ids)
        self.bags = [torch.nn.EmbeddingBag(shape.rows, shape.width, mode="sum", sparse=True) for _ in range(TABLES)]
        self.fbgemm = tbe(TABLES, shape.rows, shape.width, "sgd", 1e-3, self.type)

    def peers(self, shape):
        torch, batch_size, width = self.torch, shape.batch, shape.width
        ids = [torch.stack([draw_ids(torch, 1 + t, b * batch_size, batch_size, shape.rows, SKEW) for t in range(TABLES)]).to(self.type)
               for b in range(self.batches)]
        dense = [torch.rand(batch_size, 13) for _ in range(self.batches)]
        labels = [(torch.rand(batch_size, 1) < 0.3).float() for _ in range(self.batches)]
        offsets, all_offsets = (torch.arange(n, dtype=self.type) for n in (batch_size, TABLES * batch_size + 1))
        pairs = torch.tril_indices(TABLES + 1, TABLES + 1, -1)

        def mlp(sizes, last_relu):
            layers = []
            for i, (inputs, outputs) in enumerate(zip(sizes, sizes[1:])):
                layers.append(torch.nn.Linear(inputs, outputs))
                if last_relu or i + 2 < len(sizes):
                    layers.append(torch.nn.ReLU(inplace=True))
            return torch.nn.Sequential(*layers)

        def model(embed, table_parameters):
            bottom = mlp([13, 512, 256, width], True)
            top = mlp([width + len(pairs[0])] + ([1024, 1024, 512, 256, 1] if shape.large_top else [512, 256, 1]), False)
            optimizer = torch.optim.SGD([*bottom.parameters(), *top.parameters(), *table_parameters], lr=1e-3)

            def step(batch):
                batch %= self.batches
                bottom_out = bottom(dense[batch])
                x = embed(bottom_out, ids[batch])
                products = torch.bmm(x, x.transpose(1, 2))[:, pairs[0], pairs[1]]
                y = top(torch.cat([bottom_out, products], 1))
                torch.nn.functional.binary_cross_entropy_with_logits(y, labels[batch]).backward()
                optimizer.step()
                optimizer.zero_grad()
            return step

        def torch_embed(bottom_out, ids_of_batch):
            return torch.stack([bottom_out] + [bag(ids_of_batch[t], offsets) for t, bag in enumerate(self.bags)], 1)

        def fbgemm_embed(bottom_out, ids_of_batch):
            vectors = self.fbgemm(ids_of_batch.view(-1), all_offsets).view(batch_size, TABLES, width)
            return torch.cat([bottom_out.unsqueeze(1), vectors], 1)

        own = self.tessera.dlrm(shape) if self.tessera else {}
        return own | {"fbgemm": model(fbgemm_embed, []), "pytorch": model(torch_embed, [bag.weight for bag in self.bags])}


def measured(peers, repetitions):
    """Median milliseconds of everybody, run in turn: at least so many repetitions, and half a second."""
    batch, times = 0, {name: [] for name in peers}
    for _ in range(2):
        for peer in peers.values():
            peer(batch)
            batch += 1
    stop = time.perf_counter() + 0.5 * len(peers)
    gc.collect()
    gc.disable()
    while len(next(iter(times.values()))) < repetitions or time.perf_counter() < stop:
        for name, peer in peers.items():
            start = time.perf_counter()
            peer(batch)
            times[name].append(1e3 * (time.perf_counter() - start))
            batch += 1
    gc.enable()
    results = {"repetitions": len(next(iter(times.values())))}
    for name, values in times.items():
        results |= {f"{name}_ms": statistics.median(values), f"{name}_best_ms": min(values)}
    return results


def huge_gib():
    found = re.search(r"AnonHugePages:\s*(\d+) kB", pathlib.Path("/proc/self/smaps_rollup").read_text())
    return round(int(found[1]) / 2**20, 2)


def work(connection, shape, repetitions, library):
    """A worker: measures shape after shape, until they end."""
    try:
        import torch
        import fbgemm_gpu
    except (ImportError, OSError) as error:
        connection.send({"error": f"PyTorch or FBGEMM does not load: {error}\ninstall both: {install_command()}"})
        return
    libraries = pathlib.Path(fbgemm_gpu.__file__).parent.glob("*.so")
    openmp = any(b"GOMP_parallel" in library.read_bytes() for library in libraries)
    # Plain text: to unpickle torch's version, the process that starts Tessera's benches would import PyTorch.
    connection.send({"torch": str(torch.__version__), "fbgemm": str(fbgemm_gpu.__version__), "fbgemm_threads": "OpenMP" if openmp else "one",
                     "instructions": torch.backends.cpu.get_cpu_capability()})
    warnings.filterwarnings("ignore", message="Sparse invariant checks")
    torch.manual_seed(1)
    worker = {"dlrm": DlrmWorker, "frozen": FrozenWorker, "sequence": SequenceWorker}.get(shape.part, TableWorker)(torch, shape, library and Tessera(library))
    while shape := connection.recv():
        torch.set_num_threads(shape.threads)
        connection.send(measured(worker.peers(shape), repetitions) | {"huge_gib": huge_gib()})


class Worker:
    def __init__(self, shape, repetitions, library):
        context = multiprocessing.get_context("spawn")  # a fresh program: malloc and OpenMP read the environment when it starts
        self.connection, other = context.Pipe()
        self.process = context.Process(target=work, args=(other, shape, repetitions, library), daemon=True)
        self.process.start()
        other.close()
        self.versions = self.answer()

    def answer(self):
        try:
            message = self.connection.recv()
        except EOFError:
            self.process.join()
            sys.exit(f"peers.py: the peers' process ended with code {self.process.exitcode}; if it was killed, memory may be short")
        if "error" in message:
            sys.exit(f"peers.py: {message['error']}")
        return message

    def ask(self, message):
        self.connection.send(message)
        return self.answer()

    def end(self):
        self.connection.send(None)
        self.process.join()


# The run


def install_command():
    return "pip install " + " ".join(PACKAGES.values())


def line(cells):
    return f"{cells[0]:<74}" + "".join(f"{cell:>17}" for cell in cells[1:])


def text(value):
    return "-" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def ratio(value, base):
    return value / base if value and base else None


def columns(row):
    times = {name: row.get(f"{name}_ms") for name in ("tessera", "limit", "fbgemm", "pytorch")}
    noise = {"median/best": max(value / row[f"{name}_best_ms"] for name, value in times.items() if value)}
    fbgemm, pytorch = times["fbgemm"], times["pytorch"]
    if not times["tessera"]:
        return {"FBGEMM ms": fbgemm, "PyTorch ms": pytorch, "PyTorch/FBGEMM": ratio(pytorch, fbgemm)} | noise
    return {"Tessera ms": times["tessera"], "FBGEMM ms": fbgemm, "PyTorch ms": pytorch, "FBGEMM/Tessera": ratio(fbgemm, times["tessera"]),
            "FBGEMM/limit": ratio(fbgemm, times["limit"]), "PyTorch/Tessera": ratio(pytorch, times["tessera"]),
            "PyTorch/limit": ratio(pytorch, times["limit"])} | noise


def run(options):
    os.environ.update(MALLOC)
    worker, group, rows = None, None, []
    for shape in options.shapes:
        if group != (shape.part, shape.width, shape.optimizer):
            if worker:
                worker.end()
            group, worker = (shape.part, shape.width, shape.optimizer), Worker(shape, options.repetitions, options.module)
        row = {"shape": shape.name, "ids": shape.ids, "rows": shape.rows} | worker.ask(shape)
        if not rows:
            print(", ".join(f"{name} {value}" for name, value in worker.versions.items()) + f", ids {options.ids}")
            print(line(["shape", *columns(row)]))
        rows.append(row)
        print(line([shape.name, *map(text, columns(row).values())]), flush=True)
        if options.out:  # as far as it got
            options.out.write_text(json.dumps({"versions": worker.versions, "rows": rows}, indent=1) + "\n")
    worker.end()


def positive(given):
    if not given.isdecimal() or int(given) == 0:
        raise argparse.ArgumentTypeError(f"'{given}' is no positive whole number")
    return int(given)


def parts(given):
    chosen = given.split(",")
    for part in chosen:
        if part not in PARTS:
            raise argparse.ArgumentTypeError(f"no part '{part}'; there are: {', '.join(PARTS)}")
    return [part for part in PARTS if part in chosen]


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    parser.add_argument("--tessera", metavar="FOLDER", type=pathlib.Path, help=f"where {LIBRARY} is: build/release/bin")
    parser.add_argument("--only", type=parts, default=list(PARTS), metavar="PARTS", help=f"some of {','.join(PARTS)}")
    parser.add_argument("--filter", default="", metavar="REGEX", help="only shapes in whose name this is found")
    parser.add_argument("--list", action="store_true", help="name the shapes and end")
    parser.add_argument("--ids", choices=("int32", "int64"), default="int64", help="the type of ids")
    parser.add_argument("--repetitions", type=positive, default=7, help="of every measurement, at least (7)")
    parser.add_argument("--rows", type=positive, help="of every table, for a quick look")
    parser.add_argument("--batch", type=positive, help="for a quick look")
    parser.add_argument("--out", metavar="FILE", type=pathlib.Path, help="JSON")
    options = parser.parse_args()
    for name, value in OPENMP.items():
        os.environ.setdefault(name, value)
    try:
        pattern = re.compile(options.filter)
    except re.error as error:
        parser.error(f"--filter: '{options.filter}' is no regular expression: {error}")
    options.shapes = [shape for shape in shapes(options) if pattern.search(shape.name)]
    if not options.shapes:
        parser.error(f"--filter: no shape has '{options.filter}' in its name; --list names them")
    if options.out and not options.out.absolute().parent.is_dir():
        parser.error(f"--out: no folder {options.out.absolute().parent}")
    if options.tessera and options.rows and "dlrm" in options.only:
        parser.error(f"--rows: Tessera's DLRM has tables of {DLRM_ROWS} rows; leave out --rows, or dlrm with --only")
    options.module = options.tessera and (options.tessera / LIBRARY).absolute()
    if options.module and not options.module.is_file():
        parser.error(f"--tessera: no {LIBRARY} in {options.tessera}; build it with: cmake --build --preset release --target tessera_peers")
    if not options.list and (missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]):
        parser.error(f"no Python package {' and no '.join(missing)}; install both: {install_command()}")
    return options


def main():
    options = parsed()
    if options.list:
        print("\n".join(shape.name for shape in options.shapes))
    else:
        run(options)


if __name__ == "__main__":
    main()
