// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/row_lanes.cuh>
#include <tessera/dense/dense_kernels.cuh>

#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace v0 { namespace gpu {

/// of a block: a warp takes them of one row, four per lane
inline constexpr int cross_columns = 128;
inline constexpr int cross_warps = dense_threads / 32;
/// Rows that a warp has loaded, forward, before it stores the first; and those of a block.
template <Element X, Element T>
inline constexpr int cross_flight = sizeof(X) + sizeof(T) <= 4 ? 8 : 4;
template <Element X, Element T>
inline constexpr int cross_rows = cross_flight<X, T> * cross_warps;

/// Returns whether a lane may take four columns of each of these matrices of one shape at a time.
template <class... Views>
TESSERA_HOST_DEVICE bool all_rows_aligned(const Views&... views) {
  return (rows_aligned_for(views.data, views.stride, 4) && ...);
}

/// Computes next = x0 * scale + before, element by element, in float; X, T and Y are what they are
/// stored in. A `before` without data is x0. A block takes cross_rows of 128 columns; column blocks
/// of the same rows are neighbours.
template <Element X, Element T, Element Y>
__global__ void __launch_bounds__(dense_threads, 3)
    cross_forward(const MatrixView<const X> x0, const MatrixView<const T> scale,
                  const MatrixView<const T> before, const MatrixView<Y> next,
                  const int column_blocks) {
  constexpr int flight = cross_flight<X, T>;
  const std::int64_t column =
      static_cast<std::int64_t>(blockIdx.x % column_blocks) * cross_columns + threadIdx.x % 32 * 4;
  if (column >= next.columns) return;
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x / column_blocks) * cross_rows<X, T> + threadIdx.x / 32;
  const auto each_row = [&](const auto& f) {
    for (int r = 0; r < flight; ++r)
      if (const std::int64_t row = first + r * cross_warps; row < next.rows) f(r, row);
  };
  if (column + 4 <= next.columns && all_rows_aligned(x0, scale, before, next)) {
    // as stored in memory: all are on their way before the first is widened
    RawPack<X, 4> x[flight];
    RawPack<T, 4> s[flight], b[flight];
    each_row([&](int r, std::int64_t row) {
      x[r] = load_raw<4>(x0.row(row) + column);
      s[r] = load_raw<4>(scale.row(row) + column);
      if (before.data != nullptr) b[r] = load_raw<4>(before.row(row) + column);
    });
    each_row([&](int r, std::int64_t row) {
      float x_of[4], s_of[4], sum[4];
      x[r].widen(x_of);
      s[r].widen(s_of);
      if (before.data != nullptr)
        b[r].widen(sum);
      else
        x[r].widen(sum);
      for (int i = 0; i < 4; ++i) sum[i] = fmaf(x_of[i], s_of[i], sum[i]);
      store_four(next.row(row) + column, true, 4, sum);
    });
    return;
  }
  each_row([&](int, std::int64_t row) {
    for (std::int64_t c = column; c < column + 4 && c < next.columns; ++c) {
      const float x = to_float(x0(row, c));
      next(row, c) = from_float<Y>(
          fmaf(x, to_float(scale(row, c)), before.data != nullptr ? to_float(before(row, c)) : x));
    }
  });
}

/// What a layer's gradient is before its products, of T, and how it goes on.
template <Element Above, Element X, Element T>
struct CrossGradients {
  MatrixView<const Above> above;  ///< of the layer's output
  MatrixView<const X> x0;         ///< its inputs: next = x0 * scale + before
  MatrixView<const T> scale;
  /// of_scale = above * x0; of_x0 (+)= above * scale (+ above)
  MatrixView<T> of_scale;
  MatrixView<float> of_x0;
  bool first = false, with_above = false;  ///< of_x0 is not read; above is added
  struct None {};
  /// Of another type than T: where a product is to be added to `above`, a copy of it.
  std::conditional_t<std::is_same_v<Above, T>, None, MatrixView<T>> copy = {};
};

/// Computes the gradients, and the sums of of_scale's columns. A block takes 128 rows of 128
/// columns, a warp every eighth row; then the warps' sums in order.
template <Element Above, Element X, Element T>
__global__ void __launch_bounds__(dense_threads, 5)
    cross_backward(const CrossGradients<Above, X, T> g, float* partial, const int column_blocks) {
  auto& sums = block_shared<float[cross_warps][cross_columns]>();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t chunk = blockIdx.x / column_blocks,
                     first_column =
                         static_cast<std::int64_t>(blockIdx.x % column_blocks) * cross_columns,
                     column = first_column + lane * 4, width = g.of_scale.columns,
                     end = (chunk + 1) * sum_rows < g.of_scale.rows ? (chunk + 1) * sum_rows
                                                                    : g.of_scale.rows;
  const int count = width - column < 4 ? static_cast<int>(width - column) : 4;
  bool aligned = all_rows_aligned(g.above, g.x0, g.scale, g.of_scale, g.of_x0);
  if constexpr (!std::is_same_v<Above, T>) aligned = aligned && all_rows_aligned(g.copy);
  float sum[4] = {};
  if (count > 0)
    for (std::int64_t row = chunk * sum_rows + warp; row < end; row += cross_warps) {
      float above[4], x[4], s[4], dx[4] = {};
      load_four(g.above.row(row) + column, aligned, count, above);
      load_four(g.x0.row(row) + column, aligned, count, x);
      load_four(g.scale.row(row) + column, aligned, count, s);
      if (!g.first) load_four(g.of_x0.row(row) + column, aligned, count, dx);
      for (int i = 0; i < 4; ++i) {
        dx[i] = fmaf(above[i], s[i], g.with_above ? dx[i] + above[i] : dx[i]);
        x[i] *= above[i];
        sum[i] += x[i];
      }
      store_four(g.of_scale.row(row) + column, aligned, count, x);
      store_four(g.of_x0.row(row) + column, aligned, count, dx);
      if constexpr (!std::is_same_v<Above, T>)
        if (g.copy.data != nullptr) store_four(g.copy.row(row) + column, aligned, count, above);
    }
  for (int i = 0; i < 4; ++i) sums[warp][4 * lane + i] = sum[i];
  __syncthreads();
  const int mine = static_cast<int>(threadIdx.x);
  if (mine >= cross_columns || first_column + mine >= width) return;
  float total = 0;
  for (int w = 0; w < cross_warps; ++w) total += sums[w][mine];
  partial[chunk * width + first_column + mine] = total;
}

}}}  // namespace tessera::v0::gpu
