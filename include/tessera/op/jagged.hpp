// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>
#include <tessera/core/matrix_view.hpp>
#include <tessera/op/kernel.hpp>

#include <cmath>
#include <cstdint>

namespace tessera { inline namespace v0 { namespace op {

/// Sequences whose rows follow one another: sequence s has rows [offsets[s], offsets[s + 1]).
struct Sequences {
  const std::int64_t* offsets = nullptr;  ///< count + 1, from 0, in the backend's memory
  std::int64_t count = 0;

  TESSERA_HOST_DEVICE std::int64_t length(std::int64_t s) const {
    return offsets[s + 1] - offsets[s];
  }
  /// Returns the sequence that holds a row.
  TESSERA_HOST_DEVICE std::int64_t of(std::int64_t row) const {
    std::int64_t low = 0, high = count - 1;
    while (low < high) {
      const std::int64_t middle = (low + high + 1) / 2;
      if (offsets[middle] <= row)
        low = middle;
      else
        high = middle - 1;
    }
    return low;
  }
};

// The place of a row of jagged values in another matrix; -1: none. No two rows of a matrix are
// at one place.

/// In `max_length` rows per sequence: the first ones, or the last ones.
struct PaddedPlace {
  static constexpr bool by_sequence = true;
  std::int64_t max_length = 0;
  bool keep_last = false;

  TESSERA_HOST_DEVICE std::int64_t operator()(const Sequences& sequences, std::int64_t s,
                                              std::int64_t row) const {
    const std::int64_t over = sequences.length(s) - max_length,
                       at = row - sequences.offsets[s] - (keep_last && over > 0 ? over : 0);
    return at >= 0 && at < max_length ? s * max_length + at : -1;
  }
};

/// In sequences that hold first the rows of one matrix, then those of another.
struct ConcatPlace {
  static constexpr bool by_sequence = true;
  const std::int64_t* other = nullptr;  ///< offsets of the other matrix
  bool second = false;                  ///< this matrix's rows come after the other's

  TESSERA_HOST_DEVICE std::int64_t operator()(const Sequences&, std::int64_t s,
                                              std::int64_t row) const {
    return row + other[s + (second ? 1 : 0)];
  }
};

/// Where a list says.
struct ListedPlace {
  static constexpr bool by_sequence = false;
  const std::int64_t* rows = nullptr;

  TESSERA_HOST_DEVICE std::int64_t operator()(const Sequences&, std::int64_t,
                                              std::int64_t row) const {
    return rows[row];
  }
};

/// to[place(r)] = from[r] for every row r that has a place.
template <class Place>
struct ScatterJagged {
  struct Parameters {
    Sequences sequences;
    Place place;
    MatrixView<const float> from;
    MatrixView<float> to;
  };
};

/// to[r] = from[place(r)], or 0 if row r has no place.
template <class Place>
struct GatherJagged {
  using Parameters = typename ScatterJagged<Place>::Parameters;
};

/// to[s] = the sum or the mean of a sequence's rows, added in their order; 0 for an empty one.
struct SegmentSum {
  struct Parameters {
    Sequences sequences;
    bool mean = false;
    MatrixView<const float> from;
    MatrixView<float> to;
  };
};

/// The way back: to[r] = from[s] for every row of sequence s, over its length for means.
struct SpreadSegments {
  using Parameters = SegmentSum::Parameters;
};

/// Of every column of every sequence: e^(x - max) over their sum.
struct SegmentSoftmax {
  struct Parameters {
    Sequences sequences;
    MatrixView<const float> from;
    MatrixView<float> to;
  };
};

/// The way back: to = p (gradient - sum of p gradient), p being the softmax.
struct SegmentSoftmaxBackward {
  struct Parameters {
    Sequences sequences;
    MatrixView<const float> p;
    MatrixView<const float> gradient;
    MatrixView<float> to;
  };
};

/// to[r] = the position of row r in its sequence, from the first (0, 1, ...) or from the last; at
/// most `bound` - 1.
struct PositionIds {
  struct Parameters {
    Sequences sequences;
    bool from_last = false;
    std::int64_t bound = 0;
    std::int64_t rows = 0;
    std::int64_t* to = nullptr;
  };
};

/// to[r] = floor(log(max(1, |last - times[r]|)) / divisor), at most `buckets` - 1, where `last` is
/// the time of the sequence's last row (Zhai et al. 2024 take 0.301 as divisor).
struct TimeBucketIds {
  struct Parameters {
    Sequences sequences;
    const std::int64_t* times = nullptr;
    double divisor = 0.301;
    std::int64_t buckets = 0;
    std::int64_t rows = 0;
    std::int64_t* to = nullptr;
  };
};

/// lengths[s] = offsets[s + 1] - offsets[s], or the sums of lengths as offsets.
struct LengthsFromOffsets {
  struct Parameters {
    Sequences sequences;
    std::int64_t* lengths = nullptr;
  };
};
struct OffsetsFromSequenceLengths {
  struct Parameters {
    const std::int64_t* lengths = nullptr;
    std::int64_t count = 0;
    std::int64_t* offsets = nullptr;  ///< count + 1
  };
};

// What both backends compute alike.

TESSERA_HOST_DEVICE inline std::int64_t bounded_position(const PositionIds::Parameters& p,
                                                         std::int64_t s, std::int64_t row) {
  const std::int64_t at =
      p.from_last ? p.sequences.offsets[s + 1] - 1 - row : row - p.sequences.offsets[s];
  return at < p.bound ? at : p.bound - 1;
}

TESSERA_HOST_DEVICE inline std::int64_t time_bucket(const TimeBucketIds::Parameters& p,
                                                    std::int64_t s, std::int64_t row) {
  const std::int64_t last = p.times[p.sequences.offsets[s + 1] - 1], time = p.times[row];
  const std::uint64_t apart =
      last > time ? static_cast<std::uint64_t>(last) - static_cast<std::uint64_t>(time)
                  : static_cast<std::uint64_t>(time) - static_cast<std::uint64_t>(last);
  const double bucket = std::log(apart < 1 ? 1.0 : static_cast<double>(apart)) / p.divisor;
  return bucket < static_cast<double>(p.buckets) ? static_cast<std::int64_t>(bucket)
                                                 : p.buckets - 1;
}

}}}  // namespace tessera::v0::op
