// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/cuda/row_lanes.cuh>

#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace v0 { namespace gpu { namespace detail {

/// The shape of a dot interaction: vectors of a sample, their width, and the columns of the result.
template <int Vectors, int Width, int PadTo>
struct DotShape {
  static constexpr int vectors = Vectors, width = Width;
  static constexpr int pairs = Vectors * (Vectors - 1) / 2;
  static constexpr int columns = (Width + pairs + PadTo - 1) / PadTo * PadTo;
  static constexpr TESSERA_HOST_DEVICE int pair(int i, int j) {
    return static_cast<int>(static_cast<unsigned>(i * (i - 1)) / 2) + j;
  }
};

inline constexpr int dot_warps = 4;  ///< per block, a sample each

/// Returns whether the elements fit into what every architecture since sm_80 gives a block, and so
/// a sample, of shared memory.
template <class T>
TESSERA_HOST_DEVICE constexpr bool fits_shared_memory(std::int64_t elements) {
  return elements * static_cast<std::int64_t>(sizeof(T)) <= 96 * 1024;
}

/// Returns whether rows may be read or written 16 bytes at a time.
template <class T>
__device__ __forceinline__ bool by_sixteen(const MatrixView<T>& x) {
  return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 &&
         x.stride * static_cast<std::int64_t>(sizeof(T)) % 16 == 0;
}

/// `Rows` rows of `Width` elements in a warp's shared memory, by chunks of 16 bytes, a multiple of
/// `Multiple` to a row, zeros behind the row's end. Of 4, 8, ...: rows have their chunks in
/// different orders, so that accesses are free of bank conflicts which take 4 neighbouring chunks
/// of rows 2i and 2i+1, or 2 neighbouring chunks of 4 rows, or a chunk of 8; with `Shift`, rows
/// 2^Shift apart. Row 0 keeps its order.
template <class T, int Rows, int Width, int Multiple, int Shift = 0>
struct DotTile {
  static constexpr int per_chunk = 16 / static_cast<int>(sizeof(T));
  static constexpr int filled = (Width + per_chunk - 1) / per_chunk;
  static constexpr int chunks = (filled + Multiple - 1) / Multiple * Multiple;
  static constexpr int pitch = chunks * per_chunk, elements = Rows * pitch;
  static constexpr bool swizzled = Multiple % 4 == 0;
  static constexpr bool dense = pitch == Width;
  static constexpr bool rows_aligned = Rows == 1 || Width % per_chunk == 0;

  static __device__ __forceinline__ T* at(T* tile, int row, int chunk) {
    const int r = row >> Shift;
    const int turned = (r & 2) | (r >> 2 & 1) | (chunks % 8 == 0 ? (r & 1) << 2 : 0);
    return tile + row * pitch + (swizzled ? chunk ^ turned : chunk) * per_chunk;
  }

  /// Loads from global memory; to be waited for.
  static __device__ __forceinline__ void load(const T* from, bool aligned, T* tile, int lane) {
    if (aligned && rows_aligned) {
      for_each_chunk<chunks>(lane, [&](int row, int chunk) {
        copy_later(at(tile, row, chunk), from + row * Width + chunk * per_chunk,
                   filled_elements(chunk) * static_cast<int>(sizeof(T)));
      });
      return;
    }
    for (int i = lane; i < Rows * chunks; i += 32) {
      const int row = i / chunks, chunk = i % chunks;
      const T* p = from + row * Width + chunk * per_chunk;
      Packed<T, per_chunk> packed;
      for (int e = 0; e < per_chunk; ++e) packed.x[e] = e < filled_elements(chunk) ? p[e] : T{};
      *reinterpret_cast<Packed<T, per_chunk>*>(at(tile, row, chunk)) = packed;
    }
  }

  /// Stores to global memory.
  static __device__ __forceinline__ void store(T* tile, bool aligned, T* to, int lane) {
    constexpr int whole = rows_aligned ? Width / per_chunk : 0;
    if constexpr (whole > 0) {
      if (aligned)
        for_each_chunk<whole>(lane, [&](int row, int chunk) {
          *reinterpret_cast<Packed<T, per_chunk>*>(to + row * Width + chunk * per_chunk) =
              *reinterpret_cast<const Packed<T, per_chunk>*>(at(tile, row, chunk));
        });
    }
    // what is left of a row, or all
    const int first = aligned ? whole * per_chunk : 0, left = Width - first;
    for (int i = lane; i < Rows * left; i += 32) {
      const int row = i / left, column = first + i % left;
      to[row * Width + column] = at(tile, row, column / per_chunk)[column % per_chunk];
    }
  }

 private:
  static constexpr TESSERA_HOST_DEVICE int filled_elements(int chunk) {
    const int left = Width - chunk * per_chunk;
    if (dense) return per_chunk;
    return left < 0 ? 0 : left < per_chunk ? left : per_chunk;
  }

  /// Calls f(row, chunk) for every 32nd chunk of rows of `Chunks`; in straight code, unless they
  /// are many.
  template <int Chunks, class F>
  static __device__ __forceinline__ void for_each_chunk(int lane, const F& f) {
    constexpr int count = Rows * Chunks, turns = count / 32;
    // Which rows differ between turns is known to the compiler where a turn is of whole rows, or a
    // row of whole turns.
    const auto turn = [&](int n) {
      if constexpr (32 % Chunks == 0)
        f(32 / Chunks * n + lane / Chunks, lane % Chunks);
      else if constexpr (Chunks % 32 == 0)
        f(n / (Chunks / 32), n % (Chunks / 32) * 32 + lane);
      else
        f((32 * n + lane) / Chunks, (32 * n + lane) % Chunks);
    };
    if constexpr (turns <= 32) {
      for_each_constant<turns>([&]<int Turn>(std::integral_constant<int, Turn>) { turn(Turn); });
    } else {
      for (int n = 0; n < turns; ++n) turn(n);
    }
    if (lane < count % 32) turn(turns);
  }
};

/// Shared memory of a warp that computes z: the sample's vectors as Vectors has them, in their
/// place the row of z where its products wait in registers, else the row behind them.
template <class Shape, class T, class VectorTile, bool InPlace>
struct DotForwardMemory {
  using Vectors = VectorTile;
  using Result = DotTile<T, 1, Shape::columns, 1>;
  static constexpr std::int64_t result = InPlace ? 0 : Vectors::elements;
  static constexpr std::int64_t elements =
      result + Result::elements > Vectors::elements ? result + Result::elements : Vectors::elements;

  static __device__ __forceinline__ void load(const T* x, bool aligned, T* tile, int lane) {
    Vectors::load(x, aligned, tile, lane);
    wait_for_copies();
    __syncwarp();
    for (int c = lane; c < Shape::width && !InPlace; c += 32) tile[result + c] = tile[c];
  }
  static __device__ __forceinline__ void store(T* tile, bool aligned, T* z, int lane) {
    for (int c = Shape::width + Shape::pairs + lane; c < Shape::columns; c += 32)
      tile[result + c] = T{};
    __syncwarp();
    Result::store(tile + result, aligned, z, lane);
  }
};

}}}}  // namespace tessera::v0::gpu::detail
