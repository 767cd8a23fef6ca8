# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""The examples in the comments of public names compile.

An example is a block of lines that begin with '///     ', behind an empty line of a comment, in a header of include/. It is code of a
function's body, in namespace tessera, behind the declarations of header_examples.hpp. (What is not to be compiled, such as formulas and
code with gaps, is indented by three spaces.)

    header_examples.py ROOT COMPILER...    compiles all of them at once; errors name header and line; exit code 1 if there is one
"""
import pathlib
import re
import subprocess
import sys

LINE = re.compile(r"^///     (.*)$")


def examples(text):
    """(line number of the first line, lines) of every example."""
    found = []
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        match = LINE.match(line)
        if not match:
            continue
        if found and found[-1][0] + len(found[-1][1]) == number:
            found[-1][1].append(match.group(1))
        elif lines[number - 2] == "///" and not match.group(1).startswith(" "):
            found.append((number, [match.group(1)]))
    return found


def unit(root):
    """(a translation unit, how many examples it has)."""
    text = ['#include <house/header_examples.hpp>', 'namespace tessera { inline namespace v0 {']
    count = 0
    for header in sorted((root / "include").rglob("*.hpp")):
        for number, lines in examples(header.read_text()):
            count += 1
            text += [f"void example_{count}() {{", f'#line {number} "{header.relative_to(root)}"', *lines, "}"]
    return "\n".join(text + ["}}"]) + "\n", count


def main():
    root = pathlib.Path(sys.argv[1])
    text, count = unit(root)
    if count < 60:
        sys.exit(f"{count} examples; there should be 60 at least")
    done = subprocess.run([*sys.argv[2:], "-std=c++20", "-fopenmp", "-fsyntax-only", "-w", "-I", str(root / "include"), "-I", str(root / "tests"), "-x", "c++", "-"],
                          input=text, text=True)
    print(f"{count} examples")
    sys.exit(done.returncode)


main()
