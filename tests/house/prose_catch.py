# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Plants one fault at a time in a small clean tree; prose.py must name it, and must pass the clean tree."""
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
import prose

CLEAN = {
    "README.md": "# Name\n\nA [page](docs/page.md#two-words).\n",
    "docs/page.md": "# Page\n\nRows are updated where they are, e.g. by `a. B`; if not, they stay.\nWhere is it?\nAs they are used, they move.\n\n"
                    "## Two `words`\n\n```cpp\n// nobody reads this. Here it lies.\n```\n\n    a command. Its output\n\n"
                    "- **An item**, bold.\n  It goes on.\n- another\n\n| where | `stands` |\n|---|---|\n| [short](https://example.com/" + "long" * 30 + ") | x |\n",
    "docs/decisions/README.md": "- [One](one.md)\n",
    "docs/decisions/one.md": "# One\n\nTopic, 27 November 2026.\n\nIt is so.\n",
    "include/tessera/core/one.hpp": "/// Returns `lies`, where it is; as it is used.\nint lies();\n"
                                    "/// A number.\nconstexpr int rows = int(3);\n/// The rows.\ntemplate <class T = int>\nstruct S {\n"
                                    "  /// Rows there are.\n  int rows = int();\n  /// Makes one\n  /// of N.\n  template <int N>\n"
                                    "  explicit S(int n);\n};\n",
}
# (file, text to add at its end, or with a title in its place; part of the message)
PLANTED = [
    ("docs/page.md", "\nNobody knows.\n", "page.md:23: 'nobody'"),
    ("docs/page.md", "\nIt stands there.\n", "'stands'"),
    ("docs/page.md", "\nThe row lies there.\n", "'lies'"),
    ("docs/page.md", "\nIt is taken as it is.\n", "'as it is'"),
    ("docs/page.md", "\nWhoever asks gets it.\n", "'whoever'"),
    ("docs/page.md", "\nA layer of one's own.\n", "'of one's own'"),
    ("docs/page.md", "\nWhere no row is, it throws.\n", "'where' of a condition"),
    ("docs/page.md", "\nIt throws where there is no row.\n", "'where' of a condition"),
    ("docs/page.md", "\nOne. Two.\n", "page.md:23: two sentences"),
    ("docs/page.md", "\n- One item. `Two` items.\n", "page.md:23: two sentences"),
    ("docs/page.md", "\nThe sentence goes\non here.\n", "page.md:23: the sentence goes on"),
    ("docs/page.md", "\n**Lead.** \n", "begins in bold"),
    ("docs/page.md", "\nA Sum<T> of rows.\n", "page.md:23: '<' before a name"),
    ("docs/page.md", "\n## `Sum<T>`\n", "page.md:23: '<' before a name"),
    ("docs/page.md", "\n| " + "word " * 21 + "|\n", "a cell of 104 characters"),
    ("docs/page.md", "\n[gone](gone.md)\n", "page.md:23: the link 'gone.md' leads to no file"),
    ("docs/page.md", "\n[gone](#three-words)\n", "leads to no heading"),
    ("docs/page.md", "\n[gone](decisions/one.md#two)\n", "page.md:23: the link 'decisions/one.md#two' leads to no heading"),
    ("docs/alone.md", "# Alone\n", "alone.md:1: no README.md leads here"),
    ("docs/decisions/one.md", "# One\n\nIt is so.\n", "one.md:3: a decision says when"),
    ("include/tessera/core/one.hpp", "int two();  ///< nobody's\n", "core/one.hpp:15: 'nobody'"),
    ("include/tessera/core/one.hpp", "/// The row lies there.\n", "'lies'"),
    ("include/tessera/core/one.hpp", "/// Throws Error where rows differ.\n", "core/one.hpp:15: 'where' of a condition"),
    ("include/tessera/core/one.hpp", 'inline auto text = "it stands there";\n', "core/one.hpp:15: 'stands'"),
    ("include/tessera/core/one.hpp", "/// The sum.\ntemplate <class T>\n  requires(sizeof(T) > 1)\nstd::vector<T> sum(T x);\n", "not 'The'"),
    ("include/tessera/core/one.hpp", "/// Rows of it.\n/// Throws.\n[[nodiscard]] constexpr int rows();\n", "not 'Rows'"),
    ("README.md", "\n" * 110, "113 lines, at most 110"),
    ("README.md", "\n" + "long " * 33 + "\n", "165 characters, at most 160"),
]


def faults_with(planted=None):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in {**CLEAN, **({planted[0]: CLEAN.get(planted[0], "")} if planted else {})}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            if planted and planted[0] == name:
                text = planted[1] if planted[1].startswith("# ") else text + planted[1]
            (root / name).write_text(text)
        return list(prose.all_faults(root))


def main():
    wrong = [f"the clean tree: {fault}" for fault in faults_with()]
    for planted in PLANTED:
        faults = faults_with(planted)
        if len(faults) != 1 or planted[2] not in faults[0]:
            wrong.append(f"{planted[0]}: not found alone: {planted[2]}; found: {faults}")
    print("\n".join(wrong) if wrong else f"{len(PLANTED)} planted faults found")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
