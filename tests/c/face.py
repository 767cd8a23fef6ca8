#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""What libtessera_c shows: the symbols that tests/c/symbols.txt lists, which are those of tessera.h, and no other; hello.c learns what
hello.cpp does, with the same losses to the last bit on 1, 2 and 4 ranks; and the wheel of make_wheel.py installs where nothing else is.

    face.py ROOT LIBRARY HELLO HELLO_C
"""
import pathlib
import re
import subprocess
import sys
import tempfile
import venv

root, library, hello, hello_c = (pathlib.Path(argument) for argument in sys.argv[1:])

listed = (root / "tests/c/symbols.txt").read_text().split()
declared = re.findall(r"TESSERA_API [^;]*?\b(tessera_\w+)\(", (root / "include/tessera/tessera.h").read_text())
exported = {}
for line in subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout.splitlines():
    kind, name = line.split()[1:]
    name, _, version = name.partition("@@")
    if kind != "A":  # the version itself
        exported[name] = version
assert listed == sorted(listed), "tests/c/symbols.txt is not sorted"
gone, new = set(listed) - set(exported), set(exported) - set(listed)
assert not gone, f"programs that are linked with libtessera_c need {gone}: a function may not go"
assert not new, f"exported, but not in tests/c/symbols.txt: {new}"
assert sorted(declared) == listed, f"tessera.h and the library differ: {set(declared) ^ set(listed)}"
assert set(exported.values()) == {"TESSERA_0"}, exported


def losses(program):
    found = {}
    for line in subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines():
        ranks, step, loss = re.fullmatch(r"(\d+) ranks, step (\d+): loss (\S+)", line).groups()
        found.setdefault(int(ranks), {})[int(step)] = float(loss)
    return found


in_cpp, in_c = losses(hello), losses(hello_c)
assert in_c[1] == in_c[2] == in_c[4], in_c
assert in_c.keys() == in_cpp.keys() and in_c[1].keys() == in_cpp[1].keys()
# The library's kernels are optimized, those of the program hello are not: fused products round once.
for step, loss in in_cpp[1].items():
    assert abs(in_c[1][step] - loss) <= 1e-4 * loss, (step, loss, in_c[1][step])
with tempfile.TemporaryDirectory() as folder:
    make = [sys.executable, "-B", root / "examples/torch/make_wheel.py", "--out", folder]
    wheel = subprocess.run([*make, "--library", library], check=True, capture_output=True, text=True).stdout.strip()
    refused = subprocess.run([*make, "--library", "/nowhere"], capture_output=True, text=True)
    assert refused.returncode == 2 and "no file '/nowhere'" in refused.stderr, refused
    venv.create(f"{folder}/empty", with_pip=True)
    subprocess.run([f"{folder}/empty/bin/pip", "install", "--quiet", "--no-index", wheel], check=True)
    code = "import tessera; print(tessera.Collection([tessera.Table('t', 5, 4)]).plan.count('rank'), tessera.__version__)"
    printed = subprocess.run([f"{folder}/empty/bin/python", "-c", code], check=True, capture_output=True, text=True, cwd=folder).stdout.split()
    assert printed == ["3", wheel.split("-")[1]], printed

print(f"{len(listed)} symbols; losses {in_c[1]}")
