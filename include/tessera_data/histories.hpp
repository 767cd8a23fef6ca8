// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/core/error.hpp>
#include <tessera/core/jagged.hpp>
#include <tessera/core/random.hpp>
#include <tessera_data/permutation.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tessera { inline namespace v0 {

/// What a user did: when, with which item (a row, from 0), and what came of it.
struct HistoryEvent {
  std::int64_t time = 0;
  std::int32_t item = 0;
  float label = 1;
};

/// The events of all users, each user's in the order of time. A view of memory that others own.
struct Histories {
  std::span<const HistoryEvent> events;
  std::span<const std::int64_t> offsets;  ///< users + 1
  std::int64_t items = 0;                 ///< rows that the items' table needs

  std::int64_t users() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  std::span<const HistoryEvent> of(std::int64_t user) const {
    const auto u = static_cast<std::size_t>(user);
    return events.subspan(static_cast<std::size_t>(offsets[u]),
                          static_cast<std::size_t>(offsets[u + 1] - offsets[u]));
  }
};

/// Events [begin, end) of a user, of which [target, end) are to be predicted, each from those
/// before it: begin < target < end.
struct HistoryRange {
  std::int64_t user, begin, target, end;
  friend bool operator==(const HistoryRange&, const HistoryRange&) = default;
};

namespace detail {

/// Cuts events [first, end) of a user, all but his very first, into ranges: each event is a target
/// once, and a range has at most max_length events before its last one, and most_targets targets.
inline void add_ranges(std::int64_t user, std::int64_t first, std::int64_t end,
                       std::int64_t max_length, std::int64_t most_targets,
                       std::vector<HistoryRange>& ranges) {
  first = std::max<std::int64_t>(first, 1);
  while (end > first) {
    const std::int64_t begin = std::max<std::int64_t>(0, end - 1 - max_length);
    ranges.push_back({user, begin, std::max({first, begin + 1, end - most_targets}), end});
    end = ranges.back().target;
  }
}

inline void check_max_length(std::int64_t max_length) {
  require(max_length > 0, "a history's max_length ({}) must be positive", max_length);
}

}  // namespace detail

/// A part of a split.
enum class HistoryPart { train, validation, test };

/// Returns the ranges of "leave one out": a user's last event is the test, the one before it the
/// validation, and those before are for training. A user of two events has no validation, a user of
/// one has a training event that nothing comes before. In training all events but a user's first
/// are targets, once each; users with more than max_length + 1 have several ranges.
inline std::vector<HistoryRange> leave_one_out(const Histories& histories, HistoryPart part,
                                               std::int64_t max_length) {
  detail::check_max_length(max_length);
  std::vector<HistoryRange> ranges;
  for (std::int64_t user = 0; user < histories.users(); ++user) {
    const auto events = static_cast<std::int64_t>(histories.of(user).size());
    const std::int64_t test = std::max<std::int64_t>(events - 1, 1),
                       validation = std::max<std::int64_t>(events - 2, 1);
    const std::int64_t first = part == HistoryPart::train        ? 0
                               : part == HistoryPart::validation ? validation
                                                                 : test,
                       end = part == HistoryPart::train        ? validation
                             : part == HistoryPart::validation ? test
                                                               : events;
    detail::add_ranges(user, first, end, max_length, max_length, ranges);
  }
  return ranges;
}

/// Returns ranges: the events of times [begin, end) are targets, each once, what came before them
/// is their history: train on one window, evaluate on the next. A range has at most `most_targets`
/// targets (0: any number), each with max_length - most_targets + 1 events before it, if there are
/// so many.
inline std::vector<HistoryRange> time_window(const Histories& histories, std::int64_t begin,
                                             std::int64_t end, std::int64_t max_length,
                                             std::int64_t most_targets = 0) {
  detail::check_max_length(max_length);
  require(most_targets >= 0, "a range's most_targets ({}) must not be negative", most_targets);
  require(begin <= end, "a window of times must not end ({}) before it begins ({})", end, begin);
  std::vector<HistoryRange> ranges;
  for (std::int64_t user = 0; user < histories.users(); ++user) {
    const std::span<const HistoryEvent> events = histories.of(user);
    const auto place = [&](std::int64_t time) {
      return std::ranges::lower_bound(events, time, {}, &HistoryEvent::time) - events.begin();
    };
    detail::add_ranges(user, place(begin), place(end), max_length,
                       most_targets == 0 ? max_length : most_targets, ranges);
  }
  return ranges;
}

