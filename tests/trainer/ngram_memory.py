# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""examples/ngram_memory on texts whose information is known, under every number of ranks and in every tier.

    python3 ngram_memory.py NGRAM_MEMORY [JARGON]    JARGON: the text of Debian's dict-jargon, for the margin that the page claims
"""
import gzip
import math
import os
import random
import re
import subprocess
import sys
import tempfile

program = sys.argv[1]
PACKAGED = "/usr/share/dictd/jargon.dict.dz"
jargon = sys.argv[2] if len(sys.argv) > 2 else PACKAGED
LINE = re.compile(r"^(with|without) memory, held out: ([\d.]+) bits per byte, bits of the model ([0-9a-f]{16})", re.M)


def run(*options, fails=False):
    done = subprocess.run([program, *map(str, options)], capture_output=True, text=True)
    assert (done.returncode != 0) == fails, f"{options}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stderr if fails else done.stdout


def held_out(*options):
    """{"with": (bits per byte, bits of the model), "without": ...}"""
    found = {name: (float(bits), model) for name, bits, model in LINE.findall(run(*options))}
    assert set(found) == {"with", "without"}, found
    return found


def source(symbols, order, noise, size, seed):
    """A text whose next symbol is a function of the last `order` ones, or any symbol at the rate `noise`; and its bits per byte."""
    draw = random.Random(seed)
    after = {}
    text = [draw.randrange(symbols) for _ in range(order)]
    while len(text) < size:
        last = tuple(text[-order:]) if order else ()
        if last not in after:
            after[last] = draw.randrange(symbols)
        text.append(draw.randrange(symbols) if draw.random() < noise else after[last])
    likely, other = 1 - noise + noise / symbols, noise / symbols
    bits = -likely * math.log2(likely) - (symbols - 1) * other * math.log2(other) if noise else 0.0
    return bytes(97 + s for s in text), bits


def main():
    with tempfile.TemporaryDirectory() as folder:
        def file(name, data):
            path = os.path.join(folder, name)
            with open(path, "wb") as out:
                out.write(data)
            return path

        # one model whatever the ranks and the tier
        text, entropy = source(8, 3, 0.25, 120_000, 1)
        path = file("text", text)
        base = held_out("--text", path, "--ranks", 1, "--steps", 12)
        for ranks in (1, 2, 4):
            for tier in ("memory", "host", "file"):
                if (ranks, tier) != (1, "memory"):
                    found = held_out("--text", path, "--ranks", ranks, "--steps", 12, "--tier", tier, "--folder", os.path.join(folder, "rows"))
                    assert found == base, f"{ranks} ranks, {tier}: {found}, not {base}"
        # the same text, compressed; and 11 steps are another model
        assert held_out("--text", file("text.gz", gzip.compress(text)), "--ranks", 2, "--steps", 12) == base
        other = held_out("--text", path, "--ranks", 1, "--steps", 11)
        assert all(other[name][1] != base[name][1] for name in base)

        # a model that has seen nothing: nearly as many bits as a byte has
        for name, (bits, _) in held_out("--text", path, "--ranks", 1, "--steps", 0).items():
            assert 7.9 < bits < 8.3, f"{name}: {bits} bits before the first step"
        # Symbols that follow three others: no model tells them in fewer bits than they have, one with a memory nearly in these.
        found = held_out("--text", path, "--ranks", 4, "--steps", 300)
        assert entropy - 0.05 < found["with"][0] < entropy + 0.4, (entropy, found)
        assert found["with"][0] < 0.97 * found["without"][0], found
        assert found["without"][0] > entropy - 0.05, found
        # symbols that follow nothing: there is nothing to remember
        text, entropy = source(16, 0, 1.0, 60_000, 2)
        for name, (bits, _) in held_out("--text", file("noise", text), "--ranks", 4, "--steps", 60).items():
            assert entropy - 0.05 < bits < 5.0, f"{name}: {bits} bits of {entropy}"

        # wrong input
        for options, text in ((("--text", os.path.join(folder, "none")), "No such file"),
                              (("--text", folder), "it is a directory"),
                              (("--text", file("short", b"x" * 11_264)), "11264 bytes; give more than 11264"),
                              (("--text", file("cut.gz", gzip.compress(os.urandom(90_000))[:50_000])), "cut off"),
                              (("--text", path, "--ranks", 3), "--ranks: 3 not in {1,2,4}"),
                              (("--text", path, "--tier", "disk"), "--tier: disk not in {memory,host,file}"),
                              (("--text", path, "--steps", -1), "--steps: Value -1 not in range"),
                              (("--text", path, "--bogus"), "not expected: --bogus"),
                              (("--text", path, "--tier", "file", "--folder", os.path.join(path, "x")), "cannot make the folder of table files")):
            found = run(*options, fails=True)
            assert text in found, f"{options}: {found}"
        if not os.path.exists(PACKAGED):
            assert "unpack the Debian package dict-jargon" in run(fails=True)
        # real text, if its package is installed: at least 3 % fewer bits at equal steps
        if os.path.exists(jargon):
            found = held_out("--text", jargon, "--ranks", 1, "--steps", 300)
            assert found["with"][0] < 0.97 * found["without"][0], found
    return 0


if __name__ == "__main__":
    sys.exit(main())
