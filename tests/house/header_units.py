# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Deals headers out to as few translation units as can prove each of them. Prints the headers of a unit on a line, in their order.

A header may come after another in a unit if it includes that one, itself or through others, in any case: then what comes before it is what
it includes anyway, and cannot give it what it lacks. (Which one that is, each header's own place says, one after the other.)
  header_units.py FOLDER HEADER...      paths in FOLDER
"""
import pathlib
import re
import sys

LINE = re.compile(r'\s*#\s*(?:(if)|(endif)|include\s*[<"]([^>"]+)[>"])')


def included(folder, header, known):
    """Returns what a header of the folder includes outside of all #if, itself and through others."""
    if header not in known:
        known[header] = set()
        depth = 0
        for line in (folder / header).read_text().splitlines():
            found = LINE.match(line)
            if not found:
                continue
            depth += bool(found[1]) - bool(found[2])
            if found[3] and depth == 0 and (folder / found[3]).is_file():
                known[header] |= {found[3]} | included(folder, found[3], known)
    return known[header]


def units(folder, headers):
    """Returns lists of headers: a smallest number of chains, by pairing each header with the one after it (Kuhn's matching)."""
    known = {}
    after = {one: [other for other in headers if one in included(folder, other, known) and other != one] for one in headers}
    before = {}

    def pair(one, seen):
        for other in after[one]:
            if other not in seen:
                seen.add(other)
                if other not in before or pair(before[other], seen):
                    before[other] = one
                    return True
        return False

    for header in headers:
        pair(header, set())
    following = {one: other for other, one in before.items()}
    chains = []
    for header in headers:
        if header not in before:
            chain = [header]
            while chain[-1] in following:
                chain.append(following[chain[-1]])
            chains.append(chain)
    return chains


if __name__ == "__main__":
    sys.setrecursionlimit(10_000)
    for unit in units(pathlib.Path(sys.argv[1]), sys.argv[2:]):
        print(" ".join(unit))
