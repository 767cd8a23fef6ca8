// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/tables/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>

namespace tessera { inline namespace v0 {

class Host;

/// Owns a row-major matrix in a backend's memory, zero at first: what layers read and write through
/// views. Move-only; a matrix that was moved from has no rows. Views stay valid when it is moved.
///
///   Matrix<float> z(batch, 27 * width);
///   bottom.forward(numbers, z.columns(0, width));
template <class T, class Backend = Host>
class Matrix {
 public:
  Matrix() = default;
  /// Makes `rows` x `columns` zeros. Throws InvalidArgument if one is negative or the size in
  /// bytes does not fit 63 bits.
  Matrix(const Backend& backend, std::int64_t rows, std::int64_t columns)
      : rows_(rows), columns_(columns) {
    constexpr std::int64_t most =
        std::numeric_limits<std::int64_t>::max() / static_cast<std::int64_t>(2 * sizeof(T));
    require(rows >= 0 && columns >= 0 && (columns == 0 || rows <= most / columns),
            "Matrix: {} x {} is no size of a matrix", rows, columns);
    const std::size_t count = static_cast<std::size_t>(rows * columns);
    if (count == 0) return;
    values_.resize(backend, count);
    backend.fill_zero(values_.data(), count * sizeof(T));
  }
  Matrix(std::int64_t rows, std::int64_t columns) : Matrix(Backend(), rows, columns) {}

  Matrix(Matrix&& other) noexcept { swap(other); }
  Matrix& operator=(Matrix&& other) noexcept {
    Matrix(std::move(other)).swap(*this);
    return *this;
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }

  MatrixView<T> view() { return {values_.data(), rows_, columns_}; }
  MatrixView<const T> view() const { return {values_.data(), rows_, columns_}; }
  /// Converts to a view of the whole matrix; one that dies in the same statement
  /// does not.
  operator MatrixView<T>() & { return view(); }             // NOLINT
  operator MatrixView<const T>() const& { return view(); }  // NOLINT
  operator MatrixView<const T>() const&& = delete;
  /// Returns the first `count` rows: those of a batch that is smaller than the largest. Throws
  /// InvalidArgument if the matrix has fewer.
  MatrixView<T> first_rows(std::int64_t count) { return first_rows(view(), count); }
  MatrixView<const T> first_rows(std::int64_t count) const { return first_rows(view(), count); }
  /// Returns the columns [first, first + count) of every row. Throws InvalidArgument if the
  /// matrix has fewer.
  MatrixView<T> columns(std::int64_t first, std::int64_t count) {
    return columns(view(), first, count);
  }
  MatrixView<const T> columns(std::int64_t first, std::int64_t count) const {
    return columns(view(), first, count);
  }

 private:
  template <class View>
  static View first_rows(View whole, std::int64_t count) {
    require(count >= 0 && count <= whole.rows, "Matrix: first {} rows of a matrix of {} x {}",
            count, whole.rows, whole.columns);
    return whole.row_range(0, count);
  }
  template <class View>
  static View columns(View whole, std::int64_t first, std::int64_t count) {
    require(first >= 0 && count >= 0 && first <= whole.columns - count,
            "Matrix: {} columns from column {} of a matrix of {} x {}", count, first, whole.rows,
            whole.columns);
    return whole.column_range(first, count);
  }
  void swap(Matrix& other) noexcept {
    std::swap(values_, other.values_);
    std::swap(rows_, other.rows_);
    std::swap(columns_, other.columns_);
  }

  Buffer<T, Backend> values_;
  std::int64_t rows_ = 0, columns_ = 0;
};

namespace detail {

/// Throws InvalidArgument if rows would overlap or there is no memory.
template <class T>
void check_view(std::string_view what, MatrixView<T> matrix) {
  require(matrix.rows <= 1 || matrix.stride >= matrix.columns,
          "{} has a stride of {}, less than its {} columns", what, matrix.stride, matrix.columns);
  require(matrix.data != nullptr || matrix.rows <= 0 || matrix.columns <= 0,
          "{} is [{}, {}], but its data is null", what, matrix.rows, matrix.columns);
}

/// Makes a matrix in a buffer. Throws InvalidArgument for more than any memory holds.
template <class T, class Backend>
MatrixView<T> make_matrix(const Backend& backend, Buffer<T, Backend>& buffer, std::int64_t rows,
                          std::int64_t columns) {
  require(columns == 0 || rows <= std::numeric_limits<std::int64_t>::max() / 4 / columns,
          "forward: {} samples of {} columns are more than any memory holds", rows, columns);
  buffer.resize(backend, static_cast<std::size_t>(rows * columns));
  return {buffer.data(), rows, columns};
}

}  // namespace detail

}}  // namespace tessera::v0
