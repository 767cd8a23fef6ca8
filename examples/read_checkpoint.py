#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Reads a checkpoint with nothing but Python's standard library, checks every checksum, and prints what it holds.

    read_checkpoint.py FOLDER                  tensors: name, type, shape, mean, and for the first row its first values
    read_checkpoint.py FOLDER --tensor NAME    that tensor's rows, as text
    read_checkpoint.py FOLDER --torch FILE     a state dict for torch.load, where PyTorch is installed

FOLDER is one checkpoint (.../step-000000001000), or a training's folder, whose last one is taken. A large table is in several files, by rows; the manifest says which.
An increment is listed only: it holds the rows that changed, and the others are those of its base.
"""
import argparse
import array
import json
import pathlib
import struct
import sys
import zlib


def read_manifest(folder):
    text = (folder / "manifest.json").read_bytes()
    manifest = json.loads(text)
    if zlib.crc32(text[: text.rindex(b',\n"crc32":')]) != manifest["crc32"]:
        raise ValueError("manifest.json is damaged")
    for file in manifest["files"]:
        check_name(file["name"])
    return manifest


def check_name(name):
    """A checkpoint that somebody sent must not reach files elsewhere."""
    if not name or name[0] == "." or "/" in name or "\0" in name:
        raise ValueError(f"manifest.json: '{name}' is no plain file name")


def check_file(folder, file, chunk_bytes):
    """Compares the checksum of every chunk with the manifest's."""
    with open(folder / file["name"], "rb") as stream:
        for number, crc in enumerate(file["crc32"]):
            if zlib.crc32(stream.read(chunk_bytes)) != crc:
                raise ValueError(f"{file['name']}: chunk {number} is damaged")
        if stream.read(1) or stream.tell() != file["bytes"]:
            raise ValueError(f"{file['name']}: is not {file['bytes']} bytes long")


def tensor_bytes(path, name):
    """The bytes of one tensor of a safetensors file: 8 bytes of header length, a JSON header, the data."""
    with open(path, "rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        begin, end = json.loads(stream.read(length))[name]["data_offsets"]
        stream.seek(8 + length + begin)
        return stream.read(end - begin)


def values_of(dtype, data):
    codes = {"F32": "f", "F64": "d", "I32": "i", "I64": "q", "U8": "B", "BOOL": "B"}
    if dtype in codes:
        values = array.array(codes[dtype], data)
        if sys.byteorder == "big":
            values.byteswap()
        return values
    if dtype == "F16":
        return array.array("f", (x for (x,) in struct.iter_unpack("<e", data)))
    if dtype == "BF16":  # the upper half of a float
        return array.array("f", b"".join(b"\0\0" + data[i : i + 2] for i in range(0, len(data), 2)))
    raise ValueError(f"unknown type {dtype}")


def read_tensor(folder, manifest, tensor):
    """All values of a tensor, row-major."""
    pieces = [tensor_bytes(folder / manifest["files"][file]["name"], tensor["name"]) for file, _, _ in tensor["pieces"]]
    return values_of(tensor["dtype"], b"".join(pieces))


def columns_of(tensor):
    columns = 1
    for extent in tensor["shape"][1:]:
        columns *= extent
    return columns


def save_for_torch(folder, manifest, path):
    import torch

    types = {"F32": torch.float32, "F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16, "I32": torch.int32, "I64": torch.int64, "U8": torch.uint8, "BOOL": torch.bool}
    state = {}
    for tensor in manifest["tensors"]:
        data = bytearray().join(tensor_bytes(folder / manifest["files"][file]["name"], tensor["name"]) for file, _, _ in tensor["pieces"])
        whole = torch.frombuffer(data, dtype=types[tensor["dtype"]]) if data else torch.empty(0, dtype=types[tensor["dtype"]])
        state[tensor["name"]] = whole.reshape(tensor["shape"])
    torch.save(state, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--tensor")
    parser.add_argument("--torch")
    options = parser.parse_args()
    if not (options.folder / "manifest.json").exists():
        steps = sorted(options.folder.glob("step-*"))
        if not steps:
            sys.exit(f"'{options.folder}' is no checkpoint, and holds none")
        options.folder = steps[-1]
    manifest = read_manifest(options.folder)
    if "base" in manifest and (options.torch or options.tensor):
        raise ValueError(f"this is an increment: it has only the rows that changed since {manifest['base']}; give a whole checkpoint")
    for file in manifest["files"]:
        check_file(options.folder, file, manifest["chunk_bytes"])
    if options.torch:
        return save_for_torch(options.folder, manifest, options.torch)
    if not options.tensor:
        print(f"step {manifest['step']}, {len(manifest['files'])} files, all checksums right")
        if "base" in manifest:
            print(f"an increment: rows that are not listed here are those of {manifest['base']}")
    for tensor in manifest["tensors"]:
        if options.tensor and tensor["name"] != options.tensor:
            continue
        values, columns = read_tensor(options.folder, manifest, tensor), columns_of(tensor)
        if options.tensor:
            for begin in range(0, len(values), columns or 1):
                print(*(f"{x:.9g}" for x in values[begin : begin + columns]))
            return None
        first = " ".join(f"{x:.6g}" for x in values[: min(columns, 4)])
        mean = sum(values) / len(values) if values else 0.0
        print(f"{tensor['name']:<24} {tensor['dtype']:<5} {str(tensor['shape']):<16} mean {mean:.6g}, begins {first}")
    if options.tensor:
        raise ValueError(f"no tensor {options.tensor}")
    return None


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"read_checkpoint.py: {error}")
