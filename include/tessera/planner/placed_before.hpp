// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/planner/cut_options.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tessera { inline namespace v0 { namespace detail {

/// By where rows live. Members and not an array, for a plan that is made while compiling: compilers
/// count each call of an operator[] against their limit.
struct TierBytes {
  std::int64_t device = 0, host = 0, file = 0;

  constexpr std::int64_t& operator[](Tier tier) {
    return tier == Tier::device ? device : tier == Tier::host ? host : file;
  }
  constexpr std::int64_t operator[](Tier tier) const {
    return tier == Tier::device ? device : tier == Tier::host ? host : file;
  }
  constexpr void add(const PartCost& part, int times = 1) {
    if (part.tier != Tier::device) device += times * part.cache_bytes;
    (*this)[part.tier] += times * part.bytes;
  }
  constexpr void add(const TierBytes& other) {
    device += other.device, host += other.host, file += other.file;
  }
  constexpr void raise(const TierBytes& other) {
    device = std::max(device, other.device);
    host = std::max(host, other.host);
    file = std::max(file, other.file);
  }
  /// Returns the share of the fullest memory.
  constexpr double share_of(const TierBytes& room) const {
    const auto share = [](std::int64_t bytes, std::int64_t of) {
      return static_cast<double>(bytes) / std::max(static_cast<double>(of), 1.0);
    };
    return std::max({share(device, room.device), share(host, room.host), share(file, room.file)});
  }
};

/// What ranks carry before a plan's tables come, where a model is planned in rounds.
struct PlacedBefore {
  std::vector<StageLoad> loads{};  // by rank; none: nothing is there yet
  std::vector<double> seconds{};
  std::vector<TierBytes> bytes{};
  StageLoad base{};  // on every rank
  TierBytes base_bytes{};
  std::vector<Fee> fees{};
  StageLoad level{};  // what a mean rank will carry in the end: less is no peak
};

}}}  // namespace tessera::v0::detail
