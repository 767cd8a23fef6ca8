// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/communicator.hpp>
#include <tessera/core/error.hpp>

#include <cstddef>
#include <cstring>
#include <numeric>
#include <span>
#include <string_view>

namespace tessera::inline v0 {

/// Checks of a collective's arguments that one rank can make alone, shared by all communicators. Throw InvalidArgument.
/// `counts` must name every rank and add up to the `elements` of the buffer called `buffer`.
inline void check_counts(Collective collective, int rank, int ranks, std::string_view buffer, std::size_t elements,
                         std::span<const std::size_t> counts) {
  require(counts.size() == static_cast<std::size_t>(ranks),
          "{} on rank {}: {} counts for the {} buffer, but there are {} ranks; give one per rank", name_of(collective), rank, counts.size(),
          buffer, ranks);
  const std::size_t sum = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  require(sum == elements, "{} on rank {}: the counts of the {} buffer add up to {} elements, but it has {}", name_of(collective), rank,
          buffer, sum, elements);
}

inline void check_own_count(Collective collective, int rank, std::string_view buffer, std::size_t elements, std::size_t count) {
  require(elements == count, "{} on rank {}: counts[{}] is {}, but this rank's {} buffer has {} elements", name_of(collective), rank, rank,
          count, buffer, elements);
}

inline void check_root(int rank, int ranks, int root) {
  require(root >= 0 && root < ranks, "broadcast on rank {}: root {} is not a rank (0..{})", rank, root, ranks - 1);
}

namespace detail {

/// memcpy that accepts the null pointers of empty spans.
inline void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

template <Reducible T>
void reduce_into(T* to, const T* from, std::size_t count, Reduction reduction) {
  if (reduction == Reduction::sum) {
    for (std::size_t i = 0; i < count; ++i) to[i] += from[i];
  } else if (reduction == Reduction::min) {
    for (std::size_t i = 0; i < count; ++i) to[i] = from[i] < to[i] ? from[i] : to[i];
  } else {
    for (std::size_t i = 0; i < count; ++i) to[i] = to[i] < from[i] ? from[i] : to[i];
  }
}

}  // namespace detail
}  // namespace tessera::inline v0
