#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the machine code of tests/gpu/machine_code.cu (sm_90) and compares it with tests/gpu/machine_code.txt, which holds for one nvcc.

    machine_code.py           prints what differs; exit code 1 if a kernel got worse, 77 where nvcc or nvdisasm is missing or another
    machine_code.py --write   writes the table

Per kernel: registers, bytes of spills, accesses to local memory, loads that know no address space (generic), loads in flight (the most
global loads that are issued before one of their results is used, within straight code) and instructions. Worse: any spill, local access
or generic load more, fewer loads in flight, more than 10 % more registers or instructions.

nvdisasm is in the CUDA toolkit, or in the Python package nvidia-cuda-nvdisasm; NVDISASM names another place.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "tests/gpu/machine_code.txt"
COLUMNS = ["registers", "spills", "local", "generic", "in_flight", "instructions"]
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\s*([^;]*);")
LOADED = {"64": 2, "128": 4}


def find_tools():
    nvcc = shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")
    packaged = [p for p in map(pathlib.Path, sys.path) for p in p.glob("nvidia/*/bin/nvdisasm")]
    nvdisasm = os.environ.get("NVDISASM") or shutil.which("nvdisasm") or shutil.which("/usr/local/cuda/bin/nvdisasm") or next(map(str, packaged), None)
    for tool, name in ((nvcc, "nvcc"), (nvdisasm, "nvdisasm (CUDA toolkit, or the Python package nvidia-cuda-nvdisasm)")):
        if not tool:
            print(f"there is no {name}")
            sys.exit(77)
    version = re.search(r"release ([\d.]+), V([\d.]+)", subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout)
    return nvcc, nvdisasm, version[2]


def compile_kernels(nvcc, cubin):
    """Registers and spills by mangled name."""
    command = [nvcc, "-std=c++20", "-O3", "-arch=sm_90", f"-I{ROOT / 'include'}", "-Xptxas", "-v",
               "-cubin", "-o", cubin, str(ROOT / "tests/gpu/machine_code.cu")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr)
        sys.exit(1)
    kernels, name = {}, None
    for line in (done.stdout + done.stderr).splitlines():
        if found := re.search(r"Compiling entry function '(\w+)'", line):
            name = found[1]
            kernels[name] = {"registers": 0, "spills": 0}
        elif found := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            kernels[name]["spills"] = int(found[1]) + int(found[2])
        elif found := re.search(r"Used (\d+) registers", line):
            kernels[name]["registers"] = int(found[1])
    return kernels


def read_code(nvdisasm, cubin, kernels):
    """Adds what the instructions tell."""
    name, waiting, loads = None, set(), 0
    for line in subprocess.run([nvdisasm, "-c", cubin], capture_output=True, text=True, check=True).stdout.splitlines():
        if found := re.match(r"\.text\.(\w+):", line):
            name, waiting, loads = found[1], set(), 0
            if name in kernels:
                kernels[name].update(local=0, generic=0, in_flight=0, instructions=0)
            continue
        if name not in kernels:
            continue
        if line.startswith(".L"):  # somebody may jump here
            waiting, loads = set(), 0
        found = INSTRUCTION.match(line)
        if not found or found[1].startswith("NOP"):
            continue
        operation, operands = found[1], found[2]
        kernel = kernels[name]
        kernel["instructions"] += 1
        parts = operation.split(".")
        kernel["local"] += parts[0] in ("LDL", "STL")
        kernel["generic"] += parts[0] == "LD"
        registers = [int(r) for r in re.findall(r"\bR(\d+)\b", operands)]
        used = registers[1:] if parts[0] in ("LDG", "LD") else registers
        if waiting & set(used):
            waiting, loads = set(), 0
        if parts[0] in ("LDG", "LD") and registers:
            width = next((LOADED[p] for p in parts if p in LOADED), 1)
            waiting |= set(range(registers[0], registers[0] + width))
            loads += 1
            kernel["in_flight"] = max(kernel["in_flight"], loads)


def readable(names):
    shown = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.splitlines()
    short = {}
    for name, text in zip(names, shown):
        if "tessera" not in text:
            continue
        text = re.sub(r"^void ", "", text).replace("tessera::v0::", "").replace("gpu::", "").replace("detail::", "")
        depth, end = 0, len(text)
        for i, c in enumerate(text):  # the parameters begin at the first bracket outside template arguments
            depth += (c == "<") - (c == ">")
            if c == "(" and depth == 0:
                end = i
                break
        short[name] = text[:end].replace(" ", "")
    return short


def read_table():
    if not TABLE.exists():
        sys.exit(f"{TABLE} is missing; machine_code.py --write makes it")
    lines = [l for l in TABLE.read_text().splitlines() if l and not l.startswith("#")]
    version, table = lines[0].split()[1], {}
    for line in lines[2:]:
        *values, name = line.split()
        table[name] = dict(zip(COLUMNS, map(int, values)))
    return version, table


def main():
    nvcc, nvdisasm, version = find_tools()
    if "--write" not in sys.argv and read_table()[0] != version:
        print(f"the table is of nvcc {read_table()[0]}; this is {version}, whose registers and instructions differ")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        cubin = str(pathlib.Path(folder) / "kernels.cubin")
        kernels = compile_kernels(nvcc, cubin)
        read_code(nvdisasm, cubin, kernels)
    names = readable(list(kernels))
    measured = {short: kernels[name] for name, short in sorted(names.items(), key=lambda item: item[1])}
    if "--write" in sys.argv:
        rows = [" ".join(f"{m[c]:>{len(c)}}" for c in COLUMNS) + f" {name}" for name, m in measured.items()]
        TABLE.write_text("# Machine code of tests/gpu/machine_code.cu for sm_90; see machine_code.py, which wrote this.\n"
                         f"nvcc {version}\n" + " ".join(COLUMNS) + " kernel\n" + "\n".join(rows) + "\n")
        print(f"{len(rows)} kernels")
        return 0
    worse = 0
    table = read_table()[1]
    for name in sorted(table.keys() | measured.keys()):
        if name not in table or name not in measured:
            print(f"{name}: only in {'the table' if name in table else 'the code'}")
            worse = 1
            continue
        old, new = table[name], measured[name]
        faults = [c for c in ("spills", "local", "generic") if new[c] > old[c]] + ["in_flight"] * (new["in_flight"] < old["in_flight"])
        faults += [c for c in ("registers", "instructions") if new[c] > 1.1 * old[c]]
        if old != new:
            print(f"{name}: " + ", ".join(f"{c} {old[c]} -> {new[c]}" for c in COLUMNS if old[c] != new[c]) + (f"   worse: {', '.join(faults)}" if faults else ""))
        worse |= bool(faults)
    print(f"{len(measured)} kernels" + ("; if this is meant: machine_code.py --write" if worse else ""))
    return int(worse)


if __name__ == "__main__":
    sys.exit(main())
