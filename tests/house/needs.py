# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""What sources include of optional libraries, and what tessera_needs(...) says of them, must agree: else a build without a library stops
at a source that includes it, or leaves one out that does not.

    needs.py ROOT FILE    FILE has a line "source|LIBRARY,...|part,..." for each source, which CMake wrote when it configured
"""
import functools
import pathlib
import re
import sys

# How the names of the libraries' headers begin.
HEADERS = {
    "DENSE": ("dnnl", "oneapi/dnnl/"),
    "DATA": ("yaml-cpp/", "zlib.h", "zstd.h"),
    "MPI": ("mpi.h",),
    "GLOO": ("gloo/", "openssl/"),
    "NCCL": ("nccl.h",),
    "CLI11": ("CLI/",),
    "JSON": ("nlohmann/",),
    "BOOST": ("boost/",),
    "TORCH": ("torch/", "ATen/"),
    "GRPC": ("grpcpp/", "google/protobuf/"),
}
# NCCL brings the CUDA runtime to compilers that have none; a .cu or a .cuh file has nvcc's or the emulator's.
CUDA_RUNTIME = "cuda_runtime_api.h"
INCLUDE = re.compile(r'^ *# *include *[<"]([^>"]*)[>"]', re.MULTILINE)


@functools.cache
def read(root, path):
    """The optional libraries whose headers a file includes, and the files of this repository that it includes."""
    found, files = set(), []
    for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
        found.update(library for library, heads in HEADERS.items() if name.startswith(heads))
        if name == CUDA_RUNTIME and path.suffix == ".hpp":
            found.add("NCCL")
        places = (folder / name for folder in (path.parent, root / "include", root / "tests"))
        files += [place.resolve() for place in places if place.is_file()]
    return found, files


def libraries_of(root, sources):
    """The optional libraries whose headers the sources include, themselves or through others."""
    libraries, seen, waiting = set(), set(), list(sources)
    while waiting:
        path = waiting.pop()
        if path not in seen:
            seen.add(path)
            found, files = read(root, path)
            libraries |= found
            waiting += files
    return libraries


def faults_of(root, lines):
    root = root.resolve()
    for line in lines:
        source, needs, parts = line.split("|")
        said = set(filter(None, needs.split(",")))
        found = libraries_of(root, [pathlib.Path(path).resolve() for path in [source, *filter(None, parts.split(","))]])
        name = pathlib.Path(source).resolve().relative_to(root).as_posix()
        for library in sorted(found - said):
            yield f"{name}: it includes a header of {library}, and no tessera_needs({library} ...) names it"
        for library in sorted(said - found):
            yield f"{name}: it includes no header of {library}, which tessera_needs says it needs"


def main():
    faults = list(faults_of(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()))
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
