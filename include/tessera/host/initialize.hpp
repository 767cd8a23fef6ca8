// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/host/backend.hpp>
#include <tessera/op/initialize.hpp>

#include <cstdint>

namespace tessera { inline namespace v0 {

template <Element T, Initializer F>
struct op::Kernel<op::Initialize<T, F>, Host> {
  static void run([[maybe_unused]] const Host& backend,
                  const typename op::Initialize<T, F>::Parameters& p) {
#pragma omp parallel for num_threads(backend.threads()) if (backend.threads() > 1) schedule(static)
    for (std::int64_t row = 0; row < p.rows; ++row) {
      ElementKey key = p.first;
      key.row += row;
      for (int column = 0; column < p.width; ++column, ++key.column)
        p.values[row * p.width + column] = from_float<T>(p.initializer(key));
    }
  }
};

}}  // namespace tessera::v0
