// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/rank_memory.hpp>
#include <tessera/concepts/communicator.hpp>
#include <tessera/core/error.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace tessera { inline namespace v0 { namespace detail {

// Checks that all communicators share. First those that one rank can make alone; they throw
// InvalidArgument.

/// Checks that `counts` name every rank and add up to the `elements` of the buffer called `buffer`.
void check_counts(Collective collective, int rank, int ranks, std::string_view buffer,
                  std::size_t elements, std::span<const std::size_t> counts);

void check_own_count(Collective collective, int rank, std::string_view buffer, std::size_t elements,
                     std::span<const std::size_t> counts);

void check_root(int rank, int ranks, int root);

/// What a rank tells its peers at the start of a collective, so that all can see whether they mean
/// the same.
struct CallHeader {
  std::uint64_t call = 0;  ///< 1 for a rank's first collective
  Collective collective = Collective::none;
  Reduction reduction = Reduction::sum;
  std::int32_t root = 0;
  std::uint32_t element_size = 0;
  char element_kind = '-';  ///< 'f' floating point, 'i' signed, 'u' unsigned, 'b' other bytes
  std::uint64_t size = 0;   ///< elements that this rank gives
};

template <class T>
constexpr CallHeader make_header(Collective collective, std::size_t size) {
  const char kind = std::is_floating_point_v<T> ? 'f'
                    : !std::is_integral_v<T>    ? 'b'
                    : std::is_signed_v<T>       ? 'i'
                                                : 'u';
  return {.collective = collective, .element_size = sizeof(T), .element_kind = kind, .size = size};
}

/// A fault that concerns several ranks. `text` is empty if there is none.
struct Disagreement {
  int rank = -1;  ///< the one at fault, as far as one can tell
  std::string text;
};

/// Compares the headers of all ranks with rank 0's: every rank that has them all finds the same.
/// `header_of(rank)` gives a header; `caller` is the collective that the asking rank is in.
template <class HeaderOf>
Disagreement disagreement_of_calls(Collective caller, int ranks, HeaderOf header_of) {
  const CallHeader& first = header_of(0);
  const bool equal_sizes =
      first.collective == Collective::all_reduce || first.collective == Collective::broadcast;
  for (int rank = 1; rank < ranks; ++rank) {
    const CallHeader& other = header_of(rank);
    const auto differ = [&](std::string_view text, const auto& a, const auto& b) {
      return Disagreement{
          rank,
          formatted("{} (call {}): rank 0 {}, but rank {} {}; all ranks must make the same "
                    "calls in the same order",
                    name_of(caller), first.call, make_text(text, {a}), rank, make_text(text, {b}))};
    };
    if (other.call != first.call) return differ("is at call {}", first.call, other.call);
    if (other.collective != first.collective)
      return differ("calls {}", name_of(first.collective), name_of(other.collective));
    if (other.element_size != first.element_size)
      return differ("has elements of {} bytes", first.element_size, other.element_size);
    if (other.element_kind != first.element_kind)
      return differ("has elements of kind {}", first.element_kind, other.element_kind);
    if (other.reduction != first.reduction)
      return differ("asks for the {}", name_of(first.reduction), name_of(other.reduction));
    if (other.root != first.root) return differ("names the root {}", first.root, other.root);
    if (equal_sizes && other.size != first.size)
      return differ("has {} elements", first.size, other.size);
  }
  return {};
}

/// Compares what every peer sends to `rank` with what `rank` expects from it, in elements.
template <class SentBy, class ExpectedFrom>
Disagreement disagreement_of_counts(const CallHeader& header, int rank, int ranks, SentBy sent_by,
                                    ExpectedFrom expected_from) {
  for (int peer = 0; peer < ranks; ++peer)
    if (const std::uint64_t sent = sent_by(peer), expected = expected_from(peer); sent != expected)
      return {peer,
              formatted("{} (call {}): rank {} sends {} elements to rank {}, which expects {}",
                        name_of(header.collective), header.call, peer, sent, rank, expected)};
  return {};
}

/// Returns where slice `rank` of `size` elements begins, cut as evenly as can be.
constexpr std::size_t slice_begin(std::size_t size, std::size_t ranks, std::size_t rank) {
  return size / ranks * rank + (rank < size % ranks ? rank : size % ranks);
}

#ifdef TESSERA_INLINE
TESSERA_INLINE void check_counts(Collective collective, int rank, int ranks,
                                 std::string_view buffer, std::size_t elements,
                                 std::span<const std::size_t> counts) {
  require(counts.size() == static_cast<std::size_t>(ranks),
          "{} on rank {}: {} counts for the {} buffer, but there are {} ranks; give one per rank",
          name_of(collective), rank, counts.size(), buffer, ranks);
  const std::size_t sum = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  require(sum == elements,
          "{} on rank {}: the counts of the {} buffer add up to {} elements, but it has {}",
          name_of(collective), rank, buffer, sum, elements);
}

TESSERA_INLINE void check_own_count(Collective collective, int rank, std::string_view buffer,
                                    std::size_t elements, std::span<const std::size_t> counts) {
  const std::size_t count = counts[static_cast<std::size_t>(rank)];
  require(elements == count,
          "{} on rank {}: counts[{}] is {}, but this rank's {} buffer has {} elements",
          name_of(collective), rank, rank, count, buffer, elements);
}

TESSERA_INLINE void check_root(int rank, int ranks, int root) {
  require(root >= 0 && root < ranks, "broadcast on rank {}: root {} is not a rank (0..{})", rank,
          root, ranks - 1);
}
#endif

}}}  // namespace tessera::v0::detail
