// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/cuda/backend.cuh>
#include <tessera/sequence/attention_mask.hpp>

#include <cstddef>
#include <cstdint>

namespace tessera { inline namespace v0 { namespace gpu { namespace detail {

inline constexpr int hstu_threads = 128;

/// What a row's normalization needs again on the way back.
struct RowMoments {
  float mean, scale;  ///< scale: 1 / sqrt(variance + epsilon)
};

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ inline float sum_of_warp(float value) {
  for (int distance = 16; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

// ---- rows: a warp each ----

/// Returns the calling warp's row, or -1 if there is none.
__device__ inline std::int64_t row_of_warp(std::int64_t rows) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (hstu_threads / 32) +
                           static_cast<int>(threadIdx.x) / 32;
  return row < rows ? row : -1;
}

/// Returns the moments of a row in memory, by the calling warp.
__device__ inline RowMoments moments_of_row(const float* x, std::int64_t width, float epsilon) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float sum = 0, squares = 0;
  for (std::int64_t c = lane; c < width; c += 32) sum += x[c];
  const float mean = sum_of_warp(sum) / static_cast<float>(width);
  for (std::int64_t c = lane; c < width; c += 32) squares += (x[c] - mean) * (x[c] - mean);
  return {mean, 1.0f / sqrtf(sum_of_warp(squares) / static_cast<float>(width) + epsilon)};
}

/// Computes y = (x - mean) scale weight + bias, over rows.
template <int = 0>
__global__ void __launch_bounds__(hstu_threads)
    normalize_rows(const MatrixView<const float> x, const float* weight, const float* bias,
                   const float epsilon, RowMoments* moments, const MatrixView<float> y) {
  const std::int64_t row = row_of_warp(x.rows);
  if (row < 0) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const RowMoments m = moments_of_row(x.row(row), x.columns, epsilon);
  for (std::int64_t c = lane; c < x.columns; c += 32)
    y(row, c) = (x(row, c) - m.mean) * m.scale * weight[c] + bias[c];
  if (lane == 0) moments[row] = m;
}

/// Computes dx = dy through a row's normalization, plus `straight`; `products` = dy times the
/// normalized row, whose column sums are the gradient of the weight. By the calling warp.
template <class Gradient, class Straight, class Write>
__device__ void normalize_row_backward(const float* x, const float* weight, RowMoments m,
                                       std::int64_t width, const Gradient& dy,
                                       const Straight& straight, float* products,
                                       const Write& write) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float mean = 0, slope = 0;
  for (std::int64_t c = lane; c < width; c += 32) {
    const float normal = (x[c] - m.mean) * m.scale, g = dy(c);
    products[c] = g * normal;
    mean += g * weight[c];
    slope += g * weight[c] * normal;
  }
  mean = sum_of_warp(mean) / static_cast<float>(width);
  slope = sum_of_warp(slope) / static_cast<float>(width);
  for (std::int64_t c = lane; c < width; c += 32) {
    const float normal = (x[c] - m.mean) * m.scale;
    write(c, straight(c) + m.scale * (dy(c) * weight[c] - mean - normal * slope));
  }
}

/// Computes dx = dy + the gradient through the normalization, of d_normed.
template <int = 0>
__global__ void __launch_bounds__(hstu_threads)
    normalize_rows_backward(const MatrixView<const float> x, const float* weight,
                            const RowMoments* moments, const MatrixView<const float> d_normed,
                            const MatrixView<const float> dy, const MatrixView<float> products,
                            const MatrixView<float> dx) {
  const std::int64_t row = row_of_warp(x.rows);
  if (row < 0) return;
  normalize_row_backward(
      x.row(row), weight, moments[row], x.columns, [&](std::int64_t c) { return d_normed(row, c); },
      [&](std::int64_t c) { return dy(row, c); }, products.row(row),
      [&](std::int64_t c, float value) {
        if (dx.data != nullptr) dx(row, c) = value;
      });
}

/// Computes gated = U times the normalized attention; with `concat` [U, attention, that].
template <int = 0>
__global__ void __launch_bounds__(hstu_threads)
    gate_rows(const MatrixView<const float> u, const MatrixView<const float> attention,
              const float* weight, const float* bias, const float epsilon, const bool concat,
              RowMoments* moments, const MatrixView<float> gated) {
  const std::int64_t row = row_of_warp(u.rows);
  if (row < 0) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const RowMoments m = moments_of_row(attention.row(row), attention.columns, epsilon);
  float* const out = gated.row(row) + (concat ? 2 * u.columns : 0);
  for (std::int64_t c = lane; c < u.columns; c += 32) {
    const float a = attention(row, c);
    out[c] = u(row, c) * ((a - m.mean) * m.scale * weight[c] + bias[c]);
    if (!concat) continue;
    gated(row, c) = u(row, c);
    gated(row, u.columns + c) = a;
  }
  if (lane == 0) moments[row] = m;
}

/// Computes from d_gated: du, d_attention, and of the normalization's parameters d_normal (whose
/// column sums are the gradient of the bias) and `products` (of the weight).
template <int = 0>
__global__ void __launch_bounds__(hstu_threads)
    gate_rows_backward(const MatrixView<const float> u, const MatrixView<const float> attention,
                       const float* weight, const float* bias, const RowMoments* moments,
                       const bool concat, const MatrixView<const float> d_gated,
                       const MatrixView<float> du, const MatrixView<float> d_attention,
                       const MatrixView<float> d_normal, const MatrixView<float> products) {
  const std::int64_t row = row_of_warp(u.rows);
  if (row < 0) return;
  const std::int64_t columns = u.columns;
  const float* const x = attention.row(row);
  const float* const g = d_gated.row(row) + (concat ? 2 * columns : 0);
  const RowMoments m = moments[row];
  for (std::int64_t c = static_cast<int>(threadIdx.x) % 32; c < columns; c += 32) {
    const float normed = (x[c] - m.mean) * m.scale * weight[c] + bias[c];
    du(row, c) = g[c] * normed + (concat ? d_gated(row, c) : 0.0f);
    d_normal(row, c) = g[c] * u(row, c);
  }
  normalize_row_backward(
      x, weight, m, columns, [&](std::int64_t c) { return g[c] * u(row, c); },
      [&](std::int64_t c) { return concat ? d_gated(row, columns + c) : 0.0f; }, products.row(row),
      [&](std::int64_t c, float value) { d_attention(row, c) = value; });
}

// ---- elements: a thread each, of rows of `columns` ----

/// Computes y = silu(x) of the first `activated` columns, x of the others.
template <int = 0>
__global__ void __launch_bounds__(hstu_threads)
    silu_columns(const float* x, float* y, const std::int64_t count, const std::int64_t columns,
                 const std::int64_t activated) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * hstu_threads + threadIdx.x;
  if (i < count) y[i] = i % columns < activated ? x[i] * sigmoid(x[i]) : x[i];
}

/// Puts dy times the derivative in its place.
template <int = 0>
__global__ void __launch_bounds__(hstu_threads)
    silu_columns_backward(const float* x, float* dy, const std::int64_t count,
                          const std::int64_t columns, const std::int64_t activated) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * hstu_threads + threadIdx.x;
  if (i >= count || i % columns >= activated) return;
  const float s = sigmoid(x[i]);
  dy[i] *= s + x[i] * s * (1.0f - s);
}

// ---- attention: a block of threads per head and tile of positions ----

/// U, V, Q and K of all positions side by side, and the sequences that they are of.
struct HstuSequences {
  const std::int64_t* offsets;
  const std::int64_t* targets;  ///< per sequence, or null
  std::int64_t rows, max_length, window;
  int heads;
  std::int64_t tiles;  ///< of a sequence of max_length
  float alpha, scale;
  const float* uvqk;
  std::int64_t stride, v_column, q_column, k_column;
};

/// Positions of a tile: as many as two such tiles of queries and of keys fit static shared memory.
template <int AttentionDim, int HiddenDim>
struct HstuTile {
  static constexpr std::size_t bytes(int positions) {
    return sizeof(float) * 2 * static_cast<std::size_t>(positions) *
           static_cast<std::size_t>(AttentionDim + HiddenDim + positions + 3);
  }
  static constexpr int positions = bytes(32) <= 48 * 1024 ? 32 : bytes(16) <= 48 * 1024 ? 16 : 8;
  static_assert(bytes(positions) <= 48 * 1024,
                "HstuLayer: on a GPU AttentionDim and HiddenDim together are at most 757");
  static constexpr int per_row = hstu_threads / positions;  // threads
  /// Returns the columns of a row that each of its threads adds up.
  TESSERA_HOST_DEVICE static constexpr int columns(int dim) {
    return (dim + per_row - 1) / per_row;
  }
};

/// The tile that a block of threads works on. What offsets say beyond `rows` and `max_length` is
/// not touched.
struct HstuBlock {
  std::int64_t row, first;  ///< first: of the tile's positions in the sequence
  int head;
  tessera::detail::AttentionMask mask;

