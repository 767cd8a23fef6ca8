// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Three plans of the same tables: each measured on thread ranks, beside what the cost model predicts.
//   compare_plans [RANKS] [PICTURE.svg]
// [program]
#include "support/files.hpp"
#include "tessera_plan/picture.hpp"

#include <tessera/measure.hpp>
#include <tessera/planner.hpp>

#include <fmt/format.h>

#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

namespace ts = tessera;
using Query = ts::Table<"query", 40000, 32>;  // name, rows, width
using User = ts::Table<"user", 10000, 32>;
using Country = ts::Table<"country", 250, 16>;
using ByTables = ts::Plan<ts::TableWise<Query>, ts::TableWise<User>, ts::TableWise<Country>>;
using ByRows = ts::Plan<ts::RowWise<Query>, ts::RowWise<User>, ts::RowWise<Country>>;
using Planned = ts::AutoPlan<ts::TableList<Query, User, Country>, ts::cpu_host(2, 2),
                             ts::Workload{.batch = 2048, .skew = 0}>;

int main(int count, char** arguments) try {
  const int ranks = count > 1 ? std::atoi(arguments[1]) : 2, samples = 2048;
  std::vector<std::vector<int>> ids(4);  // of a batch: the samples' queries, users, countries
  std::vector<ts::KeyedJagged<int>> batches;
  for (int b = 0; b < 4; ++b) {
    for (const int rows : {40000, 10000, 250})
      for (int s = 0; s < samples; ++s) ids[b].push_back((b * samples + s) * 7919 % rows);
    batches.push_back({3, samples, ids[b], {}, {}});
  }
  ts::MeasureOptions<ts::Adagrad> options;
  options.workload.skew = 0;
  options.names = {"by tables", "by rows", "planned"};
  const auto plans = ts::measure_plans<ByTables, ByRows, Planned>(batches, ranks, options);
  fmt::print("{}", ts::describe_plans(plans));

  std::string body;
  double y = 0;
  for (const ts::MeasuredPlan& p : plans) {
    const std::string title = fmt::format("{}: {:.3f} ms", p.name, 1e3 * p.measured.step_seconds);
    const auto picture = plan::plan_fragment(p.layout, p.workload.memory, title);
    body += fmt::format("<g transform=\"translate(0,{})\">{}</g>\n", y, picture.svg);
    y += picture.height + 12;
  }
  if (count > 2) support::ResultFile(arguments[2], "PICTURE").write(plan::svg(body, y));
} catch (const std::exception& error) {
  fmt::print(stderr, "compare_plans: {}\n", error.what());
  return 1;
}
// [program end]
