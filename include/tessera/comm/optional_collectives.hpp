// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/communicator.hpp>
#include <tessera/core/error.hpp>

#include <tessera/core/format.hpp>

#include <cstddef>
#include <span>
#include <string_view>

namespace tessera { inline namespace v0 { namespace detail {

/// Where the blocks of ranks begin in the buffers of an exchange: NCCL moves all of a call's blocks
/// 16 bytes at a time if they begin at multiples of that, else one at a time; it cuts them at 128.
/// Both ends of a block come to the same size.
struct BlockAlignment {
  std::size_t bytes = 1;
  /// Returns how many elements a block of so many takes.
  template <class T>
  std::size_t padded(std::size_t count) const {
    const std::size_t unit = bytes > sizeof(T) ? bytes / sizeof(T) : 1;
    return (count + unit - 1) / unit * unit;
  }
};
template <class Comm>
BlockAlignment block_alignment(const Comm& communicator) {
  return {queues_calls(communicator) ? std::size_t{128} : std::size_t{1}};
}

// A layout that is known at run time may need less than the code for all layouts calls. The
// collection's constructor has checked that the communicator offers what the layout at hand needs.

template <class T, class Comm>
void all_to_all(Comm& communicator, std::span<const T> send,
                std::span<const std::size_t> send_counts, std::span<T> receive,
                std::span<const std::size_t> receive_counts) {
  if constexpr (HasAllToAll<Comm>)
    communicator.all_to_all(send, send_counts, receive, receive_counts);
  else
    throw InvalidArgument(
        "EmbeddingCollection: a communicator without all_to_all serves layouts of replicated "
        "tables alone");
}

template <class T, class Comm>
void all_gather(Comm& communicator, std::span<const T> send, std::span<T> receive,
                std::span<const std::size_t> counts) {
  if constexpr (HasAllGather<Comm>)
    communicator.all_gather(send, receive, counts);
  else
    throw InvalidArgument(
        "EmbeddingCollection: a communicator without all_gather serves layouts without replicated "
        "tables alone");
}

/// Sums over ranks: `what` of the collection needs it.
template <class T, class Comm>
void all_reduce(Comm& communicator, std::span<T> values, std::string_view what) {
  if constexpr (HasAllReduce<Comm>)
    communicator.all_reduce(values);
  else
    throw InvalidArgument(
        formatted("EmbeddingCollection: {} needs a communicator with all_reduce", what));
}

}}}  // namespace tessera::v0::detail
