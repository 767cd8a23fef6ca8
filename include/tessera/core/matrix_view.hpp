// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>

#include <cstdint>
#include <type_traits>

namespace tessera { inline namespace v0 {

/// A row-major matrix that somebody else owns: `rows x columns` elements, `stride` elements from
/// one row to the next (stride >= columns). Trivially copyable; passed by value.
///
///     std::vector<float> values(8 * 3);
///     const MatrixView<float> m(values.data(), 8, 3);
///     m(1, 2) = 0.5f;
///     const MatrixView<float> last_two = m.column_range(1, 2);
template <class T>
struct MatrixView {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t stride = 0;

  constexpr MatrixView() = default;
  TESSERA_HOST_DEVICE constexpr MatrixView(T* data_, std::int64_t rows_, std::int64_t columns_)
      : data(data_), rows(rows_), columns(columns_), stride(columns_) {}
  TESSERA_HOST_DEVICE constexpr MatrixView(T* data_, std::int64_t rows_, std::int64_t columns_,
                                           std::int64_t stride_)
      : data(data_), rows(rows_), columns(columns_), stride(stride_) {}

  /// Makes a view of const elements from a view of mutable ones.
  template <class U>
    requires std::is_same_v<const U, T>
  // NOLINTNEXTLINE(google-explicit-constructor)
  TESSERA_HOST_DEVICE constexpr MatrixView(MatrixView<U> other)
      : data(other.data), rows(other.rows), columns(other.columns), stride(other.stride) {}

  TESSERA_HOST_DEVICE constexpr T* row(std::int64_t i) const { return data + i * stride; }
  TESSERA_HOST_DEVICE constexpr T& operator()(std::int64_t i, std::int64_t j) const {
    return data[i * stride + j];
  }

  /// Returns the columns [begin, begin + count) of every row. A view of no rows may have no data,
  /// to which nothing can be added.
  TESSERA_HOST_DEVICE constexpr MatrixView column_range(std::int64_t begin,
                                                        std::int64_t count) const {
    return {rows == 0 ? data : data + begin, rows, count, stride};
  }
  /// Returns rows [begin, begin + count).
  TESSERA_HOST_DEVICE constexpr MatrixView row_range(std::int64_t begin, std::int64_t count) const {
    return {data + begin * stride, count, columns, stride};
  }
  TESSERA_HOST_DEVICE constexpr bool contiguous() const { return stride == columns; }
  /// Returns whether rows do not overlap and there is memory.
  constexpr bool sound() const {
    return (rows <= 1 || stride >= columns) && (data != nullptr || rows <= 0 || columns <= 0);
  }
};

}}  // namespace tessera::v0
