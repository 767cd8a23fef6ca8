// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/backend.cuh>
#include <tessera/cuda/block_sum.cuh>
#include <tessera/cuda/exchange.cuh>
#include <tessera/op/jagged.hpp>

#include <cstddef>
#include <cstdint>
#include <iterator>

namespace tessera { inline namespace v0 {
namespace gpu::detail {

inline constexpr int jagged_threads = 256;

/// Moves rows: a warp copies a row. `Gather`: to[r] = from[place(r)], or zeros; else to[place(r)] =
/// from[r].
template <bool Gather, class Place>
__global__ void __launch_bounds__(jagged_threads)
    move_jagged(const op::Sequences sequences, const Place place,
                const MatrixView<const float> from, const MatrixView<float> to,
                const std::int64_t rows) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (jagged_threads / 32) +
                           static_cast<int>(threadIdx.x) / 32;
  if (row >= rows) return;
  const std::int64_t other =
      place(sequences, Place::by_sequence ? sequences.of(row) : std::int64_t{0}, row);
  for (std::int64_t c = static_cast<int>(threadIdx.x) % 32; c < to.columns; c += 32) {
    if constexpr (Gather)
      to(row, c) = other >= 0 ? from(other, c) : 0.0f;
    else if (other >= 0)
      to(other, c) = from(row, c);
  }
}

// A thread per column of a sequence: neighbours read neighbouring columns.

struct SegmentColumn {
  std::int64_t sequence, column, begin, end;

  __device__ SegmentColumn(const op::Sequences& sequences, std::int64_t columns)
      : sequence((static_cast<std::int64_t>(blockIdx.x) * jagged_threads + threadIdx.x) / columns),
        column((static_cast<std::int64_t>(blockIdx.x) * jagged_threads + threadIdx.x) % columns),
        begin(0),
        end(0) {
    if (sequence < sequences.count)
      begin = sequences.offsets[sequence], end = sequences.offsets[sequence + 1];
  }
};

template <int = 0>
__global__ void __launch_bounds__(jagged_threads) segment_sum(const op::SegmentSum::Parameters p) {
  const SegmentColumn at(p.sequences, p.to.columns);
  if (at.sequence >= p.sequences.count) return;
  float sum = 0;
  for (std::int64_t row = at.begin; row < at.end; ++row) sum += p.from(row, at.column);
  p.to(at.sequence, at.column) =
      p.mean && at.end > at.begin ? sum / static_cast<float>(at.end - at.begin) : sum;
}

template <int = 0>
__global__ void __launch_bounds__(jagged_threads)
    spread_segments(const op::SpreadSegments::Parameters p) {
  const SegmentColumn at(p.sequences, p.to.columns);
  if (at.begin == at.end) return;
  const float value =
      p.from(at.sequence, at.column) / (p.mean ? static_cast<float>(at.end - at.begin) : 1.0f);
  for (std::int64_t row = at.begin; row < at.end; ++row) p.to(row, at.column) = value;
}

template <int = 0>
__global__ void __launch_bounds__(jagged_threads)
    segment_softmax(const op::SegmentSoftmax::Parameters p) {
  const SegmentColumn at(p.sequences, p.to.columns);
  if (at.begin == at.end) return;
  float most = p.from(at.begin, at.column), sum = 0;
  for (std::int64_t row = at.begin + 1; row < at.end; ++row)
    most = fmaxf(most, p.from(row, at.column));
  for (std::int64_t row = at.begin; row < at.end; ++row) {
    const float e = expf(p.from(row, at.column) - most);
    p.to(row, at.column) = e;
    sum += e;
  }
  for (std::int64_t row = at.begin; row < at.end; ++row) p.to(row, at.column) /= sum;
}

template <int = 0>
__global__ void __launch_bounds__(jagged_threads)
    segment_softmax_backward(const op::SegmentSoftmaxBackward::Parameters p) {
  const SegmentColumn at(p.sequences, p.to.columns);
  float sum = 0;
  for (std::int64_t row = at.begin; row < at.end; ++row)
    sum += p.p(row, at.column) * p.gradient(row, at.column);
  for (std::int64_t row = at.begin; row < at.end; ++row)
    p.to(row, at.column) = p.p(row, at.column) * (p.gradient(row, at.column) - sum);
}

template <int = 0>
__global__ void __launch_bounds__(jagged_threads)
    position_ids(const op::PositionIds::Parameters p) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * jagged_threads + threadIdx.x;
  if (row < p.rows) p.to[row] = op::bounded_position(p, p.sequences.of(row), row);
}

template <int = 0>
__global__ void __launch_bounds__(jagged_threads)
    time_bucket_ids(const op::TimeBucketIds::Parameters p) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * jagged_threads + threadIdx.x;
  if (row < p.rows) p.to[row] = op::time_bucket(p, p.sequences.of(row), row);
}

template <int = 0>
__global__ void __launch_bounds__(jagged_threads)
    lengths_from_offsets(const op::LengthsFromOffsets::Parameters p) {
  const std::int64_t s = static_cast<std::int64_t>(blockIdx.x) * jagged_threads + threadIdx.x;
  if (s < p.sequences.count) p.lengths[s] = p.sequences.length(s);
}

