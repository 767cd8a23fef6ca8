// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>
#include <tessera/op/kernel.hpp>

#include <cstddef>
#include <cstdint>

namespace tessera { inline namespace v0 { namespace op {

/// Copies rows between matrices, of the backend's memory or the host's that it reaches: row
/// target.rows[i] becomes row source.rows[i], where a null list means row i. No row is written
/// twice.
struct CopyRows {
  template <class Byte>
  struct Side {
    Byte* data = nullptr;
    std::int64_t stride = 0;             ///< bytes from one row to the next; even, as row_bytes
    const std::int64_t* rows = nullptr;  ///< in the backend's memory; or null

    TESSERA_HOST_DEVICE constexpr Byte* row(std::int64_t i) const {
      return data + (rows == nullptr ? i : rows[i]) * stride;
    }
  };
  struct Parameters {
    Side<const std::byte> source;
    Side<std::byte> target;
    std::int64_t count = 0;
    std::int64_t row_bytes = 0;
  };
};

}}}  // namespace tessera::v0::op
