#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Writes C++ programs for the golden cases of a directory: a case is a model configuration, and those are compile-time constants. A program
has up to UNIT cases of a kind, most of whose code is the same; cases.txt says which program has a case.

usage: generate.py CASES_DIRECTORY OUTPUT_DIRECTORY
"""
import json
import pathlib
import struct
import sys

UNIT = 5
ROWWISE_ADAGRADS = {"none": "RowWiseAdagrad", "l2": "RowWiseAdagradL2", "decoupled": "RowWiseAdagradDecoupled"}
OPTIMIZERS = {  # the type, and the constants it has
    "sgd": lambda o: ("Sgd", ()),
    "momentum": lambda o: ("Momentum", ("momentum",)),
    "adagrad": lambda o: ("Adagrad", ("eps", "initial_accumulator")),
    "rowwise_adagrad": lambda o: (ROWWISE_ADAGRADS[o.get("weight_decay_mode", "none")], ("eps", "initial_accumulator", "weight_decay")),
    "adam": lambda o: ("Adam", ("beta1", "beta2", "eps")),
    "adamw": lambda o: ("AdamW", ("beta1", "beta2", "eps", "weight_decay")),
    "partial_rowwise_adam": lambda o: ("PartialRowWiseAdam", ("beta1", "beta2", "eps", "weight_decay")),
    "ftrl": lambda o: ("Ftrl", ("beta", "l1", "l2", "initial_accumulator")),
}


def optimizer_value(o):
    """The C++ expression that makes an optimizer."""
    name, constants = OPTIMIZERS[o["kind"]](o)
    members = ", ".join(f".{'epsilon' if c == 'eps' else c} = {number(o[c])}" for c in constants if c in o)
    return f"ts::{name}{{{members}}}"


def number(x):
    return f"{float(x)!r}f"


def text(s):
    return json.dumps(s)


def read_case(path):
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        return json.loads(json.loads(file.read(size))["__metadata__"]["case"])


def divisor(width):
    """The smallest number of column parts above one, or one column each."""
    return next((k for k in range(2, width + 1) if width % k == 0), 1)


class Source:
    """Collects the table arrays that plans refer to."""

    def __init__(self, tables):
        self.tables = tables
        self.arrays = []

    def array(self, indices):
        name = f"kTables{len(self.arrays)}"
        specs = ", ".join(f"ts::TableSpec{{{text(t['name'])}, {t['rows']}, {t['width']}}}" for t in (self.tables[i] for i in indices))
        self.arrays.append(f"constexpr std::array<ts::TableSpec, {len(indices)}> {name}{{{specs}}};")
        return f"ts::Tables<{name}>"

    def entry(self, policy, indices):
        """Plan entries that cut the given tables by one policy."""
        if not indices:
            return []
        if policy in ("column-wise", "grid", "columns"):
            parts = {}
            for i in indices:
                width = self.tables[i]["width"]
                parts.setdefault(width if policy == "columns" else divisor(width), []).append(i)
            template = "ts::Grid" if policy == "grid" else "ts::ColumnWise"
            return [f"{template}<{k}, {self.array(of_k)}>" for k, of_k in parts.items()]
        tables = self.array(indices)
        return [{
            "table-wise": f"ts::TableWise<{tables}>",
            "fused": f"ts::TableWise<ts::Fused<{tables}>>",
            "row-wise": f"ts::RowWise<{tables}>",
            "row-wise-uneven": f"ts::RowWise<ts::Shares<3, 0, 1>, {tables}>",
            "replicated": f"ts::Replicated<{tables}>",
        }[policy]]

    def plans(self, features):
        everything = list(range(len(self.tables)))
        policies = ["table-wise", "fused", "column-wise", "row-wise", "row-wise-uneven", "grid", "replicated"]
        if max(t["width"] for t in self.tables) <= 16:
            policies.append("columns")
        named = [(policy, self.entry(policy, everything)) for policy in policies]
        mixed = []
        for n, policy in enumerate(["row-wise", "column-wise", "table-wise", "replicated", "grid"]):
            mixed += self.entry(policy, [i for i in everything if i % 5 == n])
        named.append(("mixed", mixed))
        return ",\n    ".join(f"golden::Named<{text(name)}, ts::Plan<{', '.join(entries)}, {features}>>" for name, entries in named)


def embedding(case):
    source = Source(case["tables"])
    features = ", ".join(
        f"ts::FeatureSpec{{{text(f['name'])}, {text(f['table'])}, ts::Pooling::{f['pooling']}, {str(f.get('weighted', False)).lower()}}}"
        for f in case["features"])
    plans = source.plans("ts::Features<ts::FeatureArray<kFeatures>>")
    optimizer = case["optimizer"]
    return f"""{chr(10).join(source.arrays)}
constexpr std::array<ts::FeatureSpec, {len(case['features'])}> kFeatures{{{features}}};
using Plans = golden::PlanList<
    {plans}>;

