# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""A small clean tree passes public_names.py; each name planted in it that is on no page is named, each without a comment too, and nothing else."""
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
import public_names

OPEN = "namespace tessera { inline namespace v0 {\n"
CLOSE = "}}  // namespace tessera::v0\n"
HEADER = "include/tessera/core/view.hpp"
CLEAN = {
    HEADER: OPEN + "/// Hidden, `hidden()`\n///\n///     an example;\nstruct View;\ntemplate <class T, class U = decltype(T{} < 3)>\nconcept Viewed = requires(T t) {\n"
            "  { t.rows() } -> std::same_as<int>;\n};\nconstexpr int kRows = int{3};\nstruct View {\n  int rows() const { return kRows; }\n"
            "  struct Inner {};\n};\n[[nodiscard]] inline int size_of(const View& view) { return view.rows(); }\n"
            "inline int View::columns() { return 1; }\n"
            "template <>\nstruct std::hash<View> {};\nstatic_assert(kRows == 3);\n"
            "namespace detail {\nstruct Hidden {};\n}  // namespace detail\n" + CLOSE +
            "namespace tessera { inline namespace v0 { namespace op {\nstruct Sum {};\n}}}\nnamespace other {\nstruct Foreign {};\n}\n",
    "include/tessera/core/rest.hpp": OPEN + "struct Rest {};\nenum class Way { kIn, kOut };\n" + CLOSE,
    "README.md": "```cpp\nRest rest = Way::kIn;\n```\n",
    "docs/page.md": "A `View` is `Viewed`.\n\n```cpp\nint n = size_of(view);\n```\nNo code: hidden_in_prose.\n",
    "docs/decisions/one.md": "`inside` is how it is built.\n",
    "examples/rows.cpp": "// in_a_comment\nint main() { return tessera::kRows; }\n",
}
# (file, text at the end of its namespace or of a page, or None: without the file; the names that must be found)
PLANTED = [
    (HEADER, "struct Planted {};\n", ["Planted"]),
    (HEADER, "template <class T>\nclass Planted final : public View {\n  int hidden() { return 1; }\n};\n", ["Planted"]),
    (HEADER, "enum class Planted : int { kOne };\n", ["Planted"]),
    (HEADER, "template <class T>\nconcept Planted = Viewed<T> && requires { T::x; };\n", ["Planted"]),
    (HEADER, "using Planted = View;\n", ["Planted"]),
    (HEADER, "inline constexpr int kPlanted[] = {1, 2};\n", ["kPlanted"]),
    (HEADER, "template <class T>\n  requires Viewed<T>\nTESSERA_HOST_DEVICE constexpr auto planted(T t) -> int {\n  return t.rows();\n}\n",
     ["planted"]),
    (HEADER, "inline constexpr int kRowsAgain = f(1, 2), kPlanted = 3;\n", ["kPlanted", "kRowsAgain"]),
    (HEADER, "template <class T>\n  requires(Viewed<T> || f<T>())\nconstexpr int planted(T t) {\n  return 1;\n}\nclass Planted {};\n",
     ["Planted", "planted"]),
    (HEADER, "int planted(int (*f)(int), int g);\nView also_planted();\n", ["also_planted", "planted"]),
    (HEADER, "int hidden_in_prose();\nstruct in_a_comment {};\n", ["hidden_in_prose", "in_a_comment"]),
    (HEADER, "int inside();\n", ["inside"]),
    ("docs/concepts/decisions.md", "`inside` is what a user needs.\n", []),
    ("include/tessera/cuda/sum.cuh", OPEN + "struct Planted {};\n" + CLOSE, ["Planted"]),
    ("include/tessera/laws/sum.hpp", "namespace tessera { inline namespace v0 { namespace laws {\nstruct Planted {};\n}}}\n", ["Planted"]),
    ("include/tessera_data/clicks.hpp", OPEN + "struct Planted {};\n" + CLOSE, ["Planted"]),
    ("README.md", None, ["Rest", "Way"]),
    ("docs/page.md", None, ["View", "Viewed", "size_of"]),
    ("examples/rows.cpp", None, ["kRows"]),
]


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def tree(folder, planted=None):
    root = pathlib.Path(folder)
    for name, text in CLEAN.items():
        write(root, name, text)
    if planted:
        name, text, _ = planted
        if text is None:
            (root / name).unlink()
            return root
        before = CLEAN.get(name, "")
        write(root, name, before.replace(CLOSE, text + CLOSE) if CLOSE in before else before + text)
    return root


def main():
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        failures += [f"the clean tree: {fault}" for fault in public_names.faults_of(tree(folder))]
        # View's comment is above the second of its declarations, and a door brings it; no door has Rest
        write(pathlib.Path(folder), "include/tessera/plan.hpp", "#include <tessera/core/more.hpp>\n")
        write(pathlib.Path(folder), "include/tessera/core/more.hpp",
              "#include <tessera/core/view.hpp>\n" + OPEN + "/// Adds rows. Throws.\ntemplate <class T>\n  requires(true)\nvoid add_rows(T);\n" + CLOSE)
        bare = sorted(fault.split(": ")[1].split()[0] for fault in public_names.uncommented(pathlib.Path(folder)))
        if bare != ["Rest", "Viewed", "Way", "kRows", "size_of"]:
            failures.append(f"without a comment: {bare}")
        index = public_names.index(pathlib.Path(folder))
        for line in ("## tessera/plan.hpp\n\n- `add_rows`: Adds rows\n", "- `View`: Hidden, `hidden()` ([page](page.md))\n",
                     "- `Viewed` ([page](page.md))\n\n## tessera/core/rest.hpp\n\n- `Rest`\n- `Way`\n"):
            if line not in index:
                failures.append(f"the index lacks {line!r}: {index}")
    for planted in PLANTED:
        with tempfile.TemporaryDirectory() as folder:
            root = tree(folder, planted)
            found = sorted(fault.split(": ")[1].split()[0] for fault in public_names.faults_of(root))
            if found != planted[2]:
                failures.append(f"{planted[0]} + {planted[1]!r}: found {found}")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
