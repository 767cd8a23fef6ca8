# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Runs an example and sees that it prints what its page says.

    printed.py PROGRAM ROOT

hello: lines "N ranks, step S: loss X", the same losses for every N. Others: README.md has the output as a block of its own.
"""
import pathlib
import re
import subprocess
import sys


def main():
    program, root = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    if program.name != "hello":
        indented = "".join(f"    {line}\n" for line in printed.splitlines())
        assert indented in (root / "README.md").read_text(), f"README.md does not have what {program.name} prints:\n{indented}"
        return
    losses = {}
    for ranks, step, loss in re.findall(r"^(\d+) ranks, step (\d+): loss (\S+)$", printed, re.MULTILINE):
        losses.setdefault(ranks, {})[step] = loss
    one = losses["1"]
    assert sorted(losses) == ["1", "2", "4"] and all(of == one for of in losses.values()), f"losses depend on the ranks:\n{printed}"
    assert len(one) == 3 and float(one["30"]) < 1e-3 * float(one["10"]), f"it does not learn:\n{printed}"


if __name__ == "__main__":
    main()
