#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Writes C++ programs for the golden cases of a directory: a case is a model configuration, and those are compile-time constants. A program
has up to UNIT cases of a kind, most of whose code is the same; cases.txt says which program has a case.

usage: generate.py CASES_DIRECTORY OUTPUT_DIRECTORY
"""
import json
import pathlib
import re
import struct
import sys

UNIT = 5
NEWLINE = "\n"
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


def features_array(features):
    """The array that plans take features from: of cases' own, or of one feature for each table."""
    specs = ", ".join(f"ts::FeatureSpec{{{text(f['name'])}, {text(f['table'])}, ts::Pooling::{f['pooling']}, {str(f['weighted']).lower()}}}" for f in features)
    return f"constexpr std::array<ts::FeatureSpec, {len(features)}> kFeatures{{{specs}}};"


def feature_per_table(tables):
    return [{"name": t["name"], "table": t["name"], "pooling": "sum", "weighted": False} for t in tables]


def program(tables, features, run):
    """Plans, and what runs them: `run` as C++ text."""
    source = Source(tables)
    plans = source.plans("ts::Features<ts::FeatureArray<kFeatures>>")
    return f"""{NEWLINE.join(source.arrays)}
{features_array(features)}
using Plans = golden::PlanList<
    {plans}>;

int run(int argc, char** argv) {{
{run}}}
"""


def groups(options):
    """The C++ expression of training groups; `options`: an optimizer and the entries it is for, as C++ text, of each."""
    types, values = [], []
    for o, entries in options:
        frozen = o["kind"] == "frozen"
        rate = number(o.get("lr", 0))
        types.append(f"ts::Frozen<{entries}>" if frozen else f"ts::Train<{', '.join(filter(None, ['ts::' + OPTIMIZERS[o['kind']](o)[0], entries]))}>")
        values.append(f"ts::GroupOptions<{types[-1]}>{{{'' if frozen else f'{optimizer_value(o)}, {rate}'}}}")
    return f"ts::TrainingGroups<{', '.join(types)}>", f"{{{{{', '.join(values)}}}}}"


def tables(case):
    """Cases of kinds `embedding` and `accumulate`, with any features and optimizers."""
    accumulates = case["kind"] == "accumulate"
    clip = "ts::KeepGradients{}"
    if accumulates:
        given = case["clip"] or {"kind": "global_norm", "max": float("inf")}
        clip = f"{CLIPS[given['kind']]}{{{'' if given['max'] == float('inf') else number(given['max'])}}}"
        steps = [[(f"apply{a}.micro{m}.", n) for m, n in enumerate(case["micro_batches"])] for a in range(case["applies"])]
    else:
        steps = [[(f"step{k}.", case["batch"])] for k in range(case["steps"])]
    steps = ", ".join("{" + ", ".join(f"{{{text(prefix)}, {n}}}" for prefix, n in step) + "}" for step in steps)
    names = ""
    if "optimizer" in case:
        kind, value, rate = f"ts::{OPTIMIZERS[case['optimizer']['kind']](case['optimizer'])[0]}", optimizer_value(case["optimizer"]), number(case["optimizer"]["lr"])
    else:
        kind, value = groups([(t["optimizer"], f"ts::Table<{text(t['name'])}, {t['rows']}, {t['width']}>") for t in case["tables"]])
        names, rate = ", ".join(text(t["name"]) for t in case["tables"]), "0"
    return program(case["tables"], case["features"], f"""  using Case = golden::TablesCase<{kind}, decltype({clip})>;
  return golden::run_tables<Plans>(argc, argv, Case{{{value}, {rate}, {{{names}}}, {{{steps}}}, {str(accumulates).lower()}, {clip}}});
""")


def model(case):
    tables = case["tables"]
    bottom, top = case["bottom_mlp"], case["top_mlp"]
    columns = bottom[-1] + sum(t["width"] for t in tables)
    if case["kind"] == "dlrm":
        interaction = f"golden::Dot<{len(tables) + 1}, {bottom[-1]}>"
    else:
        interaction = f"golden::Cross<{columns}, {case['cross']['layers']}, {case['cross'].get('rank') or 0}>"
    losses = ", ".join(repr(x) for x in case["losses"])
    return program(tables, feature_per_table(tables), f"""  return golden::run_model<Plans, {interaction}>(argc, argv, {{.batch = {case['batch']}, .dense = {case['dense_features']},
      .bottom = {{{', '.join(map(str, bottom))}}}, .top = {{{', '.join(map(str, top))}}}, .learning_rate = {number(case['lr'])},
      .losses = {{{losses}}}}});
""")


