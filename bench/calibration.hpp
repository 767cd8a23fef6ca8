// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Fits the constants of the cost model to measured work. Work (seconds of a stage, summed over the
// ranks) is linear in the constants (in a bandwidth's inverse), so what a constant multiplies is
// the prediction with all others switched off. The fit is least squares of relative errors without
// negative constants, repeated with less weight for what lies far off: a disturbed measurement does
// not pull the rest.
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/planner/cost.hpp>
#include <tessera/planner/explain_plan.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace tessera::bench {

using detail::StageMember;
inline constexpr const auto& kStages = detail::embedding_stages;
inline constexpr std::array<const char*, 6> kStageNames{
    "route", "lookup", "exchange", "assemble", "exchange_gradients", "update"};

/// What one plan's stages took: seconds of work, summed over its ranks. A stage of 0 s was not
/// measured.
struct Observation {
  Layout layout;
  Workload workload;
  detail::StageTimes work{};
};

using ClusterMember = double Cluster::*;
struct Constant {
  ClusterMember member;
  bool inverse;  // bandwidths
};
inline constexpr std::array<Constant, 11> kConstants{{{&Cluster::stream_bandwidth, true},
                                                      {&Cluster::gather_bandwidth, true},
                                                      {&Cluster::cache_bandwidth, true},
                                                      {&Cluster::node_bandwidth, true},
                                                      {&Cluster::lookup_seconds, false},
                                                      {&Cluster::check_seconds, false},
                                                      {&Cluster::route_seconds, false},
                                                      {&Cluster::cut_seconds, false},
                                                      {&Cluster::vector_seconds, false},
                                                      {&Cluster::merge_seconds, false},
                                                      {&Cluster::block_seconds, false}}};
// what a fit tries for Cluster::cached_bytes and beyond_cache
inline constexpr std::array<double, 5> kCacheSizes{4e6, 8e6, 1.2e7, 1.6e7, 2.4e7};
inline constexpr std::array<double, 4> kCachePrices{1.5, 2, 2.5, 3};
// bytes/s of a bandwidth that is switched off
inline constexpr double kNever = std::numeric_limits<double>::infinity();
// bytes/s of one whose cost the fit does not see
inline constexpr double kMost = 1e15;

/// A cluster with nothing but one constant, at 1 (second, or byte per second); none: nothing at
/// all.
inline Cluster with_one(Cluster c, std::size_t constant) {
  c.network_bandwidth = kNever;
  c.network_latency = c.node_latency = c.launch_seconds = c.wake_seconds = 0;
  for (std::size_t k = 0; k < kConstants.size(); ++k)
    c.*kConstants[k].member = k == constant ? 1 : kConstants[k].inverse ? kNever : 0;
  return c;
}

/// Seconds of a stage, summed over the ranks.
inline detail::StageTimes work_of(const detail::Prediction& p) {
  detail::StageTimes sum;
  for (const detail::StageTimes& rank : p.ranks)
    for (const StageMember stage : kStages) sum.*stage += rank.*stage;
  return sum;
}

