// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/backend.cuh>
#include <tessera/interaction/dot.hpp>
#include <tessera/interaction/dot_any_shape.cuh>
#include <tessera/interaction/dot_any_shape.hpp>
#include <tessera/interaction/dot_float.cuh>
#include <tessera/interaction/dot_tensor.cuh>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace v0 {

namespace gpu::detail {

/// Launches as many warps to a block as share 64 KiB, up to dot_warps; each takes a sample.
template <class T, class Function, class... Views>
void launch_dot(const Cuda& backend, const char* name, std::int64_t samples,
                std::int64_t elements_per_warp, Function kernel, const Views&... views) {
  const std::int64_t bytes =
      (elements_per_warp * static_cast<std::int64_t>(sizeof(T)) + 15) / 16 * 16;
  const std::int64_t warps =
      std::clamp<std::int64_t>(64 * 1024 / std::max<std::int64_t>(bytes, 1), 1, dot_warps);
  launch(name,
         {.blocks = ceil_divide(samples, warps),
          .threads = static_cast<int>(32 * warps),
          .shared_bytes = static_cast<std::size_t>(warps * bytes),
          .stream = backend.stream()},
         kernel, views...);
}

template <class Function, class... Views>
void launch_dot_any_shape(const Cuda& backend, const char* name, std::int64_t threads,
                          Function kernel, const Views&... views) {
  backend.launch(name, ceil_divide(threads, any_shape_threads), any_shape_threads, kernel,
                 views...);
}

}  // namespace gpu::detail

namespace op {

// 16-bit elements on the tensor cores, sums in float; with Tf32 floats too, which are rounded to 10
// bits of mantissa before they are multiplied. Samples that shared memory does not hold are
// multiplied as floats, slower; backward also those of more than 128 vectors.

template <int Vectors, int Width, int PadTo, Element T, bool Tf32>
struct Kernel<DotForward<Vectors, Width, PadTo, T, Tf32>, Cuda> {
  static void run(const Cuda& backend, const auto& p) {
    using Shape = gpu::detail::DotShape<Vectors, Width, PadTo>;
    const MatrixView<const T> x = p.x;
    const MatrixView<T> z = p.z;
    constexpr bool tensor = Tf32 || !std::is_same_v<T, float>;
    constexpr std::int64_t shared = tensor ? gpu::detail::DotTensorMemory<Shape, T>::elements
                                           : gpu::detail::DotFloatMemory<Shape>::elements,
                           tiles = (Vectors + 3) / 4;
    if constexpr (!gpu::detail::fits_shared_memory<T>(shared))
      gpu::detail::launch_dot_any_shape(backend, "dot_forward_any_shape", x.rows * tiles * tiles,
                                        gpu::detail::dot_forward_any_shape<Shape, T>, Shape{}, x,
                                        z);
    else if constexpr (tensor)
      gpu::detail::launch_dot<T>(backend, "dot_forward_tensor", x.rows, shared,
                                 gpu::detail::dot_forward_tensor<Shape, T>, x, z);
    else
      gpu::detail::launch_dot<T>(backend, "dot_forward_float", x.rows, shared,
                                 gpu::detail::dot_forward_float<Shape>, x, z);
  }
};

template <int Vectors, int Width, int PadTo, Element T, bool Tf32>
struct Kernel<DotBackward<Vectors, Width, PadTo, T, Tf32>, Cuda> {
  static void run(const Cuda& backend, const auto& p) {
    using Shape = gpu::detail::DotShape<Vectors, Width, PadTo>;
    using Memory = gpu::detail::DotBackwardMemory<Shape, T>;
    const MatrixView<const T> x = p.x, dz = p.dz;
    const MatrixView<T> dx = p.dx;
    constexpr bool tensor = Tf32 || !std::is_same_v<T, float>;
    constexpr std::int64_t floats = gpu::detail::DotFloatBackwardMemory<Shape>::elements;
    if constexpr (tensor ? !Memory::fits : !gpu::detail::fits_shared_memory<T>(floats))
      gpu::detail::launch_dot_any_shape(
          backend, "dot_backward_any_shape", x.rows * ((Vectors + 7) / 8) * ((Width + 3) / 4),
          gpu::detail::dot_backward_any_shape<Shape, T>, Shape{}, x, dz, dx);
    else if constexpr (tensor)
      gpu::detail::launch_dot<T>(backend, "dot_backward_tensor", x.rows, Memory::elements,
                                 gpu::detail::dot_backward_tensor<Shape, T>, x, dz, dx);
    else
      gpu::detail::launch_dot<T>(backend, "dot_backward_float", x.rows, floats,
                                 gpu::detail::dot_backward_float<Shape>, x, dz, dx);
  }
};

}  // namespace op

/// AnyDotInteraction on a GPU: products of floats, from vectors that its caches hold.
template <>
class AnyDotInteraction<Cuda> : public detail::AnyDotShape {
 public:
  /// Throws InvalidArgument unless all are at least 1.
  AnyDotInteraction(const Cuda& backend, std::int64_t vectors, std::int64_t width,
                    std::int64_t pad_to = 1)
      : AnyDotShape(vectors, width, pad_to), backend_(backend) {}

  /// Computes z [batch, columns()] from x [batch, input_columns()]; both may be columns of wider
  /// matrices.
  void forward(MatrixView<const float> x, MatrixView<float> z) const {
    check_forward(x, z);
    const std::int64_t tiles = (vectors_ + 3) / 4;
    gpu::detail::launch_dot_any_shape(
        backend_, "dot_forward_any_shape", x.rows * tiles * tiles,
        gpu::detail::dot_forward_any_shape<gpu::detail::AnyShape, float>, shape(), x, z);
  }

  /// Computes dx (overwritten) from dz. dx may not overlap x or dz.
  void backward(MatrixView<const float> x, MatrixView<const float> dz, MatrixView<float> dx) const {
    check_backward(x, dz, dx);
    gpu::detail::launch_dot_any_shape(
        backend_, "dot_backward_any_shape", x.rows * ((vectors_ + 7) / 8) * ((width_ + 3) / 4),
        gpu::detail::dot_backward_any_shape<gpu::detail::AnyShape, float>, shape(), x, dz, dx);
  }

 private:
  gpu::detail::AnyShape shape() const {
    return {static_cast<int>(vectors_), static_cast<int>(width_), pairs(), columns()};
  }

  Cuda backend_;
};

}}  // namespace tessera::v0