int run(int argc, char** argv) {{
  return golden::run_embedding<Plans>(argc, argv, {optimizer_value(optimizer)}, {number(optimizer['lr'])}, {case['batch']}, {case['steps']});
}}
"""


def accumulate(case):
    source = Source(case["tables"])
    features = ", ".join(f"ts::FeatureSpec{{{text(f['name'])}, {text(f['table'])}, ts::Pooling::{f['pooling']}}}" for f in case["features"])
    plans = source.plans("ts::Features<ts::FeatureArray<kFeatures>>")
    clip = case["clip"] or {"kind": "global_norm", "max": float("inf")}
    maximum = "" if clip["max"] == float("inf") else number(clip["max"])
    clip_value = f"ts::{'ClipByValue' if clip['kind'] == 'value' else 'ClipByGlobalNorm'}{{{maximum}}}"
    return f"""{chr(10).join(source.arrays)}
constexpr std::array<ts::FeatureSpec, {len(case['features'])}> kFeatures{{{features}}};
using Plans = golden::PlanList<
    {plans}>;

int run(int argc, char** argv) {{
  return golden::run_accumulate<Plans>(argc, argv, {optimizer_value(case['optimizer'])}, {number(case['optimizer']['lr'])}, {clip_value},
      {{{', '.join(map(str, case['micro_batches']))}}}, {case['applies']});
}}
"""


def groups(case):
    source = Source(case["tables"])
    features = ", ".join(f"ts::FeatureSpec{{{text(f['name'])}, {text(f['table'])}, ts::Pooling::{f['pooling']}}}" for f in case["features"])
    plans = source.plans("ts::Features<ts::FeatureArray<kFeatures>>")
    types, values = [], []
    for table in case["tables"]:
        o = table["optimizer"]
        of_table = f"ts::Table<{text(table['name'])}, {table['rows']}, {table['width']}>"
        frozen = o["kind"] == "frozen"
        types.append(f"ts::Frozen<{of_table}>" if frozen else f"ts::Train<ts::{OPTIMIZERS[o['kind']](o)[0]}, {of_table}>")
        values.append("{}" if frozen else f"{{{optimizer_value(o)}, {number(o['lr'])}}}")
    names = ", ".join(text(t["name"]) for t in case["tables"])
    return f"""{chr(10).join(source.arrays)}
constexpr std::array<ts::FeatureSpec, {len(case['features'])}> kFeatures{{{features}}};
using Plans = golden::PlanList<
    {plans}>;

int run(int argc, char** argv) {{
  const ts::TrainingGroups<{', '.join(types)}> training{{{{{', '.join(f"ts::GroupOptions<{t}>{v}" for t, v in zip(types, values))}}}}};
  return golden::run_groups<Plans>(argc, argv, training, {{{{{names}}}, {case['batch']}, {case['steps']}}});
}}
"""


def model(case):
    tables = case["tables"]
    source = Source(tables)
    features = ", ".join(f"ts::FeatureSpec{{{text(t['name'])}, {text(t['name'])}}}" for t in tables)
    plans = source.plans("ts::Features<ts::FeatureArray<kFeatures>>")
    bottom, top = case["bottom_mlp"], case["top_mlp"]
    columns = bottom[-1] + sum(t["width"] for t in tables)
    if case["kind"] == "dlrm":
        interaction = f"golden::Dot<{len(tables) + 1}, {bottom[-1]}>"
    else:
        interaction = f"golden::Cross<{columns}, {case['cross']['layers']}, {case['cross'].get('rank') or 0}>"
    losses = ", ".join(repr(x) for x in case["losses"])
    return f"""{chr(10).join(source.arrays)}
constexpr std::array<ts::FeatureSpec, {len(tables)}> kFeatures{{{features}}};
using Plans = golden::PlanList<
    {plans}>;

