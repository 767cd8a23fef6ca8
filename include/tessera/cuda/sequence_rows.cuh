// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/backend.cuh>
#include <tessera/op/sequence_rows.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 {
namespace gpu::detail {

inline constexpr int sequence_threads = 256;

template <int = 0>
__global__ void __launch_bounds__(sequence_threads)
    place_indices(const op::PlaceIndices::Parameters p) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * sequence_threads + threadIdx.x;
  if (i < p.count) p.index[i] = p.index[i] < 0 ? p.missing : p.index[i] + p.base;
}

template <int = 0>
__global__ void __launch_bounds__(sequence_threads)
    offsets_from_first(const op::OffsetsFromFirst::Job job) {
  const std::int64_t b = static_cast<std::int64_t>(blockIdx.x) * sequence_threads + threadIdx.x;
  if (b > job.bags) return;
  const std::int64_t offset = job.offsets == nullptr ? b : job.offsets[b] - job.offsets[0];
  job.to[b] = offset < job.most ? offset : job.most;
}

/// Gathers rows: a warp copies a row.
template <int = 0>
__global__ void __launch_bounds__(sequence_threads)
    gather_indexed(const op::GatherIndexed::Parameters p) {
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (sequence_threads / 32) +
                           static_cast<int>(threadIdx.x) / 32;
  if (row >= p.to.rows) return;
  const float* const from = p.rows.row(p.index[row]);
  const float weight = p.weights == nullptr ? 1.0f : p.weights[row];
  for (std::int64_t c = static_cast<int>(threadIdx.x) % 32; c < p.to.columns; c += 32)
    p.to(row, c) = p.weights == nullptr ? from[c] : weight * from[c];
}

}  // namespace gpu::detail

template <>
struct op::Kernel<op::PlaceIndices, Cuda> {
  static void run(const Cuda& backend, const op::PlaceIndices::Parameters& p) {
    backend.launch("place_indices", gpu::ceil_divide(p.count, gpu::detail::sequence_threads),
                   gpu::detail::sequence_threads, gpu::detail::place_indices<>, p);
  }
};

template <>
struct op::Kernel<op::OffsetsFromFirst, Cuda> {
  static void run(const Cuda& backend, const op::OffsetsFromFirst::Parameters& p) {
    for (const op::OffsetsFromFirst::Job& job : p.jobs)
      backend.launch("offsets_from_first",
                     gpu::ceil_divide(job.bags + 1, gpu::detail::sequence_threads),
                     gpu::detail::sequence_threads, gpu::detail::offsets_from_first<>, job);
  }
};

template <>
struct op::Kernel<op::GatherIndexed, Cuda> {
  static void run(const Cuda& backend, const op::GatherIndexed::Parameters& p) {
    backend.launch("gather_indexed",
                   gpu::ceil_divide(p.to.rows, gpu::detail::sequence_threads / 32),
                   gpu::detail::sequence_threads, gpu::detail::gather_indexed<>, p);
  }
};

}}  // namespace tessera::v0
