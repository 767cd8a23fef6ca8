// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/groups.cuh>
#include <tessera/cuda/row_lanes.cuh>
#include <tessera/op/exchange.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

namespace tessera::inline v0 {
namespace gpu {

inline constexpr int move_threads = 256;

/// Four floats per thread where both sides allow it, else one; neighbouring threads take
/// neighbouring columns.
__device__ inline bool moves_vectors(const op::MoveRows::Job& job) {
  return rows_aligned(job.source, job.source_stride) &&
         rows_aligned(job.target, job.target_stride) && job.width % 4 == 0;
}

template <int = 0>
__global__ void __launch_bounds__(move_threads)
    move_rows(const __grid_constant__ GroupBatch<op::MoveRows::Job> batch) {
  const int g = batch.find(blockIdx.x);
  const op::MoveRows::Job& job = batch.groups[g];
  const int vector = moves_vectors(job) ? 4 : 1;
  const std::int64_t per_row = job.width / vector,
                     blocks = batch.first_block[g + 1] - batch.first_block[g];
  for (std::int64_t i = (blockIdx.x - batch.first_block[g]) * move_threads + threadIdx.x;
       i < job.rows * per_row; i += blocks * move_threads) {
    const std::int64_t row = i / per_row, column = i % per_row * vector,
                       sample = job.samples != nullptr ? job.samples[row] : row;
    const float* source = job.source + (job.scatter ? row : sample) * job.source_stride + column;
    float* target = job.target + (job.scatter ? sample : row) * job.target_stride + column;
    if (vector == 4) {
      float4 v = *reinterpret_cast<const float4*>(source);
      if (job.add) {
        const float4 t = *reinterpret_cast<const float4*>(target);
        v = make_float4(t.x + v.x, t.y + v.y, t.z + v.z, t.w + v.w);
      }
      *reinterpret_cast<float4*>(target) = v;
    } else {
      *target = job.add ? *target + *source : *source;
    }
  }
}

template <int = 0>
__global__ void __launch_bounds__(move_threads) zero_rows(const op::ZeroRows::Parameters p) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * move_threads + threadIdx.x;
  if (i < p.rows * p.width) p.target[i / p.width * p.target_stride + i % p.width] = 0.0f;
}

/// Jobs in as few rounds as keep the order of those that write the same columns of a matrix:
/// columns are compared by address, modulo the stride. Where columns of two jobs overlap and are
/// not the same, every job gets a round of its own.
template <class Job>
std::vector<std::vector<Job>> rounds_of(std::span<const Job> jobs) {
  struct Columns {
    std::int64_t width = 0;
    std::size_t next_round = 0;
  };
  std::map<std::int64_t, std::map<std::int64_t, Columns>> matrices;  // by stride, by first column
  std::vector<std::vector<Job>> rounds, single;
  for (const Job& job : jobs) {
    if (job.rows == 0 || job.width == 0) continue;
    const std::int64_t first = reinterpret_cast<std::intptr_t>(job.target) /
                               static_cast<std::int64_t>(sizeof(float)) % job.target_stride;
    Columns& columns = matrices[job.target_stride][first];
    columns.width = std::max<std::int64_t>(columns.width, job.width);
    if (rounds.size() == columns.next_round) rounds.emplace_back();
    rounds[columns.next_round++].push_back(job);
    single.push_back({job});
  }
  for (const auto& [stride, columns] : matrices) {
    // what wraps around
    std::int64_t end = columns.rbegin()->first + columns.rbegin()->second.width - stride;
    for (const auto& [first, c] : columns) {
      if (first < end) return single;
      end = first + c.width;
    }
  }
  return rounds;
}

}  // namespace gpu

/// A launch per round; jobs that add to the same columns are in different rounds.
template <>
struct op::Kernel<op::MoveRows, Cuda> {
  static void run(const Cuda& backend, const op::MoveRows::Parameters& p) {
    const auto blocks_of = [](const op::MoveRows::Job& job) {
      return gpu::ceil_divide(job.rows * job.width, 4 * gpu::move_threads);
    };
    for (const std::vector<op::MoveRows::Job>& round : gpu::rounds_of<op::MoveRows::Job>(p.jobs))
      gpu::launch_by_group<op::MoveRows::Job>(backend, "move_rows", gpu::move_threads, round,
                                              blocks_of, gpu::move_rows<>);
  }
};

template <>
struct op::Kernel<op::ZeroRows, Cuda> {
  static void run(const Cuda& backend, const op::ZeroRows::Parameters& p) {
    backend.launch("zero_rows", gpu::ceil_divide(p.rows * p.width, gpu::move_threads),
                   gpu::move_threads, gpu::zero_rows<>, p);
  }
};

}  // namespace tessera::inline v0
