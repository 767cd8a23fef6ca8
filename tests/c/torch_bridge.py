#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""examples/torch/tessera.py beside PyTorch's own layers, over threads, over torch.distributed and over Gloo; and all that a caller may do
wrong. Exit code 77 where no Python has torch.

    torch_bridge.py ROOT LIBRARY HELLO_C
"""
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading

root, library, hello_c = sys.argv[1:4]
try:
    import torch
except ImportError:
    for python in ("/usr/bin/python3",):
        if os.path.exists(python) and os.path.realpath(python) != os.path.realpath(sys.executable) and len(sys.argv) == 4:
            if subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0:
                os.execv(python, [python, "-B", *sys.argv, "again"])
    print("no torch (Debian: python3-torch)")
    sys.exit(77)
os.environ["TESSERA_LIBRARY"] = library
sys.path.insert(0, os.path.join(root, "examples/torch"))
import tessera
from tessera import BadId, Collection, Communicator, CommunicatorError, DataError, EmbeddingBag, EmbeddingBagCollection, InvalidArgument, Table

torch.set_num_threads(1)


def refused(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), f"'{error}' does not say '{text}'"
        return
    raise AssertionError(f"no {kind.__name__} that says '{text}'")


def on_threads(ranks, run):
    """Returns what run(communicator) gives on each rank."""
    results, faults = [None] * ranks, []

    def one(communicator):
        try:
            results[communicator.rank] = run(communicator)
        except BaseException as fault:
            faults.append(fault)
            tessera._c.tessera_communicator_fail(communicator, str(fault).encode())

    threads = [threading.Thread(target=one, args=(communicator,)) for communicator in Communicator.threads(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]
    return results


def hello(communicator, steps=30):
    """hello.cpp: its losses after 10, 20, 30 steps."""
    batch, width = 1024, 16
    mine, first = batch // communicator.size, batch // communicator.size * communicator.rank
    tables = EmbeddingBagCollection([Table("user", 1000, width, policy="row-wise"), Table("film", 200, width, policy="column-wise:2")],
                                    communicator=communicator, optimizer="rowwise-adagrad", learning_rate=0.1, seed=42)
    losses = []
    for step in range(steps):
        sample = step * batch + first + torch.arange(mine)
        user, film = sample * 7 % 1000, torch.div(sample, 3, rounding_mode="floor") % 200
        vectors = tables.split(tables(torch.cat([user, film]).int()))
        miss = (vectors["user"] * vectors["film"]).sum(1) - (user % 4 == film % 4).float()
        (miss.square() / 2).sum().backward()
        errors = torch.zeros(batch)
        errors[first:first + mine] = miss.detach().square()
        communicator.all_reduce(errors)
        losses.append(float(errors.sum() / batch))
    return losses


def as_hello():
    printed = [float(line.split()[-1]) for line in subprocess.run([hello_c], check=True, capture_output=True, text=True).stdout.splitlines()]
    of_one = hello(Communicator())
    for theirs, ours in zip(printed, of_one[9::10]):
        assert abs(theirs - ours) <= 1e-6, (theirs, ours)
    for ranks in (2, 4):
        assert all(losses == of_one for losses in on_threads(ranks, hello)), ranks


def random_bags(seed, samples, rows, weighted):
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 5, (samples,), generator=random)
    ids = torch.randint(0, rows, (int(lengths.sum()),), generator=random)
    weights = torch.rand(len(ids), generator=random) if weighted else None
    return ids, lengths, weights


def as_embedding_bag():
    """500 steps of a small model: the losses of torch's sparse layer and optimizer."""
    rows, width, samples = 300, 8, 64
    for mode, weighted, name, rate, make in (("sum", False, "sgd", 0.1, torch.optim.SGD), ("sum", True, "sgd", 0.1, torch.optim.SGD),
                                             ("mean", False, "adagrad", 0.05, torch.optim.Adagrad)):
        ours = EmbeddingBag(rows, width, mode, optimizer=name + ("(epsilon=1e-10)" if name == "adagrad" else ""), learning_rate=rate, seed=3,
                            weighted=weighted)
        theirs = torch.nn.EmbeddingBag(rows, width, mode=mode, sparse=True)
        theirs.weight.data.copy_(ours.state_dict()["weight.weight"])
        optimizer = make(theirs.parameters(), lr=rate)
        target = torch.randn(width, generator=torch.Generator().manual_seed(9))
        for step in range(500):
            ids, lengths, weights = random_bags(step, samples, rows, weighted)
            offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])[:-1]
            losses = []
            for layer in (ours, theirs):
                given = None if weights is None else weights.clone().requires_grad_(True)
                loss = (layer(ids, offsets, per_sample_weights=given) @ target - 1).square().mean()
                optimizer.zero_grad()
                loss.backward()
                losses.append((loss.item(), None if given is None else given.grad))
            optimizer.step()
            assert abs(losses[0][0] - losses[1][0]) <= 1e-6 * max(1, losses[1][0]), (mode, step, losses)
            if weighted:
                assert torch.allclose(losses[0][1], losses[1][1], rtol=1e-4, atol=1e-6), (step, losses)


