# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Rules of the sources that no compiler checks: who may include whom (docs/architecture.md), sizes, macros, licence lines, tests that a
backend lacks, includes of the standard library, and nothing about the machine that a file was written on.

    source_rules.py ROOT    prints every fault as FILE:LINE: text; exit code 1 if there is one
"""
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
import std_includes

# Which folders of include/tessera the headers of a folder may include, besides their own. "" is the folder itself: version.hpp and
# config.hpp, which all may include, and the umbrellas, which may include all. A new folder needs a line here.
# Companions are the other folders of include/, flat: the core, include/tessera, includes none of them.
VOCABULARY = {"core", "concepts"}
ALLOWED = {
    "core": set(),
    "concepts": {"core"},
    # leaf folders: blind to each other
    "sharding": VOCABULARY,
    "optimizer": VOCABULARY,
    "codec": VOCABULARY,
    "comm": VOCABULARY,
    "io": VOCABULARY,
    "planner": VOCABULARY | {"sharding", "io"},
    # operations and the backends that run them: nothing else names a backend
    "op": VOCABULARY,
    "host": VOCABULARY | {"op"},
    "cuda": VOCABULARY | {"op"},
    # features: the class of all backends and the host's kernels in .hpp, those of Cuda beside them in .cuh
    "interaction": VOCABULARY | {"op", "host"},
    "dense": VOCABULARY | {"op", "host", "optimizer", "tables"},
    "vocabulary": VOCABULARY | {"op", "host"},
    "sequence": VOCABULARY | {"op", "host", "dense"},
    # what is built from operations
    "tables": VOCABULARY | {"io", "op", "sharding"},
    # what a user sets of a collection: policies, options, the order of its arguments; checked
    "settings": VOCABULARY | {"op", "sharding", "optimizer", "codec", "tables"},
    # a step's rooms, in the order of its data: ids in, vectors out, gradients in
    "ids": VOCABULARY | {"op", "sharding", "optimizer", "comm", "tables"},
    "vectors": VOCABULARY | {"op", "codec", "comm", "tables", "ids"},
    "update": VOCABULARY | {"op", "sharding", "optimizer", "comm", "tables", "settings", "ids"},
    "step": VOCABULARY | {"op", "sharding", "comm", "tables", "settings", "ids", "vectors", "update"},
    "collection": VOCABULARY | {"op", "sharding", "tables", "settings", "ids", "update", "step"},
    # plans on thread ranks of the host, beside their predictions
    "measure": VOCABULARY | {"host", "optimizer", "comm", "sharding", "planner", "tables", "settings", "step", "collection"},
    # memory and signatures of other libraries
    "bridges": VOCABULARY | {"tables"},
    # the contracts of what a user writes, as tests without a framework
    "laws": VOCABULARY | {"sharding"},
    # what goes to disk and comes back: any model with local shards, told of by duck typing
    "checkpoint": VOCABULARY | {"io"},
    # companions: readers of datasets, synthetic data, metrics
    "tessera_data": VOCABULARY | {"io"},
    # frozen tables and models, of the host: a program that serves trains nothing
    "tessera_serving": VOCABULARY | {"tessera_data", "io", "checkpoint", "op", "host", "dense", "interaction", "sequence", "sharding", "tables", "ids"},
}
COMPANIONS = {"tessera_data", "tessera_serving"}
# What the .cuh files of a folder may include besides.
ALLOWED_CUDA = {
    "bridges": {"cuda", "op"},
    "comm": {"cuda"},
    "interaction": {"cuda", "dense", "tables"},
    "dense": {"cuda"},
    "vocabulary": {"cuda", "tables"},
    "sequence": {"cuda", "tables"},
}
BASE_HEADERS = {"version.hpp", "config.hpp"}
UMBRELLAS = {"tessera.hpp", "tessera.cuh"}
# One header per subject, of includes alone: what docs/versions.md promises. Users' code includes these, the umbrellas, and companions.
DOORS = {"plan.hpp", "collection.hpp", "planner.hpp", "optimizers.hpp", "comm.hpp", "mpi.hpp", "gloo.hpp", "nccl.hpp", "dense.hpp", "interaction.hpp",
         "sequence.hpp", "vocabulary.hpp", "ngram.hpp", "checkpoint.hpp", "laws.hpp", "measure.hpp", "torchrec.hpp", "dlpack.hpp", "dlpack.cuh", "cuembed.cuh",
         "collection.cuh", "dense.cuh", "interaction.cuh", "sequence.cuh", "vocabulary.cuh", "ngram.cuh"}
BY_THEMSELVES = {"tessera/io/text.hpp"}  # headers of the core that users may include, too
# Pages that tell how Tessera is built, and why, name other headers.
INSIDE_PAGES = {"docs/CONTRIBUTING.md", "docs/architecture.md", "docs/benchmarks.md", "docs/performance.md", "docs/api.md"}
ROOM = re.compile(r"\btessera/[a-z_]+/[a-z_]+\.(?:hpp|cuh)")
# Settings of other libraries, and the one file whose attributes depend on the compiler.
FOREIGN_MACROS = {("config.hpp", "FMT_USE_CONSTEXPR")}
MAY_ASK_FOR_NVCC = {"config.hpp"}
MAX_LINES = 530
CORE_USERS = 3
MAX_MACROS = 9
SOURCE_SUFFIXES = {".hpp", ".cuh", ".cpp", ".cu", ".cmake", ".sh", ".py", ".in"}

# A test's body that any backend is to pass, and where it is called for each: a template that nobody calls is no error to a compiler.
BODY = re.compile(r"^template <class Backend>\nvoid (\w+)\(\) \{", re.MULTILINE)
CALL = re.compile(r"\b(\w+)<(Host|Cuda)>\(\);")

# nvcc 13.0 passes such a list on by position where the left side depends on a template's parameter: members that are left out shift the rest.
ASSIGNED_LIST = re.compile(r"^\s*\w[\w.\[\]()>-]* = \{(?:\.\w|\n\s*\.\w)")

# An operation, and where a backend has its kernel: in the file of the operation's name. On Cuda, PackBags fills a file by itself.
OPERATION = re.compile(r"^struct (\w+)", re.MULTILINE)
KERNEL = re.compile(r"^struct op::Kernel<op::(\w+)", re.MULTILINE)
KERNELS_ELSEWHERE = {"cuda/route.cuh": "exchange"}
KERNELS_OF_KITS = {"jagged"}  # who uses the kit includes them

# Programs open files through examples/support/files.hpp, which refuses pipes, devices and outputs over inputs. What a user would write
# may do as it likes.
OPENS = re.compile(r"\b[io]?fstream\b|\bfopen\b|::open\(")
MAY_OPEN = {"examples/support/files.cpp", "examples/support/report.cpp", "examples/own_csv.cpp",
            "examples/tessera_plan/cluster_file.hpp"}

# Programs that use the library: it does not know them, not even in a text.
PROGRAM = re.compile(r"\b(?:convert_dataset|evaluate_model|export_onnx|serve_model|train_dlrm|train_sequence)\b")

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
DEFINE = re.compile(r"^\s*#\s*define\s+(\w+)")
# Brackets keep these expressions from matching themselves.
MACHINE = re.compile(r"(?<![\w.])/(?:wor[k]|far[m]|hom[e]|roo[t])/|/tmp/[b]ash_|\.librar[y]\b")
REGISTRY = re.compile(r"\b(?:deb\.debia[n]\.org|pyp[i]\.org|registry\.npmj[s]\.org|files\.pythonhoste[d]\.org)\b")
UNFINISHED = re.compile(r"\b(?:TOD[O]|FIXM[E]|XX[X]|not [i]mplemented|unimplemente[d])\b")


def files_of(root):
    """Tracked and new files where there is git, else all but builds."""
    try:
        listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True, check=True)
        names = listed.stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        names = [p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()]
        names = [n for n in names if not n.startswith("build/")]
    return sorted(n for n in names if (root / n).is_file())


def text_of(path):
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return None


def in_core(path):
    """A header's path below include/tessera; a companion's, below include, stays."""
    return path.removeprefix("tessera/")


def header_faults(path, lines, includes, macros):
    """Faults of one header; `path` is relative to include. Adds to `includes` and `macros`."""
    name = in_core(path)
    folder = name.split("/")[0] if "/" in name else ""
    if path == name and folder not in COMPANIONS:
        yield 1, "include/ has the folder tessera and the COMPANIONS of tests/house/source_rules.py alone"
    if name.count("/") > 1:
        yield 1, "folders are one level deep"
    if name.endswith(".inl") or "/detail/" in "/" + name:
        yield 1, "no detail folder and no .inl: helpers of one file sit in its namespace detail"
    if len(lines) > MAX_LINES:
        yield len(lines), f"{len(lines)} lines; a header has at most {MAX_LINES}"
    if folder and folder not in ALLOWED:
        yield 1, f"folder '{folder}' has no line in ALLOWED of tests/house/source_rules.py"
    if not folder and name not in BASE_HEADERS | UMBRELLAS | DOORS:
        yield 1, "only version.hpp, config.hpp, the umbrellas and the doors are outside the folders"
    if name in DOORS and any(not re.match(r"#(include|pragma)|//|$", line) for line in lines):
        yield 1, "a door has includes alone"
    if "#pragma once" not in lines:
        yield 1, "no #pragma once"
    for number, line in enumerate(lines, 1):
        if define := DEFINE.match(line):
            macros.setdefault(define[1], f"{name}:{number}")
            if not define[1].startswith("TESSERA_") and (name, define[1]) not in FOREIGN_MACROS:
                yield number, f"macro {define[1]} lacks the prefix TESSERA_"
        if re.match(r"using namespace\b", line):
            yield number, "using namespace in a header"
        if re.search(r"__CUDACC__|__CUDA_ARCH__", line) and re.match(r"\s*#", line):
            guard = name.endswith(".cuh") and re.match(r"\s*#\s*ifndef __CUDACC__", line)
            if name not in MAY_ASK_FOR_NVCC and not guard:
                yield number, "a body that depends on the compiler links to whichever came first: use TESSERA_HOST_DEVICE"
        if "<<<" in line.split("//")[0] and name != "cuda/launch.cuh":
            yield number, "kernels are launched by cuda/launch.cuh only"
        if ASSIGNED_LIST.match("\n".join(lines[number - 1:number + 1])):
            yield number, "name the type of a list with designators that is assigned: nvcc drops them in templates"
        if "fmt::" in line and name != "core/format.hpp":
            yield number, "detail::formatted(...), not fmt::format: who includes a header reads no fmt, and texts are made out of line"
        include = INCLUDE.match(line)
        if not include:
            continue
        target = include[1]
        if target.startswith("fmt/") and name != "core/format.hpp":
            yield number, f"tessera/core/format.hpp, not {target}: who includes a header reads no fmt"
        if re.match(r"\s*#\s*include\s*\"", line):
            yield number, f'write #include <tessera/...>, not "{target}"'
        if name.endswith(".hpp") and target.endswith(".cuh"):
            yield number, f"a .hpp never includes a .cuh: {target}"
        if not target.startswith("tessera"):
            continue
        target = in_core(target)
        includes.setdefault(name, set()).add(target)
        other = target.split("/")[0] if "/" in target else ""
        if folder not in COMPANIONS and other in COMPANIONS:
            yield number, f"the core must not include a companion: {target}"
            continue
        if name in UMBRELLAS | DOORS or target in BASE_HEADERS:
            continue
        allowed = ALLOWED.get(folder, set()) | (ALLOWED_CUDA.get(folder, set()) if name.endswith(".cuh") else set())
        if other != folder and other not in allowed:
            may = ", ".join(sorted(allowed)) or "nothing"
            yield number, f"{folder or 'the base'} must not include {target} (it may include: {may})"


def is_for_users(name, names):
    """Whether a file is a page for users or what a user would write: an example of one file, a consumer."""
    if name.endswith(".md"):
        return name == "README.md" or (name.startswith("docs/") and name not in INSIDE_PAGES and not name.startswith("docs/decisions/"))
    example = re.fullmatch(r"examples/(\w+)\.c(?:pp|u)", name)
    return name.startswith(("tests/house/consumer/", "examples/from_config/")) or bool(example and not any(n.startswith(f"examples/{example[1]}/") for n in names))


def rooms_behind_doors(texts, headers):
    """texts: {file for users: text}. Yields the headers that it names though a door has them, or should."""
    for door in sorted(DOORS):
        if f"tessera/{door}" in headers and f"`<tessera/{door}>`" not in texts.get("docs/versions.md", ""):
            yield f"docs/versions.md:1: lacks the door `<tessera/{door}>`"
    for name, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            for room in ROOM.finditer(line):
                if room[0] not in BY_THEMSELVES:
                    doors = sorted(door for door in DOORS if f"<{room[0]}>" in headers.get(f"tessera/{door}", ""))
                    has_it = " or ".join(f"<tessera/{door}>" for door in doors)
                    yield f"{name}:{number}: {room[0]} is not promised to users: {has_it + ' has it' if doors else 'no door has it yet'}"


def misplaced_kernels(headers):
    """headers: {path below include: text}. Yields faults of kernels of op's operations that stand in a file of another name."""
    file_of = {}
    for name, text in headers.items():
        if name.startswith("tessera/op/"):
            file_of.update((operation[1], pathlib.Path(name).stem) for operation in OPERATION.finditer(text))
    for name, text in headers.items():
        path = pathlib.Path(in_core(name))
        if path.parts[0] in ("host", "cuda"):
            for kernel in KERNEL.finditer(text):
                home = file_of.get(kernel[1], "")
                if home != KERNELS_ELSEWHERE.get(path.as_posix(), path.stem):
                    line = text.count("\n", 0, kernel.start()) + 1
                    yield f"include/{name}:{line}: the kernel of op::{kernel[1]}, of op/{home}.hpp, belongs into {path.parts[0]}/{home}{path.suffix}"


