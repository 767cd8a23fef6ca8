// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>

#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>

namespace tessera { inline namespace v0 { namespace detail {

/// Throws InvalidArgument for a label that is no number in [0, 1]: what takes it for 0 or 1 would
/// give a plausible, wrong figure. `who` takes the labels.
inline void check_labels(std::string_view who, std::span<const float> labels) {
  for (std::size_t i = 0; i < labels.size(); ++i)
    require(labels[i] >= 0 && labels[i] <= 1, "{}: label {} is {}; labels are in [0, 1]", who, i,
            labels[i]);
}

/// Throws InvalidArgument for a score that is NaN.
inline void check_scores(std::string_view who, std::span<const float> scores) {
  for (std::size_t i = 0; i < scores.size(); ++i)
    require(!std::isnan(scores[i]), "{}: score {} is NaN: has the training diverged?", who, i);
}

}}}  // namespace tessera::v0::detail
