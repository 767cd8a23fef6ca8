#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Prints tests/collection/weighted_values.hpp: what PyTorch makes of weighted sequences and weighted max pooling.

All inputs are multiples of powers of two, so that every product and sum is exact; the table is that after a step of row-wise Adagrad.
"""
import torch

ROWS, WIDTH, RATE = 9, 8, 0.5
HISTORY = [[1, 4, 1], [], [7], [4, 8, 8, 0]]
BEST = [[2, 4, 5], [3], [], [4, 1, 2, 8]]


def numbers(count, factor, modulus, shift, divisor):
    return torch.tensor([((i * factor) % modulus - shift) / divisor for i in range(count)], dtype=torch.float64)


table = numbers(ROWS * WIDTH, 23, 73, 36, 16).reshape(ROWS, WIDTH).requires_grad_()
ids = sum(map(len, HISTORY)) + sum(map(len, BEST))
weights = numbers(ids, 5, 11, 5, 4)
weights[weights == 0] = 0.125
weights.requires_grad_()
of_vectors = numbers(sum(map(len, HISTORY)) * WIDTH, 29, 23, 11, 8).reshape(-1, WIDTH)
of_output = numbers(len(BEST) * WIDTH, 31, 19, 9, 4).reshape(-1, WIDTH)

at, vectors, output = 0, [], []
for bag in HISTORY:
    for row in bag:
        vectors.append(weights[at] * table[row])
        at += 1
for bag in BEST:
    weighted = [weights[at + i] * table[row] for i, row in enumerate(bag)]
    at += len(bag)
    if not bag:
        output.append(torch.zeros(WIDTH, dtype=torch.float64))
        continue
    weighted = torch.stack(weighted)
    largest, _ = weighted.max(dim=0)
    assert ((weighted == largest).sum(dim=0) == 1).all(), "a tie"
    output.append(largest)
vectors, output = torch.stack(vectors), torch.stack(output)
((vectors * of_vectors).sum() + (output * of_output).sum()).backward()
mean_square = (table.grad ** 2).mean(dim=1, keepdim=True)
after = table - RATE * table.grad / (mean_square.sqrt() + 1e-8)


def array(name, values):
    words = [f"{float(v):.9g}f" if "." in f"{float(v):.9g}" else f"{float(v):.9g}.0f" for v in values.detach().flatten()]
    print(f"inline constexpr float {name}[] = {{{', '.join(words)}}};")


print("""// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Printed by weighted_values.py, with PyTorch.
#pragma once

namespace weighted_values {
""")
for name, values in [("table", table), ("weights", weights), ("of_vectors", of_vectors), ("of_output", of_output), ("vectors", vectors),
                     ("output", output), ("of_weights", weights.grad), ("after", after)]:
    array(name, values)
print("\n}  // namespace weighted_values")
