// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/groups.cuh>
#include <tessera/op/inputs.hpp>

#include <cstdint>
#include <vector>

namespace tessera { inline namespace v0 {
namespace gpu::detail {

inline constexpr int admit_threads = 256;

/// A feature of the batch for kernels.
template <IdType Id>
struct AdmitGroup {
  typename op::AdmitIds<Id>::Job job;
  std::int64_t feature;
};

template <IdType Id>
struct AdmitArrays {
  typename op::AdmitIds<Id>::Parameters p;
  std::int64_t features;
};

// op::InputFault::found: the complement of what orders faults, so that zero is none and the largest
// is the first. Offsets come before ids.
inline constexpr unsigned long long first_id_fault = 1ull << 62;
__device__ inline void note_fault(op::InputFault* fault, unsigned long long order) {
  atomicMax(&fault->found, ~order);
}

__device__ inline std::int64_t clamped(std::int64_t x, std::int64_t low, std::int64_t high) {
  return x < low ? low : x > high ? high : x;
}

/// Admits ids: a warp takes 32 neighbouring bags of a feature and deals their entries, which are
/// side by side, out to its lanes.
template <IdType Id>
__global__ void __launch_bounds__(admit_threads)
    admit_ids(const AdmitArrays<Id> __grid_constant__ arrays,
              const GroupBatch<AdmitGroup<Id>> __grid_constant__ batch) {
  constexpr unsigned full = 0xffffffffu;
  const auto& p = arrays.p;
  const int g = batch.find(blockIdx.x), lane = static_cast<int>(threadIdx.x) % 32;
  const AdmitGroup<Id>& group = batch.groups[g];
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) - batch.first_block[g]) * admit_threads +
      threadIdx.x / 32 * 32;
  if (first >= p.batch) return;
  const int bags = static_cast<int>(p.batch - first < 32 ? p.batch - first : 32);
  const std::int64_t bag = group.feature * p.batch + first + (lane < bags ? lane : bags - 1),
                     end_bag = arrays.features * p.batch;
  std::int64_t my_begin = bag, my_end = bag + 1;
  if (p.offsets != nullptr) {
    my_begin = p.offsets[bag];
    my_end = p.offsets[bag + 1];
    if (bag == 0 && my_begin != 0) note_fault(p.fault, 0);
    if (my_end < my_begin) {
      note_fault(p.fault, 4 * static_cast<unsigned long long>(bag) + 1);
      atomicOr(&p.fault->backwards, 1u);
    }
    if (bag + 1 == end_bag && (p.room ? my_end > p.count : my_end != p.count))
      note_fault(p.fault, 4 * static_cast<unsigned long long>(end_bag) + 2);
    if (group.job.bound >= 0 && my_end - p.offsets[group.feature * p.batch] > group.job.bound)
      note_fault(p.fault, 4 * static_cast<unsigned long long>(bag) + 3);
    my_begin = clamped(my_begin, 0, p.count);
    my_end = clamped(my_end, 0, p.count);
    if (lane < bags) p.admitted_offsets[bag] = my_begin;
    if (lane < bags && bag + 1 == end_bag) p.admitted_offsets[end_bag] = my_end;
  }
  const float scale =
      my_end > my_begin ? op::pooling_scale(group.job.pooling, my_end - my_begin) : 0.0f;
  if (group.job.scales() && lane < bags) p.scale[bag] = scale;

