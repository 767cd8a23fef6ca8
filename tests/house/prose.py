# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Plain English in README.md, docs/ and the comments of include/: what a script can see of it.

    prose.py ROOT    prints every fault as FILE:LINE: text; exit code 1 if there is one

One sentence a source line, so that a change shows in a diff; table cells of at most 100 characters; headings in place of paragraphs that
begin in bold; and none of WORDS, nor in headers' comments, nor in texts of headers and programs. A comment above a function begins with a
verb: Returns, Throws, Makes.
README.md is short. Links from any page lead to files and headings that are there, and to every page leads a README.md. A decision has a date.
"""
import pathlib
import re
import sys

from public_names import closing, without_noise

MOST_LINES, MOST_COLUMNS = 110, 160  # of README.md
MOST_OF_A_CELL = 100
WORDS = [  # what must not be there, and what to write
    (re.compile(r"\bnobody\b", re.I), "'nobody': say who, or what does not happen"),
    (re.compile(r"\bwhoever\b", re.I), "'whoever': 'if you', or what does it"),
    (re.compile(r"\bstands?\b", re.I), "'stands': 'is'"),
    (re.compile(r"\blies?\b", re.I), "'lies': 'is'"),
    (re.compile(r"\bas (?:it is|they are)\b(?! \w+(?:ed|en)\b)", re.I), "'as it is': 'unchanged', or nothing"),
]
OF_A_CONDITION = "'where' of a condition: 'if'"
CONDITIONS = [  # of comments and pages
    (re.compile(r"\b(?:[Tt]hrows?\b(?: \w+)?(?: on (?:every|all) ranks?)?|[Nn]ull|[Ff]alse(?:, on (?:every|all) ranks?)?|[Tt]rue|[Ee]mpty|-1|0|fewer|"
                r"(?:InvalidArgument|\w+Error|BadId)(?: on every rank)?|unchanged),? where\b"), OF_A_CONDITION),
    (re.compile(r"\bwhere (?:(?:there|it|that|this) (?:is|are|has) (?:no|none|not|one|any|given|negative)\b|(?:they|ranks|counts|sizes) differ\b|"
                r"they (?:do not|don't|cannot)\b|(?:one|some|all|none|no|any|every) (?:of|is|are|ranks?|rows|ids|tables)\b|"
                r"it (?:can|cannot|could|pays|has|matters)\b|that (?:is|can|could|would|pays)\b|"
                r"[\w ]{0,30}(?:is|are|were|was) (?:not )?(?:installed|given|wanted|possible|cut|replicated|needed|asked for)\b)"), OF_A_CONDITION),
]
PAGE_WORDS = WORDS + CONDITIONS + [
    (re.compile(r"\bof (?:one's|a user's) own\b", re.I), "'of one's own': 'your own'"),
    (re.compile(r"(?:^|[.:;] )Where\b(?![^.]*\?)|\b(?:only|except|but|and|or) where\b|\bwhere (?:there|no)\b"), OF_A_CONDITION),
]
VERB = re.compile(r"[A-Z][a-z]+s\b|(?:Return|Note|Called|Collective)\b")
NO_VERBS = set("""As Always Its Bags Bits Blocks Bytes Chunks Columns Communicators Constraints Elements Entries Features Floats Gradients Ids Inputs
    Integers Jobs Keys Labels Lanes Less Lines Milliseconds Neighbours Numbers Offsets Outputs Owners Parts Pieces Products Ranks Readers
    Rectangles Requests Results Rows Seconds Sizes Slots Tables Tensors Texts This Threads Vectors Weights Words""".split())
LEADS = re.compile(r"\s*(?:\[\[.*?\]\]|template\s*(?=<)|requires\b|[A-Z_]{4,}(?:\([^()]*\))?|(?:inline|static|constexpr|consteval|explicit|virtual|"
                   r"friend|extern|__\w+__)\b)")
TEXT = re.compile(r'"(?:\\.|[^"\\])*"')
FENCE = re.compile(r"^\s*```")
ITEM = re.compile(r"^\s*(?:[-*]|\d+\.) +")
DATED = re.compile(r"\A# .*\n\n.*, [1-9]\d? [A-Z][a-z]+ 20\d\d\.\n")
ENDS = re.compile(r"[.!?:;][\"')\]*_]*$")
NEXT = re.compile(r"(?<!\be\.g)(?<!\bi\.e)(?<!\bet al)(?<!\bvs)[.!?][\"')\]]* +(?=[A-Z\"(\[`*])")


def refused(text, words):
    """What to write in place of words of a text."""
    return dict.fromkeys(instead for word, instead in words if word.search(text))


def plain(text):
    """The text without what code says and where links lead; lengths are those that a reader sees."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"`[^`]*`", lambda code: "`" + "c" * (len(code[0]) - 2) + "`", text)


def faults_of(text):
    """(line, fault) of one page."""
    fenced, before = False, None  # before: the line above, if it is of the same paragraph
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            fenced, before = not fenced, None
            continue
        if fenced or line.startswith("    ") and before is None or line.startswith("<!--"):
            continue
        seen = plain(line)
        for instead in refused(seen, PAGE_WORDS):
            yield number, instead
        if re.search(r"<[A-Za-z/]", line if line.startswith("#") else seen):
            yield number, "'<' before a name is HTML to the site: write it as code, and in no heading"
        if line.startswith("|"):
            before = None
            for cell in re.split(r"(?<!\\)\|", seen)[1:-1]:
                if len(cell.strip()) > MOST_OF_A_CELL:
                    yield number, f"a cell of {len(cell.strip())} characters, at most {MOST_OF_A_CELL}: '{cell.strip()[:40]}...'"
            continue
        if not line.strip() or line.startswith("#"):
            before = None
            continue
        if line.startswith("**"):
            yield number, "a paragraph that begins in bold: make it a heading"
        if before is not None and not ITEM.match(line) and not ENDS.search(plain(before).rstrip()):
            yield number - 1, "the sentence goes on in the next line: one sentence a line"
        if NEXT.search(ITEM.sub("", seen)):
            yield number, "two sentences: one a line"
        before = line


def anchors_of(text):
    """What links may name of a page: its headings, as GitHub makes anchors of them."""
    found = set()
    for heading in re.findall(r"^#+ +(.*)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M):
        anchor = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")
        found.add(anchor if anchor not in found else f"{anchor}-1")
    return found


def broken_links(root, pages):
    """pages: {path: text}. Yields links that lead nowhere, and pages to which none leads."""
    reached = set()
    for path, text in pages.items():
        for number, line in enumerate(text.splitlines(), 1):
            for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
                if re.match(r"\w+:", link):
                    continue
                to, _, anchor = link.partition("#")
                target = (path.parent / to).resolve() if to else path
                where = f"{path.relative_to(root).as_posix()}:{number}"
                if not target.exists():
                    yield f"{where}: the link '{link}' leads to no file"
                elif anchor and target.suffix == ".md" and anchor not in anchors_of(target.read_text()):
                    yield f"{where}: the link '{link}' leads to no heading"
                if path.name == "README.md":
                    reached.add(target)
    for path in pages:
        if path.name != "README.md" and path not in reached:
            yield f"{path.relative_to(root).as_posix()}:1: no README.md leads here"


def is_function(code, at):
    """Whether the declaration at this offset of code without comments is a function's."""
    while lead := LEADS.match(code, at):
        at = lead.end()
        if lead[0].strip() == "template":
            at = closing(code, at, "<>")
        elif lead[0].strip() == "requires" and code[at:].lstrip().startswith("("):
            at = closing(code, code.index("(", at), "()")
    i = at
    while i < len(code):
        if code[i] == "(":
            word = re.search(r"(\w+|operator\S+)\s*$", code[at:i])
            if word and word[1] in {"decltype", "noexcept", "alignas", "requires"}:
                i = closing(code, i, "()")
                continue
            return bool(word) and not re.match(r"\s*(?:class|struct|union|enum|using|concept|namespace|static_assert)\b", code[at:i])
        if code[i] == "<" and not code[at:i].endswith("operator"):
            i = closing(code, i, "<>")
        elif code[i] in "={;" and "operator" not in code[at:i]:
            return False
        else:
            i += 1
    return False


def verb_faults(text):
    """(line, fault) of comments above functions that begin with no verb."""
    lines = text.splitlines(keepends=True)
    code, at, before = without_noise(text), 0, None  # before: the first line of the comment above
    for number, line in enumerate(lines, 1):
        comment = re.match(r"\s*///(?!<) ?(.*)", line)
        if comment:
            before = before or (number, comment[1])
        else:
            if before and line.strip() and is_function(code, at):
                word = VERB.match(before[1])
                if not word or word[0] in NO_VERBS:
                    yield before[0], f"a function's comment begins with a verb (Returns, Throws, Makes), not '{before[1].split(' ')[0]}'"
            before = None
        at += len(line)


def text_faults(root):
    """WORDS in what headers and programs print."""
    for path in sorted(p for folder in ("include", "examples", "bench") for p in (root / folder).rglob("*")):
        if path.suffix in {".hpp", ".cuh", ".cpp", ".cu"}:
            for number, line in enumerate(path.read_text().splitlines(), 1):
                for text in TEXT.findall(line.split("//")[0]):
                    for instead in refused(text, WORDS):
                        yield f"{path.relative_to(root).as_posix()}:{number}: {instead}"


def comment_faults(root):
    """Of the headers' comments."""
    for path in sorted((root / "include").rglob("*")):
        if path.suffix not in {".hpp", ".cuh"}:
            continue
        text = path.read_text()
        for number, fault in verb_faults(text):
            yield f"{path.relative_to(root).as_posix()}:{number}: {fault}"
        for number, line in enumerate(text.splitlines(), 1):
            comment = re.search(r"//[/!]?<? ?(.*)", line)
            for instead in refused(plain(comment[1]), WORDS + CONDITIONS) if comment else ():
                yield f"{path.relative_to(root).as_posix()}:{number}: {instead}"


def all_faults(root):
    root = root.resolve()
    yield from comment_faults(root)
    yield from text_faults(root)
    pages = [p for p in (root / "README.md", *sorted((root / "docs").rglob("*.md"))) if p.exists()]
    yield from broken_links(root, {path: path.read_text() for path in pages})
    for path in pages:
        name = path.relative_to(root).as_posix()
        text = path.read_text()
        faults = list(faults_of(text))
        if name == "docs/api.md":  # the headers' comments
            continue
        if name.startswith("docs/decisions/") and path.name != "README.md" and not DATED.search(text):
            faults.append((3, "a decision says when: under its title 'Topic, 27 November 2026.'"))
        if name == "README.md":
            lines = text.splitlines()
            if len(lines) > MOST_LINES:
                faults.append((len(lines), f"{len(lines)} lines, at most {MOST_LINES}: move it to a page"))
            faults += [(n, f"{len(l)} characters, at most {MOST_COLUMNS}") for n, l in enumerate(lines, 1) if len(l) > MOST_COLUMNS]
        for number, fault in faults:
            yield f"{name}:{number}: {fault}"


def main():
    faults = list(all_faults(pathlib.Path(sys.argv[1])))
    print("\n".join(faults) if faults else "no fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
