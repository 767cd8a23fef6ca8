// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/config.hpp>
#include <tessera/core/error.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace tessera { inline namespace v0 {

/// The collectives of a communicator; a set of them is their bitwise or. A plan computes the set
/// that it needs.
enum class Collective : unsigned {
  none = 0,
  all_to_all = 1,
  all_gather = 2,
  all_reduce = 4,
  reduce_scatter = 8,
  broadcast = 16,
  barrier = 32,
  all = 63,
};

constexpr Collective operator|(Collective a, Collective b) {
  return static_cast<Collective>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}

namespace detail {

/// Returns whether `set` contains every collective of `part`.
constexpr bool contains(Collective set, Collective part) {
  return (static_cast<unsigned>(set) & static_cast<unsigned>(part)) == static_cast<unsigned>(part);
}

/// Returns the name of one collective, as error texts and counters write it.
constexpr std::string_view name_of(Collective collective) {
  switch (collective) {
    case Collective::none:
      return "nothing more";
    case Collective::all_to_all:
      return "all_to_all";
    case Collective::all_gather:
      return "all_gather";
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::broadcast:
      return "broadcast";
    case Collective::barrier:
      return "barrier";
    default:
      return "several collectives";
  }
}

}  // namespace detail

/// How `all_reduce` combines the ranks' values: always in rank order, ((v0 + v1) + v2) ..., so that
/// every run gives the same bits.
enum class Reduction { sum, min, max };

namespace detail {

constexpr std::string_view name_of(Reduction reduction) {
  return reduction == Reduction::sum ? "sum" : reduction == Reduction::min ? "min" : "max";
}

}  // namespace detail

/// Elements that a communicator can move: bytes that mean the same on every rank.
template <class T>
concept Exchangeable = std::is_trivially_copyable_v<T> && !std::is_const_v<T>;

/// Elements that a communicator can add up.
template <class T>
concept Reducible =
    std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::int32_t> ||
    std::same_as<T, std::int64_t> || std::same_as<T, std::uint64_t>;

namespace detail {

template <class C>
concept HasRank = requires(const C& c) {
  { c.rank() } -> std::same_as<int>;
};

template <class C>
concept HasSize = requires(const C& c) {
  { c.size() } -> std::same_as<int>;
};

template <class C>
concept HasAllToAll =
    requires(C& c, std::span<const std::int64_t> send, std::span<std::int64_t> receive,
             std::span<const std::size_t> counts) { c.all_to_all(send, counts, receive, counts); };

template <class C>
concept HasAllGather =
    requires(C& c, std::span<const std::int64_t> send, std::span<std::int64_t> receive,
             std::span<const std::size_t> counts) { c.all_gather(send, receive, counts); };

template <class C>
concept HasAllReduce = requires(C& c, std::span<float> values) {
  c.all_reduce(values);
  c.all_reduce(values, Reduction::max);
};

template <class C>
concept HasReduceScatter =
    requires(C& c, std::span<const float> send, std::span<float> receive,
             std::span<const std::size_t> counts) { c.reduce_scatter(send, receive, counts); };

template <class C>
concept HasBroadcast =
    requires(C& c, std::span<std::int64_t> values, int root) { c.broadcast(values, root); };

template <class C>
concept HasBarrier = requires(C& c) { c.barrier(); };

/// Returns whether calls of `c` on device memory go to a stream and return, as NCCL's do: then what
/// overlaps them with other work needs no thread, and makes them in one order on all ranks.
template <class C>
bool queues_calls(const C& c) {
  if constexpr (requires {
                  { c.queues_calls() } -> std::same_as<bool>;
                })
    return c.queues_calls();
  else
    return false;
}

/// Makes collectives that do not need each other's results, on device memory: over NCCL they start
/// as one.
template <class C, class Calls>
void together(C& c, const Calls& calls) {
  if constexpr (requires { c.group(calls); })
    c.group(calls);
  else
    calls();
}

/// Returns whether `c` reads and writes all buffers by the host, whatever its kind otherwise does.
template <class C>
bool host_memory_only(const C& c) {
  if constexpr (requires {
                  { c.host_memory_only() } -> std::same_as<bool>;
                })
    return c.host_memory_only();
  else
    return false;
}

/// Throws unless `c` can take buffers of the backend's memory.
template <class Backend, class C>
void require_memory(const C& c) {
  if constexpr (requires { requires !Backend::host_readable; })
    require(!host_memory_only(c),
            "the communicator copies with the host (HierarchicalCommunicator does) and cannot take "
            "the memory of a device");
}

}  // namespace detail