class Kjt:
    """What TorchRec's KeyedJaggedTensor answers."""

    def __init__(self, keys, values, lengths):
        self.keys, self.values, self.lengths, self.weights_or_none = (lambda: keys), (lambda: values), (lambda: lengths), (lambda: None)


def states_and_modes():
    """State dicts over ranks, KeyedJaggedTensors, evaluation, accumulation, checkpoints."""
    tables = [Table("a", 50, 8, features=("a", "a2"), policy="row-wise"), Table("b", 20, 8, "mean", policy="column-wise:2"),
              Table("c", 5, 4, policy="replicated")]
    keys = ["a", "a2", "b", "c"]

    def batch(step, rank, ranks):
        random = torch.Generator().manual_seed(step)
        lengths = torch.randint(0, 4, (4, 8), generator=random)
        ids = [torch.randint(0, rows, (int(row.sum()),), generator=random) for rows, row in zip((50, 50, 20, 5), lengths)]
        mine = slice(8 // ranks * rank, 8 // ranks * (rank + 1))
        of_rank = [torch.cat([torch.split(all_ids, row.tolist())[s] for s in range(8)[mine]]) for all_ids, row in zip(ids, lengths)]
        return Kjt(keys, torch.cat(of_rank), lengths[:, mine].reshape(-1))

    def train(communicator, before=None, steps=range(3), folder=None):
        layer = EmbeddingBagCollection(tables, communicator=communicator, optimizer="adam:a,rowwise-adagrad:*", learning_rate=0.1)
        if before is not None:
            layer.load_state_dict(before)
        for step in steps:
            layer(batch(step, communicator.rank, communicator.size)).square().sum().backward()
        if folder:
            layer.collection.save(folder, 3)
            fresh = EmbeddingBagCollection(tables, communicator=communicator, optimizer="adam:a,rowwise-adagrad:*", seed=77)
            fresh.collection.load(f"{folder}/step-{3:012}")
            assert all(torch.equal(value, fresh.state_dict()[key]) for key, value in layer.state_dict().items())
        layer.eval()
        return layer.state_dict(), layer(batch(9, communicator.rank, communicator.size))

    def same(a, b, equal=torch.equal):
        assert a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a), [key for key in a if not equal(a[key], b[key])]

    whole, evaluated = train(Communicator())
    assert whole["a.weight"].shape == (50, 8) and whole["b.state.0"].shape == (20, 1) and "a.state.1" in whole
    with tempfile.TemporaryDirectory() as folder:
        for dictionary, _ in on_threads(2, lambda communicator: train(communicator, folder=folder)):
            same(dictionary, whole, torch.allclose)  # gradients of a row are summed by rank first
    for ranks in (1, 2):  # goes on from a state dict, on other ranks
        again = on_threads(ranks, lambda communicator: train(communicator, before=whole, steps=()))
        for dictionary, _ in again:
            same(dictionary, whole)
        assert torch.allclose(torch.cat([part for _, part in again]), evaluated)

    refused(RuntimeError, "[20, 1]", lambda: train(Communicator(), before={**whole, "b.state.0": torch.zeros(3, 1)}))
    refused(RuntimeError, "Missing", lambda: train(Communicator(), before={key: whole[key] for key in whole if key != "a.weight"}))

    layer = EmbeddingBagCollection(tables, optimizer="sgd", learning_rate=0.1)
    layer.accumulate = True
    before = layer.state_dict()["a.weight"]
    for step in range(2):
        layer(batch(step, 0, 1)).sum().backward()
    assert torch.equal(layer.state_dict()["a.weight"], before)
    assert layer.collection.apply(1.0) > 1
    assert not torch.equal(layer.state_dict()["a.weight"], before)

    # Arrays of NumPy, where there is no torch.
    import numpy
    collection = Collection([Table("t", 6, 4)], optimizer="sgd", learning_rate=1.0)
    first = numpy.array(collection.read("t"))
    step = collection.step()
    assert (numpy.array(collection.lookup(step, numpy.array([5, 0]))) == first[[5, 0]]).all()
    collection.update(step, numpy.ones((2, 4), numpy.float32))
    assert numpy.allclose(first - numpy.array(collection.read("t")), [[1] * 4] + [[0] * 4] * 4 + [[1] * 4])


