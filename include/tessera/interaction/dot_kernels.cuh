// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/cuda/row_lanes.cuh>

#include <cstdint>

namespace tessera::inline v0::gpu {

/// The shape of a dot interaction: vectors of a sample, their width, and the columns of the result.
template <int Vectors, int Width, int PadTo>
struct DotShape {
  static constexpr int vectors = Vectors, width = Width;
  static constexpr int pairs = Vectors * (Vectors - 1) / 2;
  static constexpr int columns = (Width + pairs + PadTo - 1) / PadTo * PadTo;
  static constexpr TESSERA_HOST_DEVICE int pair(int i, int j) { return i * (i - 1) / 2 + j; }
};

inline constexpr int dot_warps = 4;  ///< per block, a sample each

/// What every architecture since sm_80 gives a block, and so a sample, of shared memory.
template <class T>
TESSERA_HOST_DEVICE constexpr bool fits_shared_memory(std::int64_t elements) {
  return elements * static_cast<std::int64_t>(sizeof(T)) <= 96 * 1024;
}

/// `Count` elements from column k on of a vector, zeros behind its end; two per word. Aligned: one
/// load.
template <int Width, Element T>
__device__ __forceinline__ void load_eight(const T* vector, int k, bool aligned,
                                           std::uint32_t (&words)[4]) {
  Packed<T, 8> packed;
  if (Width % 8 == 0 && aligned) {
    packed = *reinterpret_cast<const Packed<T, 8>*>(vector + k);
  } else {
    for (int i = 0; i < 8; ++i) packed.x[i] = k + i < Width ? vector[k + i] : T{};
  }
  for (int i = 0; i < 4; ++i)
    words[i] = static_cast<std::uint32_t>(packed.x[2 * i].bits) |
               static_cast<std::uint32_t>(packed.x[2 * i + 1].bits) << 16;
}

/// Whether vectors of 16-bit elements may be read 16 bytes at a time.
template <class T>
__device__ __forceinline__ bool vectors_aligned(const MatrixView<T>& x) {
  return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 &&
         x.stride * static_cast<std::int64_t>(sizeof(T)) % 16 == 0;
}

/// Everything of z but the triangle, and the triangle from shared memory: neighbouring lanes,
/// neighbouring columns. A triangle too large for that is in z already.
template <class Shape, class T>
__device__ __forceinline__ void store_result(const T* x, const T* triangle, T* z, int lane) {
  for (int c = lane; c < Shape::columns; c += 32) {
    if (c < Shape::width || c >= Shape::width + Shape::pairs)
      z[c] = c < Shape::width ? x[c] : T{};
    else if (fits_shared_memory<T>(Shape::pairs))
      z[c] = triangle[c - Shape::width];
  }
}

/// z of 16-bit vectors on the tensor cores, a warp per sample. Rows of 16 vectors times columns of
/// 32; operands go from global memory to registers: a product's sum does not care for the order of
/// k, so a lane takes 8 neighbouring elements of a vector, 16 bytes, and calls them k = 2t, 2t+1,
/// 2t+8, 2t+9 of two steps.
template <class Shape, Element T>
__global__ void __launch_bounds__(32 * dot_warps)
    dot_forward_16bit(const MatrixView<const T> x, const MatrixView<T> z) {
  constexpr int vectors = Shape::vectors, width = Shape::width;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32,
            g = lane / 4, t = lane % 4;
  const std::int64_t sample = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + warp;
  if (sample >= x.rows) return;
  T* triangle = fits_shared_memory<T>(Shape::pairs) ? dynamic_shared<T>() + warp * Shape::pairs
                                                    : z.row(sample) + width;
  const T* in = x.row(sample);
  const bool aligned = vectors_aligned(x);
  const auto load = [&](int vector, int k, std::uint32_t(&words)[4]) {
    for (std::uint32_t& word : words) word = 0;
    if (vector < vectors && k < width) load_eight<width>(in + vector * width, k, aligned, words);
  };
  for (int row = 0; row < vectors; row += 16) {
    for (int column = 0; column < row + 16; column += 32) {
      float sums[4][4] = {};
      for (int k = 8 * t; k - 8 * t < width; k += 32) {
        std::uint32_t upper[4], lower[4];
        load(row + g, k, upper);
        load(row + g + 8, k, lower);
        for (int j = 0; j < 4; ++j) {
          // above the diagonal
          if (column + 8 * j >= row + 16 || column + 8 * j >= vectors) continue;
          std::uint32_t right[4];
          load(column + 8 * j + g, k, right);
          multiply_add_16x8x16<T>(sums[j], {upper[0], lower[0], upper[1], lower[1]},
                                  {right[0], right[1]});
          multiply_add_16x8x16<T>(sums[j], {upper[2], lower[2], upper[3], lower[3]},
                                  {right[2], right[3]});
        }
      }
      for (int j = 0; j < 4; ++j)
        for (int e = 0; e < 4; ++e) {
          const int r = row + g + e / 2 * 8, c = column + 8 * j + 2 * t + e % 2;
          if (r < vectors && c < r) triangle[Shape::pair(r, c)] = from_float<T>(sums[j][e]);
        }
    }
  }
  __syncwarp();
  store_result<Shape>(in, triangle, z.row(sample), lane);
}

/// Shared memory of a warp of dot_backward_16bit: the sample's vectors and the symmetric matrix of
/// dz, rows padded against conflicts. Of 32 columns of a vector, pair j of each eight lies in the
/// j-th eight: an 8 x 8 matrix of the tensor cores then is 16 bytes of 8 rows.
template <class Shape>
struct DotBackwardTile {
  static constexpr int rows = (Shape::vectors + 15) / 16 * 16;
  static constexpr int vector_pitch = (Shape::width + 31) / 32 * 32 + 8;
  static constexpr int matrix_pitch = rows + 8;
  static constexpr int elements = rows * (vector_pitch + matrix_pitch);
};

/// dx = S x on the tensor cores, a warp per sample, where S is dz's triangle made symmetric with a
/// zero diagonal; dz of vector 0 is added. 32 rows by 32 columns at a time. The tensor core's
/// columns are dealt out so that a lane ends up with 8 neighbouring ones.
template <class Shape, Element T>
__global__ void __launch_bounds__(32 * dot_warps)
    dot_backward_16bit(const MatrixView<const T> x, const MatrixView<const T> dz,
                       const MatrixView<T> dx) {
  using Tile = DotBackwardTile<Shape>;
  constexpr int vectors = Shape::vectors, width = Shape::width;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32,
            g = lane / 4, t = lane % 4;
  T* vector_tile = dynamic_shared<T>() + warp * Tile::elements;
  T* matrix = vector_tile + Tile::rows * Tile::vector_pitch;
  const std::int64_t sample = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + warp;
  if (sample >= x.rows) return;
  const T* in = x.row(sample);
  const T* gradient = dz.row(sample);
  T* out = dx.row(sample);
  const bool aligned = vectors_aligned(x), aligned_out = width % 8 == 0 && vectors_aligned(dx);

  constexpr int eights = (Tile::vector_pitch - 8) / 8;
  for (int i = lane; i < Tile::rows * eights; i += 32) {
    const int v = i / eights, k = i % eights * 8;
    std::uint32_t words[4] = {};
    if (v < vectors && k < width) load_eight<width>(in + v * width, k, aligned, words);
    T* const to = vector_tile + v * Tile::vector_pitch + k / 32 * 32 + k % 32 / 4;
    for (int j = 0; j < 4; ++j) *reinterpret_cast<std::uint32_t*>(to + 8 * j) = words[j];
  }
  for (int i = lane; i < Tile::rows * Tile::matrix_pitch / 8; i += 32)
    *reinterpret_cast<Packed<T, 8>*>(matrix + 8 * i) = Packed<T, 8>{};
  __syncwarp();
  for (int r = 1; r < vectors; ++r)  // the triangle's rows, each read once
    for (int c = lane; c < r; c += 32)
      matrix[r * Tile::matrix_pitch + c] = matrix[c * Tile::matrix_pitch + r] =
          gradient[width + Shape::pair(r, c)];
  __syncwarp();

  // of four 8 x 8 matrices, two beside two, the row that this lane tells
  const int tile_row = lane % 16, tile_column = lane / 16 * 8;
  for (int row = 0; row < Tile::rows; row += 32) {
    for (int column = 0; column < width; column += 32) {
      float sums[2][4][4] = {};
      for (int k = 0; k < Tile::rows; k += 16) {
        std::uint32_t left[2][4] = {};
        for (int m = 0; m < 2; ++m)
          if (row + 16 * m < Tile::rows)
            load_matrices<false>(
                matrix + (row + 16 * m + tile_row) * Tile::matrix_pitch + k + tile_column, left[m]);
        for (int j = 0; j < 4; j += 2) {
          std::uint32_t right[4];
          load_matrices<true>(
              vector_tile + (k + tile_row) * Tile::vector_pitch + column + 8 * j + tile_column,
              right);
          for (int m = 0; m < 2; ++m) {
            multiply_add_16x8x16<T>(sums[m][j], left[m], {right[0], right[1]});
            multiply_add_16x8x16<T>(sums[m][j + 1], left[m], {right[2], right[3]});
          }
        }
      }
      for_each_constant<4>([&]<int Quarter>(std::integral_constant<int, Quarter>) {
        constexpr int m = Quarter / 2, half = Quarter % 2;
        const int v = row + 16 * m + g + 8 * half, c = column + 8 * t;
        if (v >= vectors) return;
        Packed<T, 8> packed;
        for_each_constant<8>([&]<int E>(std::integral_constant<int, E>) {
          float value = sums[m][E / 2][2 * half + E % 2];
          if (v == 0 && c + E < width) value += to_float(gradient[c + E]);
          packed.x[E] = from_float<T>(value);
        });
        if (aligned_out && c < width)
          *reinterpret_cast<Packed<T, 8>*>(out + v * width + c) = packed;
        for (int e = 0; e < 8 && !aligned_out; ++e)
          if (c + e < width) out[v * width + c + e] = packed.x[e];
      });
    }
  }
}

/// Shared memory of a warp of dot_forward_float: a range of columns of all vectors, and the
/// triangle.
template <class Shape>
struct DotForwardTile {
  static constexpr int tiles = (Shape::vectors + 3) / 4;  ///< of 4 vectors
  static constexpr int range = Shape::width < 128 ? (Shape::width + 3) / 4 * 4 : 128;
  static constexpr int pitch = range + 4;
  static constexpr int floats = tiles * 4 * pitch + (Shape::pairs + 3) / 4 * 4;
};

/// z of floats with plain multiply-adds, a warp per sample. A lane sums 4 x 4 products at a time,
/// four columns of eight vectors in registers; tiles above the diagonal are left out, so 27 vectors
/// keep 28 of 32 lanes busy.
template <class Shape>
__global__ void __launch_bounds__(32 * dot_warps)
    dot_forward_float(const MatrixView<const float> x, const MatrixView<float> z) {
  using Tile = DotForwardTile<Shape>;
  constexpr int vectors = Shape::vectors, width = Shape::width,
                count = Tile::tiles * (Tile::tiles + 1) / 2;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  float* tile = dynamic_shared<float>() + warp * Tile::floats;
  float* triangle = tile + Tile::tiles * 4 * Tile::pitch;
  const std::int64_t sample = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + warp;
  if (sample >= x.rows) return;
  const float* in = x.row(sample);
  const bool aligned = width % 4 == 0 && rows_aligned(x.data, x.stride);
  for (int first = 0; first < count; first += 32) {
    const int index = first + lane;
    int r = 0;
    while ((r + 1) * (r + 2) / 2 <= index) ++r;
    const int c = index - r * (r + 1) / 2;
    float sums[4][4] = {};
    for (int begin = 0; begin < width; begin += Tile::range) {
      __syncwarp();
      for (int i = lane; i < Tile::tiles * 4 * (Tile::range / 4); i += 32) {
        const int v = i / (Tile::range / 4), k = i % (Tile::range / 4) * 4;
        float four[4] = {};
        if (v < vectors && begin + k + 3 < width)
          load_floats(in + v * width + begin + k, aligned, four);
        else
          for (int e = 0; e < 4; ++e)
            if (v < vectors && begin + k + e < width) four[e] = in[v * width + begin + k + e];
        *reinterpret_cast<float4*>(tile + v * Tile::pitch + k) =
            make_float4(four[0], four[1], four[2], four[3]);
      }
      __syncwarp();
      if (index >= count) continue;
      for (int k = 0; k < Tile::range; k += 4) {
        float4 left[4];
        for (int i = 0; i < 4; ++i)
          left[i] = *reinterpret_cast<const float4*>(tile + (4 * r + i) * Tile::pitch + k);
        for (int j = 0; j < 4; ++j) {
          const float4 right =
              *reinterpret_cast<const float4*>(tile + (4 * c + j) * Tile::pitch + k);
          for (int i = 0; i < 4; ++i)
            sums[i][j] = fmaf(left[i].w, right.w,
                              fmaf(left[i].z, right.z,
                                   fmaf(left[i].y, right.y, fmaf(left[i].x, right.x, sums[i][j]))));
        }
      }
    }
    if (index < count)
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j)
          if (4 * r + i < vectors && 4 * c + j < 4 * r + i)
            triangle[Shape::pair(4 * r + i, 4 * c + j)] = sums[i][j];
  }
  __syncwarp();
  store_result<Shape>(in, triangle, z.row(sample), lane);
}

