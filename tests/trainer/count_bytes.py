#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Counts what ranks send, from recorded ids and a plan's rectangles alone: count_bytes.py MODEL.json IDS RESULTS.json BATCH

Every case of RESULTS.json must say the same bytes and messages, rank by rank and stage by stage. What travels is written down in
docs/laboratory.md: headers of 32 bytes, lengths, ids and scales at multiples of 8, vectors, and rows of copies with their gradients.
"""
import json
import pathlib
import re
import struct
import sys


def read_npy(path):
    data = path.read_bytes()
    size = struct.unpack("<H", data[8:10])[0]
    header = data[10:10 + size].decode()
    kind = {"<i8": "q", "<i4": "i"}[re.search(r"'descr': '([^']*)'", header).group(1)]
    body = data[10 + size:]
    return list(struct.unpack(f"<{len(body) // struct.calcsize(kind)}{kind}", body))


def up(size):
    return (size + 7) // 8 * 8


def features_of(model):
    """(name, table, whether its bags have a scale), in the model's order."""
    features = []
    for table in model["tables"]:
        for name in table.get("features", [table["name"]]):
            features.append((name, table["name"], table.get("pooling", "sum") != "sum"))
    return features


def count(case, features, bags, batch, one_hot):
    """Bytes and messages by rank and stage of one batch; bags[feature][sample] is a list of ids."""
    ranks = case["ranks"]
    share = batch // ranks
    copies = [s for s in case["shards"] if s["rank"] < 0]
    cut = [s for s in case["shards"] if s["rank"] >= 0]
    # what ids are sent for: a feature, a rank, a range of rows; several ranges of columns of it there get them once
    slots = {}
    for name, table, scaled in features:
        for s in cut:
            if s["table"] == table:
                slots.setdefault((name, s["rank"], tuple(s["rows"]), scaled), []).append(s["columns"][1] - s["columns"][0])
    rows = {s["table"]: 0 for s in cut}
    for s in cut:
        rows[s["table"]] = max(rows[s["table"]], s["rows"][1])
    table_of = {name: table for name, table, _ in features}
    sent = {stage: [[0, 0] for _ in range(ranks)] for stage in ("route", "exchange", "exchange_gradients", "update")}

    def send(stage, rank, size):
        sent[stage][rank][0] += size
        sent[stage][rank][1] += size > 0

    for me in range(ranks):
        for other in range(ranks):
            if other == me:
                continue
            headers = ids = vectors = 0
            for (name, owner, (first, last), scaled), widths in slots.items():
                if owner != other:
                    continue
                whole = first == 0 and last == rows[table_of[name]]
                mine = bags[name][me * share:(me + 1) * share]
                parts = mine if whole else [part for bag in mine if (part := [i for i in bag if first <= i < last])]
                headers += 32
                ids += (0 if one_hot else up(4 * len(parts))) + up(8 * sum(map(len, parts))) + (up(4 * len(parts)) if scaled else 0)
                vectors += 4 * len(parts) * sum(widths)
            send("route", me, headers)
            send("route", me, ids)
            send("exchange", other, vectors)          # from the owner
            send("exchange_gradients", me, vectors)   # and back to it
    for table in {s["table"] for s in copies}:
        width = copies[0]["columns"][1]
        for me in range(ranks):
            seen = {i for name, of, _ in features if of == table for bag in bags[name][me * share:(me + 1) * share] for i in bag}
            for _ in range(ranks - 1):
                send("update", me, 16)
                send("update", me, 8 * len(seen))
                send("update", me, 4 * width * len(seen))
    return sent


def main(model_path, ids_path, results_path, batch):
    batch = int(batch)
    model = json.loads(pathlib.Path(model_path).read_text())
    results = json.loads(pathlib.Path(results_path).read_text())
    features = features_of(model)
    folder = pathlib.Path(ids_path)
    recorded = {}
    for name, _, _ in features:
        values = read_npy(folder / f"{name}.values.npy")
        path = folder / f"{name}.offsets.npy"
        offsets = read_npy(path) if path.exists() else list(range(len(values) + 1))
        recorded[name] = [values[a:b] for a, b in zip(offsets, offsets[1:])]
    samples = len(recorded[features[0][0]])
    batches = min(4, samples // batch)
    one_hot = all(len(bag) == 1 for bags in recorded.values() for bag in bags[:batches * batch])
    compared = 0
    for case in results["laboratory"]["cases"]:
        if case["name"].endswith("deduplicate:on"):
            continue
        totals = {}
        for b in range(batches):
            bags = {name: all_bags[b * batch:(b + 1) * batch] for name, all_bags in recorded.items()}
            for stage, by_rank in count(case, features, bags, batch, one_hot).items():
                for rank, (size, messages) in enumerate(by_rank):
                    total = totals.setdefault((stage, rank), [0, 0])
                    total[0] += size
                    total[1] += messages
        for (stage, rank), (size, messages) in totals.items():
            said = case["by_rank"][rank]
            got = (said["bytes"][stage] * batches, said["messages"][stage] * batches)
            if (round(got[0], 3), round(got[1], 3)) != (size, messages):
                sys.exit(f"{case['name']}, rank {rank}, {stage}: {got} bytes and messages, counted {(size, messages)}")
            compared += 1
    print(f"{compared} counts are equal")


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
