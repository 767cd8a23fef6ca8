// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera_data/histories.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera { inline namespace v0 {

/// How many users and items SyntheticHistories has, and their law.
struct SyntheticHistoriesOptions {
  std::int64_t users = 2'000;
  std::int64_t items = 500;
  std::int64_t min_length = 20, max_length = 50;  ///< events of a user: uniform between them
  int lags = 1;            ///< an event follows one of so many before it, by even chances
  double follow = 0.8;     ///< how often an event follows the law, if that is possible
  double label_logit = 2;  ///< of an event that follows; minus it of one that does not
  std::uint64_t seed = 0;
};

/// Made-up histories with a law that a model can find. Each item has four successors, likely by
/// 0.4, 0.3, 0.2 and 0.1. An event follows the last one, or one of the last `lags`: its item is a
/// successor of that one's; else it is any item. No user has an item twice: if that would be,
/// any new item comes. The label says, with noise, whether an event follows. A
/// user's events depend on (seed, user) alone, and are in memory.
class SyntheticHistories {
 public:
  explicit SyntheticHistories(SyntheticHistoriesOptions options = {}) : options_(options) {
    require(options.users > 0 && options.min_length > 0 && options.min_length <= options.max_length,
            "SyntheticHistories: {} users of {} to {} events", options.users, options.min_length,
            options.max_length);
    require(options.items >= 2 * options.max_length && options.items < (std::int64_t{1} << 31),
            "SyntheticHistories: {} items; must be at least twice max_length ({}), below 2^31",
            options.items, options.max_length);
    require(options.lags > 0, "SyntheticHistories: lags ({}) must be positive", options.lags);
    require(options.follow >= 0 && options.follow <= 1,
            "SyntheticHistories: follow ({}) must be in [0, 1]", options.follow);
    offsets_.push_back(0);
    for (std::int64_t user = 0; user < options.users; ++user) {
      add_user(user);
      offsets_.push_back(std::ssize(events_));
    }
  }

  /// Returns the histories, valid as long as this lives and stays where it is.
  Histories histories() const { return {events_, offsets_, options_.items}; }

  /// Computes for each item how likely the law makes it after these events of a user; but for
  /// chance, which may bring any item. Ranked by it, the items not yet seen are in the best model's
  /// order.
  void law(std::span<const HistoryEvent> before, std::span<float> scores) const {
    require(std::ssize(scores) == options_.items, "SyntheticHistories: {} scores for {} items",
            scores.size(), options_.items);
    std::fill(scores.begin(), scores.end(), 0.0f);
    const std::size_t n = before.size(), lags = lags_of(before);
    for (std::size_t lag = 1; lag <= lags; ++lag)
      for (int k = 0; k < successors; ++k)
        scores[static_cast<std::size_t>(successor(before[n - lag].item, k))] +=
            shares[k] * static_cast<float>(options_.follow) / static_cast<float>(lags);
  }

  /// Returns the true logit of an item's label after these events.
  double label_logit(std::span<const HistoryEvent> before, std::int32_t item) const {
    return follows(before, item) ? options_.label_logit : -options_.label_logit;
  }

 private:
  static constexpr int successors = 4;
  static constexpr float shares[successors] = {0.4f, 0.3f, 0.2f, 0.1f};

  std::int32_t successor(std::int32_t item, int k) const {
    const std::uint64_t word = random_word(options_.seed, 1, item, k);
    return static_cast<std::int32_t>(word % static_cast<std::uint64_t>(options_.items));
  }
  std::size_t lags_of(std::span<const HistoryEvent> before) const {
    return std::min(before.size(), static_cast<std::size_t>(options_.lags));
  }
  bool follows(std::span<const HistoryEvent> before, std::int32_t item) const {
    const std::size_t n = before.size();
    for (std::size_t lag = 1; lag <= lags_of(before); ++lag)
      for (int k = 0; k < successors; ++k)
        if (successor(before[n - lag].item, k) == item) return true;
    return false;
  }

  void add_user(std::int64_t user) {
    std::uint64_t draws = 0;
    const auto word = [&] { return random_word(options_.seed, 0, user, draws++); };
    const auto unit = [&] { return static_cast<double>(unit_float(word())); };
    const auto first = static_cast<std::ptrdiff_t>(events_.size());
    const std::int64_t length =
        options_.min_length +
        static_cast<std::int64_t>(
            word() % static_cast<std::uint64_t>(options_.max_length - options_.min_length + 1));
    std::int64_t time = static_cast<std::int64_t>(word() % 1'000'000);
    for (std::int64_t e = 0; e < length; ++e) {
      const std::span<const HistoryEvent> before(events_.begin() + first, events_.end());
      const auto seen = [&](std::int32_t item) {
        return std::ranges::find(before, item, &HistoryEvent::item) != before.end();
      };
      std::int32_t item = -1;
      if (e > 0 && unit() < options_.follow) {
        const std::size_t lag = 1 + word() % lags_of(before);
        double u = unit();
        int k = 0;
        while (k + 1 < successors && u >= shares[k]) u -= shares[k++];
        item = successor(before[before.size() - lag].item, k);
      }
      while (item < 0 || seen(item))
        item = static_cast<std::int32_t>(word() % static_cast<std::uint64_t>(options_.items));
      const double p = 1 / (1 + std::exp(-label_logit(before, item)));
      const float label = unit() < p ? 1.0f : 0.0f;
      events_.push_back({time, item, label});
      time += 1 + static_cast<std::int64_t>(word() % 10'000);
    }
  }

  SyntheticHistoriesOptions options_;
  std::vector<HistoryEvent> events_;
  std::vector<std::int64_t> offsets_;
};

}}  // namespace tessera::v0