int run(int argc, char** argv) {{
  return golden::run_model<Plans, {interaction}>(argc, argv, {{.batch = {case['batch']}, .dense = {case['dense_features']},
      .bottom = {{{', '.join(map(str, bottom))}}}, .top = {{{', '.join(map(str, top))}}}, .learning_rate = {number(case['lr'])},
      .losses = {{{losses}}}}});
}}
"""


def doubles(values):
    return "{" + ", ".join("golden::kUndefined" if v is None else repr(float(v)) for v in values) + "}"


def schedule_value(s):
    """The C++ expression that makes a schedule."""
    rate = float(s.get("rate", 0))
    if s["kind"] == "constant":
        return f"ts::Schedule::constant({rate!r})"
    if s["kind"] == "warmup":
        return f"ts::Schedule::warmup({rate!r}, {s['warmup_steps']})"
    if s["kind"] == "polynomial":
        return (f"ts::Schedule::polynomial({{.rate = {rate!r}, .warmup_steps = {s['warmup_steps']}, .decay_start_step = {s['decay_start_step']}, "
                f".decay_steps = {s['decay_steps']}, .power = {float(s['power'])!r}, .end_rate = {float(s['end_rate'])!r}}})")
    if s["kind"] == "cosine":
        return f"ts::Schedule::cosine({rate!r}, {s['decay_steps']}, {float(s['end_rate'])!r})"
    if s["kind"] == "inverse_sqrt":
        return f"ts::Schedule::inverse_sqrt({rate!r}, {s['warmup_steps']})"
    if s["kind"] == "step_decay":
        every = "{" + ", ".join(map(str, s["milestones"])) + "}" if "milestones" in s else s["every"]
        return f"ts::Schedule::step_decay({rate!r}, {every}, {float(s['factor'])!r})"
    stages = ", ".join(f"{{{stage['steps']}, {schedule_value(stage['schedule'])}}}" for stage in s["stages"][:-1])
    return f"ts::Schedule::chain({{{stages}}}, {schedule_value(s['stages'][-1]['schedule'])})"


def schedule(case):
    cases = ",\n      ".join(f"{{{text(s['name'])}, {schedule_value(s['schedule'])}, {doubles(s['rates'])}}}" for s in case["schedules"])
    return f"int run(int argc, char** argv) {{\n  return golden::run_schedules(argc, argv, {{\n      {cases}}});\n}}\n"


def auc(case):
    sets = ",\n      ".join(
        f"{{{text(s['name'])}, {', '.join(f'golden::Expected{doubles([s[k]])}' if k in s else 'std::nullopt' for k in ('auc', 'binned_auc', 'log_loss', 'normalized_entropy'))}}}"
        for s in case["sets"])
    return f"int run(int argc, char** argv) {{\n  return golden::run_metrics(argc, argv, {case['thresholds']}, {{\n      {sets}}});\n}}\n"


def quantized(case):
    return f"int run(int argc, char** argv) {{ return golden::run_quantized(argc, argv, {case['width']}); }}\n"


def hstu(case):
    options = ", ".join([f".max_length = {case['max_seq_len']}", f".alpha = {number(case['alpha'])}", f".norm_epsilon = {number(case['norm_eps'])}",
                         f".silu_all = {'true' if case['silu'] == 'uvqk' else 'false'}", f".concat_ux = {'true' if case['concat_ux'] else 'false'}",
                         f".attention_window = {case['max_attn_len'] or 0}"])
    return (f"int run(int argc, char** argv) {{\n  return golden::run_hstu<{case['heads']}, {case['attention_dim']}, {case['hidden_dim']}>(argc, argv, {case['width']}, {{{options}}});\n}}\n")


WRITERS = {"embedding": embedding, "accumulate": accumulate, "groups": groups, "model": model, "schedule": schedule, "auc": auc, "quantized": quantized, "hstu": hstu}  # kinds of programs; <kind>_case.hpp runs them
POOLINGS = ("sum", "mean", "max", "none")


def program_kind(case):
    """Which kind of program runs a case; None: the library cannot do yet what the case asks for."""
    kind = case["kind"]
    if kind in ("embedding", "accumulate"):
        if any(f["pooling"] not in POOLINGS for f in case["features"]):
            return None
        optimizers = [case.get("optimizer")] if "optimizer" in case else [t["optimizer"] for t in case["tables"]]
        if kind == "embedding" and "optimizer" not in case:
            return "groups" if all(o["kind"] in OPTIMIZERS or o["kind"] == "frozen" for o in optimizers) else None
        return kind if all(o["kind"] in OPTIMIZERS for o in optimizers) else None
    return "model" if kind in ("dlrm", "dcnv2") else kind if kind in WRITERS else None


def unit(kind, cases):
    """A program of several cases, which is told by its first argument which of them to run."""
    bodies = "\n".join(f"namespace case_{n} {{\n{WRITERS[kind](case)}}}\n" for n, (_, case) in enumerate(cases))
    choices = ", ".join(f"{{{text(path.stem)}, &case_{n}::run}}" for n, (path, _) in enumerate(cases))
    return f"""#include <golden/{kind}_case.hpp>

#include <golden/choose_case.hpp>

namespace ts = tessera;
namespace {{
{bodies}}}  // namespace

int main(int argc, char** argv) {{ return golden::choose_case({{{choices}}}, argc, argv); }}
"""


def main(cases, output):
    output.mkdir(parents=True, exist_ok=True)
    kinds = {kind: [] for kind in WRITERS}
    later = []
    for path in sorted(cases.glob("*.safetensors")):
        case = read_case(path)
        if kind := program_kind(case):
            kinds[kind].append((path, case))
        else:
            later.append(path.stem)
    if not any(kinds.values()):
        sys.exit(f"{cases}: no *.safetensors case that can be run")
    contents, programs = {}, []
    for kind, found in kinds.items():
        for begin in range(0, len(found), UNIT):
            name = f"{kind}__{begin // UNIT}"
            contents[f"{name}.cpp"] = unit(kind, found[begin:begin + UNIT])
            programs += [f"{name} {path.stem}" for path, _ in found[begin:begin + UNIT]]
    contents["cases.txt"] = "\n".join(programs) + "\n"
    contents["later.txt"] = "".join(f"{name}\n" for name in later)
    for name, content in contents.items():
        target = output / name
        if not target.exists() or target.read_text() != content:  # an unchanged source is not compiled again
            target.write_text(content)
    for stale in output.glob("*.cpp"):
        if stale.name not in contents:
            stale.unlink()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
