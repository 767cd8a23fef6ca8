// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/table_spec.hpp>
#include <tessera/planner/constexpr_math.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

// Ids whose frequency falls with a power of their rank: row k (from 0) is drawn as often as x^-skew
// falls into [k+1, k+2); skew 0 is uniform. Equations: docs/cost_model.md.

/// Returns the integral of t^-skew from 1 to x.
constexpr double power_mass(double x, double skew) {
  const double gamma = 1 - skew, logarithm = constexpr_log(x);
  return gamma < 1e-9 && gamma > -1e-9 ? logarithm : (constexpr_exp(gamma * logarithm) - 1) / gamma;
}

/// Returns the share of all ids that fall on the rows [begin, end) of `rows`, most frequent row
/// first.
constexpr double share_of_ids(double rows, double begin, double end, double skew) {
  if (skew < 1e-6) return (end - begin) / rows;
  return (power_mass(end + 1, skew) - power_mass(begin + 1, skew)) / power_mass(rows + 1, skew);
}

/// Returns the expected number of distinct rows among [begin, end) that `ids` draws over all `rows`
/// touch: the integral of 1 - exp(-ids p(x)). Where a row is almost surely touched or almost never
/// twice the integral is closed; between, Simpson's rule in log x.
constexpr double distinct_rows(double ids, double rows, double begin, double end, double skew) {
  if (ids <= 0 || end <= begin) return 0;
  if (skew < 1e-6) return (end - begin) * (1 - constexpr_exp(-ids / rows));
  const double mass = power_mass(rows + 1, skew), scale = ids / mass, a = begin + 1, b = end + 1;
  const double log_scale = constexpr_log(scale);
  const auto clamp = [a, b](double x) { return x < a ? a : x > b ? b : x; };
  // expected touches are scale * x^-skew: 30 at `sure`, 0.001 at `rare`
  const double sure = clamp(constexpr_exp((log_scale - 3.4011973816621555) / skew));
  const double rare = clamp(constexpr_exp((log_scale + 6.907755278982137) / skew));
  double sum = sure - a + (b > rare ? scale * (power_mass(b, skew) - power_mass(rare, skew)) : 0);
  if (rare <= sure) return sum;
  constexpr int intervals = 24;
  const double first = constexpr_log(sure), h = (constexpr_log(rare) - first) / intervals;
  const double grow = constexpr_exp(h), fall = constexpr_exp(-skew * h);
  double x = sure * h / 3, touches = constexpr_exp(log_scale - skew * first);
  for (int i = 0; i <= intervals; ++i, x *= grow, touches *= fall)
    sum += x * (1 - constexpr_exp(-touches)) * (i == 0 || i == intervals ? 1 : i % 2 == 1 ? 4 : 2);
  return sum;
}

/// Returns the expected number of distinct rows among [begin, end) that `ids` draws touch, and that
/// at least as many draws before them, `before`, did not: the integral of exp(-before p(x)) (1 -
/// exp(-ids p(x))), by the same rule.
constexpr double new_rows(double ids, double before, double rows, double begin, double end,
                          double skew) {
  if (ids <= 0 || end <= begin) return 0;
  if (skew < 1e-6)
    return (end - begin) * constexpr_exp(-before / rows) * (1 - constexpr_exp(-ids / rows));
  const double mass = power_mass(rows + 1, skew), a = begin + 1, b = end + 1;
  const auto clamp = [a, b](double x) { return x < a ? a : x > b ? b : x; };
  // touched before more than 30 times; not 0.001 times in all
  const double known = clamp(constexpr_exp((constexpr_log(before / mass) - 3.4) / skew));
  const double rare = clamp(constexpr_exp((constexpr_log((before + ids) / mass) + 6.9) / skew));
  double sum = b > rare ? ids / mass * (power_mass(b, skew) - power_mass(rare, skew)) : 0;
  if (rare <= known) return sum;
  constexpr int intervals = 24;
  const double first = constexpr_log(known), h = (constexpr_log(rare) - first) / intervals;
  const double grow = constexpr_exp(h), fall = constexpr_exp(-skew * h);
  double x = known * h / 3, p = constexpr_exp(-skew * first) / mass;
  for (int i = 0; i <= intervals; ++i, x *= grow, p *= fall)
    sum += x * constexpr_exp(-before * p) * (1 - constexpr_exp(-ids * p)) *
           (i == 0 || i == intervals ? 1
            : i % 2 == 1             ? 4
                                     : 2);
  return sum;
}

