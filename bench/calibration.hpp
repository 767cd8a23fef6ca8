// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Fits the constants of the cost model to measured stages. The model is linear in them (in a bandwidth's inverse), so what a constant
// multiplies is the prediction with all others switched off; the fit is least squares of relative errors without negative constants.
#pragma once

#include "sharding.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

namespace tessera::bench {

struct Observation {
  Layout layout;
  Workload workload;
  Measured measured;
};

struct Constant {
  const char* name;
  double Cluster::*member;
  bool inverse;  // bandwidths
};
inline constexpr std::array<Constant, 10> kConstants{{{"stream_bandwidth", &Cluster::stream_bandwidth, true},
                                                      {"gather_bandwidth", &Cluster::gather_bandwidth, true},
                                                      {"cache_bandwidth", &Cluster::cache_bandwidth, true},
                                                      {"node_bandwidth", &Cluster::node_bandwidth, true},
                                                      {"lookup_seconds", &Cluster::lookup_seconds, false},
                                                      {"route_seconds", &Cluster::route_seconds, false},
                                                      {"merge_seconds", &Cluster::merge_seconds, false},
                                                      {"block_seconds", &Cluster::block_seconds, false},
                                                      {"launch_seconds", &Cluster::launch_seconds, false},
                                                      {"node_latency", &Cluster::node_latency, false}}};
inline constexpr double kNever = 1e30;  // bytes/s of a bandwidth that is switched off

/// A cluster with nothing but one constant, at 1 (second, or byte per second).
inline Cluster with_one(const Cluster& base, std::size_t constant) {
  Cluster c = base;
  c.network_bandwidth = kNever;
  c.network_latency = 0;
  for (std::size_t k = 0; k < kConstants.size(); ++k) c.*kConstants[k].member = k == constant ? 1 : kConstants[k].inverse ? kNever : 0;
  return c;
}

/// `base`: ranks per observation are taken from its layout; cores from `base.concurrent_ranks`.
inline Cluster fit(const std::vector<Observation>& observations, Cluster base) {
  std::vector<std::array<double, kConstants.size()>> rows;
  std::vector<double> goals;
  for (const Observation& o : observations) {
    std::array<StageTimes, kConstants.size()> stages;
    Cluster cluster = base;
    cluster.ranks = o.layout.ranks();
    for (std::size_t k = 0; k < kConstants.size(); ++k) stages[k] = predict(o.layout, with_one(cluster, k), o.workload).stages;
    for (const StageMember stage : kStages) {
      // Stages that hardly count must not pull the constants: weigh by the root of their share of the step.
      const double measured = o.measured.stages.*stage;
      if (measured <= 0) continue;
      const double weight = std::sqrt(measured / o.measured.stages.embeddings());
      auto& row = rows.emplace_back();
      for (std::size_t k = 0; k < kConstants.size(); ++k) row[k] = weight * (stages[k].*stage) / measured;
      goals.push_back(weight);
    }
  }
  // Coordinate descent on the normal equations.
  constexpr std::size_t n = kConstants.size();
  std::array<std::array<double, n>, n> products{};
  std::array<double, n> right{}, scale{}, x{};
  for (std::size_t k = 0; k < n; ++k) {
    for (const auto& row : rows) scale[k] += row[k] * row[k];
    scale[k] = scale[k] > 0 ? 1 / std::sqrt(scale[k]) : 0;
  }
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::size_t k = 0; k < n; ++k) {
      right[k] += rows[i][k] * scale[k] * goals[i];
      for (std::size_t j = 0; j < n; ++j) products[k][j] += rows[i][k] * scale[k] * rows[i][j] * scale[j];
    }
  for (int round = 0; round < 200'000; ++round)
    for (std::size_t k = 0; k < n; ++k) {
      double rest = right[k];
      for (std::size_t j = 0; j < n; ++j)
        if (j != k) rest -= products[k][j] * x[j];
      x[k] = scale[k] > 0 ? std::max(0.0, rest) : 0;
    }
  for (std::size_t k = 0; k < n; ++k) x[k] *= scale[k];
  for (std::size_t k = 0; k < n; ++k) base.*kConstants[k].member = !kConstants[k].inverse ? x[k] : x[k] > 1e-15 ? 1 / x[k] : 1e15;
  return base;
}

}  // namespace tessera::bench
