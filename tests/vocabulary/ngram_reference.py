#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""NgramHash's arithmetic, written from its documentation.

    ngram_reference.py FILE    checks that FILE (ngram_cases.hpp) has the rows that this computes
    ngram_reference.py         prints them
"""
import pathlib
import re
import sys

# [arithmetic]
WORD = 2**64


def mix64(x):  # SplitMix64's finalizer
    x = (x + 0x9e3779b97f4a7c15) % WORD
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9 % WORD
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb % WORD
    return x ^ (x >> 31)


def random_word(seed, *counters):
    state = mix64(seed)
    for counter in counters:
        state = mix64(state ^ counter)
    return state


def ngram_row(seed, order, head, rows, tokens, padding=-1):
    """The row of the n-gram that ends a list of tokens: all of the document up to a position."""
    x = 0
    for j in range(min(order, len(tokens))):
        token = tokens[-1 - j]
        if token != padding:
            x ^= (token + 1) * (random_word(seed, order, head, j) | 1) % WORD
    return mix64(x) % rows
# [arithmetic end]


def table_rows(seed, orders, heads, rows, tokens, documents, padding=-1):
    """[tables][positions]"""
    found = []
    for table in range(len(orders) * heads):
        found.append([])
        for begin, end in zip(documents, documents[1:]):
            for at in range(begin, end):
                found[-1].append(ngram_row(seed, orders[table // heads], table % heads, rows[table], tokens[begin:at + 1], padding))
    return found


CASES = {
    "bytes": table_rows(1, [2, 3], 2, [1_000_003] * 4, list(b"the cat sat."), [0, 4, 4, 12]),
    "large": table_rows(WORD - 1, [1, 5], 1, [2**31, 97], [2**31 - 1, 0, 7, 2**31 - 1, 0, 0, 7, 7], [0, 7, 8], padding=7),
}


def main():
    text = {name: ", ".join(str(row) for table in rows for row in table) for name, rows in CASES.items()}
    if len(sys.argv) == 1:
        for name, numbers in text.items():
            print(f"// {name}\n{numbers}")
        return 0
    given = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
    for name, numbers in text.items():
        found = re.search(rf"// golden {name}\n[^{{]*\{{([^}}]*)\}}", given)
        if not found or [int(n) for n in found[1].split(",")] != [int(n) for n in numbers.split(",")]:
            print(f"{sys.argv[1]}: '{name}' has other rows than {numbers}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