/// Shared memory of a warp of dot_backward_float: the symmetric matrix of dz.
template <class Shape>
struct DotBackwardMatrix {
  static constexpr int pitch = (Shape::vectors + 7) / 8 * 8;
  static constexpr int floats = Shape::vectors * pitch;
};

/// dx of floats with plain multiply-adds, a warp per sample: a lane holds 4 columns of 8 vectors of
/// dx and goes through the vectors of x, which later rounds find in the cache.
template <class Shape>
__global__ void __launch_bounds__(32 * dot_warps)
    dot_backward_float(const MatrixView<const float> x, const MatrixView<const float> dz,
                       const MatrixView<float> dx) {
  using Matrix = DotBackwardMatrix<Shape>;
  constexpr int vectors = Shape::vectors, width = Shape::width;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  float* matrix = dynamic_shared<float>() + warp * Matrix::floats;
  const std::int64_t sample = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + warp;
  if (sample >= x.rows) return;
  const float* in = x.row(sample);
  const float* gradient = dz.row(sample);
  float* out = dx.row(sample);
  const bool aligned = width % 4 == 0 && rows_aligned(x.data, x.stride),
             aligned_out = width % 4 == 0 && rows_aligned(dx.data, dx.stride);
  for (int i = lane; i < Matrix::floats; i += 32) {
    const int r = i / Matrix::pitch, c = i % Matrix::pitch, high = r > c ? r : c,
              low = r > c ? c : r;
    matrix[i] = high < vectors && high != low ? gradient[width + Shape::pair(high, low)] : 0.0f;
  }
  __syncwarp();
  for (int first = 4 * lane; first < width; first += 128) {
    const int held = width - first < 4 ? width - first : 4;
    for (int row = 0; row < vectors; row += 8) {
      float sums[8][4] = {};
      for (int j = 0; j < vectors; ++j) {
        float right[4] = {};
        if (held == 4)
          load_floats(in + j * width + first, aligned, right);
        else
          for (int e = 0; e < 4; ++e)
            if (e < held) right[e] = in[j * width + first + e];
        const float* left = matrix + j * Matrix::pitch + row;
        for (int i = 0; i < 8; ++i)
          for (int e = 0; e < 4; ++e) sums[i][e] = fmaf(left[i], right[e], sums[i][e]);
      }
      for (int i = 0; i < 8; ++i) {
        if (row + i >= vectors) continue;
        for (int e = 0; e < 4; ++e)
          if (row + i == 0 && e < held) sums[i][e] += gradient[first + e];
        if (held == 4) {
          store_floats(out + (row + i) * width + first, aligned_out, sums[i]);
        } else {
          for (int e = 0; e < 4; ++e)
            if (e < held) out[(row + i) * width + first + e] = sums[i][e];
        }
      }
    }
  }
}

