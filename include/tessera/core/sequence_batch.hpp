// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera { inline namespace v0 {

/// The sequences of a batch, their positions one after another. Views of host memory.
struct SequenceBatch {
  std::span<const std::int64_t> offsets;  ///< sequences + 1, from 0, never decreasing
  /// Per sequence, how many of its last positions are candidates to be ranked: each sees itself and
  /// the history, and no position sees it. Empty: none.
  std::span<const std::int64_t> targets{};

  std::int64_t sequences() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
};

/// Throws InvalidArgument, in the name of `layer`, for offsets that do not cut `positions` into
/// sequences of at most `max_length`, and for more targets than positions.
inline void check_sequences(const char* layer, const SequenceBatch& batch, std::int64_t positions,
                            std::int64_t max_length) {
  const auto& offsets = batch.offsets;
  require(!offsets.empty() && offsets.front() == 0 && offsets.back() == positions,
          "{}: offsets must begin with 0 and end with the {} positions of the input", layer,
          positions);
  const std::size_t sequences = offsets.size() - 1;
  require(batch.targets.empty() || batch.targets.size() == sequences,
          "{}: {} numbers of targets for {} sequences", layer, batch.targets.size(), sequences);
  for (std::size_t s = 0; s < sequences; ++s) {
    const std::int64_t length = offsets[s + 1] - offsets[s];
    require(length >= 0, "{}: offsets decrease after sequence {}", layer, s);
    require(length <= max_length, "{}: sequence {} has {} positions; max_length is {}", layer, s,
            length, max_length);
    if (batch.targets.empty()) continue;
    require(batch.targets[s] >= 0 && batch.targets[s] <= length,
            "{}: sequence {} has {} targets and {} positions", layer, s, batch.targets[s], length);
  }
}

}}  // namespace tessera::v0
