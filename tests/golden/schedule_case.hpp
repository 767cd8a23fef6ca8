// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "compare.hpp"

#include <tessera/optimizer/schedule.hpp>

#include <fmt/format.h>

#include <string>
#include <vector>

namespace golden {

struct ScheduleCase {
  std::string name;
  ts::Schedule schedule;
  std::vector<double> rates;
};

/// Rates in double against the case's texts of 17 digits.
inline int run_schedules(int argc, char** argv, const std::vector<ScheduleCase>& cases) {
  if (argc < 2) return 2;
  const ts::SafetensorsReader file(argv[1]);
  Tally tally;
  for (const ScheduleCase& c : cases)
    tally.run(c.name, [&](Verdict& verdict) {
      const std::vector<std::int64_t> steps = integers(file, c.name + ".steps");
      if (steps.size() != c.rates.size() || steps.empty())
        return verdict.fail(fmt::format("{} steps, {} rates", steps.size(), c.rates.size()));
      for (std::size_t i = 0; i < steps.size(); ++i)
        if (const double found = c.schedule.rate(steps[i]);
            !(std::abs(found - c.rates[i]) <= 1e-12 * std::abs(c.rates[i])))
          return verdict.fail(
              fmt::format("step {}: {:.17g}, expected {:.17g}", steps[i], found, c.rates[i]));
    });
  return tally.finish();
}

}  // namespace golden