/// Four neighbouring floats of a vector, rounded for the tensor cores; zeros behind its end, and
/// for vectors that there are not.
template <class Shape>
__device__ __forceinline__ void load_tf32(const float* sample, int vector, int column, bool aligned,
                                          std::uint32_t (&words)[4]) {
  const int left = vector < Shape::vectors ? Shape::width - column : 0;
  float four[4] = {};
  if (left > 0)
    load_four(sample + vector * Shape::width + column, aligned, left < 4 ? left : 4, four);
  for (int i = 0; i < 4; ++i) words[i] = to_tf32(four[i]);
}

/// z of floats on the tensor cores, as dot_forward_16bit: a lane takes 4 neighbouring elements of a
/// vector, 16 bytes, and calls them k = t, t+4 of two steps.
template <class Shape>
__global__ void __launch_bounds__(32 * dot_warps)
    dot_forward_tf32(const MatrixView<const float> x, const MatrixView<float> z) {
  constexpr int vectors = Shape::vectors, width = Shape::width;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32,
            g = lane / 4, t = lane % 4;
  const std::int64_t sample = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + warp;
  if (sample >= x.rows) return;
  float* triangle = fits_shared_memory<float>(Shape::pairs)
                        ? dynamic_shared<float>() + warp * Shape::pairs
                        : z.row(sample) + width;
  const float* in = x.row(sample);
  const bool aligned = width % 4 == 0 && rows_aligned(x.data, x.stride);
  for (int row = 0; row < vectors; row += 16) {
    for (int column = 0; column < row + 16; column += 32) {
      float sums[4][4] = {};
      for (int k = 0; k < width; k += 16) {
        std::uint32_t upper[4], lower[4];
        load_tf32<Shape>(in, row + g, k + 4 * t, aligned, upper);
        load_tf32<Shape>(in, row + g + 8, k + 4 * t, aligned, lower);
        for (int j = 0; j < 4; ++j) {
          // above the diagonal
          if (column + 8 * j >= row + 16 || column + 8 * j >= vectors) continue;
          std::uint32_t right[4];
          load_tf32<Shape>(in, column + 8 * j + g, k + 4 * t, aligned, right);
          multiply_add_16x8x8(sums[j], {upper[0], lower[0], upper[1], lower[1]},
                              {right[0], right[1]});
          multiply_add_16x8x8(sums[j], {upper[2], lower[2], upper[3], lower[3]},
                              {right[2], right[3]});
        }
      }
      for (int j = 0; j < 4; ++j)
        for (int e = 0; e < 4; ++e) {
          const int r = row + g + e / 2 * 8, c = column + 8 * j + 2 * t + e % 2;
          if (r < vectors && c < r) triangle[Shape::pair(r, c)] = sums[j][e];
        }
    }
  }
  __syncwarp();
  store_result<Shape>(in, triangle, z.row(sample), lane);
}

