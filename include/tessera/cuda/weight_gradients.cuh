// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/groups.cuh>
#include <tessera/cuda/row_lanes.cuh>
#include <tessera/op/weight_gradients.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 {
namespace gpu::detail {

inline constexpr int weight_threads = 256;
inline constexpr int entry_value_threads = 128;
inline constexpr int weight_lanes = 4;  ///< per bag; each sums four of the contract's 16 lanes

/// Computes weights' gradients: four lanes take a bag and go through its entries: lane l sums
/// columns 4l .. 4l+3 of every 16, then the 16 sums are added as the contract's tree, the far steps
/// between lanes.
template <Element T, IdType Id, int Width, Element G = float>
__global__ void __launch_bounds__(weight_threads)
    weight_gradients(const T* __restrict__ arena, const int any_width,
                     const GroupBatch<typename op::WeightGradients<T, Id, Width, G>::Group>
                         __grid_constant__ batch) {
  constexpr bool whole = Width != op::dynamic_width && Width % 4 == 0;
  const int width = Width != op::dynamic_width ? Width : any_width;
  const int g = batch.find(blockIdx.x), lane = static_cast<int>(threadIdx.x) % weight_lanes;
  const op::GradientGroup<Id, G>& source = batch.groups[g].source;
  const std::int64_t bag = (blockIdx.x - batch.first_block[g]) * (weight_threads / weight_lanes) +
                           threadIdx.x / weight_lanes;
  if (bag >= source.bags.bags) return;
  const unsigned mask = ((1u << weight_lanes) - 1u)
                        << (threadIdx.x % 32 / weight_lanes * weight_lanes);
  const std::int64_t first = batch.groups[g].from_first_entry ? source.bags.begin(0) : 0;
  const G* gradient = source.gradient + bag * source.gradient_stride;
  const bool aligned = whole && rows_aligned_for(source.gradient, source.gradient_stride, 4);
  for (std::int64_t i = source.bags.begin(bag); i < source.bags.end(bag); ++i) {
    // More ids than the bound, which op::AdmitIds has noted.
    if (batch.groups[g].from_first_entry && i - first >= source.bags.entry_bound) break;
    const std::int64_t id = source.bags.ids[i];
    const T* row = arena + (id + source.bags.row_bias) * width;
    float sums[4] = {};
    for (int column = 4 * lane; column < width && id >= 0; column += 4 * weight_lanes) {
      float left[4] = {}, right[4] = {};
      if constexpr (whole) {
        load_four_at(gradient + column, aligned, left);
        load_packed(row + column, right);
      } else {
        for (int e = 0; e < 4; ++e) {
          if (column + e >= width) continue;
          left[e] = to_float(gradient[column + e]);
          right[e] = to_float(row[column + e]);
        }
      }
      for (int e = 0; e < 4; ++e) sums[e] = fmaf(left[e], right[e], sums[e]);
    }
    for (int distance = weight_lanes / 2; distance > 0; distance /= 2)
      for (float& sum : sums) sum += __shfl_xor_sync(mask, sum, distance);
    if (lane == 0) batch.groups[g].output[i - first] = (sums[0] + sums[2]) + (sums[1] + sums[3]);
  }
}

template <int = 0>
__global__ void __launch_bounds__(entry_value_threads)
    add_entry_values(const op::AddEntryValues::Job job) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * entry_value_threads + threadIdx.x;
  if (i >= job.count) return;
  const std::int64_t entry = job.entry(i);
  if (entry < 0) return;
  job.target[job.positions != nullptr ? job.positions[entry] : job.base + entry] += job.values[i];
}

template <int = 0>
__global__ void __launch_bounds__(entry_value_threads)
    scale_entry_values(const GroupBatch<op::ScaleEntryValues::Job> __grid_constant__ batch) {
  const int g = batch.find(blockIdx.x);
  const op::ScaleEntryValues::Job& job = batch.groups[g];
  const std::int64_t bag = (blockIdx.x - batch.first_block[g]) * entry_value_threads + threadIdx.x;
  if (bag >= job.bags) return;
  for (std::int64_t entry = job.offsets[bag]; entry < job.offsets[bag + 1]; ++entry)
    job.target[job.positions != nullptr ? job.positions[entry] : job.base + entry] *=
        job.factors[bag];
}

}  // namespace gpu::detail

template <Element T, IdType Id, int Width, Element G>
struct op::Kernel<op::WeightGradients<T, Id, Width, G>, Cuda> {
  using Operation = op::WeightGradients<T, Id, Width, G>;

  static void run(const Cuda& backend, const typename Operation::Parameters& p) {
    const auto blocks_of = [](const typename Operation::Group& group) {
      return gpu::ceil_divide(group.source.bags.bags,
                              gpu::detail::weight_threads / gpu::detail::weight_lanes);
    };
    gpu::launch_by_group<typename Operation::Group>(
        backend, "weight_gradients", gpu::detail::weight_threads, p.groups, blocks_of,
        gpu::detail::weight_gradients<T, Id, Width, G>, p.arena, p.width);
  }
};

/// A launch per job keeps their order.
template <>
struct op::Kernel<op::AddEntryValues, Cuda> {
  static void run(const Cuda& backend, const op::AddEntryValues::Parameters& p) {
    for (const op::AddEntryValues::Job& job : p.jobs)
      backend.launch("add_entry_values",
                     gpu::ceil_divide(job.count, gpu::detail::entry_value_threads),
                     gpu::detail::entry_value_threads, gpu::detail::add_entry_values<>, job);
  }
};

template <>
struct op::Kernel<op::ScaleEntryValues, Cuda> {
  static void run(const Cuda& backend, const op::ScaleEntryValues::Parameters& p) {
    gpu::launch_by_group<op::ScaleEntryValues::Job>(
        backend, "scale_entry_values", gpu::detail::entry_value_threads, p.jobs,
        [](const op::ScaleEntryValues::Job& job) {
          return gpu::ceil_divide(job.bags, gpu::detail::entry_value_threads);
        },
        gpu::detail::scale_entry_values<>);
  }
};

}}  // namespace tessera::v0
