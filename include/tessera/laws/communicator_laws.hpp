// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/communicator.hpp>
#include <tessera/laws/faults.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

/// The laws of a communicator, for any communicator and any test framework: `communicator_laws(c)`
/// runs on all ranks at once and returns what each rank found wrong. Every expectation is computed
/// from (seed, rank) alone, without communication.
namespace tessera { inline namespace v0 { namespace laws {

/// How many rounds communicator_laws tries, how large, and whether sums are in rank order.
struct CommunicatorLawOptions {
  std::uint32_t seed = 1;
  int rounds = 4;               ///< of every law, with other sizes
  std::size_t large = 100'000;  ///< elements in the largest buffers
  /// False for a communicator that adds floats in an order of its own: sums may then differ by
  /// rounding, but not from rank to rank.
  bool rank_order = true;
};

namespace detail {

struct Bytes3 {
  unsigned char bytes[3];
  friend bool operator==(const Bytes3&, const Bytes3&) = default;
};

/// Returns the value of element `i` of what `from` sends to `to`: all different, and exact in every
/// element type.
template <class T>
T value(std::uint32_t seed, int from, int to, std::size_t i) {
  const auto mixed =
      static_cast<std::uint32_t>((seed * 31u + static_cast<std::uint32_t>(from)) * 31u +
                                 static_cast<std::uint32_t>(to)) *
          2654435761u +
      static_cast<std::uint32_t>(i) * 40503u;
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(mixed >> 8);
  } else {
    T result{};
    std::memcpy(&result, &mixed, sizeof(T) < sizeof(mixed) ? sizeof(T) : sizeof(mixed));
    return result;
  }
}

/// Returns a float whose sums depend on the order of addition, of either sign and very different
/// sizes.
template <class T>
T rough(std::uint32_t seed, int rank, std::size_t i) {
  std::minstd_rand random(seed * 7919u + static_cast<std::uint32_t>(rank) * 104729u +
                          static_cast<std::uint32_t>(i) * 31u + 1u);
  random.discard(3);
  const auto mantissa = static_cast<std::int64_t>(random() % 20001) - 10000;
  if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(static_cast<double>(mantissa) * 1.1 *
                          static_cast<double>(std::uint64_t{1} << (random() % 30)));
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(mantissa);
  } else {
    return static_cast<T>(mantissa + 10000);
  }
}

/// Returns the size for a (from, to) pair; the same on every rank. Kinds: all empty, random with
/// many zeros, one large, all to one rank.
inline std::size_t pair_count(const CommunicatorLawOptions& options, int round, int from, int to) {
  const std::uint32_t seed = options.seed + static_cast<std::uint32_t>(round);
  const std::uint32_t random = value<std::uint32_t>(seed, from, to, 17);
  switch (round % 4) {
    case 0:
      return random % 3 == 0 ? 0 : random % 50;
    case 1:
      return 0;
    case 2:
      return from == 0 && to == 0 ? options.large : random % 7;
    default:
      return to == 0 ? random % 1000 : 0;
  }
}

template <class T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// Returns the rank-order reduction of `rough` values over all ranks.
template <class T>
T reduced(std::uint32_t seed, int ranks, std::size_t i, Reduction reduction) {
  T result = rough<T>(seed, 0, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const T other = rough<T>(seed, rank, i);
    if (reduction == Reduction::sum) result = static_cast<T>(result + other);
    if (reduction == Reduction::min && other < result) result = other;
    if (reduction == Reduction::max && result < other) result = other;
  }
  return result;
}

/// Returns whether a sum of `rough` values is near enough to the one in rank order: a few roundings
/// of the largest partial sums.
template <class T>
bool sum_holds(const CommunicatorLawOptions& options, int ranks, std::size_t i, T found,
               T expected) {
  if (options.rank_order || !std::is_floating_point_v<T>) return same_bits(found, expected);
  double sizes = 0;
  for (int rank = 0; rank < ranks; ++rank)
    sizes += std::abs(static_cast<double>(rough<T>(options.seed, rank, i)));
  return std::abs(static_cast<double>(found) - static_cast<double>(expected)) <=
         sizes * ranks * static_cast<double>(std::numeric_limits<T>::epsilon());
}

template <class T, class C>
void all_to_all_law(C& c, const CommunicatorLawOptions& options, Faults& faults) {
  for (int round = 0; round < options.rounds; ++round) {
    std::vector<std::size_t> send_counts, receive_counts;
    std::vector<T> send, expected;
    for (int peer = 0; peer < c.size(); ++peer) {
      send_counts.push_back(pair_count(options, round, c.rank(), peer));
      receive_counts.push_back(pair_count(options, round, peer, c.rank()));
      for (std::size_t i = 0; i < send_counts.back(); ++i)
        send.push_back(value<T>(options.seed, c.rank(), peer, i));
      for (std::size_t i = 0; i < receive_counts.back(); ++i)
        expected.push_back(value<T>(options.seed, peer, c.rank(), i));
    }
    std::vector<T> received(expected.size());
    const std::vector<T> sent = send;
    c.all_to_all(std::span<const T>(send), send_counts, std::span<T>(received), receive_counts);
    faults.expect(received == expected,
                  "all_to_all, round {}: rank {} received something else than its peers sent",
                  round, c.rank());
    faults.expect(send == sent, "all_to_all, round {}: the send buffer of rank {} has changed",
                  round, c.rank());
    // The send buffer is free on return: overwriting it must reach no rank.
    for (T& element : send) element = value<T>(options.seed + 99, 0, 0, 0);
  }
}

template <class T, class C>
void all_gather_law(C& c, const CommunicatorLawOptions& options, Faults& faults) {
  for (int round = 0; round < options.rounds; ++round) {
    std::vector<std::size_t> counts;
    std::vector<T> expected;
    for (int peer = 0; peer < c.size(); ++peer) {
      counts.push_back(pair_count(options, round, peer, 0));
      for (std::size_t i = 0; i < counts.back(); ++i)
        expected.push_back(value<T>(options.seed, peer, 1, i));
    }
    std::vector<T> send, received(expected.size());
    for (std::size_t i = 0; i < counts[static_cast<std::size_t>(c.rank())]; ++i)
      send.push_back(value<T>(options.seed, c.rank(), 1, i));
    c.all_gather(std::span<const T>(send), std::span<T>(received), counts);
    faults.expect(received == expected,
                  "all_gather, round {}: rank {} received something else than its peers sent",
                  round, c.rank());
  }
}

template <class T, class C>
void all_reduce_law(C& c, const CommunicatorLawOptions& options, Faults& faults) {
  for (const Reduction reduction : {Reduction::sum, Reduction::min, Reduction::max})
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{5}, std::size_t{2500}}) {
      std::vector<T> values;
      for (std::size_t i = 0; i < size; ++i) values.push_back(rough<T>(options.seed, c.rank(), i));
      c.all_reduce(std::span<T>(values), reduction);
      for (std::size_t i = 0; i < size; ++i) {
        const T expected = reduced<T>(options.seed, c.size(), i, reduction);
        const bool holds = reduction == Reduction::sum
                               ? sum_holds(options, c.size(), i, values[i], expected)
                               : same_bits(values[i], expected);
        faults.expect(holds,
                      "all_reduce, {} of {}: element {} on rank {} is {}, in rank order it is {}",
                      tessera::detail::name_of(reduction), size, i, c.rank(), values[i], expected);
      }
    }
}

