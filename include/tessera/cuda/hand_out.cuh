// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/merge.cuh>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera { inline namespace v0 { namespace gpu {

/// Lists of sums so far (op::Merge) of `width` columns, in device memory, and room for where the
/// rows that begin at each place have theirs, or null.
struct SumsSoFar {
  const op::MergedGradients* lists = nullptr;
  int list_count = 0;
  int width = 0;
  float** of_places = nullptr;  ///< null: there are no lists

  __device__ float* find(std::int64_t row) const {
    for (int l = 0; l < list_count; ++l) {
      std::int64_t low = 0, high = lists[l].count;
      while (low < high) {
        const std::int64_t middle = (low + high) / 2;
        if (lists[l].rows[middle] < row)
          low = middle + 1;
        else
          high = middle;
      }
      if (low < lists[l].count && lists[l].rows[low] == row)
        return lists[l].gradients + low * width;
    }
    return nullptr;
  }
};

/// Marks which places begin a row without a sum so far: a word of bits per window, and how many
/// bits.
template <class Payload>
__global__ void __launch_bounds__(merge_threads)
    mark_rows(const SortedEntries<Payload> in, const SumsSoFar so_far, std::uint32_t* marks,
              std::uint32_t* counts) {
  const std::uint32_t place = blockIdx.x * merge_threads + threadIdx.x,
                      window = place / merge_window;
  const std::uint32_t row = place < in.count ? in.rows[place] : no_row;
  bool begins = row != no_row && (place == 0 || in.rows[place - 1] != row);
  if (so_far.of_places != nullptr && place < in.count) {
    float* const sum = begins ? so_far.find(row) : nullptr;
    so_far.of_places[place] = sum;
    begins = begins && sum == nullptr;
  }
  const unsigned mark = __ballot_sync(0xffffffffu, begins);
  if (threadIdx.x % 32 != 0 || window * merge_window >= in.count) return;
  marks[window] = mark;
  counts[window] = static_cast<std::uint32_t>(__popc(mark));
}

/// What becomes of a merged gradient: it is handed out, in the order of rows, or goes where its sum
/// so far was. `Width` columns of it, from the `column`-th on.
template <int Width>
struct HandOut {
  using Lanes = RowLanes<float, Width>;
  static constexpr int width = Width;
  struct Loaded {};

  std::int64_t* rows;
  float* gradients;
  const std::uint32_t* marks;
  const std::uint32_t* before;  ///< per window: rows that begin in earlier ones
  float* const* so_far;         ///< SumsSoFar::of_places
  std::int64_t stride;
  int column;

  __device__ bool aligned() const { return stride % 4 == 0 && column % 4 == 0; }
  __device__ RowPart<Lanes> sum_before(std::uint32_t place, int lane) const {
    if (so_far == nullptr || so_far[place] == nullptr) return zero_row<Lanes>(-0.0f);
    return load_float_row<Lanes>(so_far[place] + column, aligned(), lane);
  }
  __device__ void prefetch(std::int64_t, int) const {}
  __device__ Loaded load(std::int64_t, int) const { return {}; }
  __device__ void store(std::int64_t row, std::uint32_t place, int lane, Loaded&,
                        const RowPart<Lanes>& gradient) const {
    if (so_far != nullptr && so_far[place] != nullptr)
      return store_float_row(so_far[place] + column, aligned(), lane, gradient);
    const std::uint32_t window = place / merge_window,
                        earlier = marks[window] & ((1u << place % merge_window) - 1u);
    const std::int64_t index = before[window] + static_cast<std::uint32_t>(__popc(earlier));
    if (lane == 0 && column == 0) rows[index] = row;
    store_float_row(gradients + index * stride + column, aligned(), lane, gradient);
  }
};

/// Merges a row's gradients and hands them out: rows and gradients [rows, width], where `room` says
/// when it is told where in device memory their number is. Returns that place, too. Any width:
/// panels of 128, 16 and 1 columns, one after another; sums are the same whatever the panel.
/// `sums`: as op::Merge's.
template <int Width, class Payload, Element G, class Room>
const std::uint32_t* hand_out(const Cuda& backend, const SortedEntries<Payload, G>& sorted,
                              int width, const Room& room,
                              std::span<const op::MergedGradients> sums = {}) {
  const std::int64_t windows = ceil_divide(sorted.count, merge_window);
  auto* marks = backend.scratch_for<std::uint32_t>(ScratchSlot::row_marks, 2 * windows + 1);
  auto* counts = marks + windows;  // one more than windows: the last becomes the number of rows
  SumsSoFar so_far;
  if (!sums.empty()) {
    const std::int64_t list_bytes =
        ceil_divide(static_cast<std::int64_t>(sums.size_bytes()), 256) * 256;
    auto* const memory = backend.scratch_for<std::byte>(
        ScratchSlot::sums_so_far,
        list_bytes + std::int64_t{sorted.count} * static_cast<std::int64_t>(sizeof(float*)));
    auto* const lists = reinterpret_cast<op::MergedGradients*>(memory);
    upload<op::MergedGradients>(backend, sums, lists);
    so_far = {lists, static_cast<int>(sums.size()), width,
              reinterpret_cast<float**>(memory + list_bytes)};
  }
  backend.fill_zero(counts + windows, sizeof(*counts));
  backend.launch("mark_rows", ceil_divide(sorted.count, merge_threads), merge_threads,
                 mark_rows<Payload>, sorted.without_gradients(), so_far, marks, counts);
  exclusive_sum(backend, counts, static_cast<int>(windows + 1));
  const op::MergedGradients to = room(counts + windows);
  const auto panel = [&]<int Columns>(int column) {
    SortedEntries<Payload, G> shifted = sorted;
    shifted.column = column;
    merge_rows(
        backend, shifted,
        HandOut<Columns>{to.rows, to.gradients, marks, counts, so_far.of_places, width, column});
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

}}}  // namespace tessera::v0::gpu
