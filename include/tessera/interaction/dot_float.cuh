// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/interaction/dot_tile.cuh>

#include <cstdint>

namespace tessera { inline namespace v0 { namespace gpu { namespace detail {

// DotInteraction of floats with plain multiply-adds.

/// Tiles of 4 x 4 products, those above the diagonal left out.
template <class Shape>
inline constexpr int dot_float_tiles =
    ((Shape::vectors + 3) / 4) * ((Shape::vectors + 3) / 4 + 1) / 2;

template <class Shape>
using DotFloatMemory =
    DotForwardMemory<Shape, float, DotTile<float, Shape::vectors, Shape::width, 8, 2>,
                     (dot_float_tiles<Shape> <= 32)>;

/// Computes z: a lane sums a tile at a time, four columns of eight vectors in registers; 27 vectors
/// keep 28 of 32 lanes busy.
template <class Shape>
__global__ void __launch_bounds__(32 * dot_warps)
    dot_forward_float(const MatrixView<const float> x, const MatrixView<float> z) {
  using Memory = DotFloatMemory<Shape>;
  using Vectors = typename Memory::Vectors;
  constexpr int vectors = Shape::vectors;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t sample = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + warp;
  if (sample >= x.rows) return;
  float* const tile = dynamic_shared<float>() + warp * Memory::elements;
  Memory::load(x.row(sample), by_sixteen(x), tile, lane);
  for (int first = 0; first < dot_float_tiles<Shape>; first += 32) {
    const int index = first + lane;
    int r = 0;
    while ((r + 1) * (r + 2) / 2 <= index) ++r;
    const int c = index - r * (r + 1) / 2;
    const auto four = [&](int vector, int chunk) {
      return *reinterpret_cast<const float4*>(
          Vectors::at(tile, vector < vectors ? vector : vectors - 1, chunk));
    };
    float sums[4][4] = {};
    for (int chunk = 0; chunk < Vectors::filled; ++chunk) {
      float4 left[4];
      for (int i = 0; i < 4; ++i) left[i] = four(4 * r + i, chunk);
      for (int j = 0; j < 4; ++j) {
        const float4 right = four(4 * c + j, chunk);
        for (int i = 0; i < 4; ++i)
          sums[i][j] = fmaf(left[i].w, right.w,
                            fmaf(left[i].z, right.z,
                                 fmaf(left[i].y, right.y, fmaf(left[i].x, right.x, sums[i][j]))));
      }
    }
    __syncwarp();  // z may take the place of the vectors
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j)
        if (4 * r + i < vectors && 4 * c + j < 4 * r + i)
          tile[Memory::result + Shape::width + Shape::pair(4 * r + i, 4 * c + j)] = sums[i][j];
  }
  Memory::store(tile, by_sixteen(z), z.row(sample), lane);
}

/// Shared memory of a warp of dot_backward_float: the vectors, the row of dz, and the symmetric
/// matrix of its triangle.
template <class Shape>
struct DotFloatBackwardMemory {
  using Vectors = DotTile<float, Shape::vectors, Shape::width, 1>;
  using Gradient = DotTile<float, 1, Shape::width + Shape::pairs, 1>;
  static constexpr int pitch = (Shape::vectors + 7) / 8 * 8;
  static constexpr std::int64_t gradient = Vectors::elements,
                                matrix = gradient + Gradient::elements,
                                elements = matrix + Shape::vectors * pitch;
};

/// Computes dx: a lane holds 4 columns of 8 vectors and goes through all vectors of x.
template <class Shape>
__global__ void __launch_bounds__(32 * dot_warps)
    dot_backward_float(const MatrixView<const float> x, const MatrixView<const float> dz,
                       const MatrixView<float> dx) {
  using Memory = DotFloatBackwardMemory<Shape>;
  using Vectors = typename Memory::Vectors;
  constexpr int vectors = Shape::vectors, width = Shape::width, eights = Memory::pitch / 8;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t sample = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + warp;
  if (sample >= x.rows) return;
  float* const tile = dynamic_shared<float>() + warp * Memory::elements;
  float* const gradient = tile + Memory::gradient;
  float* const matrix = tile + Memory::matrix;
  float* const out = dx.row(sample);
  const bool aligned_out = width % 4 == 0 && by_sixteen(dx);
  Memory::Gradient::load(dz.row(sample), by_sixteen(dz), gradient, lane);
  Vectors::load(x.row(sample), by_sixteen(x), tile, lane);
  wait_for_copies();
  __syncwarp();
  for (int i = lane; i < vectors * Memory::pitch; i += 32) {
    const int r = i / Memory::pitch, c = i % Memory::pitch, high = r > c ? r : c,
              low = r > c ? c : r;
    matrix[i] = high < vectors && high != low ? gradient[width + Shape::pair(high, low)] : 0.0f;
  }
  __syncwarp();
  for (int unit = lane; unit < Vectors::chunks * eights; unit += 32) {
    const int chunk = unit % Vectors::chunks, column = 4 * chunk, row = unit / Vectors::chunks * 8,
              held = width - column < 4 ? width - column : 4;
    float sums[8][4] = {};
    for (int j = 0; j < vectors; ++j) {
      float right[4], left[8];
      load_floats(Vectors::at(tile, j, chunk), true, right);
      load_floats(matrix + j * Memory::pitch + row, true, left);
      for (int i = 0; i < 8; ++i)
        for (int e = 0; e < 4; ++e) sums[i][e] = fmaf(left[i], right[e], sums[i][e]);
    }
    for (int i = 0; i < 8; ++i) {
      if (row + i >= vectors) continue;
      for (int e = 0; e < 4; ++e)
        if (row + i == 0 && e < held) sums[i][e] += gradient[column + e];
      store_four(out + (row + i) * width + column, aligned_out, held, sums[i]);
    }
  }
}

}}}}  // namespace tessera::v0::gpu::detail