/// Returns how often rows are drawn, in groups of rows that are drawn alike, within a tenth.
/// `counts`: how often each row was drawn, of those that were.
inline RowFrequencies row_frequencies(std::vector<std::int64_t> counts, std::int64_t rows) {
  std::sort(counts.begin(), counts.end(), std::greater<>());
  double all = 0;
  for (const std::int64_t count : counts) all += static_cast<double>(count);
  RowFrequencies found;
  for (std::size_t first = 0; first < counts.size();) {
    std::size_t last = first;
    double sum = 0;
    while (last < counts.size() && (last == first || 10 * counts[last] > 9 * counts[first]))
      sum += static_cast<double>(counts[last++]);
    found.groups.push_back({static_cast<double>(last - first), sum / all});
    first = last;
  }
  if (const std::int64_t others = rows - std::ssize(counts); others > 0)
    found.groups.push_back({static_cast<double>(others), 0});
  return found;
}

/// How ids fall on a table's rows: by the power law, or as measured.
struct IdLaw {
  double rows = 0, skew = 0;
  const RowFrequencies* measured = nullptr;

  /// Returns whether some rows are drawn more often than others.
  constexpr bool uneven() const { return measured != nullptr || skew > 0; }
  /// Returns how many rows, the most frequent first, have at least such a share of the ids each.
  constexpr double rows_with(double share) const {
    if (measured == nullptr) {
      if (skew < 1e-6) return share * rows <= 1 ? rows : 0;
      const double scaled = share * power_mass(rows + 1, skew);
      return std::clamp(constexpr_exp(-constexpr_log(scaled) / skew) - 1, 0.0, rows);
    }
    double found = 0;
    for (const RowFrequencies::Group& group : measured->groups) {
      if (group.share < share * group.rows) break;
      found += group.rows;
    }
    return found;
  }
  /// Returns what share_of_ids, distinct_rows and new_rows return.
  constexpr double share(double begin, double end) const {
    if (measured == nullptr) return share_of_ids(rows, begin, end, skew);
    return sum(begin, end, [](double p) { return p; });
  }
  constexpr double distinct(double ids, double begin, double end) const {
    if (measured == nullptr) return distinct_rows(ids, rows, begin, end, skew);
    return sum(begin, end, [ids](double p) { return 1 - constexpr_exp(-ids * p); });
  }
  constexpr double fresh(double ids, double before, double begin, double end) const {
    if (measured == nullptr) return new_rows(ids, before, rows, begin, end, skew);
    return sum(begin, end, [ids, before](double p) {
      return constexpr_exp(-before * p) * (1 - constexpr_exp(-ids * p));
    });
  }
  /// Returns the expected number of distinct rows among [begin, end) that a batch of `ids` draws
  /// touches and that a cache of `cached` of those rows lacks, if it gives up first what was used in
  /// no batch for longest (Che's approximation: a row is there if it was drawn since as many draws
  /// as touch `cached` distinct rows). `cached`: those of a batch at least.
  constexpr double missed(double ids, double cached, double begin, double end) const {
    if (cached >= end - begin) return 0;
    if (measured == nullptr && skew < 1e-6)
      return (end - begin - cached) * (1 - constexpr_exp(-ids / rows));
    // Newton's rule on a concave function, from below: every step falls short.
    double before = std::max(cached, ids);
    for (int i = 0; i < 40; ++i) {
      const double step =
          (cached - distinct(before, begin, end)) / std::max(1e-30, fresh(1, before, begin, end));
      if (step < 1e-3 * before) break;
      before += step;
    }
    return fresh(ids, before, begin, end);
  }

 private:
  /// Returns the sum over the rows [begin, end) of `of(share of the ids that are the row)`.
  template <class Of>
  constexpr double sum(double begin, double end, Of of) const {
    double total = 0, first = 0;
    for (const RowFrequencies::Group& group : measured->groups) {
      const double last = first + group.rows, here = std::min(end, last) - std::max(begin, first);
      if (here > 0) total += here * of(group.share / group.rows);
      first = last;
    }
    return total;
  }
};

}}}  // namespace tessera::v0::detail
