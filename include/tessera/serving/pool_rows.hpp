// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/lanes.hpp>
#include <tessera/host/bag_parts.hpp>
#include <tessera/host/lanes.hpp>
#include <tessera/op/bags.hpp>
#include <tessera/op/kernel.hpp>
#include <tessera/serving/row_format.hpp>

#include <cstddef>
#include <cstdint>

namespace tessera::inline v0::detail {

/// Pools bags [first, last): as op::Lookup does on the host, with the same bits where rows are
/// elements. Codes become floats, in one rounding, before they are summed.
template <class Row, bool Weighted, IdType Id>
void pool_rows(const std::byte* rows, int width, const op::Bags<Id>& bags, std::int64_t first,
               std::int64_t last, float* output, std::int64_t stride) {
  const auto row_bytes = static_cast<std::int64_t>(Row::bytes(width)),
             ahead = static_cast<std::int64_t>(prefetch_distance(row_bytes)),
             entries = bags.end(last - 1);
  const auto row = [&](std::int64_t i) { return rows + bags.ids[i] * row_bytes; };
  const auto foresee = [&](std::int64_t i) {
    if (i < entries) prefetch(row(i), row_bytes);
  };
  for (std::int64_t i = bags.begin(first); i < bags.begin(first) + ahead; ++i) foresee(i);
  for (std::int64_t bag = first; bag < last; ++bag) {
    const std::int64_t begin = bags.begin(bag), end = bags.end(bag);
    for_column_chunks<op::dynamic_width>(width, [&]<int C>(int column) {
      RowSum<C> sum;
      sum.clear();
      for (std::int64_t i = begin; i < end; ++i) {
        if (column == 0) foresee(i + ahead);
        const auto values = Row::at(row(i), width, column);
        if constexpr (Weighted) {
          sum.add(values, bags.weights[i]);
        } else {
          sum.add(values);
        }
      }
      if (!Weighted && bags.bag_scale != nullptr) sum.scale(bags.bag_scale[bag]);
      sum.store(output + bag * stride + column);
    });
  }
}

/// One row as floats.
template <class Row>
void read_row(const std::byte* row, int width, float* output) {
  for_column_chunks<op::dynamic_width>(width, [&]<int C>(int column) {
    RowSum<C> sum;
    sum.start();
    sum.add(Row::at(row, width, column));
    sum.store(output + column);
  });
}

}  // namespace tessera::inline v0::detail
