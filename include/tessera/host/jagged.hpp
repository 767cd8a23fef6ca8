// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/memory.hpp>
#include <tessera/host/backend.hpp>
#include <tessera/host/exchange.hpp>
#include <tessera/host/parallel.hpp>
#include <tessera/op/jagged.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>

namespace tessera { inline namespace v0 {

namespace detail {

/// Calls f(sequence, row) for all rows, chunk by chunk on the backend's threads; without sequences
/// the first argument is 0.
template <class F>
void each_jagged_row(const Host& backend, const op::Sequences& sequences, bool by_sequence,
                     std::int64_t rows, std::int64_t bytes, const F& f) {
  constexpr std::int64_t chunk = 256;
  parallel_for(worthwhile_threads(backend.threads(), bytes), (rows + chunk - 1) / chunk,
               [&](std::int64_t part, int) {
                 const std::int64_t end = std::min(rows, (part + 1) * chunk);
                 std::int64_t s = by_sequence ? sequences.of(part * chunk) : 0;
                 for (std::int64_t row = part * chunk; row < end; ++row) {
                   if (by_sequence)
                     while (row >= sequences.offsets[s + 1]) ++s;
                   f(s, row);
                 }
               });
}

template <class F>
void each_sequence(const Host& backend, const op::Sequences& sequences, std::int64_t bytes,
                   const F& f) {
  parallel_for(worthwhile_threads(backend.threads(), bytes), sequences.count,
               [&](std::int64_t s, int) { f(s, sequences.offsets[s], sequences.offsets[s + 1]); });
}

inline std::int64_t bytes_of(MatrixView<const float> m) { return m.rows * m.columns * 4; }

}  // namespace detail

template <class Place>
struct op::Kernel<op::ScatterJagged<Place>, Host> {
  static void run(const Host& backend, const typename op::ScatterJagged<Place>::Parameters& p) {
    detail::each_jagged_row(backend, p.sequences, Place::by_sequence, p.from.rows,
                            detail::bytes_of(p.from), [&](std::int64_t s, std::int64_t row) {
                              const std::int64_t to = p.place(p.sequences, s, row);
                              if (to >= 0)
                                std::copy_n(p.from.row(row), p.from.columns, p.to.row(to));
                            });
  }
};

template <class Place>
struct op::Kernel<op::GatherJagged<Place>, Host> {
  static void run(const Host& backend, const typename op::GatherJagged<Place>::Parameters& p) {
    detail::each_jagged_row(backend, p.sequences, Place::by_sequence, p.to.rows,
                            detail::bytes_of(p.to), [&](std::int64_t s, std::int64_t row) {
                              const std::int64_t from = p.place(p.sequences, s, row);
                              if (from >= 0)
                                std::copy_n(p.from.row(from), p.to.columns, p.to.row(row));
                              else
                                std::fill_n(p.to.row(row), p.to.columns, 0.0f);
                            });
  }
};

template <>
struct op::Kernel<op::SegmentSum, Host> {
  static void run(const Host& backend, const op::SegmentSum::Parameters& p) {
    detail::each_sequence(backend, p.sequences, detail::bytes_of(p.from),
                          [&](std::int64_t s, std::int64_t begin, std::int64_t end) {
                            float* const to = p.to.row(s);
                            std::fill_n(to, p.to.columns, 0.0f);
                            for (std::int64_t row = begin; row < end; ++row)
                              for (std::int64_t c = 0; c < p.to.columns; ++c)
                                to[c] += p.from(row, c);
                            if (p.mean && end > begin)
                              for (std::int64_t c = 0; c < p.to.columns; ++c)
                                to[c] /= static_cast<float>(end - begin);
                          });
  }
};

template <>
struct op::Kernel<op::SpreadSegments, Host> {
  static void run(const Host& backend, const op::SpreadSegments::Parameters& p) {
    detail::each_jagged_row(backend, p.sequences, true, p.to.rows, detail::bytes_of(p.to),
                            [&](std::int64_t s, std::int64_t row) {
                              const float length =
                                  p.mean ? static_cast<float>(p.sequences.length(s)) : 1.0f;
                              for (std::int64_t c = 0; c < p.to.columns; ++c)
                                p.to(row, c) = p.from(s, c) / length;
                            });
  }
};

template <>
struct op::Kernel<op::SegmentSoftmax, Host> {
  static void run(const Host& backend, const op::SegmentSoftmax::Parameters& p) {
    detail::each_sequence(backend, p.sequences, detail::bytes_of(p.from),
                          [&](std::int64_t, std::int64_t begin, std::int64_t end) {
                            for (std::int64_t c = 0; c < p.from.columns; ++c) {
                              float most = -std::numeric_limits<float>::infinity(), sum = 0;
                              for (std::int64_t row = begin; row < end; ++row)
                                most = std::max(most, p.from(row, c));
                              for (std::int64_t row = begin; row < end; ++row)
                                sum += p.to(row, c) = std::exp(p.from(row, c) - most);
                              for (std::int64_t row = begin; row < end; ++row) p.to(row, c) /= sum;
                            }
                          });
  }
};

template <>
struct op::Kernel<op::SegmentSoftmaxBackward, Host> {
  static void run(const Host& backend, const op::SegmentSoftmaxBackward::Parameters& p) {
    detail::each_sequence(backend, p.sequences, detail::bytes_of(p.p),
                          [&](std::int64_t, std::int64_t begin, std::int64_t end) {
                            for (std::int64_t c = 0; c < p.p.columns; ++c) {
                              float sum = 0;
                              for (std::int64_t row = begin; row < end; ++row)
                                sum += p.p(row, c) * p.gradient(row, c);
                              for (std::int64_t row = begin; row < end; ++row)
                                p.to(row, c) = p.p(row, c) * (p.gradient(row, c) - sum);
                            }
                          });
  }
};

template <>
struct op::Kernel<op::PositionIds, Host> {
  static void run(const Host& backend, const op::PositionIds::Parameters& p) {
    detail::each_jagged_row(
        backend, p.sequences, true, p.rows, p.rows * 8,
        [&](std::int64_t s, std::int64_t row) { p.to[row] = op::bounded_position(p, s, row); });
  }
};

template <>
struct op::Kernel<op::TimeBucketIds, Host> {
  static void run(const Host& backend, const op::TimeBucketIds::Parameters& p) {
    detail::each_jagged_row(
        backend, p.sequences, true, p.rows, p.rows * 16,
        [&](std::int64_t s, std::int64_t row) { p.to[row] = op::time_bucket(p, s, row); });
  }
};

template <>
struct op::Kernel<op::LengthsFromOffsets, Host> {
  static void run(const Host&, const op::LengthsFromOffsets::Parameters& p) {
    for (std::int64_t s = 0; s < p.sequences.count; ++s) p.lengths[s] = p.sequences.length(s);
  }
};

template <>
struct op::Kernel<op::OffsetsFromSequenceLengths, Host> {
  static void run(const Host&, const op::OffsetsFromSequenceLengths::Parameters& p) {
    p.offsets[0] = 0;
    for (std::int64_t s = 0; s < p.count; ++s) p.offsets[s + 1] = p.offsets[s] + p.lengths[s];
  }
};

}}  // namespace tessera::v0
