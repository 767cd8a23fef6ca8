// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/interaction/dot_tile.cuh>

#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace v0 { namespace gpu { namespace detail {

// DotInteraction on the tensor cores: elements of 16 bits, or floats rounded to tf32.

/// Loads 16 bytes of shared memory as a tensor core's operands.
template <class T>
__device__ __forceinline__ void load_operands(const T* p, std::uint32_t (&words)[4]) {
  const uint4 four = *reinterpret_cast<const uint4*>(p);
  words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
  if constexpr (std::is_same_v<T, float>)
    for (std::uint32_t& word : words) word = to_tf32(__builtin_bit_cast(float, word));
}

template <class T>
__device__ __forceinline__ void multiply_operands(float (&c)[4], const std::uint32_t (&a)[4],
                                                  const std::uint32_t (&b)[2]) {
  if constexpr (std::is_same_v<T, float>)
    multiply_add_16x8x8(c, a, b);
  else
    multiply_add_16x8x16<T>(c, a, b);
}

template <class Shape, class T>
using DotTensorMemory =
    DotForwardMemory<Shape, T, DotTile<T, Shape::vectors, Shape::width, 4>, (Shape::vectors <= 32)>;

/// Computes the triangle's products of vectors [row, row + 32) and [column, column + 32). An
/// operand is 16 bytes of a vector: a product's sum does not care for the order of k, so a lane
/// calls its 8 neighbouring elements k = 2t, 2t+1, 2t+8, 2t+9 of two steps, its 4 floats k = t,
/// t+4.
template <class Shape, bool Diagonal, class T>
__device__ __forceinline__ void dot_block(T* tile, T* z, int row, int column, int lane) {
  using Memory = DotTensorMemory<Shape, T>;
  using Vectors = typename Memory::Vectors;
  constexpr int vectors = Shape::vectors;
  const int g = lane / 4, t = lane % 4;
  const auto load = [&](int vector, int chunk, std::uint32_t(&words)[4]) {
    load_operands(Vectors::at(tile, vector < vectors ? vector : vectors - 1, chunk), words);
  };
  float sums[2][4][4] = {};
  for (int chunk = t; chunk < Vectors::chunks; chunk += 4) {
    std::uint32_t left[4][4], right[4][4];
    for (int i = 0; i < 4; ++i) {
      load(row + 8 * i + g, chunk, left[i]);
      if constexpr (!Diagonal) load(column + 8 * i + g, chunk, right[i]);
    }
    for (int m = 0; m < 2; ++m)
      for (int j = 0; j < 4; ++j) {
        if (Diagonal && j >= 2 * m + 2) continue;  // above the diagonal
        const std::uint32_t(&b)[4] = Diagonal ? left[j] : right[j];
        for (int step = 0; step < 4; step += 2)
          multiply_operands<T>(sums[m][j],
                               {left[2 * m][step], left[2 * m + 1][step], left[2 * m][step + 1],
                                left[2 * m + 1][step + 1]},
                               {b[step], b[step + 1]});
      }
  }
  __syncwarp();  // the vectors may be where z goes
  for (int m = 0; m < 2; ++m)
    for (int half = 0; half < 2; ++half)
      for (int j = 0; j < 4; ++j) {
        if (Diagonal && j >= 2 * m + 2) continue;
        const int r = row + 16 * m + 8 * half + g, c = column + 8 * j + 2 * t;
        T* const to = z + Shape::width + Shape::pair(r, c);
        const float* two = sums[m][j] + 2 * half;
        if constexpr (std::is_same_v<T, float>) {
          if (r < vectors && c < r) to[0] = two[0];
          if (r < vectors && c + 1 < r) to[1] = two[1];
        } else {
          const std::uint32_t pair = round_pair<T>(two[0], two[1]);
          if (r < vectors && c < r) to[0] = T{static_cast<std::uint16_t>(pair)};
          if (r < vectors && c + 1 < r) to[1] = T{static_cast<std::uint16_t>(pair >> 16)};
        }
      }
}

