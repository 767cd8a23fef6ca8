// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/primitives.cuh>

#include <cstdint>

namespace tessera { inline namespace v0 { namespace gpu {

inline constexpr int sum_threads = 256;  ///< of blocks that sum together

/// Returns the sum of the values of the block's threads before this one, and of all of them. The
/// whole block calls it together, as often as it likes.
__device__ inline std::uint64_t sum_before(std::uint64_t value, std::uint64_t& total) {
  auto& warp_sums = block_shared<std::uint64_t[sum_threads / 32]>();
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  std::uint64_t sum = value;
  for (int distance = 1; distance < 32; distance *= 2) {
    const std::uint64_t other = __shfl_up_sync(0xffffffffu, sum, distance);
    if (lane >= distance) sum += other;
  }
  __syncthreads();  // the last call's sums have been read
  if (lane == 31) warp_sums[warp] = sum;
  __syncthreads();
  std::uint64_t before = 0;
  total = 0;
  for (int w = 0; w < sum_threads / 32; ++w) {
    if (w < warp) before += warp_sums[w];
    total += warp_sums[w];
  }
  return before + sum - value;
}

}}}  // namespace tessera::v0::gpu
