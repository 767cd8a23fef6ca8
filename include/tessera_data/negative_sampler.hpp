// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/jagged.hpp>
#include <tessera/core/random.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 {

/// Draws items with probabilities that grow with how often they occur: (count + 1)^power, or all
/// alike. A draw depends on (seed, step, number) alone, so that all ranks draw the same ones. One
/// draw takes constant time (Walker's alias method).
class NegativeSampler {
 public:
  /// Draws all items alike.
  NegativeSampler(std::int64_t items, std::uint64_t seed)
      : NegativeSampler(std::vector<std::int64_t>(static_cast<std::size_t>(checked(items))), 0,
                        seed) {}
  /// Draws by `counts`: how often each item occurs. `power`: 0 draws all alike, 1 as they occur.
  NegativeSampler(std::span<const std::int64_t> counts, double power, std::uint64_t seed)
      : seed_(seed), keep_(counts.size()), alias_(counts.size()), log_(counts.size()) {
    checked(static_cast<std::int64_t>(counts.size()));
    require(power >= 0 && power <= 8, "NegativeSampler: power ({}) must be 0 .. 8", power);
    std::vector<double> share(counts.size());
    double sum = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      require(counts[i] >= 0, "NegativeSampler: item {} occurs {} times", i, counts[i]);
      sum += share[i] = std::pow(static_cast<double>(counts[i]) + 1, power);
    }
    std::vector<std::size_t> small, large;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      log_[i] = static_cast<float>(std::log(share[i] / sum));
      share[i] *= static_cast<double>(counts.size()) / sum;
      (share[i] < 1 ? small : large).push_back(i);
    }
    while (!small.empty() && !large.empty()) {
      const std::size_t i = small.back(), from = large.back();
      small.pop_back();
      keep_[i] = share[i], alias_[i] = static_cast<std::int32_t>(from);
      share[from] -= 1 - share[i];
      if (share[from] >= 1) continue;
      large.pop_back();
      small.push_back(from);
    }
    // what is left is 1, to rounding
    for (const auto& rest : {small, large})
      for (const std::size_t i : rest) keep_[i] = 1, alias_[i] = static_cast<std::int32_t>(i);
  }

  std::int64_t items() const { return static_cast<std::int64_t>(keep_.size()); }

  /// Draws the items of a step, with replacement.
  template <IdType Id>
  void draw(std::int64_t step, std::span<Id> out) const {
    for (std::size_t k = 0; k < out.size(); ++k) {
      const auto i = static_cast<std::size_t>(below(random_word(seed_, step, 2 * k)));
      const double u = static_cast<double>(random_word(seed_, step, 2 * k + 1) >> 11) * 0x1p-53;
      out[k] = static_cast<Id>(u < keep_[i] ? static_cast<std::int32_t>(i) : alias_[i]);
    }
  }

  /// Returns the logarithm of the probability that a draw is this item: the log-Q correction
  /// subtracts it.
  float log_probability(std::int64_t item) const { return log_.at(static_cast<std::size_t>(item)); }

 private:
  static std::int64_t checked(std::int64_t items) {
    require(items > 0 && items <= std::numeric_limits<std::int32_t>::max(),
            "NegativeSampler: {} items; must be 1 .. 2^31 - 1", items);
    return items;
  }
  std::uint64_t below(std::uint64_t word) const { return ((word >> 32) * keep_.size()) >> 32; }

  std::uint64_t seed_;
  std::vector<double> keep_;         ///< that a drawn slot gives its own item
  std::vector<std::int32_t> alias_;  ///< else this one
  std::vector<float> log_;
};

/// Draws at most `count` distinct items uniformly from those not in `without` (sorted): all there
/// are where those are fewer. A function of the seed.
template <IdType Id>
std::vector<Id> draw_unseen(std::int64_t items, std::span<const Id> without, std::int64_t count,
                            std::uint64_t seed) {
  require(items > 0 && count >= 0, "draw_unseen: {} of {} items", count, items);
  require(std::is_sorted(without.begin(), without.end()),
          "draw_unseen: the items left out must be sorted");
  count = std::min(count, items);
  const auto is_out = [&](Id item) {
    return std::binary_search(without.begin(), without.end(), item);
  };
  std::vector<Id> drawn;
  if (count + std::ssize(without) >= items / 2) {
    // a shuffle of all that are left
    for (std::int64_t i = 0; i < items; ++i)
      if (!is_out(static_cast<Id>(i))) drawn.push_back(static_cast<Id>(i));
    const std::size_t kept = std::min(drawn.size(), static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < kept; ++i)
      std::swap(drawn[i], drawn[i + random_word(seed, i) % (drawn.size() - i)]);
    drawn.resize(kept);
    return drawn;
  }
  std::vector<Id> sorted;  // at most half of all draws are in vain
  for (std::uint64_t i = 0; std::ssize(drawn) < count; ++i) {
    const auto item = static_cast<Id>(random_word(seed, i) % static_cast<std::uint64_t>(items));
    const auto place = std::lower_bound(sorted.begin(), sorted.end(), item);
    if (is_out(item) || (place != sorted.end() && *place == item)) continue;
    sorted.insert(place, item);
    drawn.push_back(item);
  }
  return drawn;
}

}}  // namespace tessera::v0