/// Computes z of a sample's vectors.
template <class Shape, Element T>
__global__ void __launch_bounds__(32 * dot_warps)
    dot_forward_tensor(const MatrixView<const T> x, const MatrixView<T> z) {
  using Memory = DotTensorMemory<Shape, T>;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t sample = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + warp;
  if (sample >= x.rows) return;
  T* const tile = dynamic_shared<T>() + warp * Memory::elements;
  Memory::load(x.row(sample), by_sixteen(x), tile, lane);
  for (int row = 0; row < Shape::vectors; row += 32) {
    for (int column = 0; column < row; column += 32)
      dot_block<Shape, false>(tile, tile + Memory::result, row, column, lane);
    dot_block<Shape, true>(tile, tile + Memory::result, row, row, lane);
  }
  Memory::store(tile, by_sixteen(z), z.row(sample), lane);
}

/// Shared memory of a warp of dot_backward_tensor: the sample's vectors and one of zeros, the row
/// of dz, and, of more than 32 vectors, the symmetric matrix of its triangle, rows padded against
/// conflicts. dx takes the place of the vectors, 32 columns at a time.
template <class Shape, class T>
struct DotBackwardMemory {
  static constexpr int chunk = 16 / static_cast<int>(sizeof(T));
  static constexpr int step = std::is_same_v<T, float> ? 8 : 16;  ///< vectors of a product
  static constexpr int tiles = (Shape::vectors + 15) / 16;
  static constexpr int steps = (Shape::vectors + step - 1) / step;
  using Vectors = DotTile<T, Shape::vectors, Shape::width, 32 / chunk>;
  using Gradient = DotTile<T, 1, Shape::width + Shape::pairs, 1>;
  static constexpr bool in_registers = tiles <= 2;  ///< the matrix
  static constexpr int matrix_pitch = 16 * tiles + chunk;
  static constexpr std::int64_t zeros = Vectors::elements, gradient = zeros + Vectors::pitch,
                                matrix = gradient + Gradient::elements;
  static constexpr std::int64_t elements = matrix + (in_registers ? 0 : 16 * tiles * matrix_pitch);
  /// Sums of all vectors of 32 columns are held in registers.
  static constexpr bool fits = tiles <= 8 && fits_shared_memory<T>(elements);
};