/// Shared memory of a warp of dot_backward_tf32: the symmetric matrix of dz, rows padded against
/// conflicts.
template <class Shape>
struct DotBackwardTf32 {
  static constexpr int rows = (Shape::vectors + 15) / 16 * 16;
  static constexpr int pitch = rows + 4;
  static constexpr int floats = rows * pitch;
};

/// dx of floats on the tensor cores, a warp per sample, 32 rows by 32 columns at a time. x goes
/// from global memory to registers, once for up to 32 vectors: a lane's four neighbouring columns
/// belong to four tiles of the tensor core, whose columns are dealt out that way, and so it ends up
/// with eight neighbouring ones of dx.
template <class Shape>
__global__ void __launch_bounds__(32 * dot_warps)
    dot_backward_tf32(const MatrixView<const float> x, const MatrixView<const float> dz,
                      const MatrixView<float> dx) {
  using Matrix = DotBackwardTf32<Shape>;
  constexpr int vectors = Shape::vectors, width = Shape::width;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32,
            g = lane / 4, t = lane % 4;
  std::uint32_t* matrix = dynamic_shared<std::uint32_t>() + warp * Matrix::floats;
  const std::int64_t sample = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / 32) + warp;
  if (sample >= x.rows) return;
  const float* in = x.row(sample);
  const float* gradient = dz.row(sample);
  float* out = dx.row(sample);
  const bool aligned = width % 4 == 0 && rows_aligned(x.data, x.stride),
             aligned_out = width % 4 == 0 && rows_aligned(dx.data, dx.stride);
  for (int i = lane; i < Matrix::rows * Matrix::rows; i += 32) {
    const int r = i / Matrix::rows, c = i % Matrix::rows, high = r > c ? r : c, low = r > c ? c : r;
    matrix[r * Matrix::pitch + c] =
        high < vectors && high != low ? to_tf32(gradient[width + Shape::pair(high, low)]) : 0;
  }
  __syncwarp();
  for (int row = 0; row < Matrix::rows; row += 32) {
    for (int column = 0; column < width; column += 32) {
      float sums[2][4][4] = {};
      for (int k = 0; k < Matrix::rows; k += 8) {
        std::uint32_t near[4], far[4];
        load_tf32<Shape>(in, k + t, column + 4 * g, aligned, near);
        load_tf32<Shape>(in, k + t + 4, column + 4 * g, aligned, far);
        for (int m = 0; m < 2; ++m) {
          if (row + 16 * m >= Matrix::rows) continue;
          const std::uint32_t* p = matrix + (row + 16 * m + g) * Matrix::pitch + k + t;
          const std::uint32_t left[4] = {p[0], p[8 * Matrix::pitch], p[4],
                                         p[8 * Matrix::pitch + 4]};
          for (int j = 0; j < 4; ++j) multiply_add_16x8x8(sums[m][j], left, {near[j], far[j]});
        }
      }
      for (int m = 0; m < 2; ++m)
        for (int half = 0; half < 2; ++half) {
          const int v = row + 16 * m + g + 8 * half;
          if (v >= vectors) continue;
          for (int e = 0; e < 2; ++e) {
            const int c = column + 8 * t + 4 * e;
            if (c >= width) continue;
            float four[4];
            for (int j = 0; j < 4; ++j)
              four[j] =
                  sums[m][j][2 * half + e] + (v == 0 && c + j < width ? gradient[c + j] : 0.0f);
            store_four(out + v * width + c, aligned_out, width - c < 4 ? width - c : 4, four);
          }
        }
    }
  }
}

}  // namespace tessera::inline v0::gpu
