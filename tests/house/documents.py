# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps the documents and the sources that they quote the same.

    documents.py --check ROOT    exit code 1 if a document differs from its source
    documents.py --write ROOT    mends the documents

README.md: its first C++ listing is the region `// [readme]` .. `// [readme end]` of a source in examples/; it counts tests/compile_fail.
docs/**/*.md: a C++ or Python listing under `<!-- listing: FILE [NAME] -->` is the region `// [NAME]` .. `// [NAME end]` of that file (`#` in Python).
docs/api.md: what public_names.py --index prints.
docs/errors.md: between `<!-- compile errors: begin -->` and `<!-- compile errors: end -->` are the messages of tests/compile_fail.
"""
import pathlib
import re
import sys
import textwrap

sys.dont_write_bytecode = True
import public_names

LISTING = re.compile(r"(^```cpp\n)(.*?)(^```$)", re.M | re.S)
REGION = re.compile(r"^[ \t]*// \[readme\]\n(.*?)^[ \t]*// \[readme end\]", re.M | re.S)
ERRORS = re.compile(r"(<!-- compile errors: begin -->\n)(.*?)(<!-- compile errors: end -->)", re.S)
MISTAKES = re.compile(r"(\[)(\d+)( mistakes\])")

QUOTED = re.compile(r"(<!-- listing: (\S+) \[(\w+)\] -->\n+```(?:cpp|python|c)\n)(.*?)(^```$)", re.M | re.S)


def with_listings(path, root):
    """The text of a document, the same with its listings as their sources have them, and faults of places that are not there."""
    faults = []

    def listing(match):
        source, name = root / match[2], re.escape(match[3])
        region = re.compile(rf"^[ \t]*(?://|#|/\*) \[{name}\](?: \*/)?\n(.*?)^[ \t]*(?://|#|/\*) \[{name} end\]", re.M | re.S)
        found = region.findall(source.read_text()) if source.exists() else []
        if len(found) != 1:
            faults.append(f"{path.relative_to(root)}: {match[2]} has {len(found)} regions '// [{match[3]}]', need one")
            return match[0]
        return match[1] + textwrap.dedent(found[0]) + match[5]

    text = path.read_text()
    if len(QUOTED.findall(text)) != text.count("<!-- listing:"):
        faults.append(f"{path.relative_to(root)}: a place for a listing is not followed by ```cpp, ```c or ```python")
    return text, QUOTED.sub(listing, text), faults


def example_region(root):
    regions = []
    for path in sorted((root / "examples").glob("*.cpp")):
        regions += [(path.name, textwrap.dedent(r)) for r in REGION.findall(path.read_text())]
    if len(regions) != 1:
        sys.exit(f"examples/: {len(regions)} regions '// [readme]' .. '// [readme end]' ({[n for n, _ in regions]}), need one")
    return regions[0][1]


def error_list(root):
    """One entry per case: the comment that opens the file, and what the compiler says."""
    entries = []
    for path in sorted((root / "tests/compile_fail").glob("*.c*")):
        comment, messages = [], []
        for line in path.read_text().splitlines():
            if expected := re.match(r"// (?:expect|first error)(?: \S+)?: (.*)", line):
                if expected[1] not in messages:
                    messages.append(expected[1])
            elif re.match(r"//(?! SPDX)", line) and not messages:
                comment.append(line[2:].strip())
            elif not line.startswith("//") and (comment or messages):
                break
        text = " ".join(c for c in comment if c)
        text = re.sub(r"(?<=[.:]) (?=[A-Z])", "\n", text)  # a sentence a line
        entries.append(f"### {path.stem.replace('_', ' ')}\n\n{text}\n`{path.relative_to(root).as_posix()}` prints\n\n" + "\n".join(f"    {m}" for m in messages) + "\n")
    return "\n" + "\n".join(entries) + "\n" if entries else "\n"


def mended(path, expression, body, what):
    text = path.read_text()
    match = expression.search(text)
    if not match:
        sys.exit(f"{path.name}: no place for {what}")
    return text, text[: match.start(2)] + body + text[match.end(2):]


def main():
    mode, root = sys.argv[1], pathlib.Path(sys.argv[2])
    plan = []
    if (root / "README.md").exists():
        plan.append((root / "README.md", LISTING, example_region(root), "the example (```cpp)"))
        plan.append((root / "README.md", MISTAKES, str(len(list((root / "tests/compile_fail").glob("*.c*")))), "the number of '[N mistakes]'"))
    if (root / "docs/errors.md").exists():
        plan.append((root / "docs/errors.md", ERRORS, error_list(root), "the compile errors (<!-- compile errors: begin -->)"))
    if not plan:
        print("neither README.md nor docs/errors.md is here")
        return 77
    different = 0
    pages = [(path, *mended(path, expression, body, what), []) for path, expression, body, what in plan]
    if (root / "docs/api.md").exists():
        pages.append((root / "docs/api.md", (root / "docs/api.md").read_text(), public_names.index(root), []))
    pages += [(path, *with_listings(path, root)) for path in sorted((root / "docs").rglob("*.md")) if "<!-- listing:" in path.read_text()]
    for path, old, new, faults in pages:
        print(*faults, sep="\n", end="\n" if faults else "")
        different |= bool(faults)
        if old == new:
            print(f"{path.relative_to(root)}: as its source")
        elif mode == "--write":
            path.write_text(new)
            print(f"{path.relative_to(root)}: written")
        else:
            print(f"{path.relative_to(root)}: differs from its source; mend it: python3 tests/house/documents.py --write .")
            different = 1
    return different


if __name__ == "__main__":
    sys.exit(main())
