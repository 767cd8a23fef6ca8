// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>

namespace tessera { inline namespace v0 { namespace op {

// The canonical mean square of a row's gradient has the same bits however the table's columns are
// cut. Columns are grouped in blocks of 16 counted from the table's first column. A block's squares
// are summed in double as a tree (i with i+8, then i+4, i+2, i+1; columns beyond the table count 0)
// and rounded to float; blocks are added in float in ascending order; the sum is divided by the
// table's width. Squares of floats are exact in double, so fused multiply-adds cannot change a bit.
//
// A shard contributes its partials in column order: one float for a block that it holds whole, the
// gradients themselves for the columns of a block that it holds in part.

inline constexpr int mean_square_block = 16;

/// Returns the sum of squares of one block: `columns` (1..16) gradients.
TESSERA_HOST_DEVICE inline float block_square_sum(const float* gradient,
                                                  int columns = mean_square_block) {
  double squares[mean_square_block];
  for (int i = 0; i < mean_square_block; ++i)
    squares[i] = i < columns ? static_cast<double>(gradient[i]) * gradient[i] : 0.0;
  for (int half = mean_square_block / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) squares[i] += squares[i + half];
  return static_cast<float>(squares[0]);
}

/// Returns the mean square of a whole row of `width` gradients.
TESSERA_HOST_DEVICE inline float mean_square(const float* gradient, int width) {
  float sum = 0;
  int column = 0;
  for (; column + mean_square_block <= width; column += mean_square_block)
    sum += block_square_sum(gradient + column);
  if (column < width) sum += block_square_sum(gradient + column, width - column);
  return sum / static_cast<float>(width);
}

/// The part of a block that is in columns [column, column_end): where it stops, and whether that
/// is the whole block.
struct BlockPart {
  int stop;
  int block_end;
  bool whole;

  TESSERA_HOST_DEVICE constexpr BlockPart(int column, int column_end, int table_width)
      : stop(column_end),
        block_end(column / mean_square_block * mean_square_block + mean_square_block),
        whole(false) {
    if (block_end > table_width) block_end = table_width;
    if (stop > block_end) stop = block_end;
    whole = column % mean_square_block == 0 && stop == block_end;
  }
};

/// Returns how many floats per row the shard of columns [column_begin, column_end) of a table
/// contributes.
TESSERA_HOST_DEVICE constexpr int mean_square_partials(int column_begin, int column_end,
                                                       int table_width) {
  int count = 0;
  for (int column = column_begin; column < column_end;) {
    const BlockPart part(column, column_end, table_width);
    count += part.whole ? 1 : part.stop - column;
    column = part.stop;
  }
  return count;
}

/// Writes a row's partials; `gradient` starts at column_begin.
TESSERA_HOST_DEVICE inline void write_mean_square_partials(const float* gradient, int column_begin,
                                                           int column_end, int table_width,
                                                           float* partials) {
  for (int column = column_begin; column < column_end;) {
    const BlockPart part(column, column_end, table_width);
    const float* values = gradient + (column - column_begin);
    if (part.whole) {
      *partials++ = block_square_sum(values, part.stop - column);
    } else {
      for (int i = 0; i < part.stop - column; ++i) *partials++ = values[i];
    }
    column = part.stop;
  }
}

/// Puts a row's partials together again: `add` each shard's, in column order, then `mean`.
class MeanSquareSum {
 public:
  TESSERA_HOST_DEVICE void add(const float* partials, int column_begin, int column_end,
                               int table_width) {
    for (int column = column_begin; column < column_end;) {
      const BlockPart part(column, column_end, table_width);
      if (part.whole) {
        sum_ += *partials++;
      } else {
        const int first = column % mean_square_block;
        const int count = part.stop - column;
        for (int i = 0; i < count; ++i) cut_[first + i] = *partials++;
        if (part.stop == part.block_end) sum_ += block_square_sum(cut_, first + count);
      }
      column = part.stop;
    }
  }
  /// Does the same from a row's gradients of these columns.
  TESSERA_HOST_DEVICE void add_gradients(const float* gradient, int column_begin, int column_end,
                                         int table_width) {
    for (int column = column_begin; column < column_end;) {
      const BlockPart part(column, column_end, table_width);
      const float* values = gradient + (column - column_begin);
      if (part.whole) {
        sum_ += block_square_sum(values, part.stop - column);
      } else {
        const int first = column % mean_square_block;
        for (int i = 0; i < part.stop - column; ++i) cut_[first + i] = values[i];
        if (part.stop == part.block_end) sum_ += block_square_sum(cut_, first + part.stop - column);
      }
      column = part.stop;
    }
  }
  TESSERA_HOST_DEVICE float mean(int table_width) const {
    return sum_ / static_cast<float>(table_width);
  }

 private:
  float sum_ = 0;
  float cut_[mean_square_block] = {};
};

}}}  // namespace tessera::v0::op