  __device__ HstuBlock(const HstuSequences& p, int positions) {
    const std::int64_t block = blockIdx.x, sequence = block / p.tiles / p.heads;
    first = block % p.tiles * positions;
    head = static_cast<int>(block / p.tiles % p.heads);
    row = p.offsets[sequence];
    if (row < 0 || row > p.rows) row = p.rows;
    std::int64_t length = p.offsets[sequence + 1] - row;
    if (length > p.rows - row) length = p.rows - row;
    if (length > p.max_length) length = p.max_length;
    std::int64_t targets = p.targets == nullptr ? 0 : p.targets[sequence];
    if (targets < 0) targets = 0;
    if (targets > length) targets = length;
    mask = {length, targets, p.window};
  }
};

/// Loads columns [0, Dim) of positions [first, first + Positions) of a sequence; zeros behind its
/// end.
template <int Dim, int Positions>
__device__ void load_tile(const float* from, std::int64_t stride, std::int64_t first,
                          std::int64_t length, float (&tile)[Positions][Dim + 1]) {
  for (int i = static_cast<int>(threadIdx.x); i < Positions * Dim; i += hstu_threads) {
    const std::int64_t position = first + i / Dim;
    tile[i / Dim][i % Dim] = position < length ? from[position * stride + i % Dim] : 0.0f;
  }
}

template <int Dim>
__device__ float dot(const float (&a)[Dim + 1], const float (&b)[Dim + 1]) {
  float sum = 0;
  for (int i = 0; i < Dim; ++i) sum += a[i] * b[i];
  return sum;
}

template <int AttentionDim, int HiddenDim>
struct HstuForwardTiles {
  static constexpr int positions = HstuTile<AttentionDim, HiddenDim>::positions;
  float q[positions][AttentionDim + 1], k[positions][AttentionDim + 1];
  float v[positions][HiddenDim + 1], scores[positions][positions + 1];
};

/// Computes O = silu(alpha Q K^T) scale V, of what the mask lets see.
template <int AttentionDim, int HiddenDim>
__global__ void __launch_bounds__(hstu_threads)
    hstu_attention(const HstuSequences p, const MatrixView<float> attention) {
  using Tile = HstuTile<AttentionDim, HiddenDim>;
  constexpr int positions = Tile::positions, per_row = Tile::per_row,
                columns = Tile::columns(HiddenDim);
  const HstuBlock at(p, positions);
  if (at.first >= at.mask.length) return;
  auto& shared = block_shared<HstuForwardTiles<AttentionDim, HiddenDim>>();
  const float* const rows = p.uvqk + at.row * p.stride;
  const int r = static_cast<int>(threadIdx.x) / per_row,
            part = static_cast<int>(threadIdx.x) % per_row;
  const std::int64_t i = at.first + r;
  load_tile<AttentionDim>(rows + p.q_column + at.head * AttentionDim, p.stride, at.first,
                          at.mask.length, shared.q);
  float sum[columns] = {};
  const std::int64_t begin = at.mask.begin(at.first) / positions * positions;
  for (std::int64_t key = begin; key <= at.first; key += positions) {
    __syncthreads();
    load_tile<AttentionDim>(rows + p.k_column + at.head * AttentionDim, p.stride, key,
                            at.mask.length, shared.k);
    load_tile<HiddenDim>(rows + p.v_column + at.head * HiddenDim, p.stride, key, at.mask.length,
                         shared.v);
    __syncthreads();
    for (int k = part; k < positions; k += per_row) {
      const float s = p.alpha * dot<AttentionDim>(shared.q[r], shared.k[k]);
      shared.scores[r][k] =
          i < at.mask.length && at.mask.sees(i, key + k) ? p.scale * (s * sigmoid(s)) : 0.0f;
    }
    __syncthreads();
    for (int k = 0; k < positions; ++k)
      for (int c = 0; c < columns; ++c)
        if (part + c * per_row < HiddenDim)
          sum[c] += shared.scores[r][k] * shared.v[k][part + c * per_row];
  }
  if (i >= at.mask.length) return;
  for (int c = 0; c < columns; ++c)
    if (part + c * per_row < HiddenDim)
      attention(at.row + i, at.head * HiddenDim + part + c * per_row) = sum[c];
}

/// What both kernels of the way back keep of a tile of queries and one of keys.
template <int AttentionDim, int HiddenDim>
struct HstuBackwardTiles {
  static constexpr int positions = HstuTile<AttentionDim, HiddenDim>::positions;
  float q[positions][AttentionDim + 1], k[positions][AttentionDim + 1];
  float v[positions][HiddenDim + 1], d[positions][HiddenDim + 1];
  float scores[positions][positions + 1], slopes[positions][positions + 1];

