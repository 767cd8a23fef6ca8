// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/host/backend.hpp>
#include <tessera/op/mark_rows.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 {

template <IdType Id>
struct op::Kernel<op::MarkRows<Id>, Host> {
  static void run(const Host&, const typename op::MarkRows<Id>::Parameters& p) {
    for (const op::Bags<Id>& bags : p.bags) {
      if (bags.bags == 0) continue;
      for (std::int64_t i = bags.begin(0), end = bags.end(bags.bags - 1); i < end; ++i) {
        const std::int64_t row = bags.ids[i] + bags.row_bias;
        p.bits[row / 32] |= std::uint32_t{1} << (row % 32);
      }
    }
  }
};

}}  // namespace tessera::v0
