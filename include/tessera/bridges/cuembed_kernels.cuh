// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/element.hpp>
#include <tessera/core/jagged.hpp>
#include <tessera/cuda/launch.cuh>
#include <tessera/cuda/lookup.cuh>
#include <tessera/cuda/merge.cuh>
#include <tessera/cuda/row_lanes.cuh>
#include <tessera/cuda/sorted_entries.cuh>

#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace v0 { namespace cuembed { namespace detail {

/// Ids of a batch of samples: `hots` each, or as many as CSR offsets say.
template <Element T, IdType Id, IdType Offset>
struct Samples {
  static constexpr std::int64_t row_bias = 0;

  const Id* ids = nullptr;
  const Offset* offsets = nullptr;
  const T* weights = nullptr;  ///< parallel to ids, or null
  std::int64_t count = 0, hots = 0;
  bool mean = false;

  TESSERA_HOST_DEVICE std::int64_t begin(std::int64_t sample) const {
    return offsets == nullptr ? sample * hots : static_cast<std::int64_t>(offsets[sample]);
  }
  /// Returns what a sum of so many rows is multiplied by.
  TESSERA_HOST_DEVICE float scale(std::int64_t rows) const {
    return mean && rows > 0 ? 1.0f / static_cast<float>(rows) : 1.0f;
  }
};

/// Returns whether every fourth element of rows is aligned for a load of four.
template <class T>
TESSERA_HOST_DEVICE bool fours_aligned(const T* data, int width) {
  return reinterpret_cast<std::uintptr_t>(data) % (4 * sizeof(T)) == 0 && width % 4 == 0;
}

/// Sums the rows of each sample: a group of lanes takes one. As many blocks at once as of
/// gpu::detail::pool_bags.
template <Element T, IdType Id, IdType Offset, Element Out, int Width>
__global__ void __launch_bounds__(gpu::detail::lookup_threads,
                                  gpu::RowLanes<T, Width>::words <= 4 ? 4 : 3)
    pool_samples(const T* __restrict__ params, const Samples<T, Id, Offset> samples, Out* out) {
  using Lanes = gpu::RowLanes<T, Width>;
  const int lane = static_cast<int>(threadIdx.x) % Lanes::lanes;
  const std::int64_t sample =
      static_cast<std::int64_t>(blockIdx.x) * (gpu::detail::lookup_threads / Lanes::lanes) +
      threadIdx.x / Lanes::lanes;
  if (sample >= samples.count) return;
  const std::int64_t begin = samples.begin(sample);
  const auto count = static_cast<int>(samples.begin(sample + 1) - begin);
  using Row = std::make_unsigned_t<Id>;  // as many rows as ids name
  gpu::RowPart<Lanes> sum =
      samples.weights != nullptr
          ? gpu::detail::sum_bag<T, Width, true, Row>(params, samples, begin, count, lane)
          : gpu::detail::sum_bag<T, Width, false, Row>(params, samples, begin, count, lane);
  if (samples.mean) gpu::scale_row(sum, samples.scale(count));
  gpu::store_any_row(out + sample * Width, gpu::rows_aligned_for(out, Width, Lanes::vector), lane,
                     sum);
}

/// Does the same for rows of any width at any address: `lanes` lanes take a sample, a power of two
/// up to 32, each of them four neighbouring columns at a time.
template <Element T, IdType Id, IdType Offset, Element Out>
__global__ void __launch_bounds__(gpu::detail::lookup_threads)
    pool_samples_of_any_width(const T* __restrict__ params, const int width, const int lanes,
                              const Samples<T, Id, Offset> samples, Out* out) {
  constexpr int flight = 4;
  const std::int64_t sample =
      (static_cast<std::int64_t>(blockIdx.x) * gpu::detail::lookup_threads + threadIdx.x) / lanes;
  if (sample >= samples.count) return;
  const std::int64_t begin = samples.begin(sample), end = samples.begin(sample + 1);
  const bool aligned = fours_aligned(params, width), aligned_out = fours_aligned(out, width);
  for (int column = 4 * (static_cast<int>(threadIdx.x) % lanes); column < width;
       column += 4 * lanes) {
    const int columns = width - column < 4 ? width - column : 4;
    float sum[4] = {};
    for (std::int64_t i = begin; i < end; i += flight) {
      std::int64_t ids[flight];
      float rows[flight][4];
      for (int r = 0; r < flight; ++r) {
        ids[r] = i + r < end ? samples.ids[i + r] : -1;
        if (ids[r] >= 0)
          gpu::load_four(params + ids[r] * width + column, aligned, columns, rows[r]);
      }
      for (int r = 0; r < flight; ++r) {
        if (ids[r] < 0) continue;
        const float weight = samples.weights != nullptr ? to_float(samples.weights[i + r]) : 1.0f;
        for (int c = 0; c < 4; ++c) sum[c] = fmaf(weight, rows[r][c], sum[c]);
      }
    }
    for (float& x : sum) x *= samples.scale(end - begin);
    gpu::store_four(out + sample * width + column, aligned_out, columns, sum);
  }
}

