// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/row_lanes.cuh>
#include <tessera/dense/dense_kernels.cuh>

#include <cstdint>
#include <type_traits>

namespace tessera::inline v0::gpu {

/// of a block: a warp takes them of one row, four per lane
inline constexpr int cross_columns = 128;
inline constexpr int cross_warps = dense_threads / 32;
inline constexpr int cross_rows = 32;   ///< of a block, forward
inline constexpr int cross_flight = 4;  ///< rows that a warp has loaded before it stores the first

/// Matrices of one shape of which a lane takes four columns at a time.
template <class... Views>
TESSERA_HOST_DEVICE bool all_rows_aligned(const Views&... views) {
  return (rows_aligned_for(views.data, views.stride, 4) && ...);
}

/// next = x0 * scale + before, element by element, in float; X and Y are what x0 and next are
/// stored in. A `before` without data, which only an x0 of 16 bits may have beside it, is x0. A
/// block takes 32 rows of 128 columns; column blocks of the same rows are neighbours.
template <Element X, Element Y>
__global__ void __launch_bounds__(dense_threads)
    cross_forward(const MatrixView<const X> x0, const MatrixView<const float> scale,
                  const MatrixView<const float> before, const MatrixView<Y> next,
                  const int column_blocks) {
  const std::int64_t column =
      static_cast<std::int64_t>(blockIdx.x % column_blocks) * cross_columns + threadIdx.x % 32 * 4;
  if (column >= next.columns) return;
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x / column_blocks) * cross_rows + threadIdx.x / 32;
  const int count = next.columns - column < 4 ? static_cast<int>(next.columns - column) : 4;
  const bool aligned = all_rows_aligned(x0, scale, before, next);
  float x[cross_flight][4], s[cross_flight][4], b[cross_flight][4];
  for (int r = 0; r < cross_flight; ++r) {
    const std::int64_t row = first + r * cross_warps;
    if (row >= next.rows) continue;
    load_four(x0.row(row) + column, aligned, count, x[r]);
    load_four(scale.row(row) + column, aligned, count, s[r]);
    if constexpr (!std::is_same_v<X, float>)
      if (before.data == nullptr) {
        for (int i = 0; i < 4; ++i) b[r][i] = x[r][i];
        continue;
      }
    load_four(before.row(row) + column, aligned, count, b[r]);
  }
  for (int r = 0; r < cross_flight; ++r) {
    const std::int64_t row = first + r * cross_warps;
    if (row >= next.rows) continue;
    for (int i = 0; i < 4; ++i) b[r][i] = fmaf(x[r][i], s[r][i], b[r][i]);
    store_four(next.row(row) + column, aligned, count, b[r]);
  }
}
static_assert(cross_rows == cross_flight * cross_warps);

/// What a layer's gradient is before its products, and how it goes on.
template <Element Above, Element X>
struct CrossGradients {
  MatrixView<const Above> above;  ///< of the layer's output
  MatrixView<const X> x0;         ///< its inputs: next = x0 * scale + before
  MatrixView<const float> scale;
  /// of_scale = above * x0; of_x0 (+)= above * scale (+ above)
  MatrixView<float> of_scale, of_x0;
  bool first = false, with_above = false;  ///< of_x0 is not read; above is added
  struct None {};
  /// Of 16 bits: where a product is to be added to `above`, which takes floats, a copy of it.
  std::conditional_t<std::is_same_v<Above, float>, None, MatrixView<float>> copy = {};
};

/// Also the sums of of_scale's columns. A block takes 128 rows of 128 columns, a warp every eighth
/// row; then the warps' sums in order.
template <Element Above, Element X>
__global__ void __launch_bounds__(dense_threads)
    cross_backward(const CrossGradients<Above, X> g, float* partial, const int column_blocks) {
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
  if constexpr (!std::is_same_v<Above, float>) aligned = aligned && all_rows_aligned(g.copy);
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
      if constexpr (!std::is_same_v<Above, float>)
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

}  // namespace tessera::inline v0::gpu
