// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/op/exchange.hpp>
#include <tessera/op/jagged.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace tessera { inline namespace v0 {

namespace jagged {

/// Sequences of rows without padding: sequence s has rows [offsets[s], offsets[s + 1]) of `values`.
/// Views of the backend's memory. (FBGEMM's and TorchRec's jagged tensor.)
///
///     const jagged::JaggedView<const float> history{{values.data(), 5, 2}, offsets};
///     jagged::segment_mean(host, history, mean);  // [sequences, 2]
template <class T>
struct JaggedView {
  MatrixView<T> values;                   ///< [rows, columns]
  std::span<const std::int64_t> offsets;  ///< sequences + 1, from 0, never decreasing, to rows

  std::int64_t sequences() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  op::Sequences shape() const { return {offsets.data(), sequences()}; }

  JaggedView() = default;
  JaggedView(MatrixView<T> values_, std::span<const std::int64_t> offsets_)
      : values(values_), offsets(offsets_) {}
  template <class U>
    requires std::is_same_v<const U, T>
  JaggedView(const JaggedView<U>& other)  // NOLINT(google-explicit-constructor)
      : values(other.values), offsets(other.offsets) {}
};

/// Which rows of a sequence stay where it is longer than the room for it.
enum class Keep : std::uint8_t { first, last };

}  // namespace jagged

// Functions on jagged matrices. Each takes the backend in whose memory everything is and throws
// InvalidArgument for shapes that do not fit; if the host can read offsets it checks them, too.
// Outputs may not overlap inputs unless it says so.

namespace detail {

template <class Backend>
void check_offsets(const Backend&, const char* function, std::span<const std::int64_t> offsets,
                   std::int64_t rows) {
  require(!offsets.empty(), "{}: offsets are empty; give sequences + 1 of them", function);
  if constexpr (Backend::host_readable) {
    require(offsets.front() == 0 && offsets.back() == rows,
            "{}: offsets go from {} to {}; they must go from 0 to {}, the rows of the values",
            function, offsets.front(), offsets.back(), rows);
    for (std::size_t s = 0; s + 1 < offsets.size(); ++s)
      require(offsets[s] <= offsets[s + 1], "{}: offsets decrease after sequence {}", function, s);
  }
}

inline void check_sound(const char* function, const char* what, MatrixView<const float> matrix) {
  require(matrix.sound(), "{}: {} has no memory, or a stride below its columns", function, what);
}

template <class Backend, class T>
void check_jagged(const Backend& backend, const char* function,
                  const jagged::JaggedView<T>& jagged) {
  check_sound(function, "the matrix of values", jagged.values);
  check_offsets(backend, function, jagged.offsets, jagged.values.rows);
}

inline void check_matrix(const char* function, const char* what, MatrixView<const float> matrix,
                         std::int64_t rows, std::int64_t columns) {
  require(matrix.rows == rows && matrix.columns == columns, "{}: {} is {} x {}, must be {} x {}",
          function, what, matrix.rows, matrix.columns, rows, columns);
  check_sound(function, what, matrix);
}

template <class Backend>
void check_rows(const Backend&, const char* function, std::span<const std::int64_t> rows,
                std::int64_t end) {
  if constexpr (Backend::host_readable)
    for (std::size_t i = 0; i < rows.size(); ++i)
      require(rows[i] >= -1 && rows[i] < end, "{}: rows[{}] is {}, of {} rows", function, i,
              rows[i], end);
}

/// Checks two parts, sequence by sequence, and the matrix that holds both.
template <class Backend, class T>
void check_parts(const Backend& backend, const char* function, const char* what,
                 const jagged::JaggedView<T>& first, const jagged::JaggedView<T>& second,
                 MatrixView<const float> joined) {
  check_jagged(backend, function, first);
  check_jagged(backend, function, second);
  require(first.sequences() == second.sequences(), "{}: {} and {} sequences; both need the same",
          function, first.sequences(), second.sequences());
  require(first.values.columns == second.values.columns,
          "{}: {} and {} columns; both need the same", function, first.values.columns,
          second.values.columns);
  check_matrix(function, what, joined, first.values.rows + second.values.rows,
               first.values.columns);
}

}  // namespace detail

