#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Builds the PyTorch model of a checkpoint of train_dlrm or train_sequence, with its weights: the same logits to rounding. Needs torch alone.

    load_in_torch.py FOLDER                prints the model
    load_in_torch.py FOLDER --save FILE    its state dict, for torch.load

    from load_in_torch import encode, load
    model = load("run/step-000000001000")
    logits = model(*encode("run/step-000000001000/model.json", {"price": ["1.5", ""], "C1": ["68fd1e64", ""], "tags": [["a", "b"], []]}))
    logits = model(numbers, {"C1": rows, "tags": (rows, offsets)})

`numbers` is [samples, numeric columns] of floats as in the data, in the order of model.numeric; NaN is an empty field. Of a column
of one category `rows` are int64 [samples], rows of its table; of a list column they are all values, and `offsets` say where each sample's
begin, as for torch.nn.functional.embedding_bag. A model that ranks candidates for a history takes one history:

    logits = model(history, numbers, candidates)

    logits = model(*encode("run/step-000000001000/model.json", {"history": ["i7", "i3"], "history_labels": [1, 0], "candidate": ["i4", "i9"]}))

`history` and `candidates` are rows of the items' table, `numbers` what model.json's numeric column says of each event (None where there is
none). Which row a category has, model.json and inputs.safetensors of the checkpoint say: `encode` reads them, with
Python's standard library.
"""
import argparse
import functools
import json
import math
import pathlib
import sys
import types

import read_checkpoint

try:
    import torch
    from torch import nn
except ImportError:  # encode and --help work without
    torch, nn = None, types.SimpleNamespace(Module=object)

MASK = (1 << 64) - 1


def mix64(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def text_key(text):
    hash = 0xCBF29CE484222325
    for byte in text.encode():
        hash = ((hash ^ byte) * 0x100000001B3) & MASK
    return mix64(hash) or 1


def integers(path):
    """Tensors of integers of a safetensors file, by name."""
    with open(path, "rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    return {name: read_checkpoint.values_of(info["dtype"], read_checkpoint.tensor_bytes(path, name)) for name, info in header.items() if name != "__metadata__"}


class Encoder:
    """What model.json and the files beside it say of fields: their numbers, and the rows of their texts."""

    def __init__(self, model_json):
        path = pathlib.Path(model_json)
        self.model, folder = json.loads(path.read_text()), path.parent
        self.tables = {table["name"]: table for table in self.model["tables"]}
        lists = integers(folder / "inputs.safetensors") if (folder / "inputs.safetensors").exists() else {}
        self.rows = {}
        for t, (name, table) in enumerate(self.tables.items()):
            if table["rows_by"] == "list":
                keys = lists[f"{name}.keys"]
                self.rows[name] = dict(zip(keys, lists.get(f"{name}.rows", range(2, 2 + len(keys)))))
            elif table["rows_by"] == "vocabulary":
                manifest = read_checkpoint.read_manifest(folder)
                tensors = {tensor["name"]: tensor for tensor in manifest["tensors"]}
                keys, rows = (read_checkpoint.read_tensor(folder, manifest, tensors[f"vocabulary.{t}.{part}"]) for part in ("keys", "rows"))
                self.rows[name] = dict(zip(keys, rows))

    def row(self, name, text):
        """The row of a text in a table. Throws ValueError for what the table refuses."""
        table = self.tables[name]
        if text == "":
            if table["empty_row"] is not None:
                return table["empty_row"]
            key = table["empty_key"]
            if key is None:
                raise ValueError("is empty, which this column may not be")
        else:
            key = {"text": text_key, "hex": lambda x: int(x, 16), "integer": int}[table["keys"]](text)
        if table["rows_by"] == "hash":
            return 1 + ((mix64(table["hash_seed"] ^ (key & MASK)) >> 32) * (table["rows"] - 1) >> 32)
        if table["rows_by"] == "key":
            if not 0 <= key < table["rows"]:
                raise ValueError(f"is no row: give 0 .. {table['rows'] - 1}")
            return key
        row = self.rows[name].get(key - (1 << 64) if key >> 63 > 0 else key, 0 if table["rows_by"] == "vocabulary" else table["unknown_row"])
        if row is None:
            raise ValueError("is not in the training data (often enough), and this column refuses such")
        return row

    def encode(self, columns):
        def each(column, fields, convert):
            for number, field in enumerate(fields):
                try:
                    yield convert(field)
                except ValueError as error:
                    raise ValueError(f"column '{column}', sample {number}: '{str(field)[:80]}' {error}") from None

        def number_of(field):
            return math.nan if field is None or field == "" else float(field)

        numeric = [list(each(c["name"], columns[c["name"]], number_of)) for c in self.model["numeric"]]
        if self.model["interaction"] == "hstu":
            history, candidates = (list(each(f["name"], columns[f["name"]], functools.partial(self.row, f["table"]))) for f in self.model["features"])
            return history, numeric[0] if numeric else None, candidates
        ids, samples = {}, len(numeric[0]) if numeric else 0
        for feature in self.model["features"]:
            fields, rows = columns[feature["name"]], functools.partial(self.row, feature["table"])
            samples = len(fields)
            if not feature["list"]:
                ids[feature["name"]] = list(each(feature["name"], fields, lambda text: rows(text or "")))
                continue
            flat, offsets = [], []
            for bag in each(feature["name"], fields, lambda texts: [rows(text) for text in texts]):
                offsets.append(len(flat))
                flat += bag
            ids[feature["name"]] = (flat, offsets)
        return [[column[s] for column in numeric] for s in range(samples)], ids


@functools.lru_cache(maxsize=8)
def encoder_of(model_json):
    return Encoder(model_json)


def encode(model_json, columns):
    """Numbers and rows of raw fields, as lists: what `load`'s model takes. `columns` has for each column a field per sample: a text, "" if it is
    empty, or a number; of a list column a list of texts; for a model of histories the events of one, and its candidates. Throws ValueError that
    names column and sample, KeyError for a column that is missing.
    """
    return encoder_of(pathlib.Path(model_json)).encode(columns)


class Model(nn.Module):
    """DLRM, DCN v2 where the interaction is `cross`, or vectors side by side, as in Wide & Deep; as model.json of a checkpoint describes it."""

    def __init__(self, description):
        super().__init__()
        d = self.description = description
        self.numeric = [column["name"] for column in d["numeric"]]
        self.features = [feature["name"] for feature in d["features"]]
        tables = {table["name"]: table for table in d["tables"]}
        table = lambda t, width: nn.EmbeddingBag(t["rows"], width, mode="sum")
        self.tables = nn.ModuleDict({self.key(name): table(t, t["width"]) for name, t in tables.items()})
        self.wide = nn.ModuleDict({self.key(name): table(t, 1) for name, t in tables.items() if d.get("wide")})
        width = d["vector_width"]
        others = {t["width"] for t in tables.values()} - {width} if d["interaction"] == "dot" else ()
        self.projections = nn.ModuleDict({str(w): nn.Linear(w, width, bias=False) for w in sorted(others)})
        self.bottom, self.top = self.mlp(d["bottom_mlp"]), self.mlp(d["top_mlp"])
        columns = width + sum(tables[f["table"]]["width"] for f in d["features"])  # of cross layers
        rank = d["cross_rank"]
        layers = range(d["cross_layers"] if d["interaction"] == "cross" else 0)
        self.cross_v = nn.ModuleList(nn.Linear(columns, rank, bias=False) for _ in layers if rank)
        self.cross_u = nn.ModuleList(nn.Linear(rank or columns, columns) for _ in layers)

    @staticmethod
    def key(name):
        return name.replace(".", "_")  # PyTorch allows no dots

    @staticmethod
    def mlp(sizes):
        return nn.ModuleList(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:]))

    def dense_input(self, x):
        """Transforms of the training run."""
        if not self.numeric:
            return torch.ones(len(x), 1)
        columns = []
        for c, column in enumerate(self.description["numeric"]):
            value = x[:, c].double()  # seconds since 1970 lie closer than floats; give such x as float64
            empty = torch.isnan(value)
            if column["empty"] == "refused" and empty.any():
                raise ValueError(f"column '{column['name']}' has an empty field")
            if column["transform"] != "none":
                value = torch.log1p(value.clamp(min=0)) if column["transform"] == "log1p" else torch.log(1 + value.clamp(min=0))
            fill = column["empty"] if isinstance(column["empty"], (int, float)) else column["shift"]
            columns.append((torch.where(empty, torch.tensor(float(fill), dtype=torch.float64), value) - column["shift"]) * column["scale"])
        return torch.stack(columns, 1).float()

    def vector(self, tables, feature, ids):
        table = tables[self.key(feature["table"])]
        if feature["list"]:
            rows, offsets = ids
            counts = torch.diff(offsets, append=torch.tensor([len(rows)]))
            if feature["pooling"] == "max":  # of a bag without entries 0
                samples = torch.repeat_interleave(counts)[:, None].expand(-1, table.embedding_dim)
                return torch.zeros(len(offsets), table.embedding_dim).scatter_reduce(0, samples, table.weight[rows], "amax", include_self=False)
            pooled = table(rows, offsets)
            counts = counts.clamp(min=1).to(pooled.dtype)[:, None]
            return pooled / {"sum": torch.ones_like(counts), "mean": counts, "sqrtn": counts.sqrt()}[feature["pooling"]]
        return table(ids[:, None])

    def interaction(self, vectors):
        if self.description["interaction"] == "dot":
            x = torch.stack([self.projections[str(v.shape[1])](v) if str(v.shape[1]) in self.projections else v for v in vectors], 1)
            i, j = torch.tril_indices(len(vectors), len(vectors), -1)
            z = torch.cat([vectors[0], (x @ x.transpose(1, 2))[:, i, j]], 1)
            return nn.functional.pad(z, (0, self.description["top_mlp"][0] - z.shape[1]))
        x = x0 = torch.cat(vectors, 1)
        for layer, u in enumerate(self.cross_u):
            x = x0 * u(self.cross_v[layer](x) if self.cross_v else x) + x
        return x

    def forward(self, numbers, ids):
        tensor = functools.partial(torch.as_tensor, dtype=torch.int64)
        ids = {name: tuple(map(tensor, rows)) if isinstance(rows, tuple) else tensor(rows) for name, rows in ids.items()}
        x = self.dense_input(torch.as_tensor(numbers, dtype=torch.float64))
        for layer in self.bottom:
            x = torch.relu(layer(x))
        features = self.description["features"]
        z = self.interaction([x, *(self.vector(self.tables, f, ids[f["name"]]) for f in features)])
        for layer in self.top[:-1]:
            z = torch.relu(layer(z))
        logits = self.top[-1](z)[:, 0]
        return sum((self.vector(self.wide, f, ids[f["name"]])[:, 0] for f in features), logits) if self.wide else logits


class HistoryModel(nn.Module):
    """HSTU blocks over one history and candidates for what comes next; as `history` of model.json describes it."""

    def __init__(self, description):
        super().__init__()
        d = self.description = description
        width, h = d["vector_width"], d["history"]
        rows = next(t["rows"] for t in d["tables"] if t["name"] == d["features"][0]["table"])
        self.heads, self.length = h["heads"], h["max_length"]
        self.items = nn.Embedding(rows, width)
        self.places = nn.Embedding(h["max_length"] + 1, width)
        self.number = nn.Parameter(torch.zeros(width))
        norm = lambda: nn.LayerNorm(width, eps=1e-6)
        block = lambda: nn.ModuleList([norm(), nn.Linear(width, 4 * width), norm(), nn.Linear(width, width, bias=False)])
        self.blocks = nn.ModuleList(block() for _ in range(h["blocks"]))
        self.top = nn.Linear(width, 1)

    def fill(self, items, dense):
        """Weights of a checkpoint: the table's, and all others in their order."""
        with torch.no_grad():
            self.items.weight.copy_(items)
            parameters = [self.places.weight, self.number, *(p for block in self.blocks for p in block.parameters()), *self.top.parameters()]
            if len(dense) != sum(p.numel() for p in parameters):
                raise ValueError(f"tensor 'dense' has {len(dense)} numbers, model.json tells of {sum(p.numel() for p in parameters)}")
            for p, values in zip(parameters, dense.split([p.numel() for p in parameters])):
                p.copy_(values.reshape(p.shape))

    def forward(self, history, numbers, candidates):
        history, candidates = (torch.as_tensor(rows, dtype=torch.int64) for rows in (history, candidates))
        history = history[-self.length :]
        n, all_rows = len(history), len(history) + len(candidates)
        if numbers is None:
            numbers = torch.ones(n)
        else:
            numbers = (torch.as_tensor(numbers)[-self.length :] >= self.description["numeric"][0]["shift"]).float()
        place = torch.arange(all_rows)
        x = self.items(torch.cat([history, candidates])) + self.places(place.clamp(max=n))
        x = x + torch.cat([numbers, torch.zeros(len(candidates))])[:, None] * self.number
        sees = (place[:n] <= place[:, None]).float()  # a candidate sees all of the history, and itself
        alone = (place >= n).float()[:, None]
        width, length = x.shape[1], self.description["history"]["attention_length"]
        for norm, uvqk, output_norm, output in self.blocks:
            u, v, q, k = nn.functional.silu(uvqk(norm(x))).split(width, 1)
            v, q, k = (z.unflatten(1, (self.heads, -1)).transpose(0, 1) for z in (v, q, k))
            alpha = q.shape[2] ** -0.5
            seen = nn.functional.silu(alpha * q @ k[:, :n].transpose(1, 2)) / length * sees
            own = nn.functional.silu(alpha * (q * k).sum(2, keepdim=True)) / length * alone
            attention = (seen @ v[:, :n] + own * v).transpose(0, 1).flatten(1)
            x = x + output(u * output_norm(attention))
        return self.top(x[n:])[:, 0]


