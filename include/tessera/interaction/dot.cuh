// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/cuda/backend.cuh>
#include <tessera/interaction/dot_any_shape.cuh>
#include <tessera/interaction/dot_kernels.cuh>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace tessera::inline v0 {

/// DLRM's interaction on a GPU: DotInteraction's result (vector 0, then the dot products of the
/// strictly lower triangle row by row, then zeros up to a multiple of `PadTo`) for matrices in
/// device memory. 16-bit elements on the tensor cores, sums in float; with `Tf32` floats too, which
/// are rounded to 10 bits of mantissa before they are multiplied. Samples that shared memory does
/// not hold are multiplied as floats, slower; of 16-bit elements and Tf32 their backward alone.
template <int Vectors, int Width, int PadTo = 1, Element T = float, bool Tf32 = false>
class CudaDotInteraction {
  static_assert(!Tf32 || std::is_same_v<T, float>, "CudaDotInteraction: Tf32 is for floats");
  static_assert(Vectors >= 1 && Width >= 1 && PadTo >= 1,
                "CudaDotInteraction: Vectors, Width and PadTo must be at least 1");
  using Shape = gpu::DotShape<Vectors, Width, PadTo>;
  static constexpr bool is_float = std::is_same_v<T, float>;

 public:
  static constexpr std::int64_t input_columns() { return std::int64_t{Vectors} * Width; }
  static constexpr std::int64_t columns() { return Shape::columns; }

  /// z [batch, columns()] from x [batch, input_columns()]; both may be columns of wider matrices.
  static void forward(const Cuda& backend, MatrixView<const T> x, MatrixView<T> z) {
    check("input", x.rows, x.columns, x.rows, input_columns());
    check("output", z.rows, z.columns, x.rows, columns());
    constexpr std::int64_t triangle = gpu::fits_shared_memory<T>(Shape::pairs) ? Shape::pairs : 0;
    constexpr std::int64_t tile = gpu::DotForwardTile<Shape>::floats, tiles = (Vectors + 3) / 4;
    if constexpr (Tf32)
      launch(backend, "dot_forward_tf32", x.rows, triangle, gpu::dot_forward_tf32<Shape>, x, z);
    else if constexpr (!is_float)
      launch(backend, "dot_forward_16bit", x.rows, triangle, gpu::dot_forward_16bit<Shape, T>, x,
             z);
    else if constexpr (gpu::fits_shared_memory<T>(tile))
      launch(backend, "dot_forward_float", x.rows, tile, gpu::dot_forward_float<Shape>, x, z);
    else
      launch_any_shape(backend, "dot_forward_any_shape", x.rows * tiles * tiles,
                       gpu::dot_forward_any_shape<Shape>, x, z);
  }

  /// dx (overwritten) from dz, including what passes straight through to vector 0. dx may not
  /// overlap x or dz.
  static void backward(const Cuda& backend, MatrixView<const T> x, MatrixView<const T> dz,
                       MatrixView<T> dx) {
    check("input", x.rows, x.columns, x.rows, input_columns());
    check("output gradient", dz.rows, dz.columns, x.rows, columns());
    check("input gradient", dx.rows, dx.columns, x.rows, input_columns());
    constexpr std::int64_t shared = Tf32       ? gpu::DotBackwardTf32<Shape>::floats
                                    : is_float ? gpu::DotBackwardMatrix<Shape>::floats
                                               : gpu::DotBackwardTile<Shape>::elements;
    if constexpr (!gpu::fits_shared_memory<T>(shared))
      launch_any_shape(backend, "dot_backward_any_shape",
                       x.rows * ((Vectors + 7) / 8) * ((Width + 3) / 4),
                       gpu::dot_backward_any_shape<Shape, T>, x, dz, dx);
    else if constexpr (Tf32)
      launch(backend, "dot_backward_tf32", x.rows, shared, gpu::dot_backward_tf32<Shape>, x, dz,
             dx);
    else if constexpr (is_float)
      launch(backend, "dot_backward_float", x.rows, shared, gpu::dot_backward_float<Shape>, x, dz,
             dx);
    else
      launch(backend, "dot_backward_16bit", x.rows, shared, gpu::dot_backward_16bit<Shape, T>, x,
             dz, dx);
  }

 private:
  static void check(const char* what, std::int64_t rows, std::int64_t columns,
                    std::int64_t need_rows, std::int64_t need_columns) {
    require(rows == need_rows && columns == need_columns,
            "CudaDotInteraction<{}, {}>: {} is {} x {}, must be {} x {}", Vectors, Width, what,
            rows, columns, need_rows, need_columns);
  }

  /// As many warps to a block as share 64 KiB, up to dot_warps; each takes a sample.
  template <class Function, class... Views>
  static void launch(const Cuda& backend, const char* name, std::int64_t samples,
                     std::int64_t elements_per_warp, Function kernel, const Views&... views) {
    const std::int64_t bytes =
        (elements_per_warp * static_cast<std::int64_t>(sizeof(T)) + 15) / 16 * 16;
    const std::int64_t warps =
        std::clamp<std::int64_t>(64 * 1024 / std::max<std::int64_t>(bytes, 1), 1, gpu::dot_warps);
    gpu::launch(name,
                {.blocks = gpu::ceil_divide(samples, warps),
                 .threads = static_cast<int>(32 * warps),
                 .shared_bytes = static_cast<std::size_t>(warps * bytes),
                 .stream = backend.stream()},
                kernel, views...);
  }
  template <class Function, class... Views>
  static void launch_any_shape(const Cuda& backend, const char* name, std::int64_t threads,
                               Function kernel, const Views&... views) {
    backend.launch(name, gpu::ceil_divide(threads, gpu::any_shape_threads), gpu::any_shape_threads,
                   kernel, views...);
  }
};

}  // namespace tessera::inline v0