/// Computes dx = S x, where S is dz's triangle made symmetric with a zero diagonal; dz of vector 0
/// is added. All vectors by 32 columns at a time.
template <class Shape, Element T>
__global__ void __launch_bounds__(32 * dot_warps)
    dot_backward_tensor(const MatrixView<const T> x, const MatrixView<const T> dz,
                        const MatrixView<T> dx) {
  using Memory = DotBackwardMemory<Shape, T>;
  using Vectors = typename Memory::Vectors;
  constexpr int vectors = Shape::vectors, width = Shape::width, chunk = Memory::chunk,
                tiles = Memory::tiles, steps = Memory::steps;
  constexpr bool is_float = std::is_same_v<T, float>;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32),
            g = lane / 4, t = lane % 4;
  const std::int64_t sample = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + warp;
  if (sample >= x.rows) return;
  T* const tile = dynamic_shared<T>() + warp * Memory::elements;
  T* const gradient = tile + Memory::gradient;
  T* const matrix = tile + Memory::matrix;
  Memory::Gradient::load(dz.row(sample), by_sixteen(dz), gradient, lane);
  Vectors::load(x.row(sample), by_sixteen(x), tile, lane);
  for (int i = lane; i < Vectors::chunks; i += 32)
    *reinterpret_cast<Packed<T, chunk>*>(tile + Memory::zeros + i * chunk) = Packed<T, chunk>{};
  wait_for_copies();
  __syncwarp();

  const auto element = [&](int r, int c) {
    const int high = r > c ? r : c, low = r > c ? c : r;
    return high < vectors && high != low ? gradient[width + Shape::pair(high, low)] : T{};
  };
  const auto gather = [&](int m, int k, std::uint32_t(&words)[4]) {
    for (int i = 0; i < 4; ++i) {
      const int r = 16 * m + g + i % 2 * 8, c = k * Memory::step + i / 2 * (Memory::step / 2);
      if constexpr (is_float)
        words[i] = to_tf32(element(r, c + t));
      else
        words[i] = static_cast<std::uint32_t>(element(r, c + 2 * t).bits) |
                   static_cast<std::uint32_t>(element(r, c + 2 * t + 1).bits) << 16;
    }
  };
  std::uint32_t left[Memory::in_registers ? tiles : 1][Memory::in_registers ? steps : 1][4];
  if constexpr (Memory::in_registers) {
    for (int m = 0; m < tiles; ++m)
      for (int k = 0; k < steps; ++k) gather(m, k, left[m][k]);
  } else {
    for (int i = lane; i < 256 * tiles * tiles; i += 32) {
      const int r = i / (16 * tiles), c = i % (16 * tiles);
      matrix[r * Memory::matrix_pitch + c] = element(r, c);
    }
    __syncwarp();
  }

  for (int column = 0; column < width; column += 32) {
    float sums[tiles][4][4] = {};
    for (int k = 0; k < steps; ++k) {
      const auto at = [&](int row, int c) {
        const int v = k * Memory::step + row;
        return Vectors::at(tile, v < vectors ? v : vectors, column / chunk + c);
      };
      // Floats: a lane's four neighbouring columns belong to four tiles of the tensor core, whose
      // columns are dealt out that way.
      std::uint32_t right[4][2];
      for (int i = 0; i < 2; ++i) {
        std::uint32_t words[4];
        if constexpr (is_float) {
          load_operands(at(t + 4 * i, g), words);
          for (int j = 0; j < 4; ++j) right[j][i] = words[j];
        } else {
          load_matrices<true>(at(lane % 16, 2 * i + lane / 16), words);
          for (int j = 0; j < 4; ++j) right[2 * i + j / 2][j % 2] = words[j];
        }
      }
      for (int m = 0; m < tiles; ++m) {
        auto& a = left[Memory::in_registers ? m : 0][Memory::in_registers ? k : 0];
        if constexpr (!Memory::in_registers) {
          const T* p = matrix + 16 * m * Memory::matrix_pitch + k * Memory::step;
          if constexpr (is_float) {
            for (int i = 0; i < 4; ++i)
              a[i] = to_tf32(p[(g + i % 2 * 8) * Memory::matrix_pitch + t + i / 2 * 4]);
          } else {
            load_matrices<false>(p + lane % 16 * Memory::matrix_pitch + lane / 16 * 8, a);
          }
        }
        for (int j = 0; j < 4; ++j) multiply_operands<T>(sums[m][j], a, right[j]);
      }
    }
    __syncwarp();
    for (int m = 0; m < tiles; ++m)
      for (int half = 0; half < 2; ++half) {
        const int v = 16 * m + 8 * half + g;
        if (v >= vectors) continue;
        // column of sum e of tile j
        const auto place = [&](int j, int e) {
          return column + (is_float ? 8 * t + 4 * e + j : 8 * j + 2 * t + e);
        };
        if (v == 0)
          for (int j = 0; j < 4; ++j)
            for (int e = 0; e < 2; ++e)
              if (place(j, e) < width) sums[0][j][e] += to_float(gradient[place(j, e)]);
        if constexpr (is_float) {
          for (int e = 0; e < 2; ++e)
            *reinterpret_cast<float4*>(Vectors::at(tile, v, column / 4 + 2 * t + e)) =
                make_float4(sums[m][0][2 * half + e], sums[m][1][2 * half + e],
                            sums[m][2][2 * half + e], sums[m][3][2 * half + e]);
        } else {
          for (int j = 0; j < 4; ++j)
            *reinterpret_cast<std::uint32_t*>(Vectors::at(tile, v, column / 8 + j) + 2 * t) =
                round_pair<T>(sums[m][j][2 * half], sums[m][j][2 * half + 1]);
        }
      }
  }
  __syncwarp();
  Vectors::store(tile, by_sixteen(dx), dx.row(sample), lane);
}

}}}}  // namespace tessera::v0::gpu::detail
