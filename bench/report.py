#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Tables and one self-contained page from Google Benchmark's JSON: report.py FOLDER NAME...

Reads FOLDER/NAME.json, prints a table of each, writes FOLDER/index.html. Repetitions are joined by medians. A counter that is a share of a
limit, or a ratio to a peer, is drawn as bars; sharding plans by their stages, beside what the cost model predicted.
"""
import html
import json
import pathlib
import statistics
import sys

# What is drawn of a bench: the first of these counters that it has. Shares are of a limit measured in the same run, `ratio` is to a peer.
DRAWN = ["ratio", "step_share", "limit_share", "share", "of_memcpy", "samples_per_second", "bytes/s", "ids", "gflops"]
# Stages of a sharding plan (milliseconds), and their colours in tessera_plan's page.
STAGES = {"route_ms": "#4e79a7", "lookup_ms": "#f28e2b", "exchange_ms": "#e15759", "assemble_ms": "#76b7b2", "exchange_gradients_ms": "#b07aa1",
          "update_ms": "#59a14f"}
# Google Benchmark's own fields, which are not counters.
OWN_FIELDS = {"name", "run_name", "run_type", "repetitions", "repetition_index", "threads", "iterations", "real_time", "cpu_time", "time_unit",
              "family_index", "per_family_instance_index", "aggregate_name", "aggregate_unit", "label", "items_per_second", "bytes_per_second"}


def load(path):
    """Context of a run, {name: {counter: median}} in the order of the run, time in milliseconds first, and {name: what it is in words}."""
    data = json.loads(path.read_text())
    runs = {}
    for run in data["benchmarks"]:
        if run.get("run_type") == "aggregate" or run.get("error_occurred"):
            continue
        to_ms = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}[run["time_unit"]]
        values = {"time_ms": run["real_time"] * to_ms}
        values.update({k: v for k, v in run.items() if k not in OWN_FIELDS and isinstance(v, (int, float))})
        for field in ("items_per_second", "bytes_per_second"):
            if field in run:
                values[field] = run[field]
        runs.setdefault(short_name(run["run_name"]), []).append(values)
    medians = {name: {k: statistics.median(v.get(k, 0) for v in values) for k in values[0]} for name, values in runs.items()}
    labels = {short_name(run["run_name"]): run["label"] for run in data["benchmarks"] if run.get("label")}
    return data["context"], medians, labels


def short_name(name):
    kept = [part for part in name.split("/") if part not in ("manual_time", "real_time") and not part.startswith(("min_time", "iterations", "repeats"))]
    return "/".join(kept)


def text(value):
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g}{unit}"
    return f"{value:.3g}"


def table(runs):
    columns = []
    for values in runs.values():
        columns += [c for c in values if c not in columns]
    return columns, [[name] + [text(values[c]) if c in values else "" for c in columns] for name, values in runs.items()]


def print_table(title, runs):
    columns, rows = table(runs)
    widths = [max(len(row[i]) for row in rows + [[title] + columns]) for i in range(len(columns) + 1)]
    for row in [[title] + columns] + rows:
        print("  ".join([row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:])]))
    print()


def bars(runs, counter):
    """One bar per run; a line at 1 where the counter is a share or a ratio, and a mark where the limit would be."""
    drawn = [(name, values[counter], values.get("limit_ratio") if counter == "ratio" else None) for name, values in runs.items() if counter in values]
    is_share = counter in ("ratio", "share") or counter.endswith("_share") or counter.startswith("of_")
    most = max([value for _, *pair in drawn for value in pair if value is not None] + ([1.0] if is_share else [])) or 1.0
    left, length, step = 430, 420, 18
    height = step * len(drawn) + 30
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + length + 70} {height}" width="{left + length + 70}" height="{height}" '
             f'font-family="sans-serif" font-size="11"><text x="{left}" y="12" font-weight="bold">{html.escape(counter)}</text>']
    for i, (name, value, limit) in enumerate(drawn):
        y = 20 + step * i
        if limit is not None:
            x = left + length * limit / most
            parts.append(f'<line x1="{x:.1f}" y1="{y}" x2="{x:.1f}" y2="{y + step - 3}" stroke="#000" stroke-width="1.5"><title>limit: {text(limit)}</title></line>')
        parts.append(f'<text x="{left - 6}" y="{y + 11}" text-anchor="end">{html.escape(name)}</text>'
                     f'<rect x="{left}" y="{y + 1}" width="{max(1.0, length * value / most):.1f}" height="{step - 5}" fill="#3a76b4"/>'
                     f'<text x="{left + 4 + length * value / most:.1f}" y="{y + 11}">{text(value)}</text>')
    if is_share:
        x = left + length / most
        parts.append(f'<line x1="{x:.1f}" y1="16" x2="{x:.1f}" y2="{height - 6}" stroke="#c03030" stroke-dasharray="4 3"/>')
    return "".join(parts) + "</svg>"


# What stands beside a plan's bar: a counter, and the head of its column.
BESIDE = {"time_ms": "step, ms", "predicted_ms": "predicted, ms", "bytes_per_rank": "bytes sent", "messages_per_rank": "messages",
          "memory_balance": "fullest rank", "time_balance": "slowest rank"}


def verdict(plans):
    """How the planner's plan did beside the fastest of the others."""
    times = {plan: values["time_ms"] for plan, values in plans}
    if "planned" not in times or len(times) < 2:
        return ""
    best = min((time, plan) for plan, time in times.items() if plan != "planned")
    change = 100 * (times["planned"] / best[0] - 1)
    return f'planned {times["planned"]:.3g} ms; fastest of the others: {best[1]}, {best[0]:.3g} ms; planned takes {abs(change):.1f} % {"more" if change > 0 else "less"}'