def load(folder):
    """The model of a whole checkpoint, ready to evaluate. Checks every checksum."""
    if torch is None:
        raise ValueError("PyTorch is not installed: install the package torch")
    folder = pathlib.Path(folder)
    manifest = read_checkpoint.read_manifest(folder)
    for file in manifest["files"]:
        read_checkpoint.check_file(folder, file, manifest["chunk_bytes"])
    if manifest.get("base"):
        raise ValueError(f"'{folder}' is an increment; give the whole checkpoint that it belongs to: '{manifest['base']}'")
    if not (folder / "model.json").exists():
        raise ValueError(f"'{folder}' does not say what its model is: no model.json")
    description = json.loads((folder / "model.json").read_text())
    known = ("dot", "cross", "concat", "hstu")
    if description["version"] != 1 or description["interaction"] not in known:
        raise ValueError(f"'{folder}/model.json': version 1 and an interaction of {known} are known here")
    tensors = {tensor["name"]: tensor for tensor in manifest["tensors"]}

    def read(name):
        return torch.tensor(read_checkpoint.read_tensor(folder, manifest, tensors[name])).reshape(tensors[name]["shape"])

    if description["interaction"] == "hstu":
        model = HistoryModel(description)
        model.fill(read(f"{description['tables'][0]['name']}.weight"), read("dense"))
        return model.eval()
    model = Model(description)

    def fill(parameter, name):
        with torch.no_grad():
            parameter.copy_(read(name))

    def fill_linear(layer, name, bias):
        fill(layer.weight, name)
        if layer.bias is not None:
            fill(layer.bias, bias)

    for table in description["tables"]:
        fill(model.tables[Model.key(table["name"])].weight, f"{table['name']}.weight")
        if model.wide:
            fill(model.wide[Model.key(table["name"])].weight, f"wide.{table['name']}.weight")
    for width, layer in model.projections.items():
        fill(layer.weight, f"projection.{width}.weight")
    for name in ("bottom", "top"):
        for i, layer in enumerate(getattr(model, name)):
            fill_linear(layer, f"{name}.{i}.weight", f"{name}.{i}.bias")
    for i, layer in enumerate(model.cross_u):
        fill_linear(layer, f"cross.{i}.u", f"cross.{i}.bias")
    for i, layer in enumerate(model.cross_v):
        fill(layer.weight, f"cross.{i}.v")
    return model.eval()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", help="one checkpoint (.../step-000000001000)")
    parser.add_argument("--save", metavar="FILE", help="write the state dict")
    options = parser.parse_args()
    try:
        model = load(options.folder)
    except (OSError, KeyError, ValueError) as error:
        sys.exit(f"load_in_torch.py: {error}")
    print(model)
    if options.save:
        torch.save(model.state_dict(), options.save)


if __name__ == "__main__":
    main()
