// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/backend.cuh>
#include <tessera/cuda/launch.cuh>
#include <tessera/cuda/row_lanes.cuh>
#include <tessera/cuda/row_place.cuh>
#include <tessera/op/convert_rows.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 {
namespace gpu::detail {

inline constexpr int convert_threads = 256;

inline constexpr int convert_vector = 8;  ///< elements of a thread: the 16-bit side's 16 bytes

/// Converts rows: a thread takes 8 neighbouring elements of a row, which has `parts` such, and
/// neighbouring threads the next ones. They are loaded at once if all rows of both matrices are
/// `aligned`.
template <Element From, Element To>
__global__ void __launch_bounds__(convert_threads)
    convert_rows(const typename op::ConvertRows<From, To>::Parameters p, const RowPieces parts,
                 const bool aligned) {
  const RowPlace place =
      parts.place(static_cast<std::int64_t>(blockIdx.x) * convert_threads + threadIdx.x);
  if (place.row >= p.from.rows) return;
  const std::int64_t column = place.piece * convert_vector;
  const From* const from = p.from.row(place.row) + column;
  To* const to = p.to.row(place.row) + column;
  const std::int64_t count = p.from.columns - column;
  if (aligned && count >= convert_vector) {
    float x[2][4];
    for (int half = 0; half < 2; ++half) load_four(from + 4 * half, true, 4, x[half]);
    for (int half = 0; half < 2; ++half) store_four(to + 4 * half, true, 4, x[half]);
  } else {
    for (int e = 0; e < convert_vector && e < count; ++e) to[e] = from_float<To>(to_float(from[e]));
  }
}

}  // namespace gpu::detail

template <Element From, Element To>
struct op::Kernel<op::ConvertRows<From, To>, Cuda> {
  static void run(const Cuda& backend, const typename op::ConvertRows<From, To>::Parameters& p) {
    const std::int64_t parts = gpu::ceil_divide(p.from.columns, gpu::detail::convert_vector);
    backend.launch(
        "convert_rows", gpu::ceil_divide(p.from.rows * parts, gpu::detail::convert_threads),
        gpu::detail::convert_threads, gpu::detail::convert_rows<From, To>, p, gpu::RowPieces(parts),
        gpu::rows_aligned_for(p.from.data, p.from.stride, 4) &&
            gpu::rows_aligned_for(p.to.data, p.to.stride, 4));
  }
};

}}  // namespace tessera::v0
