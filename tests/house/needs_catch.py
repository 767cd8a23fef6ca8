# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""A small clean tree passes needs.py; each need in it that is not said, or said and not there, is named, and nothing else."""
import pathlib
import sys
import tempfile

sys.dont_write_bytecode = True
import needs

TREE = {
    "include/tessera/comm/mpi.hpp": "#include <mpi.h>\n",
    "include/tessera/comm/memory.hpp": "#include <cuda_runtime_api.h>\n",
    "include/tessera/cuda/sum.cuh": "#include <cuda_runtime_api.h>\n",
    "tests/support/ranks.hpp": "#pragma once\n# include <tessera/comm/mpi.hpp>\n#include <vector>\n",
    "tests/mpi/test_sum.cpp": "#include \"near.hpp\"\n// #include <zlib.h>\n",
    "tests/mpi/near.hpp": "#include <support/ranks.hpp>\n#include <support/missing.hpp>\n",
    "tests/simt/test_sum.cpp": "#include <tessera/cuda/sum.cuh>\n",
    "examples/train.cpp": "#include <dnnl.hpp>\n",
    "examples/train/options.cpp": "#include <CLI/CLI.hpp>\n",
}
# (line of CMake's file, what is found: "+" a need that is not said, "-" one that is said)
CASES = [
    ("tests/mpi/test_sum.cpp|MPI|", ""),
    ("tests/mpi/test_sum.cpp||", "+MPI"),
    ("tests/mpi/test_sum.cpp|MPI,DATA|", "-DATA"),
    ("tests/mpi/test_sum.cpp|JSON|", "+MPI -JSON"),
    ("tests/simt/test_sum.cpp||", ""),
    ("include/tessera/comm/memory.hpp||", "+NCCL"),
    ("examples/train.cpp|DENSE|", ""),
    ("examples/train.cpp|DENSE,CLI11|examples/train/options.cpp", ""),
    ("examples/train.cpp|DENSE|examples/train/options.cpp", "+CLI11"),
]


def main():
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in TREE.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        for line, expected in CASES:
            source, said, parts = line.split("|")
            absolute = "|".join([str(root / source), said, parts and str(root / parts)])
            found = [("-" if "no header of" in fault else "+") + fault.split(" of ")[1].split(",")[0] for fault in needs.faults_of(root, [absolute])]
            if found != expected.split():
                failures.append(f"{line}: found {found}")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
