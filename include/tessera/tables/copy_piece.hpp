// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/any_matrix.hpp>
#include <tessera/core/element.hpp>
#include <tessera/core/matrix_view.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// In place of a backend, for shards in memory of the host that it does not reach.
struct HostMemory {
  static void copy(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
  static void synchronize() {}
};

/// Calls copy(rows of the shard from `first` on, their place in the piece, elements), once if
/// rows follow each other. Waits for the backend.
template <class Backend, class U, class V, class Copy>
void copy_piece(const Backend& backend, MatrixView<U> piece, MatrixView<V> shard,
                std::int64_t first, const Copy& copy) {
  const std::int64_t columns = piece.columns;
  if (shard.stride == columns)
    copy(shard.row(first), 0, piece.rows * columns);
  else
    for (std::int64_t i = 0; i < piece.rows; ++i) copy(shard.row(first + i), i * columns, columns);
  backend.synchronize();
}

/// Moves from a piece in host memory to rows of a shard (a MatrixView or an AnyMatrix) in the
/// backend's, converted on the way.
template <class Backend, class Matrix>
void move_piece(const Backend& backend, const Matrix& shard, MatrixView<const float> piece,
                std::int64_t first) {
  with_matrix(shard, [&]<class V>(MatrixView<V> rows_of_shard) {
    std::vector<V> values(static_cast<std::size_t>(piece.rows * piece.columns));
    for (std::int64_t i = 0; i < piece.rows; ++i)
      for (std::int64_t j = 0; j < piece.columns; ++j)
        values[i * piece.columns + j] = from_float<V>(piece(i, j));
    copy_piece(
        backend, piece, rows_of_shard, first, [&](V* rows, std::int64_t at, std::int64_t count) {
          backend.copy(rows, values.data() + at, static_cast<std::size_t>(count) * sizeof(V));
        });
  });
}
/// Moves back.
template <class Backend, class Matrix>
void move_piece(const Backend& backend, const Matrix& shard, MatrixView<float> piece,
                std::int64_t first) {
  with_matrix(shard, [&]<class V>(MatrixView<V> rows_of_shard) {
    std::vector<V> values(static_cast<std::size_t>(piece.rows * piece.columns));
    copy_piece(
        backend, piece, rows_of_shard, first, [&](V* rows, std::int64_t at, std::int64_t count) {
          backend.copy(values.data() + at, rows, static_cast<std::size_t>(count) * sizeof(V));
        });
    for (std::int64_t i = 0; i < piece.rows; ++i)
      for (std::int64_t j = 0; j < piece.columns; ++j)
        piece(i, j) = to_float(values[i * piece.columns + j]);
  });
}

}}}  // namespace tessera::v0::detail
