#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""What PyTorch takes for the cases of bench_kernels and bench_step that it has operations for, beside their results.

    python3 bench_torch.py [FOLDER]     FOLDER: of bench_kernels.json and bench_step.json of the same run

Medians by CUDA events; inputs take turns, as there. `index_add_` sums duplicates in any order, with atomics. Exit code 77: no PyTorch, no GPU.
"""

import json
import pathlib
import statistics
import sys

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print("bench_torch: there is no PyTorch here", file=sys.stderr)
    sys.exit(77)

INPUTS = 4
STEP_BATCH = 65536
# tables, hotness of each feature, rows, width: as bench_step.cu.
TINY = [
    (1, (1, 10), 10_000, 8), (1, (1, 10), 1_000_000, 16), (1, (1, 10), 25_000_000, 16), (1, (1,), 25_000_000, 16), (16, (1,), 10, 8),
    (10, (1,), 1_000, 8), (4, (1,), 10_000, 8), (2, (1,), 100_000, 16), (19, (1,), 1_000_000, 16),
]


def microseconds(body, repetitions=30):
    """`body(i)` with input i of INPUTS."""
    for i in range(4):
        body(i % INPUTS)
    times = []
    for i in range(repetitions):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        body(i % INPUTS)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(times)


def draw(count, rows, skew):
    """Uniform ids, or Zipf's by the inverse of its integral, hot rows anywhere."""
    if skew == 0:
        return torch.randint(rows, (count,), device="cuda")
    u = torch.rand(count, device="cuda", dtype=torch.float64)
    rank = ((1 + u * ((rows + 1) ** (1 - skew) - 1)) ** (1 / (1 - skew)) - 1).long().clamp_(0, rows - 1)
    return rank * 2_654_435_761 % rows


def tables(name, width, rows, bags, bag, skew, results, update):
    table = torch.zeros(rows, width, device="cuda")
    ids = [draw(bags * bag, rows, skew) for _ in range(INPUTS)]
    offsets = torch.arange(0, bags * bag, bag, device="cuda")
    gradient = torch.zeros(bags, width, device="cuda")
    if update:
        rows_of = (lambda: gradient) if bag == 1 else (lambda: gradient.repeat_interleave(bag, dim=0))
        results[name] = microseconds(lambda i: table.index_add_(0, ids[i], rows_of(), alpha=-0.01))
    elif bag == 1:
        results[name] = microseconds(lambda i: F.embedding(ids[i], table))
    else:
        results[name] = microseconds(lambda i: F.embedding_bag(ids[i], table, offsets, mode="sum"))


