// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/cuda/backend.cuh>
#include <tessera/cuda/launch.cuh>
#include <tessera/op/copy_rows.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 {

namespace gpu::detail {

inline constexpr int copy_threads = 256;

/// Copies rows, a thread per word; neighbouring threads take neighbouring words of a row.
template <class Word>
__global__ void __launch_bounds__(copy_threads) copy_rows(const op::CopyRows::Parameters p) {
  const std::int64_t words = p.row_bytes / static_cast<std::int64_t>(sizeof(Word));
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * copy_threads + threadIdx.x;
  if (i >= p.count * words) return;
  reinterpret_cast<Word*>(p.target.row(i / words))[i % words] =
      reinterpret_cast<const Word*>(p.source.row(i / words))[i % words];
}

}  // namespace gpu::detail

template <>
struct op::Kernel<op::CopyRows, Cuda> {
  static void run(const Cuda& backend, const op::CopyRows::Parameters& p) {
    const auto launch = [&]<class Word>(Word, void (*kernel)(op::CopyRows::Parameters)) {
      const std::int64_t words = p.count * (p.row_bytes / static_cast<std::int64_t>(sizeof(Word)));
      backend.launch("copy_rows", gpu::ceil_divide(words, gpu::detail::copy_threads),
                     gpu::detail::copy_threads, kernel, p);
    };
    const auto aligned = [&](std::uintptr_t bytes) {
      const auto all =
          static_cast<std::uintptr_t>(p.row_bytes | p.source.stride | p.target.stride) |
          reinterpret_cast<std::uintptr_t>(p.source.data) |
          reinterpret_cast<std::uintptr_t>(p.target.data);
      return all % bytes == 0;
    };
    // Wide words: fewer requests over the bus. Rows of an odd number of 16-bit elements are aligned
    // to two bytes alone.
    if (aligned(sizeof(uint4)))
      launch(uint4{}, gpu::detail::copy_rows<uint4>);
    else if (aligned(4))
      launch(std::uint32_t{}, gpu::detail::copy_rows<std::uint32_t>);
    else
      launch(std::uint16_t{}, gpu::detail::copy_rows<std::uint16_t>);
  }
};

}}  // namespace tessera::v0
