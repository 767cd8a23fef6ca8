// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/op/kernel.hpp>
#include <tessera/op/mean_square.hpp>

#include <cstdint>
#include <span>

namespace tessera::inline v0 {

/// Where rows stand in ascending lists of rows: the number of those below `row`. The host waits for the answers.
struct FindRows {
  struct Job {
    const std::int64_t* rows = nullptr;
    std::int64_t count = 0;
    std::int64_t row = 0;
  };
  struct Parameters {
    std::span<const Job> jobs;
    std::span<std::int64_t> found;  ///< one per job, in host memory
  };
};

/// The columns of a table that a shard holds.
struct ColumnRange {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::int32_t table_width = 0;

  TESSERA_HOST_DEVICE constexpr int width() const { return end - begin; }
  TESSERA_HOST_DEVICE constexpr int partials() const { return mean_square_partials(begin, end, table_width); }
};

/// Writes what a shard knows of the mean squares of rows: `columns.partials()` floats per row (op/mean_square.hpp).
struct WriteMeanSquares {
  struct Job {
    const float* gradients = nullptr;  ///< [rows, columns.width()]
    std::int64_t rows = 0;
    ColumnRange columns;
    float* partials = nullptr;
  };
  struct Parameters {
    std::span<const Job> jobs;
  };
};

/// Puts the mean squares of rows together from the parts of their shards, in the order of columns.
struct CombineMeanSquares {
  /// The rows of one shard, some of which other shards know parts of.
  struct Part {
    std::int64_t row_begin = 0;  ///< in the arena
    std::int64_t row_end = 0;
    std::int64_t first = 0;           ///< merged row that the first partials belong to
    const float* partials = nullptr;  ///< null: this shard's own, worked out from the gradients
    ColumnRange columns;
  };
  struct Job {
    const std::int64_t* rows = nullptr;  ///< of all merged rows
    const float* gradients = nullptr;    ///< of all merged rows
    std::int64_t first = 0;              ///< merged rows [first, first + count)
    std::int64_t count = 0;
    std::span<const Part> parts;  ///< in the order of columns; of several with the same columns each row is in one
    float* means = nullptr;       ///< of all merged rows
  };
  struct Parameters {
    std::span<const Job> jobs;
  };
};

}  // namespace tessera::inline v0
