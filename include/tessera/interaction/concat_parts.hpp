// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera::inline v0::detail {

/// Throws InvalidArgument unless the matrices `parts`, side by side, have the shape of `whole`.
template <class Part, class Whole>
void check_concat(std::span<const Part> parts, const Whole& whole) {
  std::int64_t columns = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    require(parts[i].rows == whole.rows, "Concat: part {} has {} rows, the whole has {}", i,
            parts[i].rows, whole.rows);
    columns += parts[i].columns;
  }
  require(columns == whole.columns, "Concat: the parts have {} columns together, the whole has {}",
          columns, whole.columns);
}

}  // namespace tessera::inline v0::detail