/// `base` with the constants of kConstants fitted, but for those that no observation depends on;
/// its latencies and what caches keep are taken as they are, ranks from each observation's layout.
/// Throws InvalidArgument where nothing was measured, or a time is negative or no number.
inline Cluster fit(const std::vector<Observation>& observations, Cluster base) {
  constexpr std::size_t n = kConstants.size();
  // what each constant adds to a stage, in units of what was measured
  std::vector<std::array<double, n>> rows;
  std::vector<double> goals, weights;
  for (const Observation& o : observations) {
    Cluster cluster = base;
    cluster.ranks = o.layout.ranks();
    std::array<detail::StageTimes, n> parts;
    for (std::size_t k = 0; k < n; ++k)
      parts[k] = work_of(predict(o.layout, with_one(cluster, k), o.workload));
    Cluster latencies = with_one(cluster, n);
    latencies.launch_seconds = base.launch_seconds, latencies.node_latency = base.node_latency;
    latencies.wake_seconds = base.wake_seconds;
    const detail::StageTimes fixed = work_of(predict(o.layout, latencies, o.workload));
    for (const StageMember stage : kStages) {
      const double measured = o.work.*stage;
      require(std::isfinite(measured) && measured >= 0,
              "fit: a stage took {} s; times are finite and not negative", measured);
      if (measured == 0) continue;
      auto& row = rows.emplace_back();
      for (std::size_t k = 0; k < n; ++k) row[k] = parts[k].*stage / measured;
      goals.push_back(std::max(0.0, 1 - fixed.*stage / measured));
      // Stages that hardly count must not pull the constants: weigh by their share of the step.
      weights.push_back(measured / o.work.embeddings());
    }
  }
  require(!rows.empty(), "fit: no stage was measured; give observations with times above 0");
  std::array<double, n> x{};
  std::vector<double> trust(rows.size(), 1.0);
  for (int round = 0; round < 20; ++round) {
    std::array<std::array<double, n>, n> products{};
    std::array<double, n> right{}, scale{};
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t k = 0; k < n; ++k)
        scale[k] += weights[i] * trust[i] * rows[i][k] * rows[i][k];
    for (double& s : scale) s = s > 0 ? 1 / std::sqrt(s) : 0;
    for (std::size_t i = 0; i < rows.size(); ++i)
      for (std::size_t k = 0; k < n; ++k) {
        const double left = weights[i] * trust[i] * rows[i][k] * scale[k];
        right[k] += left * goals[i];
        for (std::size_t j = 0; j < n; ++j) products[k][j] += left * rows[i][j] * scale[j];
      }
    for (std::size_t k = 0; k < n; ++k) x[k] = scale[k] > 0 ? x[k] / scale[k] : 0;
    // Coordinate descent on the normal equations, until nothing moves.
    double moved = 1;
    for (int step = 0; step < 200'000 && moved > 1e-13; ++step) {
      moved = 0;
      for (std::size_t k = 0; k < n; ++k) {
        if (scale[k] == 0) continue;
        double rest = right[k];
        for (std::size_t j = 0; j < n; ++j)
          if (j != k) rest -= products[k][j] * x[j];
        const double next = std::max(0.0, rest / products[k][k]);
        moved = std::max(moved, std::abs(next - x[k]));
        x[k] = next;
      }
    }
    for (std::size_t k = 0; k < n; ++k) x[k] *= scale[k];
    for (std::size_t i = 0; i < rows.size(); ++i) {
      double predicted = 0;
      for (std::size_t k = 0; k < n; ++k) predicted += rows[i][k] * x[k];
      // beyond 10 % an error counts once, not squared
      trust[i] = 1 / std::max(0.1, std::abs(predicted - goals[i]));
    }
  }
  for (std::size_t k = 0; k < n; ++k)
    if (std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row[k] > 0; }))
      base.*kConstants[k].member = !kConstants[k].inverse ? x[k]
                                   : x[k] > 1 / kMost     ? 1 / x[k]
                                                          : kMost;
  return base;
}

/// The same for each of these sizes of caches and each of these prices of what is beyond them: the
/// one whose work is the nearest to what was measured.
inline Cluster fit_with_caches(const std::vector<Observation>& observations, Cluster base,
                               std::span<const double> sizes, std::span<const double> prices) {
  Cluster best = fit(observations, base);
  const auto error = [&](Cluster cluster) {
    double sum = 0;
    for (const Observation& o : observations) {
      cluster.ranks = o.layout.ranks();
      const detail::StageTimes work = work_of(predict(o.layout, cluster, o.workload));
      sum += std::abs(std::log(work.embeddings() / o.work.embeddings()));
    }
    return sum;
  };
  double least = error(best);
  for (const double size : sizes)
    for (const double price : prices) {
      base.cached_bytes = size, base.beyond_cache = price;
      const Cluster other = fit(observations, base);
      if (const double off = error(other); off < least) best = other, least = off;
    }
  return best;
}

}  // namespace tessera::bench