def wide_deep(case):
    tables = [{"name": f"wide.{f['name']}", "rows": f["rows"], "width": 1} for f in case["features"]]
    tables += [{"name": f"deep.{f['name']}", "rows": f["rows"], "width": f["deep_width"]} for f in case["features"] if f["deep_width"] > 0]
    kind, value = groups([(case["wide_optimizer"], ""), (case["deep_optimizer"], "")])
    return program(tables, feature_per_table(tables), f"""  const {kind} training{value};
  return golden::run_wide_deep<Plans>(argc, argv, training, {{.batch = {case['batch']}, .dense = {case['dense_features']},
      .mlp = {{{', '.join(map(str, case['mlp']))}}}, .mlp_rate = {number(case['mlp_optimizer']['lr'])}, .losses = {doubles(case['losses'])}}});
""")


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


WRITERS = {"tables": tables, "model": model, "schedule": schedule, "auc": auc, "quantized": quantized, "hstu": hstu,
           "wide_deep": wide_deep}  # kinds of programs; <kind>_case.hpp runs them
PROGRAMS = {"embedding": "tables", "accumulate": "tables", "dlrm": "model", "dcnv2": "model"}  # of other kinds of cases, the same
# All that a case may say, by types of its objects; the readers of tests/gpu have the same.
KNOWN = json.loads(re.search(r'R"\((.*?)\)";', (pathlib.Path(__file__).parent / "known_keys.hpp").read_text(), re.S)[1])
POOLINGS = ("sum", "mean", "max", "none")
CLIPS = {"global_norm": "ts::ClipByGlobalNorm", "value": "ts::ClipByValue"}


class Unknown(Exception):
    """A case says something that this reader does not know: it is refused, as its numbers would be compared with others."""


def known(what, given, type_name="case"):
    """Raises Unknown if the object, or one below it, says what its type does not have."""
    kinds = KNOWN[type_name]
    kind = "" if "" in kinds else given["kind"]
    one_of(f"{what}: kind", kind, kinds)
    for key, value in given.items():
        if key not in kinds[kind] and not (kind and key == "kind"):
            raise Unknown(f"{what} has '{key}', which is not known here")
        below = kinds[kind].get(key)
        for v in (value if isinstance(value, list) else [value]) if below and value is not None else ():
            known(f"{what}, {below} '{v.get('name', v.get('kind', ''))}'", v, below)


def one_of(what, given, names):
    if given not in names:
        raise Unknown(f"{what} is '{given}'; known are {', '.join(names)}")


def check_optimizer(what, o):
    if o["kind"] == "rowwise_adagrad":
        one_of(f"{what}: weight_decay_mode", o.get("weight_decay_mode", "none"), ROWWISE_ADAGRADS)
        if o.get("weight_decay", 0) != 0 and o.get("weight_decay_mode", "none") == "none":
            raise Unknown(f"{what} has a weight_decay, and no weight_decay_mode")


def check_schedule(what, s):
    if "every" in s and "milestones" in s:
        raise Unknown(f"{what} has both 'every' and 'milestones'")
    for stage in s.get("stages", ()):
        if ("steps" in stage) == (stage is s["stages"][-1]):
            raise Unknown(f"{what}: all stages but the last have 'steps'")
        check_schedule(what, stage["schedule"])


def check(case):
    """Raises Unknown for all that the writers would pass over."""
    kind = case["kind"]
    known("the case", case)
    for s in case.get("schedules", ()):
        check_schedule(f"schedule '{s['name']}'", s["schedule"])
    for o in ("wide_optimizer", "deep_optimizer", "mlp_optimizer"):
        if kind == "wide_deep":
            check_optimizer(o, case[o])
    if kind == "wide_deep":
        return one_of("mlp_optimizer: kind", case["mlp_optimizer"]["kind"], ("sgd",))
    if PROGRAMS.get(kind) != "tables":
        return
    own = [t for t in case["tables"] if "optimizer" in t]
    if len(own) != (0 if "optimizer" in case else len(case["tables"])):
        raise Unknown("there is neither one optimizer for all tables, nor one of each")
    if "optimizer" in case:
        check_optimizer("the optimizer", case["optimizer"])
        one_of("the optimizer: kind", case["optimizer"]["kind"], OPTIMIZERS)
    for t in own:
        check_optimizer(f"the optimizer of table '{t['name']}'", t["optimizer"])
    for f in case["features"]:
        one_of(f"feature '{f['name']}': pooling", f["pooling"], POOLINGS)
        f.setdefault("weighted", False)


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
    refused = []
    for path in sorted(cases.glob("*.safetensors")):
        case = read_case(path)
        try:
            check(case)
            kinds[PROGRAMS.get(case["kind"], case["kind"])].append((path, case))
        except Unknown as why:
            refused.append(f"{path.stem} {why}")
    if not any(kinds.values()):
        sys.exit(f"{cases}: no *.safetensors case that can be run")
    contents, programs = {}, []
    for kind, found in kinds.items():
        for begin in range(0, len(found), UNIT):
            name = f"{kind}__{begin // UNIT}"
            contents[f"{name}.cpp"] = unit(kind, found[begin:begin + UNIT])
            programs += [f"{name} {path.stem}" for path, _ in found[begin:begin + UNIT]]
    contents["cases.txt"] = "\n".join(programs) + "\n"
    contents["refused.txt"] = "".join(f"{line}\n" for line in refused)
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