def dot(results):
    x = [torch.randn(STEP_BATCH, 27, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(2)]
    row, column = torch.tril_indices(27, 27, -1, device="cuda")

    @torch.compile
    def forward(v):
        return torch.cat([v[:, 0], torch.bmm(v, v.transpose(1, 2))[:, row, column]], dim=1)

    with torch.no_grad():
        results["dot forward/27 x 128/bf16"] = microseconds(lambda i: forward(x[i % 2]))
    z = [forward(v) for v in x]
    dz = torch.ones_like(z[0])
    results["dot backward/27 x 128/bf16"] = microseconds(lambda i: torch.autograd.grad(z[i % 2], x[i % 2], dz, retain_graph=True))


def merlin_tiny(results):
    torch.set_float32_matmul_precision("high")  # TF32
    weights, features = [], []
    for count, hotness, rows, width in TINY:
        for _ in range(count):
            weights.append(torch.nn.Parameter(torch.zeros(rows, width, device="cuda")))
            features += [(weights[-1], hot) for hot in hotness]
    batches = [[draw(STEP_BATCH * hot, weight.shape[0], 1.05).view(STEP_BATCH, hot) for weight, hot in features] for _ in range(3)]
    numbers = torch.zeros(STEP_BATCH, 16, device="cuda")  # 10, padded: rows of multiples of 16 floats, as there
    labels = torch.zeros(STEP_BATCH, device="cuda")
    sizes = [16 + sum(weight.shape[1] for weight, _ in features), 256, 128, 1]
    layers = []
    for i, o in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(i, o, device="cuda"), torch.nn.ReLU()]
    mlp = torch.compile(torch.nn.Sequential(*layers[:-1]))
    optimizer = torch.optim.Adagrad([*weights, *mlp.parameters()], lr=0.001, initial_accumulator_value=0.1, eps=1e-7)

    def step(i):
        vectors = [F.embedding_bag(ids, weight, mode="sum", sparse=True) for (weight, _), ids in zip(features, batches[i % 3])]
        loss = F.binary_cross_entropy_with_logits(mlp(torch.cat([*vectors, numbers], dim=1)).squeeze(1), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    results["step/Merlin Tiny/tf32"] = microseconds(step, 10)


def dlrm(precision, results):
    """PyTorch at its best: one table, gradients straight into its rows, all the rest of the model compiled, one fused update."""
    torch.set_float32_matmul_precision("high")  # TF32
    width, count, rows = 128, 26, 1_000_000

    def mlp(*sizes):
        layers = []
        for i, o in zip(sizes, sizes[1:]):
            layers += [torch.nn.Linear(i, o, device="cuda"), torch.nn.ReLU()]
        return layers

    bottom = torch.nn.Sequential(*mlp(13, 512, 256, width))
    top = torch.nn.Sequential(*mlp(width + 351, 1024, 1024, 512, 256, 1)[:-1])
    row, column = torch.tril_indices(count + 1, count + 1, -1, device="cuda")
    table = torch.zeros(count * rows, width, device="cuda")
    first = torch.arange(0, count * rows, rows, device="cuda")
    batches = [torch.stack([draw(STEP_BATCH, rows, 1.05) for _ in range(count)], dim=1) + first for _ in range(3)]
    numbers = torch.zeros(STEP_BATCH, 13, device="cuda")
    labels = torch.zeros(STEP_BATCH, device="cuda")
    optimizer = torch.optim.SGD([*bottom.parameters(), *top.parameters()], lr=0.01, fused=True)

    @torch.compile
    def loss_of(vectors):
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "bf16"):
            x = bottom(numbers)
            v = torch.cat([x.unsqueeze(1), vectors.to(x.dtype)], dim=1)
            z = torch.cat([x, torch.bmm(v, v.transpose(1, 2))[:, row, column]], dim=1)
            return F.binary_cross_entropy_with_logits(top(z).squeeze(1).float(), labels)

    def step(i):
        ids = batches[i % 3]
        vectors = F.embedding(ids, table).requires_grad_()
        optimizer.zero_grad()
        loss_of(vectors).backward()
        optimizer.step()
        table.index_add_(0, ids.view(-1), vectors.grad.view(-1, width), alpha=-0.01)

    results[f"step/DLRM/{precision}"] = microseconds(step, 10)


def own_results(folder):
    """Microseconds of this library's benchmarks, by case."""
    found = {}
    for program in ("bench_kernels", "bench_step"):
        path = folder / f"{program}.json"
        if path.exists():
            found.update({b["name"].split("/iterations:")[0]: b["us"] for b in json.loads(path.read_text())["benchmarks"] if "us" in b})
    return found


def main():
    if not torch.cuda.is_available():
        print("bench_torch: there is no GPU", file=sys.stderr)
        return 77
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    results = {}
    for kind, widths in (("lookup", (128, 16)), ("update/sgd", (128,))):
        for width in widths:
            for skew in (0, 1.05):
                for bag in (1, 10):
                    name = f"{kind}/width:{width}/bag:{bag}/{'uniform' if skew == 0 else 'zipf:1.05'}"
                    tables(name, width, 4_000_000, (1 << 20) // bag, bag, skew, results, kind != "lookup")
            # One table with the rows of all: PyTorch's best case.
            tables(f"{kind}/width:{width}/26 tables/one-hot/zipf:1.05", width, 26 * 200_000, 26 * 65536, 1, 1.05, results, kind != "lookup")
    dot(results)
    merlin_tiny(results)
    for precision in ("tf32", "bf16"):
        dlrm(precision, results)
    own = own_results(folder)
    print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name()}")
    print(f"{'case':<48} {'PyTorch us':>12} {'Tessera us':>12} {'ratio':>7}")
    for name, us in results.items():
        beside = f"{own[name]:12.1f} {us / own[name]:7.2f}" if name in own else f"{'-':>12} {'-':>7}"
        print(f"{name:<48} {us:12.1f} {beside}")
    (folder / "bench_torch.json").write_text(json.dumps({"pytorch": torch.__version__, "us": results, "own_us": own}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