def unlisted_kernels(headers):
    """headers: {path below include: text}. Yields headers with kernels of a backend that its list, which the umbrellas include, lacks."""
    for folder, suffix in (("host", ".hpp"), ("cuda", ".cuh")):
        list_name = f"tessera/{folder}/kernels{suffix}"
        for name, text in headers.items():
            path = pathlib.Path(name)
            if path.parts[1] == folder and path.stem not in KERNELS_OF_KITS and KERNEL.search(text) and f"<{name}>" not in headers.get(list_name, ""):
                yield f"include/{list_name}:1: lacks {name}, which has kernels"


def closets(includes, names):
    """includes: {path: what it includes}, names: all headers; both as in_core has them. Yields folders of one file, and files of core that
    serve few: they belong to the folder that uses them."""
    for folder in ALLOWED:
        files = [name for name in names if name.startswith(folder + "/")]
        if len(files) == 1:
            yield f"include/tessera/{files[0]}:1: a folder of one file: its users' folder has room for it"
    for name in names:
        users = sorted(user for user, targets in includes.items() if "/" in user and name in targets)
        if name.startswith("core/") and len(users) < CORE_USERS:
            yield f"include/tessera/{name}:1: core is for what {CORE_USERS} headers include at least, not {len(users)}: {', '.join(users) or 'none'}"