/// Where merged gradients go: to their rows, from `column` on.
template <Element G, int Columns>
struct GradientRows {
  using Lanes = gpu::RowLanes<float, Columns>;
  static constexpr int width = Columns;
  struct Loaded {};

  G* rows;
  std::int64_t stride;
  int column;
  bool aligned;

  __device__ void prefetch(std::int64_t, int) const {}
  __device__ Loaded load(std::int64_t, int) const { return {}; }
  __device__ void store(std::int64_t row, std::uint32_t, int lane, Loaded&,
                        const gpu::RowPart<Lanes>& gradient) const {
    if (row > INT32_MAX) return;  // was a negative index
    gpu::store_any_row(rows + row * stride + column, aligned, lane, gradient);
  }
};

inline constexpr int each_threads = 256;

/// Lists entries as merges read them: rows of 32 bits, and samples with their weights.
template <class Payload, IdType Id, Element G>
__global__ void __launch_bounds__(each_threads)
    list_coordinates(const Id* indices, const Id* samples, const G* weights, const int count,
                     std::uint32_t* rows, Payload* payloads) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * each_threads + threadIdx.x;
  if (i >= count) return;
  rows[i] = indices[i] < 0 ? gpu::no_row : static_cast<std::uint32_t>(indices[i]);
  payloads[i] = gpu::make_payload<Payload>(static_cast<std::uint32_t>(samples[i]),
                                           weights == nullptr ? 1.0f : to_float(weights[i]));
}

/// Writes which index each row of a compressed gradient is of.
template <IdType Id>
__global__ void __launch_bounds__(each_threads)
    write_inverse(const Id* indices, const Id* remapped, const int count, Id* inverse) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * each_threads + threadIdx.x;
  if (i < count && (i == 0 || remapped[i - 1] != remapped[i])) inverse[remapped[i]] = indices[i];
}

/// Writes 1 where the next index is another: summed up to a place, that is the place's number.
template <IdType Id>
__global__ void __launch_bounds__(each_threads)
    mark_last(const Id* indices, const int count, Id* marks) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * each_threads + threadIdx.x;
  if (i < count) marks[i] = i + 1 < count && indices[i] != indices[i + 1] ? 1 : 0;
}

/// Writes 0, 0, ..., 1, 1, ...: each number `hots` times.
template <IdType Id>
__global__ void __launch_bounds__(each_threads)
    write_sample_ids(const std::int64_t count, const int hots, Id* ids) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * each_threads + threadIdx.x;
  if (i < count) ids[i] = static_cast<Id>(i / hots);
}
/// Writes each sample's number as often as it has ids: a warp takes a sample.
template <IdType Id, IdType Offset>
__global__ void __launch_bounds__(each_threads)
    write_sample_ids_of(const Offset* offsets, const int count, Id* ids) {
  const std::int64_t sample =
      static_cast<std::int64_t>(blockIdx.x) * (each_threads / 32) + threadIdx.x / 32;
  if (sample >= count) return;
  const std::int64_t end = offsets[sample + 1];
  for (std::int64_t i = offsets[sample] + static_cast<int>(threadIdx.x) % 32; i < end; i += 32)
    ids[i] = static_cast<Id>(sample);
}

/// What a sort carries: a sample and its weight.
template <class Id, class Weight>
struct WeightedSample {
  Id sample;
  Weight weight;
};

template <class Id, class Weight>
__global__ void __launch_bounds__(each_threads)
    join_weights(const Id* samples, const Weight* weights, const int count,
                 WeightedSample<Id, Weight>* joined) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * each_threads + threadIdx.x;
  if (i < count) joined[i] = {samples[i], weights[i]};
}
template <class Id, class Weight>
__global__ void __launch_bounds__(each_threads)
    part_weights(const WeightedSample<Id, Weight>* joined, const int count, Id* samples,
                 Weight* weights) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * each_threads + threadIdx.x;
  if (i >= count) return;
  samples[i] = joined[i].sample;
  weights[i] = joined[i].weight;
}

/// Launches a thread each.
template <class... Parameters, class... Arguments>
void launch_each(const char* name, std::int64_t threads, cudaStream_t stream,
                 void (*kernel)(Parameters...), Arguments... arguments) {
  gpu::launch(name,
              {.blocks = gpu::ceil_divide(threads, each_threads),
               .threads = each_threads,
               .stream = stream},
              kernel, arguments...);
}

}}}}  // namespace tessera::v0::cuembed::detail
