// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/sharding/cluster.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/sharding/plan.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Moves whole tables of a layout out of the device's memory, until every rank's others fit `room`
/// bytes there: first those with the fewest ids per byte.
constexpr void move_out(Layout& layout, const MemoryCost& cost, std::int64_t room, Tier to) {
  std::vector<double> ids(layout.tables.size(), 0.0);  // of a sample
  for (std::size_t f = 0; f < layout.features.size(); ++f)
    ids[layout.feature_table[f]] += layout.features[f].hotness > 0
                                        ? layout.features[f].hotness
                                        : layout.tables[layout.feature_table[f]].hotness;
  const auto fullest = [&] {
    int full = -1;
    std::int64_t most = room;
    for (int rank = 0; rank < layout.ranks(); ++rank)
      if (const std::int64_t bytes = bytes_in(layout, cost, rank, Tier::device); bytes > most)
        most = bytes, full = rank;
    return full;
  };
  for (int rank = fullest(); rank >= 0; rank = fullest()) {
    int chosen = -1;
    double least = 0;
    for (const Shard& shard : layout.shards) {
      if (!shard.held_by(rank) || shard.tier != Tier::device) continue;
      const TableSpec& table = layout.tables[shard.table];
      const double use =
          ids[shard.table] /
          static_cast<double>(memory_cost(table, cost).of({0, table.rows, 0, table.width}));
      if (chosen < 0 || use < least) chosen = shard.table, least = use;
    }
    if (chosen < 0) return;
    for (Shard& shard : layout.shards)
      if (shard.table == chosen) shard.tier = to;
  }
}

/// Moves whole tables of a layout to the hosts' memory until every rank's others fit
/// `device_memory` bytes: first those with the fewest ids per byte. Of any layout; the ranks of
/// rectangles stay. The result's `fault` is `does_not_fit_host` where they exceed `host_memory` (0:
/// no limit).
constexpr Layout keep_on_host(Layout layout, const MemoryCost& cost, std::int64_t device_memory,
                              std::int64_t host_memory = 0) {
  if (!layout.fault.ok()) return layout;
  move_out(layout, cost, device_memory, Tier::host);
  layout.fault = check_memory(layout, cost, device_memory, host_memory);
  return layout;
}

/// Moves some tables to files if not all fit the `memory` bytes of each rank of the host, until the
/// others of every rank leave half of it to the caches. The rest, `memory - bytes_in(layout, cost,
/// rank, Tier::device)`, is for TableFiles::cache_bytes.
constexpr Layout keep_on_file(Layout layout, const MemoryCost& cost, std::int64_t memory) {
  if (layout.fault.ok() && !check_memory(layout, cost, memory).ok())
    move_out(layout, cost, memory / 2, Tier::file);
  return layout;
}

}}}  // namespace tessera::v0::detail
