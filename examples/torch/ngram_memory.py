# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""A small language model of bytes in PyTorch, with a memory of hashed pairs and triples and without: `ngram_memory.py TEXT [STEPS]`."""
import sys

import tessera
import torch

ROWS, WIDTH, HEADS, ORDERS, CONTEXT, BATCH = 2**14, 16, 4, (2, 3), 4, 512


def mix64(x):  # SplitMix64's finalizer; int64 drops what overflows, and shifts must not drag the sign along
    x = x - 0x61c8864680b583eb
    x = (x ^ ((x >> 30) & (2**34 - 1))) * -0x40a7b892e31b1a47
    x = (x ^ ((x >> 27) & (2**37 - 1))) * -0x6b2fb644ecceee15
    return x ^ ((x >> 31) & (2**33 - 1))


def word(seed, *counters):
    state = mix64(torch.tensor(seed))
    for counter in counters:
        state = mix64(state ^ counter)
    return state


def ngram_rows(context, seed=1):
    """Rows as tessera/ngram.hpp has them, table by table; `context` [samples, tokens], the last token of an n-gram last."""
    rows = []
    for order in ORDERS:
        for head in range(HEADS):
            x = torch.zeros(len(context), dtype=torch.int64)
            for j in range(order):
                x = x ^ ((context[:, -1 - j] + 1) * (word(seed, order, head, j) | 1))
            rows.append(mix64(x) & (ROWS - 1))  # modulo a power of two
    return torch.cat(rows)


def bits_per_byte(text, steps, with_memory):
    torch.manual_seed(0)
    memory = tessera.EmbeddingBagCollection([tessera.Table(f"{n}.{h}", ROWS, WIDTH) for n in ORDERS for h in range(HEADS)],
                                            optimizer="adagrad", learning_rate=0.1, initial_bound=0.01)
    tokens, extra = torch.nn.Embedding(256, WIDTH), memory.collection.columns if with_memory else 0
    layers = torch.nn.Sequential(torch.nn.Linear(CONTEXT * WIDTH + extra, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256))
    optimizer = torch.optim.Adam([*tokens.parameters(), *layers.parameters()], 2e-3)
    windows, border = text.unfold(0, CONTEXT + 1, 1), int(0.9 * len(text))

    def loss_of(samples):
        context = windows[samples][:, :-1]
        parts = [tokens(context).flatten(1)] + ([memory(ngram_rows(context))] if with_memory else [])
        return torch.nn.functional.cross_entropy(layers(torch.cat(parts, 1)), windows[samples][:, -1])

    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(torch.randint(0, border - CONTEXT - 1, (BATCH,))).backward()  # the memory's rows learn here
        optimizer.step()
    with torch.no_grad():
        memory.eval()
        return loss_of(torch.arange(border, len(windows), 7)).item() / 0.6931471805599453


if __name__ == "__main__":
    text = torch.frombuffer(bytearray(open(sys.argv[1], "rb").read()), dtype=torch.uint8).long()
    for with_memory in (False, True):
        print("with" if with_memory else "without", "memory:", round(bits_per_byte(text, int((sys.argv[2:] or [1000])[0]), with_memory), 3))
