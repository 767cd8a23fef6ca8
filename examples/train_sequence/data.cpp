// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "data.hpp"

#include "../support/parquet.hpp"
#include "../support/report.hpp"

#include <tessera/core/error.hpp>
#include <tessera/core/random.hpp>
#include <tessera_data/metrics.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

namespace sequence {

using namespace tessera;

Data::Data(const Options& options) {
  if (options.data.empty()) {
    made_up_.emplace(SyntheticHistoriesOptions{.users = options.users,
                                               .items = options.items,
                                               .max_length = kLongestMadeUp,
                                               .seed = options.seed});
    histories_ = made_up_->histories();
    description_ = "made-up histories";
    checksum_ = random_word(options.seed, options.users, options.items);
  } else {
    file_.emplace(options.data,
                  HistoryReaderOptions{
                      .user = options.user_column,
                      .item = options.item_column,
                      .time = options.time_column,
                      .label = options.label_column,
                      .separator = options.format.separator,
                      .quote = options.format.quote,
                      .columns = options.format.columns,
                      .empty_words = options.format.empty_words,
                      .before_option = "--",
                      .after_option = "-column",
                      .bad_lines = options.skip_bad_lines ? BadLines::skip : BadLines::fatal,
                      .memory_bytes = static_cast<std::size_t>(options.sort_memory_mib) << 20,
                      .temporary_folder = options.temporary_folder,
                      .open = support::open_records()});
    histories_ = file_->histories();
    description_ = options.data;
    if (file_->on_disk()) description_ += ", sorted on disk";
    if (file_->bad_lines() > 0)
      description_ += fmt::format(", without {} bad lines, the first: {}", file_->bad_lines(),
                                  file_->first_bad_line());
    checksum_ = file_->checksum();
    has_labels_ = !options.label_column.empty();
  }
  description_ += fmt::format(
      "; {} users, {} items, {} events", support::grouped(histories_.users()),
      support::grouped(histories_.items), support::grouped(std::ssize(histories_.events)));
  split(options);
}

void Data::split(const Options& options) {
  const auto samples = [&](std::vector<HistoryRange> ranges) {
    return HistorySamples(histories_, std::move(ranges), options.seed);
  };
  if (options.test_window == 0) {
    train_ = samples(leave_one_out(histories_, HistoryPart::train, options.max_length));
    validation_ = samples(leave_one_out(histories_, HistoryPart::validation, options.max_length));
    test_ = samples(leave_one_out(histories_, HistoryPart::test, options.max_length));
    require<DataError>(train_->size() > 0,
                       "data '{}': no user has the four events that a training sample, a "
                       "validation and a test need",
                       description_);
    return;
  }
  const auto [first, last] = std::ranges::minmax(histories_.events, {}, &HistoryEvent::time);
  // times may lie at both ends of 64 bits
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min(),
                         kMost = std::numeric_limits<std::int64_t>::max();
  require<DataError>(last.time < kMost,
                     "data '{}': the time {} is the largest of 64 bits, which "
                     "no --test-window can end behind; mend it",
                     description_, last.time);
  const std::int64_t end = last.time + 1, two_windows = 2 * options.test_window;
  require<DataError>(end >= kLeast + two_windows && first.time < end - two_windows,
                     "data '{}': times go from {} to {}; no event is before the two windows of {} "
                     "of --test-window",
                     description_, first.time, last.time, options.test_window);
  const std::int64_t test = end - options.test_window, validation = test - options.test_window;
  train_ = samples(time_window(histories_, first.time, validation, options.max_length));
  // so that a target has at least half of the history that it may have
  const std::int64_t most_targets = (options.max_length + 1) / 2;
  validation_ =
      samples(time_window(histories_, validation, test, options.max_length, most_targets));
  test_ = samples(time_window(histories_, test, end, options.max_length, most_targets));
  require<DataError>(train_->size() > 0 && test_->size() > 0,
                     "data '{}': {} histories to train on and {} to test on; choose another "
                     "--test-window",
                     description_, train_->size(), test_->size());
}

std::vector<std::int64_t> Data::item_counts() const {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(histories_.items));
  for (const HistoryRange& range : train_->ranges())
    for (std::int64_t e = range.target; e < range.end; ++e)
      ++counts[static_cast<std::size_t>(
          histories_.of(range.user)[static_cast<std::size_t>(e)].item)];
  return counts;
}

std::optional<RankingMetrics> Data::best_ranking() const {
  if (!made_up_) return {};
  RankingMetrics metrics;
  std::vector<float> scores(static_cast<std::size_t>(histories_.items));
  std::vector<std::int32_t> seen;
  for (const HistoryRange& range : test_->ranges())
    for (std::int64_t e = range.target; e < range.end; ++e) {
      const auto events = histories_.of(range.user);
      const auto before = events.first(static_cast<std::size_t>(e));
      made_up_->law(before, scores);
      // what chance brings is in no order: less than any likelihood
      for (std::size_t i = 0; i < scores.size(); ++i)
        scores[i] += 1e-6f * unit_float(random_word(1, range.user, i));
      seen.clear();
      for (const HistoryEvent& event : before) seen.push_back(event.item);
      metrics.add(rank_of(std::span<const float>(scores), events[static_cast<std::size_t>(e)].item,
                          std::span<const std::int32_t>(seen)));
    }
  return metrics;
}

std::optional<double> Data::best_auc() const {
  if (!made_up_) return {};
  Auc auc;
  for (const HistoryRange& range : test_->ranges()) {
    const auto events = histories_.of(range.user);
    for (std::int64_t e = range.target; e < range.end; ++e) {
      const HistoryEvent& event = events[static_cast<std::size_t>(e)];
      const auto logit = static_cast<float>(
          made_up_->label_logit(events.first(static_cast<std::size_t>(e)), event.item));
      auc.add(std::span(&logit, 1), std::span(&event.label, 1));
    }
  }
  return auc.value();
}

}  // namespace sequence
