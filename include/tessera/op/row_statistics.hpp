// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/op/kernel.hpp>
#include <tessera/op/mean_square.hpp>

#include <cstdint>
#include <span>

namespace tessera { inline namespace v0 { namespace op {

/// Places [begin, end) of a list.
struct PlaceRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  TESSERA_HOST_DEVICE constexpr std::int64_t size() const { return end - begin; }
};

/// Finds the rows [row_begin, row_end) in ascending lists of rows, which -1 may follow
/// any number of times.
struct FindRows {
  struct Job {
    const std::int64_t* rows = nullptr;
    std::int64_t count = 0;
    std::int64_t row_begin = 0;
    std::int64_t row_end = 0;
  };
  struct Parameters {
    std::span<const Job> jobs;
    PlaceRange* found = nullptr;  ///< one per job, in the backend's memory
  };
};

/// The columns of a table that a shard holds.
struct ColumnRange {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  std::int32_t table_width = 0;

  TESSERA_HOST_DEVICE constexpr int width() const { return end - begin; }
  TESSERA_HOST_DEVICE constexpr int partials() const {
    return mean_square_partials(begin, end, table_width);
  }
};

/// Writes what a shard knows of the mean squares of rows: `columns.partials()` floats per row
/// (op/mean_square.hpp).
struct WriteMeanSquares {
  struct Job {
    const float* gradients = nullptr;   ///< of all merged rows: [rows, columns.width()]
    const PlaceRange* which = nullptr;  ///< of them, in the backend's memory
    std::int64_t room = 0;              ///< at least as many
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
    /// merged rows that the partials belong to, in the backend's memory
    const PlaceRange* which = nullptr;
    const float* partials = nullptr;  ///< null: this shard's own, worked out from the gradients
    ColumnRange columns;
  };
  struct Job {
    const std::int64_t* rows = nullptr;  ///< of all merged rows
    const float* gradients = nullptr;    ///< of all merged rows
    const PlaceRange* which = nullptr;   ///< of them, in the backend's memory
    std::int64_t room = 0;               ///< at least as many
    /// in the order of columns; of several with the same columns each row is in one
    std::span<const Part> parts;
    float* means = nullptr;  ///< of all merged rows
  };
  struct Parameters {
    std::span<const Job> jobs;
  };
};

}}}  // namespace tessera::v0::op