  __device__ void load_queries(const HstuSequences& p, const HstuBlock& at, std::int64_t first,
                               const MatrixView<const float>& d_attention) {
    load_tile<AttentionDim>(p.uvqk + at.row * p.stride + p.q_column + at.head * AttentionDim,
                            p.stride, first, at.mask.length, q);
    load_tile<HiddenDim>(d_attention.row(at.row) + at.head * HiddenDim, d_attention.stride, first,
                         at.mask.length, d);
  }
  __device__ void load_keys(const HstuSequences& p, const HstuBlock& at, std::int64_t first) {
    const float* const rows = p.uvqk + at.row * p.stride;
    load_tile<AttentionDim>(rows + p.k_column + at.head * AttentionDim, p.stride, first,
                            at.mask.length, k);
    load_tile<HiddenDim>(rows + p.v_column + at.head * HiddenDim, p.stride, first, at.mask.length,
                         v);
  }
  /// Computes scores [query][key], and slopes: the gradient of alpha times their product. All
  /// threads.
  __device__ void score(const HstuSequences& p, const HstuBlock& at, std::int64_t query,
                        std::int64_t key) {
    for (int e = static_cast<int>(threadIdx.x); e < positions * positions; e += hstu_threads) {
      const int row = e / positions, column = e % positions;
      const std::int64_t i = query + row, j = key + column;
      float score = 0, slope = 0;
      if (i < at.mask.length && j < at.mask.length && at.mask.sees(i, j)) {
        const float s = p.alpha * dot<AttentionDim>(q[row], k[column]), gate = sigmoid(s),
                    y = s * gate;
        score = p.scale * y;
        slope = p.alpha * p.scale * dot<HiddenDim>(d[row], v[column]) * (gate + y * (1.0f - gate));
      }
      scores[row][column] = score;
      slopes[row][column] = slope;
    }
  }
};

/// Computes the gradient of Q: a block per tile of queries.
template <int AttentionDim, int HiddenDim>
__global__ void __launch_bounds__(hstu_threads)
    hstu_attention_backward_q(const HstuSequences p, const MatrixView<const float> d_attention,
                              const MatrixView<float> d_uvqk) {
  using Tile = HstuTile<AttentionDim, HiddenDim>;
  constexpr int positions = Tile::positions, per_row = Tile::per_row,
                columns = Tile::columns(AttentionDim);
  const HstuBlock at(p, positions);
  if (at.first >= at.mask.length) return;
  auto& tiles = block_shared<HstuBackwardTiles<AttentionDim, HiddenDim>>();
  const int r = static_cast<int>(threadIdx.x) / per_row,
            part = static_cast<int>(threadIdx.x) % per_row;
  tiles.load_queries(p, at, at.first, d_attention);
  float sum[columns] = {};
  const std::int64_t begin = at.mask.begin(at.first) / positions * positions;
  for (std::int64_t key = begin; key <= at.first; key += positions) {
    __syncthreads();
    tiles.load_keys(p, at, key);
    __syncthreads();
    tiles.score(p, at, at.first, key);
    __syncthreads();
    for (int k = 0; k < positions; ++k)
      for (int c = 0; c < columns; ++c)
        if (part + c * per_row < AttentionDim)
          sum[c] += tiles.slopes[r][k] * tiles.k[k][part + c * per_row];
  }
  if (at.first + r >= at.mask.length) return;
  for (int c = 0; c < columns; ++c)
    if (part + c * per_row < AttentionDim)
      d_uvqk(at.row + at.first + r, p.q_column + at.head * AttentionDim + part + c * per_row) =
          sum[c];
}

/// Computes the gradients of K and V: a block per tile of keys.
template <int AttentionDim, int HiddenDim>
__global__ void __launch_bounds__(hstu_threads)
    hstu_attention_backward_kv(const HstuSequences p, const MatrixView<const float> d_attention,
                               const MatrixView<float> d_uvqk) {
  using Tile = HstuTile<AttentionDim, HiddenDim>;
  constexpr int positions = Tile::positions, per_row = Tile::per_row,
                k_columns = Tile::columns(AttentionDim), v_columns = Tile::columns(HiddenDim);
  const HstuBlock at(p, positions);
  if (at.first >= at.mask.length) return;
  auto& tiles = block_shared<HstuBackwardTiles<AttentionDim, HiddenDim>>();
  const int r = static_cast<int>(threadIdx.x) / per_row,
            part = static_cast<int>(threadIdx.x) % per_row;
  tiles.load_keys(p, at, at.first);
  float dk[k_columns] = {}, dv[v_columns] = {};
  for (std::int64_t query = at.first; query < at.mask.length; query += positions) {
    // Queries whose window begins behind these keys see none of them.
    if (query > at.first && at.mask.begin(query) >= at.first + positions) continue;
    __syncthreads();
    tiles.load_queries(p, at, query, d_attention);
    __syncthreads();
    tiles.score(p, at, query, at.first);
    __syncthreads();
    for (int q = 0; q < positions; ++q) {
      for (int c = 0; c < k_columns; ++c)
        if (part + c * per_row < AttentionDim)
          dk[c] += tiles.slopes[q][r] * tiles.q[q][part + c * per_row];
      for (int c = 0; c < v_columns; ++c)
        if (part + c * per_row < HiddenDim)
          dv[c] += tiles.scores[q][r] * tiles.d[q][part + c * per_row];
    }
  }
  if (at.first + r >= at.mask.length) return;
  float* const row = d_uvqk.row(at.row + at.first + r);
  for (int c = 0; c < k_columns; ++c)
    if (part + c * per_row < AttentionDim)
      row[p.k_column + at.head * AttentionDim + part + c * per_row] = dk[c];
  for (int c = 0; c < v_columns; ++c)
    if (part + c * per_row < HiddenDim)
      row[p.v_column + at.head * HiddenDim + part + c * per_row] = dv[c];
}

}}}}  // namespace tessera::v0::gpu::detail
