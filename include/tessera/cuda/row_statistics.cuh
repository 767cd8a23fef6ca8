// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/groups.cuh>
#include <tessera/op/row_statistics.hpp>

#include <cstdint>
#include <vector>

namespace tessera { inline namespace v0 {
namespace gpu::detail {

inline constexpr int statistics_threads = 128;

struct NumberedSearch {
  op::FindRows::Job job;
  std::int64_t number;
};

/// Finds rows, a thread for each end of a range.
template <int = 0>
__global__ void find_rows(op::PlaceRange* found,
                          const GroupBatch<NumberedSearch> __grid_constant__ batch) {
  if (threadIdx.x >= 2) return;
  const NumberedSearch& search = batch.groups[blockIdx.x];
  const auto row =
      static_cast<std::uint64_t>(threadIdx.x == 0 ? search.job.row_begin : search.job.row_end);
  std::int64_t low = 0, high = search.job.count;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (static_cast<std::uint64_t>(search.job.rows[middle]) < row)  // -1 comes behind all rows
      low = middle + 1;
    else
      high = middle;
  }
  (threadIdx.x == 0 ? found[search.number].begin : found[search.number].end) = low;
}

/// Writes mean squares: a thread takes a row.
template <int = 0>
__global__ void __launch_bounds__(statistics_threads)
    write_mean_squares(const GroupBatch<op::WriteMeanSquares::Job> __grid_constant__ batch) {
  const int g = batch.find(blockIdx.x);
  const op::WriteMeanSquares::Job& job = batch.groups[g];
  const std::int64_t i = (blockIdx.x - batch.first_block[g]) * statistics_threads + threadIdx.x;
  if (i < job.which->size())
    op::write_mean_square_partials(job.gradients + (job.which->begin + i) * job.columns.width(),
                                   job.columns.begin, job.columns.end, job.columns.table_width,
                                   job.partials + i * job.columns.partials());
}

/// op::CombineMeanSquares::Job with its parts in device memory.
struct CombineOnDevice {
  const std::int64_t* rows;
  const float* gradients;
  const op::PlaceRange* which;
  std::int64_t room;
  const op::CombineMeanSquares::Part* parts;
  int part_count;
  float* means;
};

template <int = 0>
__global__ void __launch_bounds__(statistics_threads)
    combine_mean_squares(const GroupBatch<CombineOnDevice> __grid_constant__ batch) {
  const int g = batch.find(blockIdx.x);
  const CombineOnDevice& job = batch.groups[g];
  const std::int64_t at = (blockIdx.x - batch.first_block[g]) * statistics_threads + threadIdx.x;
  if (at >= job.which->size()) return;
  const std::int64_t i = job.which->begin + at, row = job.rows[i];
  op::MeanSquareSum sum;
  int table_width = 1;
  for (int k = 0; k < job.part_count; ++k) {
    const op::CombineMeanSquares::Part& part = job.parts[k];
    const op::ColumnRange& c = part.columns;
    table_width = c.table_width;
    if (row < part.row_begin || row >= part.row_end) continue;
    if (part.partials == nullptr)
      sum.add_gradients(job.gradients + i * c.width(), c.begin, c.end, c.table_width);
    else
      sum.add(part.partials + (i - part.which->begin) * c.partials(), c.begin, c.end,
              c.table_width);
  }
  job.means[i] = sum.mean(table_width);
}

}  // namespace gpu::detail

template <>
struct op::Kernel<op::FindRows, Cuda> {
  static void run(const Cuda& backend, const op::FindRows::Parameters& p) {
    std::vector<gpu::detail::NumberedSearch> searches;
    for (const op::FindRows::Job& job : p.jobs)
      searches.push_back({job, static_cast<std::int64_t>(searches.size())});
    gpu::launch_by_group<gpu::detail::NumberedSearch>(
        backend, "find_rows", 32, searches, [](const gpu::detail::NumberedSearch&) { return 1; },
        gpu::detail::find_rows<>, p.found);
  }
};

template <>
struct op::Kernel<op::WriteMeanSquares, Cuda> {
  static void run(const Cuda& backend, const op::WriteMeanSquares::Parameters& p) {
    gpu::launch_by_group<op::WriteMeanSquares::Job>(
        backend, "write_mean_squares", gpu::detail::statistics_threads, p.jobs,
        [](const op::WriteMeanSquares::Job& job) {
          return gpu::ceil_divide(job.room, gpu::detail::statistics_threads);
        },
        gpu::detail::write_mean_squares<>);
  }
};

template <>
struct op::Kernel<op::CombineMeanSquares, Cuda> {
  static void run(const Cuda& backend, const op::CombineMeanSquares::Parameters& p) {
    std::vector<op::CombineMeanSquares::Part> parts;
    for (const op::CombineMeanSquares::Job& job : p.jobs)
      parts.insert(parts.end(), job.parts.begin(), job.parts.end());
    auto* device_parts = backend.scratch_for<op::CombineMeanSquares::Part>(gpu::ScratchSlot::parts,
                                                                           std::ssize(parts));
    gpu::upload<op::CombineMeanSquares::Part>(backend, parts, device_parts);
    std::vector<gpu::detail::CombineOnDevice> jobs;
    for (const op::CombineMeanSquares::Job& job : p.jobs) {
      jobs.push_back({job.rows, job.gradients, job.which, job.room, device_parts,
                      static_cast<int>(job.parts.size()), job.means});
      device_parts += job.parts.size();
    }
    gpu::launch_by_group<gpu::detail::CombineOnDevice>(
        backend, "combine_mean_squares", gpu::detail::statistics_threads, jobs,
        [](const gpu::detail::CombineOnDevice& job) {
          return gpu::ceil_divide(job.room, gpu::detail::statistics_threads);
        },
        gpu::detail::combine_mean_squares<>);
  }
};

}}  // namespace tessera::v0
