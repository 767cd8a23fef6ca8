// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/host/backend.hpp>
#include <tessera/op/row_statistics.hpp>

#include <algorithm>
#include <cstdint>

namespace tessera { inline namespace v0 {

template <>
struct op::Kernel<op::FindRows, Host> {
  static void run(const Host&, const op::FindRows::Parameters& p) {
    op::PlaceRange* found = p.found;
    for (const op::FindRows::Job& job : p.jobs) {
      const std::int64_t* const begin =
          std::lower_bound(job.rows, job.rows + job.count, job.row_begin);
      *found++ = {begin - job.rows,
                  std::lower_bound(begin, job.rows + job.count, job.row_end) - job.rows};
    }
  }
};

template <>
struct op::Kernel<op::WriteMeanSquares, Host> {
  static void run(const Host&, const op::WriteMeanSquares::Parameters& p) {
    for (const op::WriteMeanSquares::Job& job : p.jobs)
      for (std::int64_t i = job.which->begin; i < job.which->end; ++i)
        op::write_mean_square_partials(
            job.gradients + i * job.columns.width(), job.columns.begin, job.columns.end,
            job.columns.table_width,
            job.partials + (i - job.which->begin) * job.columns.partials());
  }
};

template <>
struct op::Kernel<op::CombineMeanSquares, Host> {
  static void run(const Host&, const op::CombineMeanSquares::Parameters& p) {
    for (const op::CombineMeanSquares::Job& job : p.jobs)
      for (std::int64_t i = job.which->begin; i < job.which->end; ++i) {
        op::MeanSquareSum sum;
        int table_width = 1;
        for (const op::CombineMeanSquares::Part& part : job.parts) {
          const op::ColumnRange& c = part.columns;
          table_width = c.table_width;
          if (job.rows[i] < part.row_begin || job.rows[i] >= part.row_end) continue;
          if (part.partials == nullptr)
            sum.add_gradients(job.gradients + i * c.width(), c.begin, c.end, c.table_width);
          else
            sum.add(part.partials + (i - part.which->begin) * c.partials(), c.begin, c.end,
                    c.table_width);
        }
        job.means[i] = sum.mean(table_width);
      }
  }
};

}}  // namespace tessera::v0
