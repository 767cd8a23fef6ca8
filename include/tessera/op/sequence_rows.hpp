// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/matrix_view.hpp>
#include <tessera/op/kernel.hpp>

#include <cstdint>
#include <limits>
#include <span>

namespace tessera { inline namespace v0 { namespace op {

/// index[i] becomes index[i] + base, or `missing` if it is negative.
struct PlaceIndices {
  struct Parameters {
    std::int32_t* index = nullptr;
    std::int64_t count = 0;
    std::int32_t base = 0;
    std::int32_t missing = 0;
  };
};

/// Offsets of bags, counted from their first entry: to[b] = offsets[b] - offsets[0], or b where
/// there are none (one-hot); `most` if that is more.
struct OffsetsFromFirst {
  struct Job {
    const std::int64_t* offsets = nullptr;
    std::int64_t bags = 0;
    std::int64_t* to = nullptr;  ///< [bags + 1]
    std::int64_t most = std::numeric_limits<std::int64_t>::max();
  };
  struct Parameters {
    std::span<const Job> jobs;
  };
};

/// to[i] = rows[index[i]], for every row of `to`; times weights[i] if there are weights.
struct GatherIndexed {
  struct Parameters {
    MatrixView<const float> rows;
    const std::int32_t* index = nullptr;
    MatrixView<float> to;
    const float* weights = nullptr;
  };
};

}}}  // namespace tessera::v0::op
