// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/jagged.hpp>
#include <tessera/core/lanes.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/host/bag_parts.hpp>
#include <tessera/host/lanes.hpp>
#include <tessera/op/bags.hpp>
#include <tessera/op/kernel.hpp>
#include <tessera_serving/row_format.hpp>
#include <tessera_serving/row_overlay.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>

namespace tessera { inline namespace v0 { namespace detail {

/// Where rows of a table are: one after another.
struct RowsInOrder {
  static constexpr bool overlaid = false;
  const std::byte* rows;
  std::int64_t row_bytes;
  const std::byte* operator()(std::int64_t row) const { return rows + row * row_bytes; }
  void foresee(std::int64_t) const {}
};
/// The same, but that some are elsewhere.
struct RowsWithOverlay {
  static constexpr bool overlaid = true;
  RowsInOrder table;
  const RowOverlay& overlay;
  const std::byte* operator()(std::int64_t row) const {
    return overlay.find(row, table(row), table.row_bytes);
  }
  void foresee(std::int64_t row) const { overlay.foresee(row); }
};

/// Pools bags [first, last): as op::Lookup does on the host, with the same bits if rows are
/// elements. Codes become floats, in one rounding (int8 without FMA: two), before they are summed.
template <class Row, bool Weighted, class Rows, IdType Id>
void pool_rows(const Rows& rows, int width, const op::Bags<Id>& bags, std::int64_t first,
               std::int64_t last, float* output, std::int64_t stride) {
  const auto row_bytes = static_cast<std::int64_t>(Row::bytes(width)),
             ahead = static_cast<std::int64_t>(prefetch_distance(row_bytes)),
             entries = bags.end(last - 1);
  static_assert(prefetch_distance(1) < 128);
  // Addresses that cost something to find are found once, when their rows are asked for.
  constexpr std::int64_t found = 128;
  const std::byte* addresses[Rows::overlaid ? found : 1];
  const auto row = [&](std::int64_t i, int column) {
    if constexpr (Rows::overlaid)
      if (column == 0) return addresses[i % found];
    return rows(bags.ids[i]);
  };
  // Where a bag takes several passes, each asks for its share of the rows ahead: all at once would
  // be more lines than a core can wait for.
  struct Share {
    std::int64_t begin, bytes;  ///< of a row
  };
  const auto foresee = [&](std::int64_t i, Share of) {
    if (of.begin == 0 && i + ahead < entries) rows.foresee(bags.ids[i + ahead]);
    if (i >= entries) return;
    const std::byte* address;
    if constexpr (Rows::overlaid) {
      if (of.begin == 0) addresses[i % found] = rows(bags.ids[i]);
      address = addresses[i % found];
    } else {
      address = rows(bags.ids[i]);
    }
    prefetch(address + of.begin, of.bytes);
  };
  for (std::int64_t i = bags.begin(first); i < bags.begin(first) + ahead; ++i)
    foresee(i, {0, row_bytes});
  for (std::int64_t bag = first; bag < last; ++bag) {
    const std::int64_t begin = bags.begin(bag), end = bags.end(bag);
    for_column_chunks<op::dynamic_width, Row::most_columns>(width, [&]<int C>(int column) {
      // no division where one pass takes all
      const std::int64_t from = column == 0 ? 0 : row_bytes * column / width,
                         to = column + C == width ? row_bytes : row_bytes * (column + C) / width;
      const Share share{from, to - from};
      RowSum<C> sum;
      sum.clear();
      for (std::int64_t i = begin; i < end; ++i) {
        foresee(i + ahead, share);
        const auto values = Row::at(row(i, column), width, column);
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

/// Reads row ids[i] as floats into row i of `output`, zeros for ids below 0.
template <class Row, class Rows, IdType Id>
void read_rows(const Rows& rows, int width, std::span<const Id> ids, MatrixView<float> output) {
  const auto row_bytes = static_cast<std::int64_t>(Row::bytes(width)),
             ahead = static_cast<std::int64_t>(prefetch_distance(row_bytes)),
             count = std::ssize(ids);
  const auto foresee = [&](std::int64_t i) {
    if (i + ahead < count && ids[static_cast<std::size_t>(i + ahead)] >= 0)
      rows.foresee(ids[static_cast<std::size_t>(i + ahead)]);
    if (i < count && ids[static_cast<std::size_t>(i)] >= 0)
      prefetch(rows(ids[static_cast<std::size_t>(i)]), row_bytes);
  };
  for (std::int64_t i = 0; i < ahead; ++i) foresee(i);
  for (std::int64_t i = 0; i < count; ++i) {
    foresee(i + ahead);
    float* const to = output.data + i * output.stride;
    if (ids[static_cast<std::size_t>(i)] < 0) {
      std::fill_n(to, width, 0.0f);
      continue;
    }
    const std::byte* const row = rows(ids[static_cast<std::size_t>(i)]);
    for_column_chunks<op::dynamic_width, Row::most_columns>(width, [&]<int C>(int column) {
      RowSum<C> sum;
      sum.start();
      sum.add(Row::at(row, width, column));
      sum.store(to + column);
    });
  }
}

/// Calls f(Row{}, rows) with what reads a table's rows and where they are.
template <class Table, class F>
void with_rows(const Table& table, F&& f) {
  with_row_type(table.format, [&](auto row) {
    const RowsInOrder rows{table.data,
                           static_cast<std::int64_t>(decltype(row)::bytes(table.width))};
    table.changed ? f(row, RowsWithOverlay{rows, *table.changed}) : f(row, rows);
  });
}

}}}  // namespace tessera::v0::detail
