// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/op/bags.hpp>
#include <tessera/op/kernel.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera::inline v0::op {

/// Sets the bit of every arena row that bags name: bit row % 32 of bits[row / 32]. Other bits stay.
template <IdType Id>
struct MarkRows {
  struct Parameters {
    std::span<const Bags<Id>> bags;
    std::uint32_t* bits = nullptr;
  };
};

/// Puts rows of a matrix one after another: target row i, of row_bytes, is source row rows[i]. For
/// backends whose memory the host cannot read.
struct GatherRows {
  struct Parameters {
    const std::byte* source = nullptr;
    std::int64_t stride = 0;  ///< bytes from one row to the next; even, as row_bytes
    const std::int64_t* rows = nullptr;
    std::int64_t count = 0;
    std::int64_t row_bytes = 0;
    std::byte* target = nullptr;
  };
};

}  // namespace tessera::inline v0::op
