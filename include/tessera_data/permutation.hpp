// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/random.hpp>

#include <cstdint>
#include <utility>

namespace tessera { inline namespace v0 {

/// A random order of [0, n) that any rank reads at any place: a Feistel network over the next power
/// of four, walked until the value falls into the range.
class Permutation {
 public:
  Permutation(std::int64_t n, std::uint64_t key) : n_(static_cast<std::uint64_t>(n)), key_(key) {
    while ((std::uint64_t{1} << (2 * half_)) < n_) ++half_;
  }
  /// Returns the place of i, in [0, n).
  std::int64_t operator()(std::int64_t i) const {
    auto x = static_cast<std::uint64_t>(i);
    do x = once(x);
    while (x >= n_);
    return static_cast<std::int64_t>(x);
  }

 private:
  std::uint64_t once(std::uint64_t x) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_) - 1;
    std::uint64_t left = x >> half_, right = x & mask;
    for (int round = 0; round < 4; ++round)
      left = std::exchange(right, left ^ (random_word(key_, round, right) & mask));
    return left << half_ | right;
  }
  std::uint64_t n_, key_;
  int half_ = 1;
};

}}  // namespace tessera::v0
