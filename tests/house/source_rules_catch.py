# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Plants one fault at a time in a small clean tree; source_rules.py must name it, and must pass the clean tree."""
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
import source_rules

SPDX = "// SPDX-FileCopyrightText: 2026 The Tessera authors\n// SPDX-License-Identifier: Apache-2.0\n"
HEADER = SPDX + "#pragma once\n"
CLEAN = {
    "include/tessera/config.hpp": HEADER + "#include <tessera/version.hpp>\n#ifdef __CUDACC__\n#define TESSERA_HOST_DEVICE\n#endif\n",
    "include/tessera/version.hpp": HEADER,
    "include/tessera/tessera.hpp": HEADER + "#include <tessera/host/sum.hpp>\n#include <tessera/collection/all.hpp>\n",
    "include/tessera/core/view.hpp": HEADER + "#include <tessera/config.hpp>\n#include <vector>\n",
    "include/tessera/concepts/policy.hpp": HEADER + "#include <tessera/core/view.hpp>\n",
    "include/tessera/sharding/rows.hpp": HEADER + "#include <tessera/concepts/policy.hpp>\nstd::vector<int> v;  // std::string\n",
    "include/tessera/comm/self.hpp": HEADER,
    "include/tessera/op/sum.hpp": HEADER + "#include <tessera/core/view.hpp>\nstruct Sum {};\n",
    "include/tessera/host/sum.hpp": HEADER + "#include <tessera/op/sum.hpp>\nstruct op::Kernel<op::Sum, Host> {};\n",
    "include/tessera/host/kernels.hpp": HEADER + "#include <tessera/host/sum.hpp>\n",
    "include/tessera/cuda/sum.cuh": HEADER + "#ifndef __CUDACC__\n#endif\n#include <tessera/op/sum.hpp>\n",
    "include/tessera/tables/table.hpp": HEADER + "#include <tessera/op/sum.hpp>\n",
    "include/tessera/collection/all.hpp": HEADER + "#include <tessera/sharding/rows.hpp>\n#include <tessera/tables/table.hpp>\n",
    "include/tessera/plan.hpp": HEADER + "\n// Plans.\n#include <tessera/sharding/rows.hpp>\n",
    "examples/small.cpp": SPDX + "#include <tessera/plan.hpp>\n#include <tessera_data/clicks.hpp>\nint main() {}\n",
    "examples/large.cpp": SPDX + "#include <tessera/sharding/rows.hpp>\n",
    "examples/large/part.cpp": SPDX,
    "include/tessera_data/clicks.hpp": HEADER + "#include <tessera/core/view.hpp>\n",
    "include/tessera_serving/frozen.hpp": HEADER + "#include <tessera_data/clicks.hpp>\n#include <tessera/tables/table.hpp>\n",
    "docs/versions.md": "`<tessera/plan.hpp>`\n",
    "docs/decisions/one.md": "`tessera/sharding/rows.hpp` has it.\n",
    "tests/sum_bodies.hpp": SPDX + "template <class Backend>\nvoid adds() {}\n",
    "tests/test_sum.cpp": SPDX + "TEST_CASE() { adds<Host>(); }\n",
    "tests/twin_cases.hpp": SPDX + "TEST_CASE() { adds<Cuda>(); }\n",
    "data.bin": None,
}
CLEAN |= {f"include/tessera/{folder}/rest.hpp": HEADER + "#include <tessera/core/error.hpp>\n" for folder in ("concepts", "sharding", "comm", "op", "cuda", "tables", "collection")}
CLEAN["include/tessera/core/error.hpp"] = HEADER
CLEAN |= {f"include/tessera_{companion}/rest.hpp": HEADER for companion in ("data", "serving")}
# (file, text to add at its end or a whole new file, part of the message)
PLANTED = [
    ("include/tessera/core/view.hpp", "#include <tessera/concepts/policy.hpp>\n", "core must not include concepts/policy.hpp"),
    ("include/tessera/sharding/rows.hpp", "#include <tessera/comm/self.hpp>\n", "sharding must not include comm/self.hpp"),
    ("include/tessera/collection/all.hpp", "#include <tessera/host/sum.hpp>\n", "collection must not include host/sum.hpp"),
    ("include/tessera/op/sum.hpp", "#include <tessera/host/sum.hpp>\n", "op must not include host/sum.hpp"),
    ("include/tessera/tables/table.hpp", "#include <sstream>\n", "must not get <sstream>"),
    ("include/tessera_data/clicks.hpp", "#ifdef TESSERA_INLINE\n#endif\n", "clicks.hpp: tessera.hpp does not include it"),
    ("include/tessera/tables/table.hpp", "#include <tessera/tessera.hpp>\n", "tables must not include tessera.hpp"),
    ("include/tessera/host/sum.hpp", "#include <tessera/cuda/sum.cuh>\n", "never includes a .cuh"),
    ("include/tessera/tessera.hpp", "#include <tessera/cuda/sum.cuh>\n", "never includes a .cuh"),
    ("include/tessera/core/view.hpp", "#include <tessera/core/view.hpp>\n", "headers include each other"),
    ("include/tessera/config.hpp", "#include <tessera/core/view.hpp>\n", "the base must not include core/view.hpp"),
    ("include/tessera/core/other.hpp", HEADER + '#include "view.hpp"\n', "write #include <tessera/...>"),
    ("include/tessera/core/long.hpp", HEADER + "\n" * 530, "a header has at most 530"),
    ("include/tessera/core/detail/x.hpp", HEADER, "no detail folder"),
    ("include/tessera/news/x.hpp", HEADER, "folder 'news' has no line"),
    ("include/tessera/more.hpp", HEADER, "only version.hpp, config.hpp, the umbrellas and the doors"),
    ("include/tessera/plan.hpp", "struct Plan {};\n", "a door has includes alone"),
    ("include/tessera/comm.hpp", HEADER, "versions.md:1: lacks the door `<tessera/comm.hpp>`"),
    ("include/tessera/core/view.hpp", "#include <tessera/plan.hpp>\n", "core must not include plan.hpp"),
    ("examples/small.cpp", "#include <tessera/sharding/rows.hpp>\n", "small.cpp:6: tessera/sharding/rows.hpp is not promised to users: <tessera/plan.hpp> has it"),
    ("docs/concepts/plan.md", "`tessera/comm/self.hpp`\n", "plan.md:1: tessera/comm/self.hpp is not promised to users: no door has it yet"),
    ("tests/house/consumer/main.cpp", SPDX + "#include <tessera/core/view.hpp>\n", "main.cpp:3: tessera/core/view.hpp is not promised"),
    ("include/tessera/core/view.hpp", "#include <tessera_data/clicks.hpp>\n", "core/view.hpp:6: the core must not include a companion: tessera_data/clicks.hpp"),
    ("include/tessera/tessera.hpp", "#include <tessera_serving/frozen.hpp>\n", "tessera.hpp:6: the core must not include a companion"),
    ("include/tessera/plan.hpp", "#include <tessera_data/clicks.hpp>\n", "plan.hpp:7: the core must not include a companion"),
    ("include/tessera_data/clicks.hpp", "#include <tessera_serving/frozen.hpp>\n", "tessera_data must not include tessera_serving/frozen.hpp"),
    ("include/tessera_data/clicks.hpp", "#include <tessera/tables/table.hpp>\n", "tessera_data must not include tables/table.hpp"),
    ("include/tessera_data/deep/x.hpp", HEADER, "folders are one level deep"),
    ("include/tessera_news/x.hpp", HEADER, "include/ has the folder tessera and the COMPANIONS"),
    ("include/tessera/io/file.hpp", HEADER, "io/file.hpp:1: a folder of one file"),
    ("include/tessera/core/rare.hpp", HEADER, "core/rare.hpp:1: core is for what 3 headers include at least, not 0: none"),
    ("include/tessera_data/clicks.hpp", "// of train_dlrm\n", "clicks.hpp:5: a header does not know the program train_dlrm"),
    ("include/tessera/core/guard.hpp", SPDX, "no #pragma once"),
    ("include/tessera/core/macro.hpp", HEADER + "#define CHECK(x) x\n", "macro CHECK lacks the prefix"),
    ("include/tessera/core/macro.hpp", HEADER + "".join(f"#define TESSERA_{i} 1\n" for i in range(9)), "10 macros, at most 9"),
    ("include/tessera/core/using.hpp", HEADER + "using namespace std;\n", "using namespace in a header"),
    ("include/tessera/core/cuda.hpp", HEADER + "#ifdef __CUDACC__\n#endif\n", "depends on the compiler"),
    ("include/tessera/cuda/arch.cuh", HEADER + "#if defined(__CUDA_ARCH__)\n#endif\n", "depends on the compiler"),
    ("include/tessera/cuda/sum.cuh", "f<<" + "<1, 1>>>();\n", "launched by cuda/launch.cuh only"),
    ("include/tessera/cuda/other.cuh", HEADER + "struct op::Kernel<op::Sum, Cuda> {};\n", "belongs into cuda/sum.cuh"),
    ("include/tessera/host/other.hpp", HEADER + "struct op::Kernel<op::Sum, Host> {};\n", "host/kernels.hpp:1: lacks tessera/host/other.hpp"),
    ("include/tessera/core/text.hpp", HEADER + "#include <fmt/format.h>\n", "tessera/core/format.hpp, not fmt/format.h"),
    ("include/tessera/core/text.hpp", HEADER + "void f() { out += fmt::format(text); }\n", "detail::formatted(...), not fmt::format"),
    ("include/tessera/core/list.hpp", HEADER + "void f() { }\n  part.bags = {.count = 1};\n", "name the type of a list"),
    ("include/tessera/core/list.hpp", HEADER + "  parts[i] = {\n      .count = 1};\n", "name the type of a list"),
    ("examples/small.cpp", 'std::ofstream file("x");\n', "open files through examples/support/files.hpp"),
    ("bench/small.cpp", SPDX + 'FILE* file = std::fopen("x", "r");\n', "open files through examples/support/files.hpp"),
    ("examples/small.cpp", "// see /wor" + "k/main\n", "a path of one machine"),
    ("README.md", "get it from py" + "pi.org\n", "a package registry's host"),
    ("examples/small.cpp", "// TO" + "DO: more\n", "unfinished"),
    ("include/tessera/host/sum.hpp", "std::string s;\n", "std::string needs <string>"),
    ("include/tessera/host/sum.hpp", "std::no_such s;\n", "std::no_such has no line in NAMES"),
    ("examples/licence.cpp", "int main() {}\n", "no SPDX lines"),
    ("tests/sum_bodies.hpp", "template <class Backend>\nvoid subtracts() {}\n", "sum_bodies.hpp:6: no test calls subtracts<Cuda>"),
    ("data.bin", "x" * (1 << 17), "over 128 KiB"),
]


def faults_with(planted=None):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in CLEAN.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(b"\xff\xfe\x00" if text is None else text.encode())
        if planted:
            name, text, _ = planted
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            with open(root / name, "a", encoding="utf-8") as file:
                file.write(text)
        return list(source_rules.faults_of(root))


def main():
    wrong = [f"the clean tree: {fault}" for fault in faults_with()]
    for planted in PLANTED:
        faults = faults_with(planted)
        if not any(planted[2] in fault for fault in faults):
            wrong.append(f"{planted[0]}: not found: {planted[2]}; found: {faults}")
    print("\n".join(wrong) if wrong else f"{len(PLANTED)} planted faults found")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