template <class T, class C>
void reduce_scatter_law(C& c, const CommunicatorLawOptions& options, Faults& faults) {
  for (int round = 0; round < options.rounds; ++round) {
    std::vector<std::size_t> counts;
    std::size_t total = 0, begin = 0;
    for (int peer = 0; peer < c.size(); ++peer) {
      if (peer == c.rank()) begin = total;
      counts.push_back(pair_count(options, round, peer, 0) % 5000);
      total += counts.back();
    }
    std::vector<T> send, received(counts[static_cast<std::size_t>(c.rank())]);
    for (std::size_t i = 0; i < total; ++i) send.push_back(rough<T>(options.seed, c.rank(), i));
    c.reduce_scatter(std::span<const T>(send), std::span<T>(received), counts);
    for (std::size_t i = 0; i < received.size(); ++i) {
      const T expected = reduced<T>(options.seed, c.size(), begin + i, Reduction::sum);
      faults.expect(sum_holds(options, c.size(), begin + i, received[i], expected),
                    "reduce_scatter, round {}: element {} on rank {} is {}, in rank order it is {}",
                    round, i, c.rank(), received[i], expected);
    }
  }
}

template <class T, class C>
void broadcast_law(C& c, const CommunicatorLawOptions& options, Faults& faults) {
  for (int root = 0; root < c.size(); ++root)
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{1000}}) {
      std::vector<T> values(size), expected;
      for (std::size_t i = 0; i < size; ++i) expected.push_back(value<T>(options.seed, root, 0, i));
      if (c.rank() == root) values = expected;
      c.broadcast(std::span<T>(values), root);
      faults.expect(values == expected,
                    "broadcast of {} elements from rank {}: rank {} has something else", size, root,
                    c.rank());
    }
}

}  // namespace detail