HEAVY = re.compile(r"^#include <(filesystem|regex|iostream|fstream|sstream|iomanip)>", re.M)


def reached_from_umbrella(includes):
    """includes: {path below include/tessera: what it includes there}. Returns all that tessera.hpp includes, itself or through others."""
    seen, open_ = set(), ["tessera.hpp"]
    while open_:
        name = open_.pop()
        if name not in seen:
            seen.add(name)
            open_.extend(includes.get(name, ()))
    return seen


def heavy_in_umbrella(headers, reached):
    """headers: {path below include: text}. Yields headers that make each user of the umbrella read a part of the standard library that
    costs much and that few need."""
    for name in sorted(reached):
        if found := HEAVY.search(headers.get("tessera/" + name, "")):
            yield f"include/tessera/{name}: tessera.hpp includes it, and so must not get <{found[1]}>"


def bodies_not_compiled(headers, reached):
    """Yields headers whose functions the library tessera::bodies, which is made of the umbrella, would declare and lack."""
    for name, text in headers.items():
        if "#ifdef TESSERA_INLINE" in text and name.removeprefix("tessera/") not in reached:
            yield f"include/{name}: tessera.hpp does not include it, so tessera::bodies has no TESSERA_INLINE function of it"


def cycle_in(graph):
    """One cycle of a graph {node: successors} as a list, or None."""
    state, stack = {}, []

    def visit(node):
        state[node] = 1
        stack.append(node)
        for successor in sorted(graph.get(node, ())):
            if state.get(successor) == 1:
                return stack[stack.index(successor):] + [successor]
            if successor not in state:
                if found := visit(successor):
                    return found
        stack.pop()
        state[node] = 2
        return None

    for node in sorted(graph):
        if node not in state:
            if found := visit(node):
                return found
    return None


