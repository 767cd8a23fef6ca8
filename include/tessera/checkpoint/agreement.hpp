// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/concepts/communicator.hpp>
#include <tessera/core/error.hpp>

#include <cstddef>
#include <exception>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// The collectives that checkpoints need.
inline constexpr Collective kCheckpointCollectives =
    Collective::all_gather | Collective::all_to_all;

/// Returns every rank's value, in rank order.
template <Exchangeable T, class Comm>
std::vector<T> gather_one(Comm& communicator, const T& value) {
  const std::vector<std::size_t> counts(static_cast<std::size_t>(communicator.size()), 1);
  std::vector<T> all(counts.size());
  communicator.all_gather(std::span<const T>(&value, 1), std::span<T>(all), counts);
  return all;
}

/// Returns all ranks' elements one rank after another.
template <Exchangeable T, class Comm>
std::vector<T> gather_all(Comm& communicator, std::span<const T> own) {
  const std::vector<std::size_t> counts = gather_one<std::size_t>(communicator, own.size());
  std::vector<T> all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  communicator.all_gather(own, std::span<T>(all), counts);
  return all;
}

/// Returns all ranks' elements one rank after another, on rank 0; elsewhere nothing.
template <Exchangeable T, class Comm>
std::vector<T> gather_on_first(Comm& communicator, std::span<const T> own) {
  std::vector<std::size_t> counts = gather_one<std::size_t>(communicator, own.size());
  std::vector<std::size_t> send(counts.size(), 0);
  send.front() = own.size();
  if (communicator.rank() != 0) counts.assign(counts.size(), 0);
  std::vector<T> all(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  communicator.all_to_all(own, send, std::span<T>(all), counts);
  return all;
}

/// Runs `work` on every rank. If it throws on any, all throw DataError with the text of the first
/// such rank: no rank is left waiting, and all know what happened. Errors of the communicator go
/// through unchanged.
template <class Comm, class Work>
void on_all_ranks(Comm& communicator, Work&& work) {
  std::string own;
  try {
    work();
  } catch (const CommunicatorError&) {
    throw;
  } catch (const std::exception& error) {
    own = error.what()[0] == '\0' ? "unknown error" : error.what();
  }
  const std::vector<std::size_t> sizes = gather_one<std::size_t>(communicator, own.size());
  if (std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}) == 0) return;
  std::string all(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}), '\0');
  communicator.all_gather(std::span<const char>(own), std::span<char>(all), sizes);
  std::size_t rank = 0;
  while (sizes[rank] == 0) ++rank;
  throw DataError(sizes.size() == 1 ? own
                                    : formatted("rank {}: {}", rank, all.substr(0, sizes[rank])));
}

}}}  // namespace tessera::v0::detail
