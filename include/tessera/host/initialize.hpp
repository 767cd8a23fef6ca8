// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/host/backend.hpp>
#include <tessera/host/parallel.hpp>
#include <tessera/op/initialize.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 {

template <Element T, Initializer F>
struct op::Kernel<op::Initialize<T, F>, Host> {
  static void run(const Host& backend, const typename op::Initialize<T, F>::Parameters& p) {
    const std::int64_t parts = backend.threads();
    detail::parallel_for(backend.threads(), parts, [&](std::int64_t part, int) {
      for (std::int64_t row = p.rows * part / parts; row < p.rows * (part + 1) / parts; ++row) {
        ElementKey key = p.first;
        key.row += row;
        for (int column = 0; column < p.width; ++column, ++key.column)
          p.values[row * p.width + column] = from_float<T>(p.initializer(key));
      }
    });
  }
};

}}  // namespace tessera::v0
