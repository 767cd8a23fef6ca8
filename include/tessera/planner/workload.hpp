// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/optimizer.hpp>
#include <tessera/core/table_spec.hpp>
#include <tessera/sharding/cluster.hpp>

#include <cstddef>
#include <cstdint>

namespace tessera { inline namespace v0 {

/// What a step works on.
struct Workload {
  std::int64_t batch = 65'536;  ///< samples of a step, over all ranks
  /// exponent of the ids' power law, of tables that name none; 0: uniform
  double skew = 1.05;
  /// frequent ids come first in their tables (vocabularies sorted by count); else anywhere
  bool sorted_ids = false;
  int id_bytes = 8;
  int element_bytes = 4;
  /// per element of exchanged vectors, the mean of both ways: 2 with 16-bit codecs
  double wire_bytes = 4;
  /// `memory_cost_of<Optimizer>`; read and written by updates
  detail::MemoryCost memory{.per_element = 4, .per_row = 4};
  /// of the dense layers, per sample, forward and backward
  double dense_flops = 0;
  /// that they read and write besides, per sample
  double dense_bytes = 0;
  std::int64_t dense_parameters = 0;  ///< summed over the ranks in each step
  /// the next batch's ids are routed beside the dense layers
  bool overlap_route = false;
  /// each rank asks for a row once (the collection's option of this name); what finding duplicates
  /// costs is not predicted
  bool deduplicate = false;
};

/// What an element and a row cost under an optimizer, with tables of T.
template <class Optimizer, class T = float>
inline constexpr detail::MemoryCost memory_cost_of{
    .per_element = static_cast<std::int64_t>(sizeof(T)) + detail::state_bytes<Optimizer>,
    .per_row = 4 * Optimizer::row_states,
    .mean_squares = Optimizer::needs_mean_square};

namespace detail {

/// Returns a cluster whose rates are those of a model's batches: what its caches do not keep of their
/// ids and vectors takes longer. Tables and the others: arrays or vectors.
template <class Tables, class Features, class Numbers>
constexpr Cluster for_batches(Cluster cluster, const Tables& tables, const Features& features,
                              const Numbers& feature_table, const Workload& workload) {
  double bytes = 0;
  for (std::size_t f = 0; f < features.size(); ++f) {
    if (feature_table[f] < 0) continue;
    const TableSpec& table = tables[static_cast<std::size_t>(feature_table[f])];
    const double hotness = features[f].hotness > 0 ? features[f].hotness : table.hotness;
    bytes += hotness * workload.id_bytes +
             (keeps_rows(features[f].pooling) ? hotness : 1) * table.width * 4.0;
  }
  bytes *= static_cast<double>(workload.batch);
  const double beyond = bytes > cluster.cached_bytes ? 1 - cluster.cached_bytes / bytes : 0,
               longer = 1 + (cluster.beyond_cache - 1) * beyond;
  cluster.stream_bandwidth /= longer;
  cluster.gather_bandwidth /= longer;
  cluster.lookup_seconds *= longer;
  cluster.check_seconds *= longer;
  cluster.route_seconds *= longer;
  cluster.vector_seconds *= longer;
  cluster.merge_seconds *= longer;
  cluster.beyond_cache = 1;
  return cluster;
}

}  // namespace detail

}}  // namespace tessera::v0
