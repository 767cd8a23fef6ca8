// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/lanes.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/host/parallel.hpp>
#include <tessera/op/convert_rows.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace tessera { inline namespace v0 {

/// Threads get runs of rows.
template <Element From, Element To>
struct op::Kernel<op::ConvertRows<From, To>, Host> {
  static void run(const Host& backend, const typename op::ConvertRows<From, To>::Parameters& p) {
    const std::int64_t columns = p.from.columns;
    const int threads = detail::worthwhile_threads(
        backend.threads(),
        p.from.rows * columns * static_cast<std::int64_t>(sizeof(From) + sizeof(To)));
    detail::parallel_for(threads, threads, [&](std::int64_t part, int) {
      const std::int64_t first = p.from.rows * part / threads;
      const std::int64_t last = p.from.rows * (part + 1) / threads;
      for (std::int64_t row = first; row < last; ++row) {
        const From* const from = p.from.data + row * p.from.stride;
        To* const to = p.to.data + row * p.to.stride;
        for (std::int64_t c = 0; c < columns; ++c) to[c] = from_float<To>(to_float(from[c]));
      }
    });
  }
};

namespace detail {

/// Returns a matrix in `buffer`, which grows where it must.
inline MatrixView<float> floats_in(std::vector<float>& buffer, std::int64_t rows,
                                   std::int64_t columns) {
  const auto size = static_cast<std::size_t>(rows * columns);
  if (buffer.size() < size) buffer.resize(size);
  return {buffer.data(), rows, columns};
}

/// Returns the same numbers as floats: what is given, or widened in `buffer`.
template <Element T>
MatrixView<const float> as_floats(const Host& backend, MatrixView<const T> given,
                                  std::vector<float>& buffer) {
  if constexpr (std::is_same_v<T, float>) {
    return given;
  } else {
    const MatrixView<float> wide = floats_in(buffer, given.rows, given.columns);
    op::run<op::ConvertRows<T, float>>(backend, {given, wide});
    return wide;
  }
}

}  // namespace detail

}}  // namespace tessera::v0