/// Runs the laws of every collective that `c` offers. Call it on all ranks; returns this rank's
/// faults, none if the laws hold.
template <class C>
std::vector<std::string> communicator_laws(C& c, CommunicatorLawOptions options = {}) {
  detail::Faults faults;
  faults.expect(c.size() >= 1, "size() is {}", c.size());
  faults.expect(c.rank() >= 0 && c.rank() < c.size(), "rank() is {}, size() is {}", c.rank(),
                c.size());
  const auto for_types = [&]<class... T>(auto law, std::type_identity<T>... types) {
    (law(types), ...);
  };
  const auto for_exchangeable = [&](auto law) {
    for_types(law, std::type_identity<float>{}, std::type_identity<double>{},
              std::type_identity<std::int32_t>{}, std::type_identity<std::int64_t>{},
              std::type_identity<std::uint64_t>{}, std::type_identity<std::uint8_t>{},
              std::type_identity<detail::Bytes3>{});
  };
  const auto for_reducible = [&](auto law) {
    for_types(law, std::type_identity<float>{}, std::type_identity<double>{},
              std::type_identity<std::int32_t>{}, std::type_identity<std::int64_t>{},
              std::type_identity<std::uint64_t>{});
  };
  if constexpr (tessera::detail::HasAllToAll<C>)
    for_exchangeable(
        [&]<class T>(std::type_identity<T>) { detail::all_to_all_law<T>(c, options, faults); });
  if constexpr (tessera::detail::HasAllGather<C>)
    for_exchangeable(
        [&]<class T>(std::type_identity<T>) { detail::all_gather_law<T>(c, options, faults); });
  if constexpr (tessera::detail::HasAllReduce<C>)
    for_reducible(
        [&]<class T>(std::type_identity<T>) { detail::all_reduce_law<T>(c, options, faults); });
  if constexpr (tessera::detail::HasReduceScatter<C>)
    for_reducible(
        [&]<class T>(std::type_identity<T>) { detail::reduce_scatter_law<T>(c, options, faults); });
  if constexpr (tessera::detail::HasBroadcast<C>)
    for_exchangeable(
        [&]<class T>(std::type_identity<T>) { detail::broadcast_law<T>(c, options, faults); });
  if constexpr (tessera::detail::HasBarrier<C>) c.barrier();
  return faults.take();
}

}}}  // namespace tessera::v0::laws
