// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/groups.cuh>
#include <tessera/op/mark_rows.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 {
namespace gpu::detail {

inline constexpr int mark_threads = 256;

/// Marks rows: a block takes 256 neighbouring bags and goes through their entries, which are side
/// by side. Of the lanes that have the same row one sets the bit: popular rows would else make all
/// wait for one word.
template <IdType Id>
__global__ void __launch_bounds__(mark_threads)
    mark_rows(std::uint32_t* bits, const GroupBatch<op::Bags<Id>> __grid_constant__ batch) {
  constexpr unsigned full = 0xffffffffu;
  constexpr std::int64_t none = -1;
  const int g = batch.find(blockIdx.x), lane = static_cast<int>(threadIdx.x) % 32;
  const op::Bags<Id>& bags = batch.groups[g];
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) - batch.first_block[g]) * mark_threads;
  const std::int64_t last = first + mark_threads < bags.bags ? first + mark_threads : bags.bags;
  const std::int64_t end = bags.end(last - 1);
  for (std::int64_t base = bags.begin(first); base < end; base += mark_threads) {
    const std::int64_t i = base + threadIdx.x, id = i < end ? bags.ids[i] : none;
    const std::int64_t row = id < 0 ? none : id + bags.row_bias;
    const unsigned same = __match_any_sync(full, static_cast<unsigned long long>(row));
    if (row >= 0 && __ffs(static_cast<int>(same)) - 1 == lane)
      atomicOr(bits + row / 32, 1u << (row % 32));
  }
}

}  // namespace gpu::detail

template <IdType Id>
struct op::Kernel<op::MarkRows<Id>, Cuda> {
  static void run(const Cuda& backend, const typename op::MarkRows<Id>::Parameters& p) {
    auto* const kernel = &gpu::detail::mark_rows<Id>;
    const auto blocks_of = [](const op::Bags<Id>& bags) {
      return gpu::ceil_divide(bags.bags, gpu::detail::mark_threads);
    };
    gpu::launch_by_group<op::Bags<Id>>(backend, "mark_rows", gpu::detail::mark_threads, p.bags,
                                       blocks_of, kernel, p.bits);
  }
};

}}  // namespace tessera::v0
