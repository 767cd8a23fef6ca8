// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/merge.cuh>

#include <cstdint>

namespace tessera::inline v0::gpu {

/// Which places begin a row: a word of bits per window, and how many bits.
template <class Payload>
__global__ void __launch_bounds__(merge_threads)
    mark_rows(const SortedEntries<Payload> in, std::uint32_t* marks, std::uint32_t* counts) {
  const std::uint32_t place = blockIdx.x * merge_threads + threadIdx.x,
                      window = place / merge_window;
  const std::uint32_t row = place < in.count ? in.rows[place] : no_row;
  const bool begins = row != no_row && (place == 0 || in.rows[place - 1] != row);
  const unsigned mark = __ballot_sync(0xffffffffu, begins);
  if (threadIdx.x % 32 != 0 || window * merge_window >= in.count) return;
  marks[window] = mark;
  counts[window] = static_cast<std::uint32_t>(__popc(mark));
}

/// What becomes of a merged gradient: it is handed out, in the order of rows. `Width` columns of
/// it, from the `column`-th on.
template <int Width>
struct HandOut {
  using Lanes = RowLanes<float, Width>;
  static constexpr int width = Width;
  struct Loaded {};

  std::int64_t* rows;
  float* gradients;
  const std::uint32_t* marks;
  const std::uint32_t* before;  ///< per window: rows that begin in earlier ones
  std::int64_t stride;
  int column;

  __device__ void prefetch(std::int64_t, int) const {}
  __device__ Loaded load(std::int64_t, int) const { return {}; }
  __device__ void store(std::int64_t row, std::uint32_t place, int lane, Loaded&,
                        const RowPart<Lanes>& gradient) const {
    const std::uint32_t window = place / merge_window,
                        earlier = marks[window] & ((1u << place % merge_window) - 1u);
    const std::int64_t index = before[window] + static_cast<std::uint32_t>(__popc(earlier));
    if (lane == 0 && column == 0) rows[index] = row;
    store_float_row(gradients + index * stride + column, stride % 4 == 0 && column % 4 == 0, lane,
                    gradient);
  }
};

/// Merges a row's gradients and hands them out: rows and gradients [rows, width], where `room` says
/// when it is told where in device memory their number is. Answers that place, too. Any width:
/// panels of 128, 16 and 1 columns, one after another; sums are the same whatever the panel.
template <int Width, class Payload, Element G, class Room>
const std::uint32_t* hand_out(const Cuda& backend, const SortedEntries<Payload, G>& sorted,
                              int width, const Room& room) {
  const std::int64_t windows = ceil_divide(sorted.count, merge_window);
  auto* marks = backend.scratch_for<std::uint32_t>(ScratchSlot::row_marks, 2 * windows + 1);
  auto* counts = marks + windows;  // one more than windows: the last becomes the number of rows
  backend.fill_zero(counts + windows, sizeof(*counts));
  backend.launch("mark_rows", ceil_divide(sorted.count, merge_threads), merge_threads,
                 mark_rows<Payload>, sorted.without_gradients(), marks, counts);
  exclusive_sum(backend, counts, static_cast<int>(windows + 1));
  const op::MergedGradients to = room(counts + windows);
  const auto panel = [&]<int Columns>(int column) {
    SortedEntries<Payload, G> shifted = sorted;
    shifted.column = column;
    merge_rows(backend, shifted,
               HandOut<Columns>{to.rows, to.gradients, marks, counts, width, column});
  };
  if constexpr (fits_lanes(Width)) {
    panel.template operator()<Width>(0);
  } else {
    int column = 0;
    for (; column + 128 <= width; column += 128) panel.template operator()<128>(column);
    for (; column + 16 <= width; column += 16) panel.template operator()<16>(column);
    for (; column < width; ++column) panel.template operator()<1>(column);
  }
  return counts + windows;
}

}  // namespace tessera::inline v0::gpu
