# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Every public name stands on a page or in an example.

A name is public if a header of include/ (the core's and the companions') declares it in namespace tessera, tessera::laws, ::math, ::jagged, ::dlpack or ::cuembed: a type, a
concept, an alias, a function, a variable.
What is not for users is in tessera::detail, tessera::op or tessera::gpu. On a page means: as code (`name` or a fenced block) in README.md
or in a page of docs/ for users. Pages that tell how Tessera is built, why, and what was measured name internals, too: they do not count.

    public_names.py ROOT            prints FILE:LINE: NAME and what to do for every name that stands nowhere; exit code 1 if there is one
    public_names.py --index ROOT    prints docs/api.md: every name by its door, with the first sentence of its comment, and its page
"""
import bisect
import collections
import functools
import pathlib
import re
import sys

NOT_FOR_USERS = {"CONTRIBUTING.md", "api.md", "architecture.md", "benchmarks.md", "decisions/", "performance.md"}  # of docs/
PUBLIC_NAMESPACES = {"tessera", "tessera::laws", "tessera::math", "tessera::jagged", "tessera::dlpack", "tessera::cuembed"}
# Pages that use names, or list them, which others explain.
IN_PASSING = re.compile(r"(?:^|/)docs/(?:first_day/.*|CHANGELOG|features|from_torchrec|hello|tutorial|versions)\.md$")
IDENTIFIER = r"[A-Za-z_]\w*"
NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#(?:\\\n|[^\n])*',
                   re.DOTALL | re.MULTILINE)
NO_NAMES = {"requires", "decltype", "alignas", "noexcept", "explicit", "sizeof", "operator"}


def without_noise(text):
    """The text without comments, literals and directives; offsets and lines stay."""
    return NOISE.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def closing(text, start, pair):
    """The offset after the bracket that closes the one at start."""
    depth = 0
    i = start
    while i < len(text):
        if pair == "<>" and text[i] in "({":
            i = closing(text, i, "()" if text[i] == "(" else "{}")
            continue
        if text[i] == pair[0]:
            depth += 1
        elif text[i] == pair[1] and not (pair == "<>" and text[i - 1] in "-="):
            depth -= 1
            if depth == 0:
                return i + 1
        i += 1
    return len(text)


def opens_requirements(statement):
    """Whether the brace behind the statement begins what a requires-expression asks for."""
    for word in re.finditer(r"\brequires\b", statement):
        rest = statement[word.end():].strip()
        if not rest or rest.startswith("(") and closing(rest, 0, "()") == len(rest):
            return True
    return False


def declared(statement):
    """(name, its offset) of the declaration at namespace level that this statement is or begins, or None."""
    i = 0
    last = None
    kind = None
    while i < len(statement):
        if statement.startswith("[[", i):
            i = statement.find("]]", i) + 2
            continue
        word = re.compile(IDENTIFIER).match(statement, i)
        if word:
            name = word.group(0)
            rest = statement[word.end():].lstrip()
            if name in ("using", "concept", "class", "struct", "union", "enum") and kind is None:
                kind = name
            elif name in ("static_assert", "friend", "extern", "namespace", "operator"):
                return None
            elif name == "template" and rest.startswith("<"):
                i = closing(statement, statement.find("<", word.end()), "<>")
                continue
            elif name in NO_NAMES or name.startswith("TESSERA_"):
                if rest.startswith("("):
                    i = closing(statement, statement.find("(", word.end()), "()")
                    continue
            elif not name in ("final", "inline", "constexpr", "const", "auto", "typename"):
                if kind in ("class", "struct", "union", "enum", "concept") and not (kind == "enum" and name in ("class", "struct")):
                    return None if rest.startswith("::") else (name, i)
                qualified = statement[:i].rstrip().endswith("::")
                last = None if qualified and kind != "using" else (name, i)
            i = word.end()
            continue
        c = statement[i]
        if c == "<":
            i = closing(statement, i, "<>")
        elif c == "(":
            return None if kind == "using" else last
        elif c in "={;":
            return last
        elif c == "[":
            return last
        else:
            i += 1
    return last


def further(statement, first):
    """(name, its offset) of the variables that a statement declares behind the first: `int a = 1, b = 2;`."""
    rest = statement[first[1] + len(first[0]):]
    if not re.match(r"\s*[={]", rest) or re.match(r"\s*(template\b|using\b|class\b|struct\b|enum\b)", statement):
        return
    i = 0
    while i < len(rest):
        if rest[i] in "({":
            i = closing(rest, i, "()" if rest[i] == "(" else "{}")
            continue
        word = re.compile(r",\s*(" + IDENTIFIER + r")\s*(?==[^=]|\{)").match(rest, i)
        if word:
            yield word.group(1), first[1] + len(first[0]) + word.start(1)
        i += 1


@functools.cache
def names_of(text):
    """(name, line) of everything that a header declares in the public namespaces, one entry a name."""
    text = without_noise(text)
    lines = [m.start() for m in re.finditer(r"\n", text)]
    found = {}
    stack = []  # namespaces
    start = i = 0

    def note(statement, offset):
        lead = len(statement) - len(statement.lstrip())
        if "::".join(filter(None, stack)) in PUBLIC_NAMESPACES:
            declaration = declared(statement[lead:])
            if declaration:
                for name, at in (declaration, *further(statement[lead:], declaration)):
                    found.setdefault(name, bisect.bisect_left(lines, offset + lead + at) + 1)

    while i < len(text):
        c = text[i]
        if c == "(":
            i = closing(text, i, "()")
        elif c == ";":
            note(text[start:i + 1], start)
            start = i = i + 1
        elif c == "}":
            if stack:
                stack.pop()
            start = i = i + 1
        elif c == "{":
            statement = text[start:i]
            namespace = re.match(r"\s*(inline\s+)?namespace\s+(.*?)\s*$", statement, re.DOTALL)
            if namespace:
                stack.append("" if namespace.group(1) else re.sub(r"\s", "", namespace.group(2)))
                start = i = i + 1
                continue
            i = closing(text, i, "{}")
            if opens_requirements(statement) or re.search(
                    r"^\s*(template\b.*)?\b(class|struct|union|enum|concept|using)\b[^()]*$|=\s*[^()]*$", statement, re.DOTALL):
                continue  # ends with a semicolon
            if re.match(r"\s*[;,]", text[i:]):
                continue
            note(statement + "{", start)
            start = i
        else:
            i += 1
    return sorted(found.items(), key=lambda item: item[1])


def inside(page):
    return page.as_posix() in NOT_FOR_USERS or f"{page.parts[0]}/" in NOT_FOR_USERS


def pages_of(root):
    """README.md and the pages for users."""
    pages = [page for page in sorted((root / "docs").rglob("*.md")) if not inside(page.relative_to(root / "docs"))]
    return [page for page in (root / "README.md", *pages) if page.exists()]


def code_words(text):
    """The words of a page that stand as code, in its order."""
    fences = re.findall(r"^[ \t]*```.*?^[ \t]*```", text, re.DOTALL | re.MULTILINE)
    prose = re.sub(r"^[ \t]*```.*?^[ \t]*```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [word for code in fences + re.findall(r"`[^`]+`", prose) for word in re.findall(IDENTIFIER, code)]


def words_of(root):
    """The words of the examples, and of README.md and the pages for users those that stand as code."""
    words = set()
    for page in pages_of(root):
        words.update(code_words(page.read_text()))
    for example in sorted((root / "examples").rglob("*")):
        if example.suffix in {".cpp", ".hpp", ".cu", ".cuh"}:
            words.update(re.findall(IDENTIFIER, without_noise(example.read_text())))
    return words


def faults_of(root):
    words = words_of(root)
    for header in sorted((root / "include").rglob("*")):
        if header.suffix in {".hpp", ".cuh"}:
            for name, line in names_of(header.read_text()):
                if name not in words:
                    yield (f"{header.relative_to(root)}:{line}: {name} is public and on no page for users: name it as code on a "
                           f"page of docs/ but {', '.join(sorted(NOT_FOR_USERS))} or use it in an example; what is not for users "
                           "belongs in tessera::detail")


def first_sentence(lines, line):
    """Of the comment above a declaration, whose name is on this line, counted from 1; empty if there is none."""
    at = line - 1
    while at > 0 and not re.search(r"[;}{]\s*$|^\s*(///|//|#|$)", lines[at - 1]):
        at -= 1  # template parameters and what they require
    comment = []
    while at > 0 and lines[at - 1].lstrip().startswith("///"):
        at -= 1
        comment.insert(0, lines[at].strip()[3:].strip())
    text = " ".join(comment[:comment.index("")] if "" in comment else comment)  # an example follows an empty line
    end = re.search(r"[.:;](?= [A-Z`]|$)", text)
    return text[:end.start()].strip() if end else text


def doors_of(root):
    """(door, the headers it brings, directly and in all) of every header outside the folders; small ones first, bridges to other libraries last."""
    include = root / "include"
    inside = {p.relative_to(include).as_posix(): re.findall(r"^\s*#\s*include <(tessera/[^>]+)>", p.read_text(), re.MULTILINE)
              for p in (include / "tessera").rglob("*") if p.suffix in {".hpp", ".cuh"}}
    doors = []
    for door in (name for name in inside if name.count("/") == 1):
        brings, rest = set(), list(inside[door])
        while rest:
            header = rest.pop()
            if header not in brings:
                brings.add(header)
                rest += inside.get(header, [])
        doors.append((door, set(inside[door]), brings))
    return sorted(doors, key=lambda door: (any(h.startswith("tessera/bridges/") for h in door[1]), len(door[2]), door[0]))


def door_of(header, doors):
    """The smallest door that includes a header, else the smallest that brings it, else the header itself."""
    for which in (1, 2):
        for door in doors:
            if header in door[which]:
                return door[0]
    return header


def worth(page, name):
    """How much a mention of a name counts there: more on the page of what its end is called, as a communicator's, less in passing."""
    return (4 if name.lower().endswith(page.stem.replace("_", "")) else 1) / (2 if IN_PASSING.search(page.as_posix()) else 1)