  const std::int64_t begin = __shfl_sync(full, my_begin, 0),
                     end = __shfl_sync(full, my_end, bags - 1);
  if (lane >= bags) my_begin = end;
  for (std::int64_t base = begin; base < end; base += 32) {
    const std::int64_t i = base + lane;
    float coefficient = 1.0f;
    if (group.job.scales_weights()) {
      int at = 0;  // the last of the 32 bags that begins at i or before
      for (int step = 16; step > 0; step /= 2)
        if (__shfl_sync(full, my_begin, at + step) <= i) at += step;
      coefficient = __shfl_sync(full, scale, at);
    }
    std::int64_t id = i < end ? static_cast<std::int64_t>(p.ids[i]) : 0;
    const std::int64_t rows = group.job.rows;
    const bool bad = i < end && (id < 0 || id >= rows);
    const unsigned all_bad = __ballot_sync(full, bad);
    if (all_bad != 0 && lane == __ffs(static_cast<int>(all_bad)) - 1) {
      atomicAdd(p.bad_counts + group.job.table, static_cast<unsigned long long>(__popc(all_bad)));
      if (p.policy == BadIds::throw_error)
        note_fault(p.fault, first_id_fault + static_cast<unsigned long long>(i));
    }
    if (bad)
      id = p.policy == BadIds::clamp  ? clamped(id, 0, rows - 1)
           : p.policy == BadIds::wrap ? (id % rows + rows) % rows
                                      : -1;
    if (i >= end) continue;
    p.admitted[i] = static_cast<Id>(id);
    if (group.job.scales_weights()) p.scaled_weights[i] = p.weights[i] * coefficient;
  }
}

/// Makes all bags empty if offsets go backwards. Works out what the first fault is, unless an
/// earlier one is still waiting to be read.
template <IdType Id>
__global__ void explain_fault(const AdmitArrays<Id> __grid_constant__ arrays) {
  const auto& p = arrays.p;
  op::InputFault& fault = *p.fault;
  if (fault.backwards != 0)
    for (std::int64_t i = threadIdx.x; i <= arrays.features * p.batch; i += 32)
      p.admitted_offsets[i] = 0;
  __syncwarp();
  if (threadIdx.x == 0) fault.backwards = 0;
  if (threadIdx.x != 0 || fault.found == 0 || fault.kind != op::InputFault::none) return;
  const unsigned long long order = ~fault.found;
  std::int64_t bag = 0;
  if (order >= first_id_fault) {
    const auto i = static_cast<std::int64_t>(order - first_id_fault);
    bag = i;
    if (p.offsets != nullptr) {
      // the last bag that begins at i or before
      std::int64_t low = 0, high = arrays.features * p.batch - 1;
      while (low < high) {
        const std::int64_t middle = (low + high + 1) / 2;
        if (p.offsets[middle] <= i)
          low = middle;
        else
          high = middle - 1;
      }
      bag = low;
    }
    fault.value = static_cast<std::int64_t>(p.ids[i]);
    fault.kind = op::InputFault::bad_id;
  } else {
    bag = static_cast<std::int64_t>(order / 4);
    const int kind = static_cast<int>(order % 4);
    const std::int64_t feature = bag / p.batch;
    fault.value = kind == 3 ? p.offsets[(feature + 1) * p.batch] - p.offsets[feature * p.batch]
                            : p.offsets[kind == 1 ? bag + 1 : bag];
    fault.before = kind == 1 ? p.offsets[bag] : p.count;
    fault.kind = kind == 0   ? op::InputFault::first_offset
                 : kind == 1 ? op::InputFault::offsets_backwards
                 : kind == 2 ? op::InputFault::last_offset
                             : op::InputFault::over_bound;
    if (kind == 2) bag -= 1;
  }
  fault.feature = static_cast<std::int32_t>(bag / p.batch);
  fault.sample = bag % p.batch;
}

template <int = 0>
__global__ void read_numbers(const std::int64_t* array, const std::int64_t* indices,
                             std::int64_t* values, const std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) values[i] = array[indices[i]];
}

}  // namespace gpu::detail

/// One launch for all features, and one of one thread that explains a fault.
template <IdType Id>
struct op::Kernel<op::AdmitIds<Id>, Cuda> {
  static void run(const Cuda& backend, const typename op::AdmitIds<Id>::Parameters& p) {
    gpu::detail::AdmitArrays<Id> arrays{p, static_cast<std::int64_t>(p.jobs.size())};
    arrays.p.jobs = {};
    std::vector<gpu::detail::AdmitGroup<Id>> groups;
    for (const typename op::AdmitIds<Id>::Job& job : p.jobs)
      groups.push_back({job, static_cast<std::int64_t>(groups.size())});
    gpu::launch_by_group<gpu::detail::AdmitGroup<Id>>(
        backend, "admit_ids", gpu::detail::admit_threads, groups,
        [&](const gpu::detail::AdmitGroup<Id>&) {
          return gpu::ceil_divide(p.batch, gpu::detail::admit_threads);
        },
        gpu::detail::admit_ids<Id>, arrays);
    if (p.batch > 0 && !p.jobs.empty() && (p.offsets != nullptr || p.policy == BadIds::throw_error))
      backend.launch("explain_fault", 1, 32, gpu::detail::explain_fault<Id>, arrays);
  }
};

template <>
struct op::Kernel<op::ReadNumbers, Cuda> {
  static void run(const Cuda& backend, const op::ReadNumbers::Parameters& p) {
    gpu::refuse_wait_of_capture(backend.stream(), "the sizes of bags");
    const auto count = static_cast<std::int64_t>(p.indices.size());
    auto* indices = backend.scratch_for<std::int64_t>(gpu::ScratchSlot::entries, 2 * count);
    gpu::upload<std::int64_t>(backend, p.indices, indices);
    backend.launch("read_numbers", gpu::ceil_divide(count, 256), 256, gpu::detail::read_numbers<>,
                   p.array, static_cast<const std::int64_t*>(indices), indices + count, count);
    backend.copy(p.values.data(), indices + count, p.values.size_bytes());
    backend.synchronize();
  }
};

}}  // namespace tessera::v0
