// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <simt/every_order.hpp>

#include <sys/mman.h>

#include <cstdint>

/// What cuda_fp16.h and cuda_bf16.h have: 16 bits.
struct __half {
  std::uint16_t bits;
};
struct __nv_bfloat16 {
  std::uint16_t bits;
};

#include <gpu/cuembed_cases.hpp>

TEST_CASE("cuembed: all work is in the order of the stream") {
  under_every_deferral([] {
    check_forward<float, int>({7, 36, 5, CombineMode::kMean, true, true});
    check_forward<__half, int>({7, 32, 1});
    check_backward<float, std::int64_t>({7, 36, 12, CombineMode::kSum, true, true, true, 5});
    check_backward<__half, int>({7, 32, 3, CombineMode::kConcat});
  });
}

TEST_CASE("cuembed: ids of 64 bits name rows behind 2^32") {
  constexpr int width = 16;
  constexpr std::int64_t two_32 = std::int64_t{1} << 32;
  constexpr std::size_t bytes = (two_32 + 64) * width * sizeof(BFloat16);  // few pages are touched
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    MESSAGE("skipped: no range of addresses of 128 GiB");
    return;
  }
  auto* const table = static_cast<BFloat16*>(memory);
  const std::vector<std::int64_t> ids{5, two_32 - 1, two_32 + 5, 7};
  std::vector<float> expected;
  for (const std::int64_t id : ids)
    for (int c = 0; c < width; ++c) {
      expected.push_back(static_cast<float>(id % 101 + c));
      table[id * width + c] = from_float<BFloat16>(expected.back());
    }
  const Cuda backend;
  const OnGpu<std::int64_t> rows(backend, ids),
      offsets(backend, std::vector<std::int64_t>{0, 1, 2, 3, 4});
  const OnGpu<BFloat16> weights(backend, std::vector<BFloat16>(4, from_float<BFloat16>(1)));
  for (const BFloat16* const weight : {static_cast<BFloat16*>(nullptr), weights.data()}) {
    const OnGpu<float> out(backend, std::vector<float>(expected.size()));
    cuembed::EmbeddingForward(table, width, rows.data(), offsets.data(), weight, 4, 0,
                              CombineMode::kSum, out.data(), backend.stream());
    CHECK(out.read() == expected);
  }
  munmap(memory, bytes);
}