def listed(root):
    """{name: (door, first sentence, place)} of all public names."""
    doors, include = doors_of(root), root / "include"
    names = {}
    for header in sorted(include.rglob("*"), key=lambda p: (p.suffix != ".hpp", p.as_posix())):
        if header.suffix in {".hpp", ".cuh"}:
            text = header.read_text()
            lines = text.splitlines()
            for name, line in names_of(text):
                sentence = first_sentence(lines, line)
                if name not in names or not names[name][1] and sentence:
                    names[name] = (door_of(header.relative_to(include).as_posix(), doors), sentence, f"{header.relative_to(root)}:{line}")
    return names


def uncommented(root):
    for name, (_, sentence, place) in listed(root).items():
        if not sentence:
            yield f"{place}: {name} is public and has no comment: its first sentence is what docs/api.md says of it"


def index(root):
    """docs/api.md."""
    pages = [(page, collections.Counter(code_words(page.read_text()))) for page in pages_of(root)
             if page not in (root / "README.md", root / "docs/README.md")]
    names = listed(root)
    lines = ["# Every public name", "",
             "Made from the headers by `tests/house/public_names.py --index`: name, first sentence of its comment, page.", ""]
    for door in sorted({door for door, *_ in names.values()}, key=lambda d: (not d.startswith("tessera/"), d.count("/") > 1, d)):
        lines += [f"## {door}", ""]
        for name in sorted((n for n, (d, *_) in names.items() if d == door), key=lambda n: (n.lower(), n)):
            page, count = max(((page, counter[name] * worth(page, name)) for page, counter in pages), key=lambda p: p[1], default=(None, 0))
            where = page.relative_to(root / "docs").as_posix() if count else ""
            lines.append(f"- `{name}`" + (f": {names[name][1]}" if names[name][1] else "") + (f" ([{(page if page.stem != 'README' else page.parent).stem}]({where}))" if count else ""))
        lines.append("")
    return "\n".join(lines)


def main():
    if sys.argv[1] == "--index":
        print(index(pathlib.Path(sys.argv[2])), end="")
        return 0
    faults = [*faults_of(pathlib.Path(sys.argv[1])), *uncommented(pathlib.Path(sys.argv[1]))]
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
