// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <simt/every_order.hpp>

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
