// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/host/bag_parts.hpp>
#include <tessera/host/lanes.hpp>
#include <tessera/host/row_grouping.hpp>
#include <tessera/host/row_update.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace tessera { inline namespace v0 { namespace detail {

/// Where the rows of a bucket are summed without sorting: the rows in the order of their first
/// entries, and a sum for each.
struct RowSums {
  /// Returns whether a bucket can be summed so: its table of rows must stay in the cache and not
  /// cost much to clear, a place has 16 bits.
  static bool suits(const RowBucket& bucket) {
    const std::int64_t span = bucket.row_end - bucket.row_begin;
    return span <= std::int64_t{1} << 17 && span <= 64 * bucket.entries() &&
           bucket.capacity() < 65535;
  }
  /// Wider rows are not worth it: what summing in registers saves is more than what sorting costs.
  static constexpr int widest = 32;
  /// Entries of a bucket, so that its sums, rows and table stay in a core's own cache.
  static constexpr std::int64_t bucket_entries = 1024;

  std::uint16_t* place_of = nullptr;  ///< by row of the bucket: 1 + its place in rows, 0: none yet
  std::uint32_t* rows = nullptr;      ///< relative to the bucket's first row
  float* sums = nullptr;              ///< parallel to rows, Width floats each
};

/// Sums the gradients of every row of a bucket, in the order of its entries, in one pass without
/// sorting. Calls ahead() for every entry and between() after rows_at_once of them. Returns the
/// number of distinct rows.
template <int Width, bool Scaled, Element G, class Ahead, class Between>
std::int64_t sum_rows(const RowEntry* entries, const float* coefficients,
                      const GradientSources<G>& gradients, const RowBucket& bucket,
                      const RowSums& into, const Ahead& ahead, const Between& between) {
  const GradientSources<G> gradient_of = gradients;
  const std::int64_t total = bucket.entries();
  const auto row_begin = static_cast<std::uint32_t>(bucket.row_begin);
  std::uint16_t* const place_of = into.place_of;
  std::uint32_t* const rows = into.rows;
  float* const sums = into.sums;
  constexpr std::int64_t bytes = Width * static_cast<std::int64_t>(sizeof(G)),
                         distance = prefetch_distance(bytes);
  std::fill_n(place_of, bucket.row_end - bucket.row_begin, std::uint16_t{0});
  for (std::int64_t i = 0; i < std::min(distance, total); ++i)
    prefetch(gradient_of(entries[i].source), bytes);
  std::uint32_t count = 0;
  for (std::int64_t first = 0; first < total; first += rows_at_once) {
    for (std::int64_t i = first, last = std::min(first + rows_at_once, total); i < last; ++i) {
      if (i + distance < total) prefetch(gradient_of(entries[i + distance].source), bytes);
      ahead();
      const std::uint32_t row = entries[i].row - row_begin;
      // No branch: whether a row repeats is unpredictable.
      const std::uint32_t known = place_of[row];
      const std::uint32_t place = known != 0 ? known - 1 : count;
      rows[count] = row;
      place_of[row] = static_cast<std::uint16_t>(place + 1);
      count += known == 0;
      float* const at = sums + static_cast<std::size_t>(place) * Width;
      RowSum<Width> sum;
      sum.load_if(known != 0, at);
      if constexpr (Scaled) {
        sum.add(gradient_of(entries[i].source), coefficients[i]);
      } else {
        sum.add(gradient_of(entries[i].source));
      }
      sum.store(at);
    }
    between();
  }
  return count;
}

}  // namespace detail

}}  // namespace tessera::v0
