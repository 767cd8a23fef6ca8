#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Makes a wheel of tessera.py and libtessera_c.so: `pip install FILE` needs no compiler and no other package.

    make_wheel.py [--out FOLDER] [--march x86-64-v3] [--cuda ARCHITECTURES] [--library FILE]

Builds the library first (CMake, g++ and fmt are needed), for processors from --march on, without Gloo: torch.distributed carries the
messages of its ranks. With --cuda tables may be on GPUs (nvcc is needed); where NCCL was found, the library takes PyTorch's, if torch is
imported first. --library takes one that is built. The machine that installs the wheel needs libgomp.
"""
import argparse
import base64
import hashlib
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import zipfile

root = pathlib.Path(__file__).resolve().parents[2]


def build(march, cuda, folder):
    configure = ["cmake", "-S", root, "-B", folder, "-DCMAKE_BUILD_TYPE=Release", "-DTESSERA_C_GLOO=OFF", "-DTESSERA_NATIVE=OFF",
                 "-DTESSERA_BUILD_TESTS=OFF", "-DTESSERA_BUILD_EXAMPLES=OFF", "-DTESSERA_INSTALL=OFF",
                 f"-DCMAKE_CXX_FLAGS=-march={march}", "-DCMAKE_SHARED_LINKER_FLAGS=-static-libstdc++ -static-libgcc -s"]
    if cuda:
        configure += ["-DTESSERA_CUDA=ON", f"-DCMAKE_CUDA_ARCHITECTURES={cuda}", f"-DCMAKE_CUDA_FLAGS=-Xcompiler=-march={march}"]
    subprocess.run(configure, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", folder, "--target", "tessera_c", "--parallel"], check=True, stdout=subprocess.DEVNULL)
    return pathlib.Path(folder) / "libtessera_c.so"


def version():
    found = {}
    for line in (root / "include/tessera/version.hpp").read_text().splitlines():
        if line.startswith("#define TESSERA_VERSION_"):
            _, name, number = line.split()
            found[name.removeprefix("TESSERA_VERSION_")] = number
    return ".".join(found[part] for part in ("MAJOR", "MINOR", "PATCH"))


def write(out, library):
    name, tag = f"tessera-{version()}", f"py3-none-{sys.platform}_{platform.machine()}"
    files = {
        "tessera/__init__.py": (root / "examples/torch/tessera.py").read_bytes(),
        "tessera/libtessera_c.so": library.read_bytes(),
        f"{name}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: tessera\nVersion: {version()}\nLicense: Apache-2.0\n"
                                      "Summary: Sharded embedding tables for PyTorch\nRequires-Python: >=3.9\n".encode(),
        f"{name}.dist-info/WHEEL": f"Wheel-Version: 1.0\nGenerator: make_wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
        f"{name}.dist-info/LICENSE": (root / "LICENSE").read_bytes(),
    }
    record = "".join(f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
                     for path, data in files.items())
    files[f"{name}.dist-info/RECORD"] = f"{record}{name}.dist-info/RECORD,,\n".encode()
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"{name}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            archive.writestr(zipfile.ZipInfo(path), data, zipfile.ZIP_DEFLATED)
    return wheel


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("."), help="where the wheel goes [.]")
    parser.add_argument("--march", default="x86-64-v3", help="the least processor [x86-64-v3]")
    parser.add_argument("--cuda", metavar="ARCHITECTURES", help="tables on GPUs, too, of these: as CMAKE_CUDA_ARCHITECTURES, '80;90;100' [none]")
    parser.add_argument("--library", dest="built", type=pathlib.Path, help="a libtessera_c.so that is built")
    options = parser.parse_args()
    if options.built and not options.built.is_file():
        parser.error(f"--library: there is no file '{options.built}'")
    with tempfile.TemporaryDirectory() as folder:
        print(write(options.out, options.built or build(options.march, options.cuda, folder)))


if __name__ == "__main__":
    main()
