// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/planner/shared_cores.hpp>
#include <tessera/sharding/cluster.hpp>
#include <tessera/sharding/layout.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Seconds of each stage, dense layers and the sum of their gradients included.
struct StageTimes {
  double route = 0, lookup = 0, exchange = 0, assemble = 0, exchange_gradients = 0, update = 0,
         dense = 0, all_reduce = 0;

  constexpr double embeddings() const {
    return route + lookup + exchange + assemble + exchange_gradients + update;
  }
  constexpr double total(bool overlap_route = false) const {
    return embeddings() + dense + all_reduce - (overlap_route ? std::min(route, dense) : 0);
  }
};

/// A step as the model sees it.
struct Prediction {
  StageTimes stages{};                     ///< seconds; the slowest rank of each stage
  std::vector<StageTimes> ranks{};         ///< by rank
  std::vector<std::int64_t> bytes{};       ///< of tables and optimizer state, by rank
  std::vector<std::int64_t> host_bytes{};  ///< the same of those OnHost
  std::vector<std::int64_t> file_bytes{};  ///< and of those OnFile; `bytes` has their caches'
  std::vector<double> id_traffic{};        ///< bytes [from * ranks + to] of ids, to the owners
  /// bytes [from * ranks + to] of pooled vectors, from the owners; gradients are its mirror image
  std::vector<double> vector_traffic{};
  double step_seconds = 0;

  /// Returns the fullest rank's memory, and the slowest rank's time, over the mean.
  constexpr double memory_imbalance() const {
    double most = 0, sum = 0;
    for (const std::int64_t b : bytes) {
      most = std::max(most, static_cast<double>(b));
      sum += static_cast<double>(b);
    }
    return sum > 0 ? most * static_cast<double>(bytes.size()) / sum : 1;
  }
  constexpr double time_imbalance() const {
    double most = 0, sum = 0;
    for (const StageTimes& s : ranks) {
      most = std::max(most, s.embeddings());
      sum += s.embeddings();
    }
    return sum > 0 ? most * static_cast<double>(ranks.size()) / sum : 1;
  }
  constexpr std::int64_t most_bytes() const { return most_of(bytes); }
  constexpr std::int64_t most_host_bytes() const { return most_of(host_bytes); }
  constexpr std::int64_t most_file_bytes() const { return most_of(file_bytes); }
  /// Returns the bytes by rank, in a tier's memory.
  constexpr std::vector<std::int64_t>& bytes_in(Tier tier) {
    return tier == Tier::device ? bytes : tier == Tier::host ? host_bytes : file_bytes;
  }

 private:
  static constexpr std::int64_t most_of(const std::vector<std::int64_t>& all) {
    std::int64_t most = 0;
    for (const std::int64_t b : all) most = std::max(most, b);
    return most;
  }
};

/// Returns the time of all stages: one ends when its slowest rank ends.
template <class Member>
constexpr double slowest(const std::vector<StageTimes>& ranks, const Cluster& cluster,
                         Member member) {
  const std::size_t size = static_cast<std::size_t>(cluster.topology().node_size());
  double most = 0;
  std::vector<double> node;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    node.push_back(ranks[r].*member);
    if ((r + 1) % size != 0 && r + 1 < ranks.size()) continue;
    most = std::max(most, shared_seconds(node, cluster.concurrent_ranks));
    node.clear();
  }
  return most;
}

}}}  // namespace tessera::v0::detail