def stages(runs, labels, constants):
    """Per group of names up to the last part (the plan): stacked bars of the stages, a line where the step was, a dashed one where it was predicted."""
    groups = {}
    for name, values in runs.items():
        head, _, plan = name.rpartition("/")
        groups.setdefault(head, []).append((plan, values, labels.get(name, head)))
    left, length, step, column = 190, 420, 18, 85
    key = "".join(f'<tspan fill="{colour}">&#9632;</tspan> {stage.removesuffix("_ms").replace("_", " ")}&#160;&#160; ' for stage, colour in STAGES.items())
    parts = [f'<p><svg xmlns="http://www.w3.org/2000/svg" width="900" height="16" font-family="sans-serif" font-size="11"><text x="0" y="12">{key}</text></svg><br>'
             "Each stage by its slowest rank, with a barrier after it. Black line: a whole step without barriers; dashed: as predicted. Beside: bytes and messages "
             "that the busiest rank sends in a step; memory of the fullest rank, and time in lookup and update of the slowest, as multiples of the mean rank's (1: even).</p>"
             f"<p>Constants of the predictions: {html.escape(constants)}. bench_sharding --calibrate measures those of this machine again.</p>"]
    for head, plans in groups.items():
        most = max(max(sum(values[s] for s in STAGES), values["time_ms"], values.get("predicted_ms", 0)) for _, values, _ in plans) or 1.0
        columns = [counter for counter in BESIDE if any(counter in values for _, values, _ in plans)]
        height, width = step * len(plans) + 40, left + length + column * len(columns) + 20
        heads = "".join(f'<text x="{left + length + column * (i + 1)}" y="32" text-anchor="end">{BESIDE[c]}</text>' for i, c in enumerate(columns))
        parts.append(f'<h3>{html.escape(plans[0][2])}</h3><p>{html.escape(verdict([(plan, values) for plan, values, _ in plans]))}</p>'
                     f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
                     f'font-family="sans-serif" font-size="11"><text x="0" y="12" fill="#888">{html.escape(head)}</text>{heads}')
        for i, (plan, values, _) in enumerate(plans):
            y, x = 36 + step * i, float(left)
            parts.append(f'<text x="{left - 6}" y="{y + 11}" text-anchor="end">{html.escape(plan)}</text>')
            for stage, colour in STAGES.items():
                width = length * values[stage] / most
                parts.append(f'<rect x="{x:.1f}" y="{y + 1}" width="{width:.1f}" height="{step - 5}" fill="{colour}"><title>{stage} {text(values[stage])}</title></rect>')
                x += width
            for value, dash in ((values["time_ms"], ""), (values.get("predicted_ms"), ' stroke-dasharray="3 2"')):
                if value is not None:
                    at = left + length * value / most
                    parts.append(f'<line x1="{at:.1f}" y1="{y}" x2="{at:.1f}" y2="{y + step - 3}" stroke="#000" stroke-width="1.5"{dash}/>')
            parts += [f'<text x="{left + length + column * (c + 1)}" y="{y + 11}" text-anchor="end">{text(values[counter])}</text>'
                      for c, counter in enumerate(columns) if counter in values]
        parts.append("</svg><br>")
    return "".join(parts)


def page(contexts, benches, labels):
    first = next(iter(contexts.values()))
    body = [f"<p>{html.escape(first['date'])}, {first['num_cpus']} processors of {first['mhz_per_cpu']} MHz. Medians. A share is of a limit that the "
            "same run measured with the same traffic; a ratio is to the peer, run in turn; the dashed line is 1, a black one what the machine's limit would give.</p>"]
    for name, runs in benches.items():
        columns, rows = table(runs)
        body.append(f"<h2>{html.escape(name)}</h2>")
        staged = {run: values for run, values in runs.items() if all(stage in values for stage in STAGES)}
        if staged:
            body.append(stages(staged, labels[name], contexts[name].get("constants", "not said by the bench, so perhaps of another machine")))
        counter = next((c for c in DRAWN if any(c in values for values in runs.values())), None)
        if counter:
            body.append(bars(runs, counter))
        head = "".join(f"<th>{html.escape(c)}</th>" for c in [""] + columns)
        lines = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        body.append(f"<details><summary>figures</summary><table><tr>{head}</tr>{lines}</table></details>")
    style = "body{font-family:sans-serif;margin:2em}td,th{padding:0 .6em;text-align:right}td:first-child{text-align:left;font-family:monospace}"
    return f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Tessera benchmarks</title><style>{style}</style><h1>Tessera benchmarks</h1>{"".join(body)}</html>\n'


def main(folder, names):
    contexts, benches, labels = {}, {}, {}
    for name in names:
        context, runs, words = load(folder / f"{name}.json")
        if runs:
            contexts[name], benches[name], labels[name] = context, runs, words
            print_table(name, runs)
    if not benches:
        sys.exit("report.py: no benchmark ran")
    (folder / "index.html").write_text(page(contexts, benches, labels))
    print(folder / "index.html")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
