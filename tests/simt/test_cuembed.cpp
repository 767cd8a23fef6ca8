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