def faults_of(root):
    root = pathlib.Path(root)
    includes, macros = {}, {}
    headers = {}
    bodies, calls = {}, set()
    names, for_users = files_of(root), {}
    for name in names:
        path = root / name
        if path.stat().st_size > 1 << 17:
            yield f"{name}:1: over 128 KiB: is it generated?"
            continue
        text = text_of(path)
        if text is None:
            continue
        lines = text.splitlines()
        if is_for_users(name, names):
            for_users[name] = text
        if path.suffix in SOURCE_SUFFIXES or path.name == "CMakeLists.txt":
            if not any("SPDX-FileCopyrightText:" in l for l in lines[:3]) or not any("SPDX-License-Identifier: Apache-2.0" in l for l in lines[:3]):
                yield f"{name}:1: no SPDX lines"
        for number, line in enumerate(lines, 1):
            if found := MACHINE.search(line):
                yield f"{name}:{number}: a path of one machine: {found[0]}"
            if found := REGISTRY.search(line):
                yield f"{name}:{number}: a package registry's host"
            if path.suffix in SOURCE_SUFFIXES and (found := UNFINISHED.search(line)):
                yield f"{name}:{number}: unfinished: {found[0]}"
        if name.startswith(("examples/", "bench/")) and path.suffix in {".hpp", ".cpp", ".cu", ".cuh"} and name not in MAY_OPEN:
            for number, line in enumerate(lines, 1):
                if OPENS.search(line):
                    yield f"{name}:{number}: programs open files through examples/support/files.hpp"
        if name.endswith("_bodies.hpp"):
            bodies.update({body[1]: f"{name}:{text.count(chr(10), 0, body.start()) + 2}" for body in BODY.finditer(text)})
        elif name.startswith("tests/"):
            calls.update(call.groups() for call in CALL.finditer(text))
        if name.startswith("include/"):
            for number, line in enumerate(lines, 1):
                if found := PROGRAM.search(line):
                    yield f"{name}:{number}: a header does not know the program {found[0]}"
        if name.startswith("include/") and path.suffix in {".hpp", ".cuh", ".inl"}:
            headers[name[len("include/"):]] = text
            for number, fault in header_faults(name[len("include/"):], lines, includes, macros):
                yield f"{name}:{number}: {fault}"
    for name, number, fault in std_includes.faults_of(headers):
        yield f"include/{name}:{number}: {fault}"
    yield from misplaced_kernels(headers)
    yield from unlisted_kernels(headers)
    yield from rooms_behind_doors(for_users, headers)
    reached = reached_from_umbrella(includes)
    yield from heavy_in_umbrella(headers, reached)
    yield from bodies_not_compiled(headers, reached)
    yield from closets(includes, [in_core(name) for name in headers])
    for body, where in bodies.items():
        for backend in ("Host", "Cuda"):
            if (body, backend) not in calls:
                yield f"{where}: no test calls {body}<{backend}>"
    if len(macros) > MAX_MACROS:
        yield f"include/: {len(macros)} macros, at most {MAX_MACROS}: " + ", ".join(f"{m} ({where})" for m, where in sorted(macros.items()))
    if found := cycle_in(includes):
        yield "include/: headers include each other: " + " -> ".join(found)
    folders = {}
    for name, targets in includes.items():
        if "/" in name:
            folders.setdefault(name.split("/")[0], set()).update(t.split("/")[0] for t in targets if "/" in t and t.split("/")[0] != name.split("/")[0])
    if found := cycle_in(folders):
        yield "include/: folders include each other: " + " -> ".join(found)


def main():
    faults = list(faults_of(sys.argv[1]))
    print("\n".join(faults) if faults else "no fault")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