def wrong_input():
    layer = EmbeddingBag(10, 4, learning_rate=0.1)
    ids = torch.tensor([1, 2, 3])
    refused(BadId, "id 10 is outside its table of 10 rows", lambda: layer(torch.tensor([10]), torch.tensor([0])))
    refused(InvalidArgument, "ids has another type", lambda: layer(ids.short(), torch.tensor([0])))
    refused(InvalidArgument, "ids is a list", lambda: Collection([Table("t", 5, 4)]).lookup(tessera.Collection([Table("t", 5, 4)]).step(), [1]))
    refused(InvalidArgument, "ids has strides", lambda: layer.collection.lookup(layer.collection.step(), torch.arange(8)[::2]))
    refused(InvalidArgument, "2 weights for 3 ids", lambda: layer(ids, torch.tensor([0]), torch.ones(2)))
    refused(InvalidArgument, "offsets go backwards", lambda: layer(ids, torch.tensor([0, 2, 1])))
    refused(InvalidArgument, "must have ['a', 'b']", lambda: EmbeddingBagCollection([Table("a", 5, 4), Table("b", 5, 4)])(
        Kjt(["b", "a"], ids, torch.tensor([1, 2]))))
    refused(InvalidArgument, "not a whole number of samples", lambda: EmbeddingBagCollection([Table("a", 5, 4), Table("b", 5, 4)])(ids))
    refused(InvalidArgument, "there is no pooling 'median'", lambda: EmbeddingBag(10, 4, "median"))
    refused(InvalidArgument, "there is no option 'learning'", lambda: EmbeddingBag(10, 4, learning=1))
    refused(InvalidArgument, "there is no optimizer", lambda: EmbeddingBag(10, 4, optimizer="adm"))
    refused(InvalidArgument, "there is no policy", lambda: EmbeddingBag(10, 4, plan="diagonal"))
    refused(DataError, "/nowhere", lambda: layer.collection.load("/nowhere"))
    refused(InvalidArgument, "torch.distributed is not initialized", Communicator.torch)
    refused(InvalidArgument, "the gradient is [1, 4]", lambda: layer.collection.update(looked_up(layer, ids), torch.zeros(1, 4)))
    refused(InvalidArgument, "gradient has another type", lambda: layer.collection.update(looked_up(layer, ids), torch.zeros(3, 4).double()))
    meta = torch.zeros(3, dtype=torch.int64, device="meta")
    refused(InvalidArgument, "ids cannot be shared", lambda: layer.collection.lookup(layer.collection.step(), meta))
    # A second backward of one lookup has nothing to update.
    loss = layer(ids, torch.tensor([0])).sum()
    loss.backward(retain_graph=True)
    refused(InvalidArgument, "a second backward pass", loss.backward)
    # What was given may be freed: the step keeps it.
    pooled = layer(torch.tensor([4, 5, 6]), torch.tensor([0]))
    trash = [torch.full((3,), 99) for _ in range(100)]
    pooled.sum().backward()
    del trash
    # Columns of a wider gradient are used in place.
    layer.collection.update(looked_up(layer, ids), torch.ones(3, 9)[:, 2:6])
    child = os.fork()
    if child == 0:
        try:
            layer(ids, torch.tensor([0]))
        except InvalidArgument as error:
            os._exit(0 if "fork" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def looked_up(layer, ids):
    step = layer.collection.step()
    layer.collection.lookup(step, ids)
    return step


def ngram_memory():
    """The example's hash is the reference's, and its memory learns."""
    sys.path.insert(0, os.path.join(root, "tests/vocabulary"))
    import ngram_memory as example
    import ngram_reference
    context = torch.randint(0, 256, (20, 3), generator=torch.Generator().manual_seed(1))
    rows = iter(example.ngram_rows(context).tolist())
    for order in example.ORDERS:
        for head in range(example.HEADS):
            assert all(next(rows) == ngram_reference.ngram_row(1, order, head, example.ROWS, tokens) for tokens in context.tolist())
    text = torch.frombuffer(bytearray(open(os.path.join(root, "LICENSE"), "rb").read()), dtype=torch.uint8).long()
    without, with_memory = (example.bits_per_byte(text, 40, memory) for memory in (False, True))
    assert with_memory < 0.97 * without, (with_memory, without)


PROCESS = """
import os, signal, sys
sys.argv = ["", {root!r}, {library!r}, {hello_c!r}, "again"]
sys.path.insert(0, {tests!r})
import torch_bridge as t
import torch
if {kind!r} == "gloo":
    communicator = t.Communicator.gloo(60)
else:
    torch.distributed.init_process_group("gloo")
    communicator = t.Communicator.torch()
if {kind!r} == "interrupted":
    if communicator.rank == 1:
        signal.setitimer(signal.ITIMER_REAL, 2)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            communicator.barrier()  # rank 0 is late: the signal is there before it
        except KeyboardInterrupt:
            print("interrupted")
    else:
        import time
        time.sleep(4)
        communicator.barrier()
    sys.stdout.flush()
    os._exit(0)
print(*t.hello(communicator))
"""


def processes(kind, ranks=2):
    """Returns what the processes of a job print."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    text = PROCESS.format(root=root, library=library, hello_c=hello_c, tests=os.path.dirname(os.path.abspath(__file__)), kind=kind)
    jobs = [subprocess.Popen([sys.executable, "-B", "-c", text], stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "RANK": str(r), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(r), "LOCAL_WORLD_SIZE": str(ranks),
                                  "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}) for r in range(ranks)]
    outputs = [job.communicate(timeout=300)[0] for job in jobs]
    assert [job.returncode for job in jobs] == [0] * ranks, outputs
    return outputs


def over_processes():
    of_one = [str(loss) for loss in hello(Communicator())]
    kinds = ["torch"] if torch.distributed.is_available() else []
    try:
        tessera._check(tessera._c.tessera_communicator_gloo(0.0, None))
    except tessera.Error as error:
        kinds += [] if "built without Gloo" in str(error) else ["gloo"]
    for kind in kinds:
        for output in processes(kind):
            assert output.split() == of_one, (kind, output)
    if "torch" in kinds:
        assert processes("interrupted")[1] == "interrupted\n"
    return kinds


if __name__ == "__main__":
    as_hello()
    as_embedding_bag()
    states_and_modes()
    wrong_input()
    ngram_memory()
    print(f"the same losses over processes: {over_processes()}; PyTorch {torch.__version__}")
