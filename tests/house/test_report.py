#!/usr/bin/env python3
# SPDX-FileCopyrightText: 2026 The Tessera authors
# SPDX-License-Identifier: Apache-2.0
"""bench/report.py joins repetitions by medians, keeps names and counters, and writes a page that stands alone."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

REPORT = pathlib.Path(__file__).resolve().parents[2] / "bench" / "report.py"


def run(name, time, share, unit="us"):
    return {"name": name, "run_name": name, "run_type": "iteration", "real_time": time, "cpu_time": 1.0, "time_unit": unit, "iterations": 3,
            "repetitions": 3, "repetition_index": 0, "threads": 1, "limit_share": share}


class Report(unittest.TestCase):
    def report(self, benchmarks, *names, constants=None):
        with tempfile.TemporaryDirectory() as folder:
            context = {"date": "2026-01-02", "num_cpus": 2, "mhz_per_cpu": 3000, **({"constants": constants} if constants else {})}
            (pathlib.Path(folder) / "a.json").write_text(json.dumps({"context": context, "benchmarks": benchmarks}))
            done = subprocess.run([sys.executable, str(REPORT), folder, *names], capture_output=True, text=True)
            page = pathlib.Path(folder) / "index.html"
            return done, page.read_text() if page.exists() else ""

    def test_medians_of_repetitions(self):
        runs = [run("x/width:4/min_time:0.3/manual_time", t, s) for t, s in ((3000, 0.5), (1000, 0.9), (2000, 0.7))]
        aggregate = dict(run("x_mean", 7, 7), run_type="aggregate")
        done, page = self.report(runs + [aggregate], "a")
        self.assertEqual(done.returncode, 0, done.stderr)
        line = next(line for line in done.stdout.splitlines() if line.startswith("x/width:4"))
        self.assertEqual(line.split(), ["x/width:4", "2", "0.7"])
        self.assertIn("<svg", page)
        self.assertNotIn("http", page.replace("http://www.w3.org/2000/svg", ""))

    def test_plans_are_drawn_by_stages(self):
        stages = {"route_ms": 1, "lookup_ms": 2, "exchange_ms": 0, "assemble_ms": 3, "exchange_gradients_ms": 0, "update_ms": 4}
        runs = []
        for plan, time, scale in (("row-wise", 9.0, 1), ("a <plan>", 21.0, 2)):
            counters = {stage: scale * value for stage, value in stages.items()}
            counters.update({"predicted_ms": 8, "bytes_per_rank": 5e6, "messages_per_rank": 12, "memory_balance": 1.25, "time_balance": 1.5})
            runs.append({k: v for k, v in dict(run(f"threads/ranks:2/{plan}/iterations:1/manual_time", time, 0, "ms"), **counters,
                                               label="2 ranks: 16 <tables>, batch 8192").items() if k != "limit_share"})
        done, page = self.report(runs, "a", constants="measured on this machine <x>")
        self.assertEqual(done.returncode, 0, done.stderr)
        svg = page[page.index(">threads/ranks:2</text>"):page.index("<details>")]
        # The longest of all bars, steps and predictions is the step of 21 ms: 420 pixels. A bar's stages follow each other.
        bars = [(float(x), float(w)) for x, w in re.findall(r'<rect x="([\d.]+)" y="\d+" width="([\d.]+)"', svg)]
        self.assertEqual([w for _, w in bars], [20.0, 40.0, 0.0, 60.0, 0.0, 80.0, 40.0, 80.0, 0.0, 120.0, 0.0, 160.0])
        for bar in (bars[:6], bars[6:]):
            for (x, w), (after, _) in zip(bar, bar[1:]):
                self.assertAlmostEqual(x + w, after, delta=0.11)
        lines = [(float(x), bool(dash)) for x, dash in re.findall(r'<line x1="([\d.]+)"[^>]*?( stroke-dasharray[^>]*)?/>', svg)]
        self.assertEqual(lines, [(370.0, False), (350.0, True), (610.0, False), (350.0, True)])
        # Figures stand in columns under their names, what was run and whose constants predict in words.
        heads = re.findall(r'<text x="(\d+)" y="32" text-anchor="end">([^<]*)</text>', svg)
        self.assertEqual([head for _, head in heads], ["step, ms", "predicted, ms", "bytes sent", "messages", "fullest rank", "slowest rank"])
        self.assertEqual(re.findall(r'<text x="(?:%s)" y="47" text-anchor="end">([^<]*)</text>' % "|".join(x for x, _ in heads), svg),
                         ["9", "8", "5M", "12", "1.25", "1.5"])
        self.assertIn("<h3>2 ranks: 16 &lt;tables&gt;, batch 8192</h3>", page)
        self.assertIn("Constants of the predictions: measured on this machine &lt;x&gt;. bench_sharding --calibrate", page)
        self.assertIn("not said by the bench", self.report(runs, "a")[1])
        self.assertIn("a &lt;plan&gt;", svg)
        self.assertNotIn("http", page.replace("http://www.w3.org/2000/svg", ""))

    def test_the_planned_plan_beside_the_fastest(self):
        stages = dict.fromkeys(("route_ms", "lookup_ms", "exchange_ms", "assemble_ms", "exchange_gradients_ms", "update_ms"), 1)
        runs = [dict(run(f"threads/{plan}", time, 0, "ms"), **stages) for plan, time in (("planned", 4.2), ("rows", 4.0), ("columns", 9.0))]
        self.assertIn("planned 4.2 ms; fastest of the others: rows, 4 ms; planned takes 5.0 % more", self.report(runs, "a")[1])

    def test_a_ratio_has_its_limit_beside_it(self):
        runs = [dict(run("x", 1, 0.5), ratio=1.5, limit_ratio=3.0), dict(run("y", 1, 0.5), ratio=2.0)]
        _, page = self.report(runs, "a")
        # The longest of bars and limits has 420 pixels; the limit of x is twice its bar.
        self.assertEqual(re.findall(r'<rect x="([\d.]+)" y="\d+" width="([\d.]+)"', page), [("430", "210.0"), ("430", "280.0")])
        self.assertEqual(re.findall(r'<line x1="([\d.]+)"[^>]*><title>limit: ([\d.]+)</title>', page), [("850.0", "3")])

    def test_names_are_escaped(self):
        _, page = self.report([run("x<16>&", 1, 0.5)], "a")
        self.assertIn("x&lt;16&gt;&amp;", page)
        self.assertNotIn("x<16>", page)

    def test_nothing_ran(self):
        done, page = self.report([], "a")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("no benchmark ran", done.stderr)
        self.assertEqual(page, "")


if __name__ == "__main__":
    unittest.main()
