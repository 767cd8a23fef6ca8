// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/cuda/launch.cuh>
#include <tessera/cuda/row_lanes.cuh>

#include <cstdint>

namespace tessera { inline namespace v0 { namespace gpu { namespace detail {

inline constexpr int any_shape_threads = 128;

/// Loads up to four neighbouring elements, from column k on, of a vector of `width`; zeros behind
/// its end.
template <Element T>
__device__ __forceinline__ void load_elements(const T* vector, int k, int width, bool aligned,
                                              float (&x)[4]) {
  if (aligned && k + 4 <= width) return load_packed(vector + k, x);
  for (int i = 0; i < 4; ++i) x[i] = k + i < width ? to_float(vector[k + i]) : 0.0f;
}

/// A DotShape that is known at run time.
struct AnyShape {
  int vectors, width;
  std::int64_t pairs, columns;

  static __device__ __forceinline__ std::int64_t pair(std::int64_t i, std::int64_t j) {
    return i * (i - 1) / 2 + j;
  }
};

/// Returns whether four elements of any vector may be read at once.
template <class T>
__device__ __forceinline__ bool fours_aligned(const MatrixView<T>& x, int width) {
  return width % 4 == 0 && reinterpret_cast<std::uintptr_t>(x.data) % (4 * sizeof(T)) == 0 &&
         x.stride % 4 == 0;
}

/// Computes z of samples that shared memory does not hold: a thread sums 4 x 4 of a sample's
/// products, and finds the vectors in the cache.
template <class Shape, Element T>
__global__ void __launch_bounds__(any_shape_threads)
    dot_forward_any_shape(const Shape shape, const MatrixView<const T> x, const MatrixView<T> z) {
  const int vectors = shape.vectors, width = shape.width;
  const std::int64_t tiles = (vectors + 3) / 4;
  const std::int64_t thread =
                         static_cast<std::int64_t>(blockIdx.x) * any_shape_threads + threadIdx.x,
                     sample = thread / (tiles * tiles);
  if (sample >= x.rows) return;
  const T* in = x.row(sample);
  T* out = z.row(sample);
  const int tile = static_cast<int>(thread % (tiles * tiles)), r = tile / tiles * 4,
            c = tile % tiles * 4;
  for (std::int64_t i = tile; i < shape.columns - shape.pairs; i += tiles * tiles)
    out[i < width ? i : i + shape.pairs] = i < width ? in[i] : T{};
  if (c > r) return;
  const bool aligned = fours_aligned(x, width);
  float sums[4][4] = {};
  for (int k = 0; k < width; k += 4) {
    float left[4][4], right[4][4];
    for (int i = 0; i < 4; ++i) {
      load_elements(in + std::int64_t{r + i < vectors ? r + i : 0} * width, k, width, aligned,
                    left[i]);
      load_elements(in + std::int64_t{c + i < vectors ? c + i : 0} * width, k, width, aligned,
                    right[i]);
    }
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j)
        for (int e = 0; e < 4; ++e) sums[i][j] = fmaf(left[i][e], right[j][e], sums[i][j]);
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j)
      if (r + i < vectors && c + j < r + i)
        out[width + shape.pair(r + i, c + j)] = from_float<T>(sums[i][j]);
}

/// Computes dx likewise: a thread holds 4 columns of 8 vectors and goes through all vectors; a
/// warp's threads mostly need the same of dz.
template <class Shape, Element T>
__global__ void __launch_bounds__(any_shape_threads)
    dot_backward_any_shape(const Shape shape, const MatrixView<const T> x,
                           const MatrixView<const T> dz, const MatrixView<T> dx) {
  const int vectors = shape.vectors, width = shape.width;
  const std::int64_t eights = (vectors + 7) / 8, fours = (width + 3) / 4;
  const std::int64_t thread =
                         static_cast<std::int64_t>(blockIdx.x) * any_shape_threads + threadIdx.x,
                     sample = thread / (eights * fours);
  if (sample >= x.rows) return;
  const T* in = x.row(sample);
  const T* gradient = dz.row(sample);
  T* out = dx.row(sample);
  const int first = static_cast<int>(thread / fours % eights) * 8,
            column = static_cast<int>(thread % fours) * 4;
  const bool aligned = fours_aligned(x, width);
  float sums[8][4] = {};
  if (first == 0)
    for (int e = 0; e < 4; ++e)
      if (column + e < width) sums[0][e] = to_float(gradient[column + e]);
  for (int j = 0; j < vectors; ++j) {
    float right[4];
    load_elements(in + std::int64_t{j} * width, column, width, aligned, right);
    for (int i = 0; i < 8; ++i) {
      const int v = first + i;
      if (v == j || v >= vectors) continue;
      const float left = to_float(gradient[width + (v > j ? shape.pair(v, j) : shape.pair(j, v))]);
      for (int e = 0; e < 4; ++e) sums[i][e] = fmaf(left, right[e], sums[i][e]);
    }
  }
  for (int i = 0; i < 8; ++i)
    for (int e = 0; e < 4; ++e)
      if (first + i < vectors && column + e < width)
        out[std::int64_t{first + i} * width + column + e] = from_float<T>(sums[i][e]);
}

}}}}  // namespace tessera::v0::gpu::detail
