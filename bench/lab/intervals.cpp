// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// How far a prediction may be off, as far as a run can tell.
#include "results.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace lab {
namespace {

/// Of so many others the least and the most ratio hold a further one with a probability of
/// (9 - 1) / (9 + 1) = 80 %, whatever they are distributed by.
constexpr std::size_t kFewest = 9;

/// What docs/cost_model.md says of constants that were measured on the machine: steps within 25 %.
constexpr double kDocumented = 0.25;

bool has_ratio(const Result& r) {
  return r.error.empty() && r.predicted_ms > 0 && r.whole_ms() > 0;
}

/// The same work but for codecs and optimizers: what misses one misses the other.
bool twins(const Case& a, const Case& b) {
  return a.ranks == b.ranks &&
         std::equal(a.layout.shards.begin(), a.layout.shards.end(), b.layout.shards.begin(),
                    b.layout.shards.end(), [](const tessera::Shard& x, const tessera::Shard& y) {
                      return x.table == y.table && x.rank == y.rank && x.tier == y.tier &&
                             x.rectangle == y.rectangle;
                    });
}

}  // namespace

void add_intervals(Report& report, bool own_constants) {
  const bool quiet = report.fixed_work.spread() <= kWide;
  for (Result& r : report.results) {
    if (!has_ratio(r)) continue;
    const bool ghosts = !r.of->ghosts.empty();
    std::vector<double> ratios;
    for (const Result& other : report.results)
      if (has_ratio(other) && ghosts == !other.of->ghosts.empty() && !twins(*r.of, *other.of))
        ratios.push_back(other.whole_ms() / other.predicted_ms);
    if (ratios.size() >= kFewest) {
      std::sort(ratios.begin(), ratios.end());
      const std::size_t out = (ratios.size() + 1) / 10;  // an end, and what is beyond it
      r.interval = {r.predicted_ms * ratios[out - 1], r.predicted_ms * ratios[ratios.size() - out],
                    Interval::From::run, ratios.size()};
    } else if (!ghosts && own_constants && quiet) {
      r.interval = {r.predicted_ms / (1 + kDocumented), r.predicted_ms / (1 - kDocumented),
                    Interval::From::documented, 0};
    }
  }
}

std::string describe(const Interval& interval, bool ghosts) {
  if (interval.from == Interval::From::run)
    return fmt::format("at least 80 %, by {} other cases of the run{}", interval.others,
                       ghosts ? ", links modelled in all of them" : "");
  return "46 to 57 of 60 steps of five models, 172 of 280 of random ones, as docs/cost_model.md "
         "has it";
}

}  // namespace lab
