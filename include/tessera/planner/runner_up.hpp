// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/planner/cost.hpp>
#include <tessera/planner/cut_options.hpp>
#include <tessera/planner/strategies.hpp>

#include <tessera/core/format.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Returns "5.183", or "0.0124": milliseconds with three digits after the point, or as many as a
/// short time needs. Below a nanosecond: "0".
inline std::string milliseconds_text(double seconds) {
  const double ms = 1e3 * seconds, size = ms < 0 ? -ms : ms;
  if (size < 1e-6) return "0";
  int digits = 3;
  for (double least = 0.1; size < least && digits < 6; least /= 10) ++digits;
  return formatted("{:.{}f}", ms, digits);
}

/// The fastest plain strategy, in the model, that the constraints allow and that has other
/// rectangles than a plan; pinned tables are cut as the plan cuts them. `seconds` is negative where
/// there is none.
struct RunnerUp {
  std::string_view name{};
  double seconds = -1;
};

/// Returns whether a plan fits what the cluster's ranks have, less the reserve. 0: no limit.
inline bool fits_cluster(const Prediction& p, const Cluster& cluster, std::int64_t reserve) {
  const auto fits = [](std::int64_t bytes, std::int64_t memory, std::int64_t less) {
    return memory == 0 || bytes <= memory - less;
  };
  return fits(p.most_bytes(), cluster.memory_per_rank, reserve) &&
         fits(p.most_host_bytes(), cluster.host_memory_per_rank, 0) &&
         fits(p.most_file_bytes(), cluster.file_memory_per_rank, 0);
}

/// Returns a strategy's rectangles under constraints, beside a plan's for the tables that are
/// pinned. None: the strategy cuts some other table in a way that is forbidden.
inline std::vector<Shard> plain_shards(Strategy strategy, const Layout& layout,
                                       const PlanConstraints& constraints) {
  const PlanChoice choice = strategy_choice(strategy, layout);
  std::vector<Shard> shards;
  for (std::size_t t = 0; t < choice.tables.size(); ++t) {
    if (constraints.pin_of(layout.tables[t].name) != nullptr) {
      for (const Shard& s : layout.shards)
        if (s.table == static_cast<int>(t)) shards.push_back(s);
    } else if (constraints.allows(choice.tables[t].cut)) {
      append_shards(shards, static_cast<int>(t), layout.tables[t], choice.tables[t],
                    layout.topology);
    } else {
      return {};
    }
  }
  return shards;
}

/// Returns the plan that comes next. `constraints` are those that the plan was made under.
inline RunnerUp runner_up(const Layout& layout, const CostModel& model,
                          const PlanConstraints& constraints) {
  RunnerUp best;
  if (layout.ranks() == 1) return best;
  const auto key = [](const Shard& s) {
    return std::pair(std::pair(s.table, s.rank),
                     std::pair(s.rectangle.row_begin, s.rectangle.column_begin));
  };
  const auto less = [&](const Shard& a, const Shard& b) { return key(a) < key(b); };
  std::vector<Shard> own = layout.shards;
  std::sort(own.begin(), own.end(), less);
  Layout other = layout;
  for (const Strategy s : all_strategies) {
    other.shards = plain_shards(s, layout, constraints);
    if (other.shards.empty()) continue;
    const Prediction p = predict(other, model);
    if (!fits_cluster(p, model.cluster(), constraints.reserve) ||
        (best.seconds >= 0 && p.step_seconds >= best.seconds))
      continue;
    std::sort(other.shards.begin(), other.shards.end(), less);
    const bool same =
        std::equal(own.begin(), own.end(), other.shards.begin(), other.shards.end(),
                   [](const Shard& a, const Shard& b) {
                     return a.table == b.table && a.rank == b.rank && a.rectangle == b.rectangle;
                   });
    if (!same) best = {to_string(s), p.step_seconds};
  }
  return best;
}

/// What calibrated predictions were found to be worth on a host (docs/cost_model.md): most steps
/// within this share of the measured one, and the order of two plans right nearly always where they
/// differ by more than `ordered_margin`.
inline constexpr double model_error = 0.25, ordered_margin = 0.20;

/// Describes the runner-up, how far behind it is, and what that margin is worth. `measured`: the
/// cluster's constants were measured on its machines.
inline std::string describe_margin(const RunnerUp& other, double step_seconds, bool measured) {
  if (other.seconds < 0) return "runner-up: none: no other plain strategy fits and is allowed";
  const double margin = other.seconds / step_seconds - 1;
  std::string text =
      margin >= 0
          ? formatted("runner-up: {}, {} ms, {:.1f} % longer", other.name,
                      milliseconds_text(other.seconds), 100 * margin)
          : formatted("a plain strategy is faster than this plan: {}, {} ms, {:.1f} % shorter",
                      other.name, milliseconds_text(other.seconds), -100 * margin);
  if (!measured)
    return text +
           "; with constants that were not measured here the order of the two is a guess: measure "
           "both";
  return text + (std::abs(margin) > ordered_margin
                     ? formatted("; plans that differ by more than {:.0f} % are nearly always in "
                                 "the right order",
                                 100 * ordered_margin)
                     : formatted("; that is less than the model's error of up to {:.0f} %: "
                                 "measure both where it matters",
                                 100 * model_error));
}

}}}  // namespace tessera::v0::detail
