// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/op/bags.hpp>
#include <tessera/op/kernel.hpp>

#include <cstdint>
#include <span>

namespace tessera { inline namespace v0 { namespace op {

/// Sets the bit of every arena row that bags name: bit row % 32 of bits[row / 32]. Other bits stay.
template <IdType Id>
struct MarkRows {
  struct Parameters {
    std::span<const Bags<Id>> bags;
    std::uint32_t* bits = nullptr;
  };
};

}}}  // namespace tessera::v0::op