/// Moves data between ranks; offers at least the collectives in `Needs`. Every call blocks until
/// its result is there and until no rank reads this rank's buffers any more, and every rank makes
/// the same calls in the same order. What cannot finish throws `CommunicatorError`. Meaning, laws
/// and the smallest model: docs/concepts/communicator.md.
template <class C, Collective Needs = Collective::all>
concept Communicator =
    detail::HasRank<C> && detail::HasSize<C> &&                                               //
    (!detail::contains(Needs, Collective::all_to_all) || detail::HasAllToAll<C>) &&           //
    (!detail::contains(Needs, Collective::all_gather) || detail::HasAllGather<C>) &&          //
    (!detail::contains(Needs, Collective::all_reduce) || detail::HasAllReduce<C>) &&          //
    (!detail::contains(Needs, Collective::reduce_scatter) || detail::HasReduceScatter<C>) &&  //
    (!detail::contains(Needs, Collective::broadcast) || detail::HasBroadcast<C>) &&           //
    (!detail::contains(Needs, Collective::barrier) || detail::HasBarrier<C>);

/// Stops the compilation with one line for each requirement that `C` misses. True if there is
/// none.
template <class C, Collective Needs = Collective::all>
consteval bool explain_communicator() {
  // of a concept itself g++ would add seven lines to each error
  constexpr bool has_rank = detail::HasRank<C>, has_size = detail::HasSize<C>;
  static_assert(has_rank, "Communicator: need int rank() const (docs/concepts/communicator.md)");
  static_assert(has_size, "Communicator: need int size() const (docs/concepts/communicator.md)");
  static_assert(!detail::contains(Needs, Collective::all_to_all) || detail::HasAllToAll<C>,
                "Communicator: need all_to_all(span<const T> send, span<const size_t> send_counts, "
                "span<T> receive, "
                "span<const size_t> receive_counts) for every trivially copyable T "
                "(docs/concepts/communicator.md)");
  static_assert(!detail::contains(Needs, Collective::all_gather) || detail::HasAllGather<C>,
                "Communicator: need all_gather(span<const T> send, span<T> receive, span<const "
                "size_t> counts) for every trivially "
                "copyable T (docs/concepts/communicator.md)");
  static_assert(!detail::contains(Needs, Collective::all_reduce) || detail::HasAllReduce<C>,
                "Communicator: need all_reduce(span<T> values, Reduction = Reduction::sum) for "
                "float, double, int32_t, int64_t, uint64_t "
                "(docs/concepts/communicator.md)");
  static_assert(!detail::contains(Needs, Collective::reduce_scatter) || detail::HasReduceScatter<C>,
                "Communicator: need reduce_scatter(span<const T> send, span<T> receive, span<const "
                "size_t> counts) for float, double, "
                "int32_t, int64_t, uint64_t (docs/concepts/communicator.md)");
  static_assert(!detail::contains(Needs, Collective::broadcast) || detail::HasBroadcast<C>,
                "Communicator: need broadcast(span<T> values, int root) for every trivially "
                "copyable T (docs/concepts/communicator.md)");
  static_assert(!detail::contains(Needs, Collective::barrier) || detail::HasBarrier<C>,
                "Communicator: need barrier() (docs/concepts/communicator.md)");
  return Communicator<C, Needs>;
}

}}  // namespace tessera::v0
