#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""Parquet and Arrow files, written by pyarrow, against CSV files of the same rows, which are written here without it.

    parquet.py BIN    BIN: the folder of train_dlrm, train_sequence, evaluate_model and convert_dataset

Checkpoints and folders must be equal to the last byte. Exit code 77: there is no pyarrow, or the programs were built without Arrow.
"""
import datetime
import decimal
import pathlib
import random
import subprocess
import sys
import tempfile

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    print("skipped: no pyarrow (pip install pyarrow)")
    sys.exit(77)

BIN = pathlib.Path(sys.argv[1])
ROWS = 6000
EPOCH = datetime.datetime(1970, 1, 1)
SCHEMA = """
label: clicked
numeric:
  - {name: price, transform: standardize}
  - {name: age, transform: log1p, empty: 30}
  - {name: ratio, transform: standardize}
  - {name: half, transform: standardize}
  - {name: amount, transform: standardize}
  - {name: when, transform: standardize}
categorical:
  - device
  - {name: city, rows: 64}
  - raw
  - flag
  - user
  - {name: day, rows: 50}
  - {name: tags, list: "|", pooling: mean, rows: 200}
  - {name: seen, list: "|", min_count: 2}
empty_words: [none]
"""
MODEL = "--epochs 2 --batch-size 128 --bottom-mlp 8 --top-mlp 8 --embedding-width 4 --min-count 2".split()


def check(good, *what):
    if not good:
        raise AssertionError(" ".join(str(w) for w in what))


def rows():
    """Each row as a mapping of columns to values."""
    rng = random.Random(5)
    some = lambda value: None if rng.random() < 0.1 else value
    for i in range(ROWS):
        yield {
            "clicked": int(rng.random() < 0.3),
            "price": some(rng.choice([float(rng.randrange(100)), rng.gauss(0, 1e5), rng.random() * 1e-9])),
            "age": some(rng.randrange(90)),
            "ratio": some(rng.randrange(1 << 12) / 64),
            "half": some(rng.randrange(1 << 10) / 32),
            "amount": some(decimal.Decimal(rng.randrange(-10**6, 10**6)).scaleb(-2)),
            "when": some(EPOCH + datetime.timedelta(microseconds=rng.randrange(10**16))),
            "device": some(rng.choice(["phone", "tv, old", 'say "hi"', "two\nlines", "none", "äöü", ""])),
            "city": some(f"city {rng.randrange(99)}"),
            "raw": some(f"{rng.randrange(300):04x}"),
            "flag": some(rng.random() < 0.5),
            "user": some(rng.choice([rng.randrange(40), 2**63 - 1 - rng.randrange(4), -rng.randrange(9)])),
            "day": some(datetime.date(2026, 1, 1) + datetime.timedelta(rng.randrange(60))),
            "tags": some([some(f"t {rng.randrange(300)}") for _ in range(rng.randrange(4))]),
            "seen": some([rng.randrange(10**12, 10**12 + 50) for _ in range(rng.randrange(5))]),
            "left out": {"a": i, "b": "x"},
        }


TYPES = pa.schema([
    ("left out", pa.struct([("a", pa.int64()), ("b", pa.string())])), ("price", pa.float64()), ("clicked", pa.int64()),
    ("age", pa.int8()), ("ratio", pa.float32()), ("half", pa.float16()), ("amount", pa.decimal128(9, 2)),
    ("when", pa.timestamp("us")), ("device", pa.string()), ("city", pa.dictionary(pa.int32(), pa.string())),
    ("raw", pa.binary()), ("flag", pa.bool_()), ("user", pa.int64()), ("day", pa.date32()), ("tags", pa.list_(pa.string())),
    ("seen", pa.large_list(pa.int64()))])


def text(value):
    """A field of CSV: in quotes if need be."""
    if value is None:
        return ""
    if isinstance(value, list):
        value = "|".join(map(text, value))
    elif isinstance(value, bool):
        value = int(value)
    elif isinstance(value, datetime.datetime):
        value = (value - EPOCH) // datetime.timedelta(microseconds=1)
    elif isinstance(value, datetime.date):
        value = (value - EPOCH.date()).days
    elif isinstance(value, float):
        value = repr(value).removesuffix(".0")
    value = str(value)
    return '"' + value.replace('"', '""') + '"' if any(c in value for c in ',"\n') else value


def write_csv(path, columns, all_rows):
    lines = [",".join(columns)] + [",".join(text(row[c]) for c in columns) for row in all_rows]
    path.write_text("\n".join(lines) + "\n")


def write_arrow(path, table, rows_at_a_time):
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows_at_a_time)


def run(program, *options, fails=False):
    done = subprocess.run([BIN / program, *map(str, options)], capture_output=True, text=True, timeout=120)
    if "was built without Apache Arrow" in done.stderr:
        print("skipped:", done.stderr.strip())
        sys.exit(77)
    check((done.returncode == 1) == fails and done.returncode in (0, 1), program, *options, done.stdout, done.stderr)
    return done.stderr if fails else done.stdout


def content(folder):
    files = {p.relative_to(folder): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    check(len(files) > 1, folder, "holds", files.keys())
    return files


def check_equal(a, b):
    one, two = content(a), content(b)
    check(one.keys() == two.keys(), one.keys() ^ two.keys())
    for name in one:
        check(one[name] == two[name], name, "of", a, "and", b, "differ")


def test_clicks(folder):
    all_rows = list(rows())
    table = pa.Table.from_pylist([{**row, "raw": row["raw"] and row["raw"].encode()} for row in all_rows], schema=TYPES)
    schema = folder / "schema.yaml"
    schema.write_text(SCHEMA)
    write_csv(folder / "a.csv", [c for c in TYPES.names if c != "left out"], all_rows)
    subprocess.run(["gzip", "-k", folder / "a.csv"], check=True)
    pq.write_table(table, folder / "a.parquet", row_group_size=700, compression="zstd")
    pq.write_table(table, folder / "whole.parquet", version="1.0", use_dictionary=False, data_page_size=1000)
    write_arrow(folder / "a.arrow", table, 900)
    # Windows that do not hold the file: its order is that of compressed text.
    for name in ("a.csv.gz", "a.parquet", "whole.parquet", "a.arrow"):
        run("train_dlrm", "--data", folder / name, "--schema", schema, *MODEL, "--shuffle-window", 2048, "--save", folder / f"of {name}")
        check_equal(folder / "of a.csv.gz", folder / f"of {name}")
    # All of the file in memory: that of text.
    for name in ("a.csv", "a.parquet"):
        run("train_dlrm", "--data", folder / name, "--schema", schema, *MODEL, "--ranks", 2, "--save",
            folder / f"large {name}")
    check_equal(folder / "large a.csv", folder / "large a.parquet")
    check(content(folder / "of a.parquet") != content(folder / "large a.parquet"))
    for name in ("a.csv", "a.parquet"):
        run("convert_dataset", "to-binary", folder / name, folder / f"binary {name}", "--schema", schema)
    check_equal(folder / "binary a.csv", folder / "binary a.parquet")
    return all_rows


def test_predictions(folder, all_rows):
    model = folder / "of a.parquet"
    base = ["predict", "--checkpoint", model, "--keep", "user,device"]
    run("evaluate_model", *base, "--data", folder / "a.csv", "--out", folder / "p.csv")
    run("evaluate_model", *base, "--data", folder / "a.parquet", "--out", folder / "q.csv")
    check((folder / "p.csv").read_bytes() == (folder / "q.csv").read_bytes())
    run("evaluate_model", *base, "--data", folder / "a.arrow", "--out", folder / "p.parquet")
    run("evaluate_model", *base[:3], "--data", folder / "a.parquet", "--out", folder / "p.npy")
    table = pq.read_table(folder / "p.parquet")
    check(table.schema.names == ["user", "device", "prediction"] and table.schema.types == [pa.string()] * 2 + [pa.float32()], table.schema)
    numbers = (folder / "p.npy").read_bytes()[-4 * ROWS:]
    check(table["prediction"].combine_chunks().buffers()[1].to_pybytes()[:4 * ROWS] == numbers, "the same floats")
    check(table["device"].to_pylist() == [row["device"] or "" for row in all_rows])
    check(table["user"].to_pylist() == [text(row["user"]) for row in all_rows])
    accuracy = lambda name: run("evaluate_model", "accuracy", "--checkpoint", model, "--data", folder / name, "--label", "clicked")
    check(accuracy("a.csv") == accuracy("a.parquet"))
    said = run("evaluate_model", "accuracy", "--checkpoint", model, "--data", folder / "a.parquet", fails=True)
    check("--label" in said, said)


def test_histories(folder):
    rng = random.Random(6)
    events = [{"user": rng.randrange(60), "item": f"film {rng.randrange(80)}", "timestamp": rng.randrange(10**9),
               "rating": rng.randrange(11) / 10} for _ in range(2500)]
    write_csv(folder / "h.csv", list(events[0]), events)
    types = pa.schema([("user", pa.int32()), ("item", pa.string()), ("timestamp", pa.timestamp("ms")), ("rating", pa.float32())])
    pq.write_table(pa.Table.from_pylist(events, schema=types), folder / "h.parquet", row_group_size=1000)
    for name in ("h.csv", "h.parquet"):
        run("train_sequence", "--data", folder / name, "--label-column", "rating", "--epochs", 1, "--width", 16, "--heads", 1, "--save",
            folder / f"of {name}")
    check_equal(folder / "of h.csv", folder / "of h.parquet")


def test_refusals(folder):
    schema = folder / "small.yaml"
    schema.write_text("label: y\nnumeric: [x]\ncategorical: [c, {name: l, list: '|'}]\n")

    def refused(*words, skip=(), **columns):
        good = {"y": pa.array([0, 1, 1]), "x": pa.array([1.5, None, 2]), "c": pa.array(["a", "b", None]), "l": pa.array([[1], None, [2]])}
        file = folder / "bad.parquet"
        pq.write_table(pa.table({name: values for name, values in (good | columns).items() if values is not None}), file)
        said = run("train_dlrm", "--data", file, "--schema", schema, *MODEL, *skip, fails=True)
        check(said.count("\n") == 1 and all(word in said for word in (str(file), *words)), said, words)

    refused("column 'c'", "struct<a: int64>", c=pa.array([{"a": 1}] * 3))
    refused("column 'c'", "map<string, int64", c=pa.array([[("a", 1)]] * 3, pa.map_(pa.string(), pa.int64())))
    refused("column 'l'", "list<element: list<element: int64>>", l=pa.array([[[1]]] * 3))
    refused("column 'x'", "list<element: double>", "single value", x=pa.array([[1.0]] * 3))
    refused("column 'c'", "list<element: int64>", "'list'", c=pa.array([[1]] * 3))
    refused("row 3, column 'l'", "'a|b'", l=pa.array([["a"], None, ["x", "a|b"]]))
    refused("row 2, column 'x'", "'old'", x=pa.array(["1", "old", "2"]))
    refused("row 1, column 'x'", "'inf'", x=pa.array([float("inf"), 1, 2]))
    refused("row 3, column 'y'", "no label", y=pa.array([0, 1, None]))
    refused("there is no column 'x'", "'c', 'l'", x=None)
    refused("no samples", y=pa.array([], pa.int64()), x=pa.array([], pa.float64()), c=pa.array([], pa.string()),
            l=pa.array([], pa.list_(pa.int64())))
    whole = (folder / "a.parquet").read_bytes()
    for name, data in (("cut", whole[:len(whole) // 2]), ("flipped", whole[:3000] + bytes(3000) + whole[6000:]), ("mark", b"PAR1\0\0\0\0")):
        (folder / name).write_bytes(data)
        said = run("train_dlrm", "--data", folder / name, "--schema", folder / "schema.yaml", *MODEL, fails=True)
        check(str(folder / name) in said and "damaged" in said, said)
    # Damage anywhere: a sentence with the file's name, or a result, as not every byte is one of the rows that are read.
    rng, refusals = random.Random(8), 0
    few = pa.table({"y": [0, 1] * 150, "x": [0.5 * i for i in range(300)], "c": [str(i % 7) for i in range(300)], "l": [[i % 3, i % 5] for i in range(300)]})
    pq.write_table(few, folder / "few.parquet", row_group_size=100, compression="zstd")
    write_arrow(folder / "few.arrow", few, 100)
    for kind in ("parquet", "arrow"):
        whole, bad = (folder / f"few.{kind}").read_bytes(), folder / f"damaged.{kind}"
        for _ in range(60):
            data = bytearray(whole)
            for _ in range(rng.choice((1, 3, 30))):
                data[rng.randrange(len(data))] = rng.randrange(256)
            bad.write_bytes(data[:rng.choice((len(data), rng.randrange(len(data))))])
            done = subprocess.run([BIN / "train_dlrm", "--data", bad, "--schema", schema, *MODEL, "--ranks", "1"], capture_output=True, text=True, timeout=60)
            check(done.returncode in (0, 1), done.returncode, done.stderr)
            check(done.returncode == 0 or (done.stderr.count("\n") == 1 and str(bad) in done.stderr), done.stderr)
            refusals += done.returncode
    check(60 < refusals < 120, refusals)
    said = run("train_dlrm", "--data", folder / "a.parquet", fails=True)
    check("--schema" in said, said)
    said = run("train_sequence", "--data", folder / "a.parquet", "--user-column", "left out", "--item-column", "city", "--time-column", "when", fails=True)
    check("'left out'" in said and "struct<a: int64, b: string>" in said, said)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        test_predictions(folder, test_clicks(folder))
        test_histories(folder)
        test_refusals(folder)
    print("Parquet and Arrow give what CSV gives")


main()
