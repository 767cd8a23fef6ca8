// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/host/row_grouping.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <utility>

namespace tessera { inline namespace v0 { namespace detail {

/// Sorts a bucket's entries, stably, by row, digit by digit from the lowest; the entries stay where
/// they are. `spare`: room for as many entries. It beats a hash table of rows by far where rows
/// repeat: there each look-up waits for the insertion before it.
template <int Passes>
void radix_sort(RowEntry* entries, RowEntry* spare, std::uint32_t count, std::uint32_t row_begin,
                int digit_bits) {
  constexpr int most_digits = 1 << 11;
  std::uint32_t places[Passes][most_digits];
  const std::uint32_t mask = (std::uint32_t{1} << digit_bits) - 1;
  for (int pass = 0; pass < Passes; ++pass) std::fill_n(places[pass], mask + 1, 0u);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t row = entries[i].row - row_begin;
    for (int pass = 0; pass < Passes; ++pass) ++places[pass][(row >> (pass * digit_bits)) & mask];
  }
  RowEntry *from = entries, *to = spare;
  for (int pass = 0; pass < Passes; ++pass) {
    std::uint32_t* const place = places[pass];
    for (std::uint32_t digit = 0, sum = 0; digit <= mask; ++digit)
      sum += std::exchange(place[digit], sum);
    const int shift = pass * digit_bits;
    for (std::uint32_t i = 0; i < count; ++i) {
      const RowEntry entry = from[i];
      to[place[((entry.row - row_begin) >> shift) & mask]++] = entry;
    }
    std::swap(from, to);
  }
  if constexpr (Passes % 2 == 1) std::copy_n(from, count, entries);
}

inline void sort_by_row(RowEntry* entries, RowEntry* spare, const RowBucket& bucket) {
  const int bits =
      std::bit_width(static_cast<std::uint64_t>(bucket.row_end - bucket.row_begin - 1));
  const auto count = static_cast<std::uint32_t>(bucket.entries());
  const auto row_begin = static_cast<std::uint32_t>(bucket.row_begin);
  if (bits <= 10) {
    radix_sort<1>(entries, spare, count, row_begin, bits);
  } else if (bits <= 20) {
    radix_sort<2>(entries, spare, count, row_begin, (bits + 1) / 2);
  } else {
    radix_sort<3>(entries, spare, count, row_begin, (bits + 2) / 3);
  }
}

/// Works on one bucket at a time: sorts its entries and finds its rows. One per thread, on scratch
/// memory.
struct BucketRows {
  std::int64_t count = 0;           ///< distinct rows
  std::uint32_t* rows = nullptr;    ///< ascending, relative to the bucket's first row
  std::uint32_t* begins = nullptr;  ///< count + 1 places in the bucket's entries
  RowEntry* spare = nullptr;
  std::uint32_t* sources = nullptr;  ///< only if the batch is scaled, like coefficients
  float* coefficients = nullptr;

  /// Cuts scratch memory. `entries`, `distinct`: of the largest bucket.
  static BucketRows cut(ScratchCutter& cut, std::int64_t entries, std::int64_t distinct,
                        bool scaled) {
    BucketRows bucket;
    bucket.rows = cut.array<std::uint32_t>(distinct + 1);
    bucket.begins = cut.array<std::uint32_t>(distinct + 2);
    bucket.spare = cut.array<RowEntry>(entries);
    bucket.sources = cut.array<std::uint32_t>(scaled ? entries : 0);
    bucket.coefficients = cut.array<float>(scaled ? entries : 0);
    return bucket;
  }

  /// Sorts the bucket's entries (and their coefficients) by row, in place; entries of one row stay
  /// in the order of the batch.
  void sort(const RowBuckets& partition, const RowBucket& bucket) {
    RowEntry* const entries = partition.entry(bucket.begin);
    const std::int64_t total = bucket.entries();
    if (!partition.scaled()) {
      sort_by_row(entries, spare, bucket);
      return;
    }
    for (std::int64_t i = 0; i < total; ++i)
      sources[i] = std::exchange(entries[i].source, static_cast<std::uint32_t>(i));
    sort_by_row(entries, spare, bucket);
    float* const in_order = partition.coefficient(bucket.begin);
    std::copy_n(in_order, total, coefficients);
    for (std::int64_t i = 0; i < total; ++i) {
      in_order[i] = coefficients[entries[i].source];
      entries[i].source = sources[entries[i].source];
    }
  }

  /// Finds the distinct rows of sorted entries, without a branch: no one can predict if a row
  /// repeats.
  void find(const RowEntry* entries, const RowBucket& bucket) {
    const auto total = static_cast<std::uint32_t>(bucket.entries());
    const auto row_begin = static_cast<std::uint32_t>(bucket.row_begin);
    std::uint32_t distinct = 0;
    begins[0] = 0;
    for (std::uint32_t i = 0; i < total; ++i) {
      rows[distinct] = entries[i].row - row_begin;
      begins[distinct + 1] = i + 1;
      distinct += i + 1 == total || entries[i + 1].row != entries[i].row ? 1 : 0;
    }
    count = distinct;
  }

  /// Writes where the found rows have their sums so far, or null, into sums[count]; returns how
  /// many have none. `lists`: as op::Merge's.
  std::int64_t find_sums(const RowBucket& bucket, std::span<const op::MergedGradients> lists,
                         std::int64_t width, float** sums) const {
    std::fill_n(sums, count, nullptr);
    const std::uint32_t* const rows_end = rows + count;
    for (const op::MergedGradients& list : lists) {
      const auto sum_at = [&](const std::int64_t* at) {
        return list.gradients + (at - list.rows) * width;
      };
      const std::int64_t first_row = bucket.row_begin + rows[0],
                         last_row = bucket.row_begin + rows[count - 1];
      const std::int64_t* end = list.rows + list.count;
      const std::int64_t* at = std::lower_bound<const std::int64_t*>(list.rows, end, first_row);
      end = std::upper_bound(at, end, last_row);
      constexpr std::int64_t far_more = 16;  // so that bisection is less work than a walk
      if (end - at > far_more * count) {
        for (std::int64_t k = 0; k < count; ++k) {
          const std::int64_t row = bucket.row_begin + rows[k];
          at = std::lower_bound(at, end, row);
          if (at == end) break;
          if (*at == row) sums[k] = sum_at(at);
        }
      } else if (count > far_more * (end - at)) {
        for (const std::uint32_t* found = rows; at != end; ++at) {
          const auto row = static_cast<std::uint32_t>(*at - bucket.row_begin);
          found = std::lower_bound(found, rows_end, row);
          if (found == rows_end) break;
          if (*found == row) sums[found - rows] = sum_at(at);
        }
      } else {
        // without a branch but the last: it is open which list has the lower row
        for (std::int64_t k = 0; k < count && at != end;) {
          const std::int64_t row = bucket.row_begin + rows[k], here = *at;
          sums[k] = row == here ? sum_at(at) : sums[k];
          k += row <= here ? 1 : 0;
          at += here <= row ? 1 : 0;
        }
      }
    }
    return std::count(sums, sums + count, nullptr);
  }
};

}  // namespace detail

}}  // namespace tessera::v0
