// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/sharding/layout.hpp>
#include <tessera/sharding/policies.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// Returns the layout, changed where its sums would depend on the number of ranks or the plan.
/// Tables that a feature of several ids reads (`lists`, by feature of the layout) are cut into the
/// same `blocks` blocks of rows under every layout, whose parts of a bag are added in their order:
/// the plan's own cuts move to the nearest of these. Replicated tables are whole on one rank, the
/// emptiest: sums of their gradients over ranks would need every gradient on every rank, which is
/// more to send.
inline Layout with_fixed_sums(const Layout& layout, std::int64_t blocks,
                              const std::vector<bool>& lists) {
  require(blocks >= 1, "with_fixed_sums: {} blocks; give 1 or more", blocks);
  require(lists.size() == layout.features.size(),
          "with_fixed_sums: {} entries for {} features; give one for each", lists.size(),
          layout.features.size());
  std::vector<bool> cut(layout.tables.size());
  for (std::size_t f = 0; f < lists.size(); ++f)
    if (lists[f]) cut[static_cast<std::size_t>(layout.feature_table[f])] = true;

  std::vector<std::int64_t> elements(static_cast<std::size_t>(layout.ranks()));
  const auto size_of = [](const Rectangle& r) { return r.rows() * r.width(); };
  for (const Shard& shard : layout.shards)
    if (shard.rank >= 0) elements[static_cast<std::size_t>(shard.rank)] += size_of(shard.rectangle);
  std::vector<Shard> placed = layout.shards;
  for (Shard& shard : placed) {
    if (shard.rank != every_rank) continue;
    const auto emptiest = std::min_element(elements.begin(), elements.end());
    *emptiest += size_of(shard.rectangle);
    shard.rank = static_cast<int>(emptiest - elements.begin());
  }

  std::vector<Shard> shards;
  for (std::size_t first = 0, last = 0; first < placed.size(); first = last) {
    const int table = placed[first].table;
    for (last = first; last < placed.size() && placed[last].table == table;) ++last;
    const std::vector<Shard> own(placed.begin() + static_cast<std::ptrdiff_t>(first),
                                 placed.begin() + static_cast<std::ptrdiff_t>(last));
    if (!cut[static_cast<std::size_t>(table)]) {
      shards.insert(shards.end(), own.begin(), own.end());
      continue;
    }
    const std::int64_t rows = layout.tables[static_cast<std::size_t>(table)].rows;
    const auto edge = [&](std::int64_t k) { return even_cut(rows, blocks, k); };
    const auto nearest = [&](std::int64_t row) {
      std::int64_t at = 0;
      for (std::int64_t k = 1; k <= blocks; ++k)
        if (std::abs(edge(k) - row) < std::abs(edge(at) - row)) at = k;
      return at;
    };
    for (std::size_t s = 0; s < own.size(); ++s) {
      // parts of a bag are added rank by rank: of the same columns, rows ascend with ranks
      std::vector<int> ranks;
      std::size_t place = 0;
      for (const Shard& other : own) {
        if (other.rectangle.column_begin != own[s].rectangle.column_begin ||
            other.rectangle.column_end != own[s].rectangle.column_end)
          continue;
        ranks.push_back(other.rank);
        place += other.rectangle.row_begin < own[s].rectangle.row_begin;
      }
      std::sort(ranks.begin(), ranks.end());
      const int rank = ranks[place];
      for (std::int64_t k = nearest(own[s].rectangle.row_begin),
                        end = nearest(own[s].rectangle.row_end);
           k < end; ++k) {
        if (edge(k) == edge(k + 1)) continue;
        Shard block = own[s];
        block.rectangle.row_begin = edge(k);
        block.rectangle.row_end = edge(k + 1);
        block.rank = rank;
        block.cache_rows = static_cast<std::int64_t>(std::ceil(
            static_cast<double>(own[s].cache_rows) * static_cast<double>(block.rectangle.rows()) /
            static_cast<double>(own[s].rectangle.rows())));
        shards.push_back(block);
      }
    }
  }
  return make_layout(layout.topology, layout.tables, layout.features, shards);
}

}}}  // namespace tessera::v0::detail
