// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/host/backend.hpp>
#include <tessera/op/non_finite.hpp>

#include <cmath>
#include <cstdint>

namespace tessera { inline namespace v0 {

template <Element T>
struct op::Kernel<op::CountNonFinite<T>, Host> {
  static void run(const Host&, const typename op::CountNonFinite<T>::Parameters& p) {
    std::int64_t count = 0;
    for (std::int64_t r = 0; r < p.values.rows; ++r) {
      const T* const row = p.values.data + r * p.values.stride;
      std::int32_t in_row = 0;  // so that the loop vectorizes
      for (std::int64_t c = 0; c < p.values.columns; ++c)
        in_row += !std::isfinite(to_float(row[c]));
      count += in_row;
    }
    *p.count += static_cast<unsigned long long>(count);
  }
};

}}  // namespace tessera::v0
