// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/backend.cuh>
#include <tessera/cuda/launch.cuh>
#include <tessera/cuda/row_lanes.cuh>
#include <tessera/cuda/row_place.cuh>
#include <tessera/op/exchange.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 {
namespace gpu::detail {

inline constexpr int zero_threads = 256;

/// Zeroes rows: a thread stores a Piece, one float or four; neighbouring threads take neighbouring
/// pieces.
template <class Piece>
__global__ void __launch_bounds__(zero_threads)
    zero_rows(const op::ZeroRows::Parameters p, const RowPieces pieces) {
  const RowPlace place =
      pieces.place(static_cast<std::int64_t>(blockIdx.x) * zero_threads + threadIdx.x);
  if (place.row < p.rows)
    reinterpret_cast<Piece*>(p.target + place.row * p.target_stride)[place.piece] = Piece{};
}

}  // namespace gpu::detail

template <>
struct op::Kernel<op::ZeroRows, Cuda> {
  static void run(const Cuda& backend, const op::ZeroRows::Parameters& p) {
    const auto launch = [&](int piece, void (*kernel)(op::ZeroRows::Parameters, gpu::RowPieces)) {
      const std::int64_t per_row = p.width / piece;
      backend.launch("zero_rows", gpu::ceil_divide(p.rows * per_row, gpu::detail::zero_threads),
                     gpu::detail::zero_threads, kernel, p, gpu::RowPieces(per_row));
    };
    if (p.width % 4 == 0 && gpu::rows_aligned(p.target, p.target_stride))
      launch(4, gpu::detail::zero_rows<float4>);
    else
      launch(1, gpu::detail::zero_rows<float>);
  }
};

}}  // namespace tessera::v0
