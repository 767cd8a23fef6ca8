// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/rectangle.hpp>
#include <tessera/core/table_spec.hpp>
#include <tessera/sharding/layout.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 {

inline namespace literals {
constexpr std::int64_t operator""_KiB(unsigned long long n) {
  return static_cast<std::int64_t>(n << 10);
}
constexpr std::int64_t operator""_MiB(unsigned long long n) {
  return static_cast<std::int64_t>(n << 20);
}
constexpr std::int64_t operator""_GiB(unsigned long long n) {
  return static_cast<std::int64_t>(n << 30);
}
}  // namespace literals

namespace detail {

/// Bytes that one element and one row of a table cost, optimizer state included.
struct MemoryCost {
  std::int64_t per_element = 4;
  std::int64_t per_row = 0;
  bool mean_squares = false;  ///< updates need mean squares of whole rows, which takes time

  constexpr std::int64_t of(const Rectangle& r) const {
    return r.elements() * per_element + r.rows() * per_row;
  }
};

/// Returns the cost of a table, where its optimizer is not that of `others`.
constexpr MemoryCost memory_cost(const TableSpec& table, const MemoryCost& others) {
  return table.bytes_per_element < 0 ? others
                                     : MemoryCost{table.bytes_per_element, table.bytes_per_row,
                                                  others.mean_squares && table.bytes_per_row > 0};
}

/// Bytes that a cache needs for each of its rows besides the row itself. A plan counts them where
/// the cache is; of one on a GPU 48 of them are in the host's memory.
inline constexpr std::int64_t cache_slot_bytes = 56;

/// Returns bytes of a shard in a tier's memory; a cache is in the device's.
constexpr std::int64_t bytes_in(const Shard& shard, const MemoryCost& cost, Tier memory) {
  const Rectangle rows = shard.rows_in(memory);
  const bool cache = memory == Tier::device && shard.tier != memory;
  return cost.of(rows) + (cache ? rows.rows() * detail::cache_slot_bytes : 0);
}

}  // namespace detail

/// A job's machines, for `fits` and for the planner: ranks, memory, and what the cost model
/// (docs/cost_model.md) needs to know of their speed, per rank. The speeds' defaults are those of
/// an A100 in a DGX; `bench_sharding --calibrate` writes those of a host.
struct Cluster {
  int ranks = 1;
  int ranks_per_node = 0;            ///< 0: one node
  std::int64_t memory_per_rank = 0;  ///< bytes; the planner takes 0 for no limit
  /// bytes of the host's memory for tables OnHost; 0: no limit, and the planner keeps none there
  std::int64_t host_memory_per_rank = 0;
  /// bytes of a disk for tables OnFile, of ranks whose tables the host reads; 0: the planner keeps
  /// none there
  std::int64_t file_memory_per_rank = 0;

  double stream_bandwidth = 1.6e12;  ///< bytes/s read or written in order
  double gather_bandwidth = 1.2e12;  ///< bytes/s of rows in random order, from memory
  double cache_bandwidth = 4.0e12;   ///< bytes/s of rows that were just touched
  /// bytes of a batch's ids and vectors, over all ranks, that caches keep from stage to stage; what
  /// is beyond takes `beyond_cache` times as long
  double cached_bytes = 0;
  double beyond_cache = 1;
  /// bytes/s that a device reads or writes of rows in the host's memory
  double bus_bandwidth = 2.0e10;
  /// bytes/s that a rank reads or writes of a file, in blocks of 4096 at random places, with so
  /// many transfers under way (TableFiles::queue_depth)
  double file_bandwidth = 5.0e8;
  int file_queue_depth = 64;
  /// per id of a table behind a cache: the host looks for its row's slot
  double directory_seconds = 2e-8;
  /// per row that a cache lacks, besides its bytes: the host finds it a slot
  double missing_seconds = 1e-7;
  double lookup_seconds = 2e-12;  ///< per id, besides its row's bytes
  double check_seconds = 5e-12;   ///< per id that a rank's samples have
  double route_seconds = 1e-11;   ///< per id that a rank sends or receives
  /// per id that a rank looks up the block of rows for, if a table is cut by rows
  double cut_seconds = 2e-11;
  /// per vector put into place or cut out of the gradient, besides its bytes
  double vector_seconds = 1e-11;
  double merge_seconds = 4e-11;  ///< per id of an update: sorting
  /// per block (a rectangle, a feature, a source rank) and stage
  double block_seconds = 0;
  double launch_seconds = 8e-6;       ///< per stage and row width, and per collective
  double node_bandwidth = 2.2e11;     ///< bytes/s that a rank sends to ranks of its node
  double node_latency = 1e-6;         ///< seconds per message
  double network_bandwidth = 2.0e10;  ///< the same to ranks of other nodes
  double network_latency = 2e-6;
  /// per collective: ranks that slept until the last one came go on (threads of a host)
  double wake_seconds = 0;
  double flops = 6e13;  ///< of dense layers, reached in practice
  /// ranks of a node that run at one time (threads on few cores); 0: all
  int concurrent_ranks = 0;

  constexpr Topology topology() const { return {ranks, ranks_per_node}; }
};

namespace detail {

/// Returns bytes of a rank in a tier's memory; 0: see Cluster.
constexpr std::int64_t memory_of(const Cluster& cluster, Tier tier) {
  return tier == Tier::device ? cluster.memory_per_rank
         : tier == Tier::host ? cluster.host_memory_per_rank
                              : cluster.file_memory_per_rank;
}

}  // namespace detail

/// Returns DGX A100 with 80 GB per GPU, 8 GPUs per node: 2.0 TB/s of memory, NVLink 300 GB/s each
/// way, 25 GB/s of InfiniBand per GPU.
constexpr Cluster dgx_a100(int ranks) {
  return {.ranks = ranks, .ranks_per_node = 8, .memory_per_rank = 80'000'000'000};
}

/// Returns HGX H200, 141 GB per GPU: 4.8 TB/s of memory, NVLink 450 GB/s each way, 50 GB/s of
/// InfiniBand per GPU.
constexpr Cluster hgx_h200(int ranks) {
  return {.ranks = ranks,
          .ranks_per_node = 8,
          .memory_per_rank = 141'000'000'000,
          .stream_bandwidth = 3.8e12,
          .gather_bandwidth = 2.9e12,
          .cache_bandwidth = 8e12,
          .node_bandwidth = 3.3e11,
          .network_bandwidth = 4.0e10,
          .flops = 2e14};
}

/// Returns ranks that are threads or processes of one machine with so many cores for them: the
/// constants that `bench_sharding --calibrate` found on a 2-core x86-64 server
/// (docs/cost_model.md). Take your own machine's if it matters.
constexpr Cluster cpu_host(int ranks, int cores) {
  return {.ranks = ranks,
          .stream_bandwidth = 1.2e10,
          .gather_bandwidth = 7.4e9,
          .cache_bandwidth = 5.4e10,
          .lookup_seconds = 2.0e-9,
          .check_seconds = 5.8e-10,
          .route_seconds = 1.6e-9,
          .cut_seconds = 1.4e-8,
          .vector_seconds = 9.0e-10,
          .merge_seconds = 1.5e-8,
          .block_seconds = 0,
          .launch_seconds = 0,
          .node_bandwidth = 6.9e9,
          .node_latency = 3.4e-5,  // of threads that wait for a core
          .flops = 1e11,
          .concurrent_ranks = cores};
}

}}  // namespace tessera::v0
