#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""A step (lookup, update) of 26 tables of 100,000 x 16 from Python, one id a sample: through examples/torch/tessera.py, with autograd and
without, and by torch.nn.EmbeddingBag(sparse=True) with Adagrad. They take turns; medians in microseconds, as JSON. With --alone there is
no other, and 8 batches come again and again: as bench_bridges measures C and C++. With --torchrec TorchRec's EmbeddingBagCollection is
there, too, whose fused optimizer is row-wise Adagrad as the library's; DistributedModelParallel of one process, tables whole.

    torch_step.py [--samples 2048] [--steps 60] [--threads 1] [--alone] [--torchrec]     (TESSERA_LIBRARY: the library)
"""
import argparse
import json
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../examples/torch"))
import tessera
import torch

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--samples", type=int, default=2048)
parser.add_argument("--steps", type=int, default=60)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--alone", action="store_true")
parser.add_argument("--torchrec", action="store_true")
options = parser.parse_args()
torch.set_num_threads(options.threads)
tables, rows, width, samples = 26, 100_000, 16, options.samples
made = [tessera.Table(f"t{t}", rows, width) for t in range(tables)]
settings = {"optimizer": "rowwise-adagrad", "learning_rate": 0.01, "threads": options.threads}
layer, calls = tessera.EmbeddingBagCollection(made, **settings), tessera.Collection(made, **settings)
step = calls.step()
theirs = torch.nn.ModuleList(torch.nn.EmbeddingBag(rows, width, mode="sum", sparse=True) for _ in range(tables))
optimizer = torch.optim.Adagrad(theirs.parameters(), lr=0.01)
gradient, offsets = torch.full((samples, tables * width), 1e-3), torch.arange(samples)


def by_calls(ids):
    calls.lookup(step, ids)
    calls.update(step, gradient)


def by_layer(ids):
    layer(ids).backward(gradient)


def by_torch(ids):
    optimizer.zero_grad()
    torch.cat([bag(part, offsets) for bag, part in zip(theirs, ids.view(tables, samples))], 1).backward(gradient)
    optimizer.step()


def sharded():
    """Returns TorchRec's collection of the same tables, and its class of batches."""
    import logging
    import torchrec
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.model_parallel import DistributedModelParallel
    from torchrec.distributed.sharding_plan import construct_module_sharding_plan, table_wise
    from torchrec.distributed.types import ShardingPlan
    from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
    from torchrec.optim.rowwise_adagrad import RowWiseAdagrad
    logging.disable(logging.CRITICAL)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    configs = [torchrec.EmbeddingBagConfig(name=t.name, embedding_dim=width, num_embeddings=rows, feature_names=[t.name]) for t in made]
    collection = torchrec.EmbeddingBagCollection(configs, device=torch.device("meta"))
    apply_optimizer_in_backward(RowWiseAdagrad, collection.parameters(), {"lr": 0.01})
    sharder, model = EmbeddingBagCollectionSharder(), torch.nn.Sequential(collection)
    plan = construct_module_sharding_plan(collection, {t.name: table_wise(rank=0) for t in made}, sharder, 1, 1, "cpu")
    return DistributedModelParallel(model, device=torch.device("cpu"), plan=ShardingPlan({"0": plan}), sharders=[sharder]), torchrec.KeyedJaggedTensor


def by_torchrec(ids):
    batch = theirs_sharded[1](keys=[t.name for t in made], values=ids, lengths=ones)
    theirs_sharded[0](batch).values().backward(gradient)


times = {by_layer: []} if options.alone else {by_calls: [], by_layer: [], by_torch: []}
if options.torchrec:
    theirs_sharded, ones, times[by_torchrec] = sharded(), torch.ones(tables * samples, dtype=torch.int64), []
batches = [torch.randint(0, rows, (tables * samples,)) for _ in range(8 if options.alone else options.steps)]
for n in range(options.steps):
    ids = batches[n % len(batches)]
    for run, taken in times.items():
        begin = time.perf_counter()
        run(ids)
        taken.append((time.perf_counter() - begin) * 1e6)
medians = {run.__name__[3:] + "_us": round(statistics.median(taken), 1) for run, taken in times.items()}
if not options.alone:
    medians["torch_over_layer"] = round(medians["torch_us"] / medians["layer_us"], 2)
if options.torchrec:
    medians["torchrec_over_layer"] = round(medians["torchrec_us"] / medians["layer_us"], 2)
print(json.dumps({"samples": samples, "threads": options.threads, **medians, "torch": torch.__version__}))
