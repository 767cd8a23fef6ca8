// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <simt/runtime.hpp>

#include <cstddef>
#include <cstring>
#include <numeric>

namespace cub {

/// The interface of CUB's device-wide scan, by std::exclusive_scan.
struct DeviceScan {
  template <class Value, class Count>
  static cudaError_t ExclusiveSum(void* temporary, std::size_t& temporary_bytes, const Value* in,
                                  Value* out, Count count, cudaStream_t stream) {
    if (temporary == nullptr) {
      temporary_bytes = 256 + static_cast<std::size_t>(count) / 16;
    } else {
      simt::enqueue(stream, [=, bytes = temporary_bytes] {
        const simt::DeviceAccess access;
        std::memset(temporary, 0x5a, bytes);
        std::exclusive_scan(in, in + count, out, Value{});
      });
    }
    return cudaPeekAtLastError();  // as CUB does after its launches
  }
};

}  // namespace cub
