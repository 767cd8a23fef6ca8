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
    metrics = {"kind": "auc", "thresholds": 8000, "sets": [{"name": "ties", "samples": 5, "auc": "0.5"}]}
    warmup = {"kind": "warmup", "rate": 0.1, "warmup_steps": 4}
    step_decay = {"kind": "step_decay", "rate": 0.1, "every": 3, "factor": 0.5}
    chain = {"kind": "chain", "stages": [{"steps": 5, "schedule": warmup}, {"schedule": step_decay}]}
    schedules = {"kind": "schedule", "schedules": [{"name": "s", "schedule": chain, "rates": ["0.025"]}]}
    block = {key: 1 for key in generate.KNOWN["case"]["hstu"]} | {"kind": "hstu"}
    model = {"kind": "dcnv2", "tables": [{"name": "t", "rows": 3, "width": 4}], "cross": {"layers": 2, "rank": 1}}
    sgd = {"kind": "sgd", "lr": 0.1}
    wide_deep = {"kind": "wide_deep", "wide_optimizer": sgd, "deep_optimizer": sgd, "mlp_optimizer": sgd, "features": [{"name": "f", "rows": 2, "deep_width": 0}]}
    rows = {"kind": "quantized", "rows": 2, "width": 4, "row_kinds": ["constant"]}
    for case in (accumulated, grouped, metrics, schedules, block, model, wide_deep, rows):
        assert refused(case) is None, refused(case)

    def stages(case):
        return case["schedules"][0]["schedule"]["stages"]

    faults = [  # a case, what is changed, and what the refusal names
        (accumulated, lambda c: c.update(decay=1), "'decay'"),
        (accumulated, lambda c: c.update(kind="distilled"), "distilled"),
        (accumulated, lambda c: c.pop("optimizer"), "optimizer"),
        (accumulated, lambda c: c["tables"][1].update(tier="file"), "'tier'"),
        (accumulated, lambda c: c["tables"][1].update(optimizer={"kind": "sgd", "lr": 1}), "optimizer"),
        (accumulated, lambda c: c["features"][0].update(hashed=True), "'hashed'"),
        (accumulated, lambda c: c["features"][0].update(pooling="sqrtn"), "sqrtn"),
        (accumulated, lambda c: c["clip"].update(per="row"), "'per'"),
        (accumulated, lambda c: c["clip"].update(kind="row_norm"), "row_norm"),
        (accumulated, lambda c: c["optimizer"].update(nesterov=True), "'nesterov'"),
        (accumulated, lambda c: c["optimizer"].update(kind="frozen"), "frozen"),
        (accumulated, lambda c: c["optimizer"].update(weight_decay_mode="cosine"), "cosine"),
        (grouped, lambda c: c["tables"][0].pop("optimizer"), "optimizer"),
        (grouped, lambda c: c.update(clip=None), "'clip'"),
        (grouped, lambda c: c["tables"][2]["optimizer"].update(kind="lion"), "lion"),
        (metrics, lambda c: c.update(interpolation="trapezoid"), "'interpolation'"),
        (metrics, lambda c: c["sets"][0].update(weights=True), "'weights'"),
        (schedules, lambda c: c.update(base=1), "'base'"),
        (schedules, lambda c: c["schedules"][0].update(offset=1), "'offset'"),
        (schedules, lambda c: stages(c)[0].update(repeat=2), "'repeat'"),
        (schedules, lambda c: stages(c)[0].pop("steps"), "steps"),
        (schedules, lambda c: stages(c)[1].update(steps=9), "steps"),
        (schedules, lambda c: stages(c)[0]["schedule"].update(start_rate=0.1), "'start_rate'"),
        (schedules, lambda c: stages(c)[0]["schedule"].update(kind="one_cycle"), "one_cycle"),
        (schedules, lambda c: stages(c)[1]["schedule"].update(milestones=[1]), "milestones"),
        (block, lambda c: c.update(dropout=0.1), "'dropout'"),
        (model, lambda c: c.update(dropout=0.1), "'dropout'"),
        (model, lambda c: c["cross"].update(experts=4), "'experts'"),
        (model, lambda c: c["tables"][0].update(optimizer=sgd), "'optimizer'"),
        (wide_deep, lambda c: c["features"][0].update(pooling="mean"), "'pooling'"),
        (wide_deep, lambda c: c["deep_optimizer"].update(momentum=0.9), "'momentum'"),
        (wide_deep, lambda c: c.update(mlp_optimizer=warmup), "warmup"),
        (rows, lambda c: c.update(scale="fp8"), "'scale'"),
    ]
    for case, change, names in faults:
        changed = copy.deepcopy(case)
        change(changed)
        why = refused(changed)
        assert why is not None and names in why, (names, why)
    print(f"{len(faults)} refused")


if __name__ == "__main__":
    main()
