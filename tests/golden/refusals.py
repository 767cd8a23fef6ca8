#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Sees that the reader of golden cases knows its own cases, and refuses each that says one thing more than it reads."""
import copy

import generate
import make_cases


def refused(case):
    try:
        generate.check(case)
    except generate.Unknown as why:
        return str(why)
    return None


def main():
    accumulated, grouped = (make_cases.make(name, make_cases.CASES[name])[0] for name in ("accumulate_weighted", "groups_weighted"))
    assert refused(accumulated) is None and refused(grouped) is None
    faults = [  # a case, what is changed, and what the refusal names
        (accumulated, lambda c: c.update(decay=1), "'decay'"),
        (accumulated, lambda c: c.update(kind="distilled"), "distilled"),
        (accumulated, lambda c: c.pop("optimizer"), "optimizer"),
        (accumulated, lambda c: c["tables"][1].update(tier="file"), "'tier'"),
        (accumulated, lambda c: c["tables"][1].update(optimizer={"kind": "sgd", "lr": 1}), "optimizer"),
        (accumulated, lambda c: c["features"][0].update(hashed=True), "'hashed'"),
        (accumulated, lambda c: c["features"][0].update(pooling="sqrtn"), "sqrtn"),
        (accumulated, lambda c: c["features"][2].update(weighted=True), "weights"),
        (accumulated, lambda c: c["clip"].update(per="row"), "'per'"),
        (accumulated, lambda c: c["clip"].update(kind="row_norm"), "row_norm"),
        (accumulated, lambda c: c["optimizer"].update(nesterov=True), "'nesterov'"),
        (accumulated, lambda c: c["optimizer"].update(kind="frozen"), "frozen"),
        (accumulated, lambda c: c["optimizer"].update(weight_decay_mode="cosine"), "cosine"),
        (grouped, lambda c: c["tables"][0].pop("optimizer"), "optimizer"),
        (grouped, lambda c: c.update(clip=None), "'clip'"),
        (grouped, lambda c: c["tables"][2]["optimizer"].update(kind="lion"), "lion"),
    ]
    for case, change, names in faults:
        changed = copy.deepcopy(case)
        change(changed)
        why = refused(changed)
        assert why is not None and names in why, (names, why)
    print(f"{len(faults)} refused")


if __name__ == "__main__":
    main()