/// Events of several ranges, one range after another. All vectors may be filled by hand.
template <IdType Id>
struct HistoryBatch {
  std::int64_t size = 0;              ///< ranges
  std::vector<std::int64_t> users;    ///< [size]
  std::vector<std::int64_t> offsets;  ///< [size + 1]: the events of each range
  std::vector<std::int64_t> targets;  ///< [size]: how many of a range's last events are targets
  std::vector<Id> items;              ///< [events]
  std::vector<float> labels;          ///< [events]
  std::vector<std::int64_t> times;    ///< [events]
};

/// Ranges in a new random order each epoch, which depends on the seed alone: any rank reads any
/// part of it. Reading is thread-safe. The histories must stay where they are.
class HistorySamples {
 public:
  HistorySamples(Histories histories, std::vector<HistoryRange> ranges, std::uint64_t seed = 0)
      : histories_(histories), ranges_(std::move(ranges)), seed_(seed) {}

  std::int64_t size() const { return static_cast<std::int64_t>(ranges_.size()); }
  const std::vector<HistoryRange>& ranges() const { return ranges_; }
  const Histories& histories() const { return histories_; }
  std::int64_t targets() const {
    std::int64_t sum = 0;
    for (const HistoryRange& range : ranges_) sum += range.end - range.target;
    return sum;
  }

  /// Fills a batch with samples [first, first + count) of an epoch, in the order of that epoch.
  /// Throws InvalidArgument for samples that are not there.
  template <IdType Id>
  void batch(std::int64_t epoch, std::int64_t first, std::int64_t count,
             HistoryBatch<Id>& batch) const {
    const Permutation order(size(), random_word(seed_, epoch));
    fill(first, count, batch, [&](std::int64_t i) { return order(i); });
  }
  /// Fills a batch with samples [first, first + count) in the order of `ranges`.
  template <IdType Id>
  void in_order(std::int64_t first, std::int64_t count, HistoryBatch<Id>& batch) const {
    fill(first, count, batch, [](std::int64_t i) { return i; });
  }

 private:
  template <IdType Id, class Order>
  void fill(std::int64_t first, std::int64_t count, HistoryBatch<Id>& batch,
            const Order& order) const {
    require(first >= 0 && count >= 0 && first <= size() && count <= size() - first,
            "HistorySamples: samples [{}, {} + {}) are not among the {}", first, first, count,
            size());
    batch.size = count;
    batch.users.clear(), batch.targets.clear();
    batch.items.clear(), batch.labels.clear(), batch.times.clear();
    batch.offsets.assign(1, 0);
    for (std::int64_t i = first; i < first + count; ++i) {
      const HistoryRange& range = ranges_[static_cast<std::size_t>(order(i))];
      batch.users.push_back(range.user);
      batch.targets.push_back(range.end - range.target);
      for (const HistoryEvent& event :
           histories_.of(range.user)
               .subspan(static_cast<std::size_t>(range.begin),
                        static_cast<std::size_t>(range.end - range.begin))) {
        batch.items.push_back(static_cast<Id>(event.item));
        batch.labels.push_back(event.label);
        batch.times.push_back(event.time);
      }
      batch.offsets.push_back(static_cast<std::int64_t>(batch.items.size()));
    }
  }

  Histories histories_;
  std::vector<HistoryRange> ranges_;
  std::uint64_t seed_;
};

}}  // namespace tessera::v0