/// Sums lengths, in one block.
template <int = 0>
__global__ void __launch_bounds__(sum_threads)
    offsets_from_sequence_lengths(const op::OffsetsFromSequenceLengths::Parameters p) {
  std::uint64_t before = 0;
  for (std::int64_t first = 0; first < p.count; first += sum_threads) {
    const std::int64_t s = first + threadIdx.x;
    std::uint64_t total;
    const std::uint64_t own =
        s < p.count ? static_cast<std::uint64_t>(p.lengths[s]) : std::uint64_t{0};
    const std::uint64_t sum = before + sum_before(own, total);
    if (s < p.count) p.offsets[s] = static_cast<std::int64_t>(sum);
    before += total;
  }
  if (threadIdx.x == 0) p.offsets[p.count] = static_cast<std::int64_t>(before);
}

inline void launch_jagged(const Cuda& backend, const char* name, std::int64_t threads, auto kernel,
                          const auto& parameters) {
  if (threads > 0)
    backend.launch(name, ceil_divide(threads, jagged_threads), jagged_threads, kernel, parameters);
}

}  // namespace gpu::detail

template <class Place>
struct op::Kernel<op::ScatterJagged<Place>, Cuda> {
  static void run(const Cuda& backend, const typename op::ScatterJagged<Place>::Parameters& p) {
    if (p.from.rows > 0 && p.to.columns > 0)
      backend.launch("scatter_jagged",
                     gpu::ceil_divide(p.from.rows * 32, gpu::detail::jagged_threads),
                     gpu::detail::jagged_threads, gpu::detail::move_jagged<false, Place>,
                     p.sequences, p.place, p.from, p.to, p.from.rows);
  }
};
template <class Place>
struct op::Kernel<op::GatherJagged<Place>, Cuda> {
  static void run(const Cuda& backend, const typename op::GatherJagged<Place>::Parameters& p) {
    if (p.to.rows > 0 && p.to.columns > 0)
      backend.launch("gather_jagged", gpu::ceil_divide(p.to.rows * 32, gpu::detail::jagged_threads),
                     gpu::detail::jagged_threads, gpu::detail::move_jagged<true, Place>,
                     p.sequences, p.place, p.from, p.to, p.to.rows);
  }
};
template <>
struct op::Kernel<op::SegmentSum, Cuda> {
  static void run(const Cuda& backend, const op::SegmentSum::Parameters& p) {
    gpu::detail::launch_jagged(backend, "segment_sum", p.sequences.count * p.to.columns,
                               gpu::detail::segment_sum<>, p);
  }
};
template <>
struct op::Kernel<op::SpreadSegments, Cuda> {
  static void run(const Cuda& backend, const op::SpreadSegments::Parameters& p) {
    gpu::detail::launch_jagged(backend, "spread_segments", p.sequences.count * p.to.columns,
                               gpu::detail::spread_segments<>, p);
  }
};
template <>
struct op::Kernel<op::SegmentSoftmax, Cuda> {
  static void run(const Cuda& backend, const op::SegmentSoftmax::Parameters& p) {
    gpu::detail::launch_jagged(backend, "segment_softmax", p.sequences.count * p.to.columns,
                               gpu::detail::segment_softmax<>, p);
  }
};
template <>
struct op::Kernel<op::SegmentSoftmaxBackward, Cuda> {
  static void run(const Cuda& backend, const op::SegmentSoftmaxBackward::Parameters& p) {
    gpu::detail::launch_jagged(backend, "segment_softmax_backward",
                               p.sequences.count * p.to.columns,
                               gpu::detail::segment_softmax_backward<>, p);
  }
};
template <>
struct op::Kernel<op::PositionIds, Cuda> {
  static void run(const Cuda& backend, const op::PositionIds::Parameters& p) {
    gpu::detail::launch_jagged(backend, "position_ids", p.rows, gpu::detail::position_ids<>, p);
  }
};
template <>
struct op::Kernel<op::TimeBucketIds, Cuda> {
  static void run(const Cuda& backend, const op::TimeBucketIds::Parameters& p) {
    gpu::detail::launch_jagged(backend, "time_bucket_ids", p.rows, gpu::detail::time_bucket_ids<>,
                               p);
  }
};
template <>
struct op::Kernel<op::LengthsFromOffsets, Cuda> {
  static void run(const Cuda& backend, const op::LengthsFromOffsets::Parameters& p) {
    gpu::detail::launch_jagged(backend, "lengths_from_offsets", p.sequences.count,
                               gpu::detail::lengths_from_offsets<>, p);
  }
};
template <>
struct op::Kernel<op::OffsetsFromSequenceLengths, Cuda> {
  static void run(const Cuda& backend, const op::OffsetsFromSequenceLengths::Parameters& p) {
    backend.launch("offsets_from_sequence_lengths", 1, gpu::sum_threads,
                   gpu::detail::offsets_from_sequence_lengths<>, p);
  }
};

}}  // namespace tessera::v0