namespace jagged {

/// Writes padded [sequences * max_length, columns] = each sequence's rows, then zeros; of a longer
/// one the first or the last max_length rows. padded_dense_to_jagged is the way back.
template <class Backend>
void jagged_to_padded_dense(const Backend& backend, JaggedView<const float> jagged,
                            std::int64_t max_length, MatrixView<float> padded,
                            Keep keep = Keep::first) {
  constexpr const char* name = "jagged_to_padded_dense";
  require(max_length > 0, "{}: max_length must be positive, got {}", name, max_length);
  detail::check_jagged(backend, name, jagged);
  detail::check_matrix(name, "the padded matrix", padded, jagged.sequences() * max_length,
                       jagged.values.columns);
  op::run<op::ZeroRows>(
      backend, {padded.data, padded.stride, padded.rows, static_cast<int>(padded.columns)});
  op::run<op::ScatterJagged<op::PaddedPlace>>(
      backend, {jagged.shape(), {max_length, keep == Keep::last}, jagged.values, padded});
}

/// Copies the rows of each sequence out of padded [sequences * max_length, columns]; 0 for rows
/// that are not in it. The gradient of jagged_to_padded_dense.
template <class Backend>
void padded_dense_to_jagged(const Backend& backend, MatrixView<const float> padded,
                            std::int64_t max_length, JaggedView<float> jagged,
                            Keep keep = Keep::first) {
  constexpr const char* name = "padded_dense_to_jagged";
  require(max_length > 0, "{}: max_length must be positive, got {}", name, max_length);
  detail::check_jagged(backend, name, jagged);
  detail::check_matrix(name, "the padded matrix", padded, jagged.sequences() * max_length,
                       jagged.values.columns);
  op::run<op::GatherJagged<op::PaddedPlace>>(
      backend, {jagged.shape(), {max_length, keep == Keep::last}, padded, jagged.values});
}

/// Writes sequence s of `joined` = that of `first`, then that of `second`. split_jagged is the way
/// back.
template <class Backend>
void concat_jagged(const Backend& backend, JaggedView<const float> first,
                   JaggedView<const float> second, MatrixView<float> joined) {
  constexpr const char* name = "concat_jagged";
  detail::check_parts(backend, name, "the result", first, second, joined);
  using Scatter = op::ScatterJagged<op::ConcatPlace>;
  op::run<Scatter>(backend, {first.shape(), {second.offsets.data(), false}, first.values, joined});
  op::run<Scatter>(backend, {second.shape(), {first.offsets.data(), true}, second.values, joined});
}

/// Takes `joined` apart again: the gradient of concat_jagged. Offsets are those of the two parts.
template <class Backend>
void split_jagged(const Backend& backend, MatrixView<const float> joined, JaggedView<float> first,
                  JaggedView<float> second) {
  constexpr const char* name = "split_jagged";
  detail::check_parts(backend, name, "the joined matrix", first, second, joined);
  using Gather = op::GatherJagged<op::ConcatPlace>;
  op::run<Gather>(backend, {first.shape(), {second.offsets.data(), false}, joined, first.values});
  op::run<Gather>(backend, {second.shape(), {first.offsets.data(), true}, joined, second.values});
}

/// Writes to[i] = from[rows[i]]; -1: zeros. Where rows differ from each other, scatter_rows of the
/// gradient into zeros is the way back.
template <class Backend>
void gather_rows(const Backend& backend, MatrixView<const float> from,
                 std::span<const std::int64_t> rows, MatrixView<float> to) {
  detail::check_sound("gather_rows", "the source", from);
  detail::check_matrix("gather_rows", "the result", to, std::ssize(rows), from.columns);
  detail::check_rows(backend, "gather_rows", rows, from.rows);
  op::run<op::GatherJagged<op::ListedPlace>>(backend, {{}, {rows.data()}, from, to});
}

/// Writes to[rows[i]] = from[i], -1: nowhere. Rows must differ from each other.
template <class Backend>
void scatter_rows(const Backend& backend, MatrixView<const float> from,
                  std::span<const std::int64_t> rows, MatrixView<float> to) {
  detail::check_matrix("scatter_rows", "the source", from, std::ssize(rows), to.columns);
  detail::check_sound("scatter_rows", "the result", to);
  detail::check_rows(backend, "scatter_rows", rows, to.rows);
  op::run<op::ScatterJagged<op::ListedPlace>>(backend, {{}, {rows.data()}, from, to});
}

/// Writes to [sequences, columns] = sums of the sequences' rows, in their order; 0 for an empty
/// sequence.
template <class Backend>
void segment_sum(const Backend& backend, JaggedView<const float> jagged, MatrixView<float> to) {
  detail::check_jagged(backend, "segment_sum", jagged);
  detail::check_matrix("segment_sum", "the result", to, jagged.sequences(), jagged.values.columns);
  op::run<op::SegmentSum>(backend, {jagged.shape(), false, jagged.values, to});
}

/// Computes the mean of each sequence's rows; 0 for an empty sequence.
template <class Backend>
void segment_mean(const Backend& backend, JaggedView<const float> jagged, MatrixView<float> to) {
  detail::check_jagged(backend, "segment_mean", jagged);
  detail::check_matrix("segment_mean", "the result", to, jagged.sequences(), jagged.values.columns);
  op::run<op::SegmentSum>(backend, {jagged.shape(), true, jagged.values, to});
}

/// Computes the gradients of segment_sum and segment_mean: one row per sequence to each of its
/// rows.
template <class Backend>
void segment_sum_backward(const Backend& backend, MatrixView<const float> gradient,
                          JaggedView<float> to) {
  detail::check_jagged(backend, "segment_sum_backward", to);
  detail::check_matrix("segment_sum_backward", "the gradient", gradient, to.sequences(),
                       to.values.columns);
  op::run<op::SpreadSegments>(backend, {to.shape(), false, gradient, to.values});
}

/// Computes the gradient of segment_mean.
template <class Backend>
void segment_mean_backward(const Backend& backend, MatrixView<const float> gradient,
                           JaggedView<float> to) {
  detail::check_jagged(backend, "segment_mean_backward", to);
  detail::check_matrix("segment_mean_backward", "the gradient", gradient, to.sequences(),
                       to.values.columns);
  op::run<op::SpreadSegments>(backend, {to.shape(), true, gradient, to.values});
}

/// Computes softmax over the rows of each sequence, column by column. `to` may be the input.
template <class Backend>
void segment_softmax(const Backend& backend, JaggedView<const float> jagged, MatrixView<float> to) {
  detail::check_jagged(backend, "segment_softmax", jagged);
  detail::check_matrix("segment_softmax", "the result", to, jagged.values.rows,
                       jagged.values.columns);
  op::run<op::SegmentSoftmax>(backend, {jagged.shape(), jagged.values, to});
}

/// Computes the gradient of segment_softmax, whose result was `p`. `to` may be `gradient`.
template <class Backend>
void segment_softmax_backward(const Backend& backend, JaggedView<const float> p,
                              MatrixView<const float> gradient, MatrixView<float> to) {
  constexpr const char* name = "segment_softmax_backward";
  detail::check_jagged(backend, name, p);
  detail::check_matrix(name, "the gradient", gradient, p.values.rows, p.values.columns);
  detail::check_matrix(name, "the result", to, p.values.rows, p.values.columns);
  op::run<op::SegmentSoftmaxBackward>(backend, {p.shape(), p.values, gradient, to});
}

/// Writes to[r] = the position of row r in its sequence, counted from the first row or from the
/// last, at most `positions` - 1: ids for a table of positions.
template <class Backend>
void position_ids(const Backend& backend, std::span<const std::int64_t> offsets,
                  std::int64_t positions, std::span<std::int64_t> to, Keep from = Keep::first) {
  require(positions > 0, "position_ids: positions must be positive, got {}", positions);
  detail::check_offsets(backend, "position_ids", offsets, static_cast<std::int64_t>(to.size()));
  op::run<op::PositionIds>(backend,
                           {{offsets.data(), static_cast<std::int64_t>(offsets.size()) - 1},
                            from == Keep::last,
                            positions,
                            static_cast<std::int64_t>(to.size()),
                            to.data()});
}

/// Writes to[r] = floor(log(max(1, time of the sequence's last row - times[r])) / divisor), at most
/// `buckets` - 1: ids for a table of times, as HSTU has them (Zhai et al. 2024, divisor 0.301).
template <class Backend>
void time_bucket_ids(const Backend& backend, std::span<const std::int64_t> offsets,
                     std::span<const std::int64_t> times, std::int64_t buckets,
                     std::span<std::int64_t> to, double divisor = 0.301) {
  require(buckets > 0 && divisor > 0,
          "time_bucket_ids: buckets ({}) and divisor ({}) must be positive", buckets, divisor);
  require(times.size() == to.size(), "time_bucket_ids: {} times for {} results", times.size(),
          to.size());
  detail::check_offsets(backend, "time_bucket_ids", offsets, static_cast<std::int64_t>(to.size()));
  op::run<op::TimeBucketIds>(backend,
                             {{offsets.data(), static_cast<std::int64_t>(offsets.size()) - 1},
                              times.data(),
                              divisor,
                              buckets,
                              static_cast<std::int64_t>(to.size()),
                              to.data()});
}

/// Writes lengths[s] = offsets[s + 1] - offsets[s].
template <class Backend>
void offsets_to_lengths(const Backend& backend, std::span<const std::int64_t> offsets,
                        std::span<std::int64_t> lengths) {
  require(offsets.size() == lengths.size() + 1, "offsets_to_lengths: {} offsets for {} lengths",
          offsets.size(), lengths.size());
  op::run<op::LengthsFromOffsets>(
      backend, {{offsets.data(), static_cast<std::int64_t>(lengths.size())}, lengths.data()});
}

/// Writes offsets[0] = 0, offsets[s + 1] = offsets[s] + lengths[s].
template <class Backend>
void lengths_to_offsets(const Backend& backend, std::span<const std::int64_t> lengths,
                        std::span<std::int64_t> offsets) {
  require(offsets.size() == lengths.size() + 1, "lengths_to_offsets: {} offsets for {} lengths",
          offsets.size(), lengths.size());
  if constexpr (Backend::host_readable)
    for (std::size_t s = 0; s < lengths.size(); ++s)
      require(lengths[s] >= 0, "lengths_to_offsets: lengths[{}] is {}", s, lengths[s]);
  op::run<op::OffsetsFromSequenceLengths>(
      backend, {lengths.data(), static_cast<std::int64_t>(lengths.size()), offsets.data()});
}

}  // namespace jagged

}}  // namespace tessera::v0
