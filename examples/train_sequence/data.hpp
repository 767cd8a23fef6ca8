// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "options.hpp"

#include <tessera_data/histories.hpp>
#include <tessera_data/history_reader.hpp>
#include <tessera_data/ranking_metrics.hpp>
#include <tessera_data/synthetic_histories.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sequence {

inline constexpr std::int64_t kLongestMadeUp = 50;  ///< events

/// Histories and what of them is for what. The same on all ranks, which share it.
class Data {
 public:
  /// Throws tessera::DataError for a file that can't be read, or holds nothing to train on.
  explicit Data(const Options& options);
  Data(const Data&) = delete;
  Data& operator=(const Data&) = delete;

  const tessera::Histories& histories() const { return histories_; }
  const tessera::HistorySamples& train() const { return *train_; }
  const tessera::HistorySamples& validation() const { return *validation_; }
  const tessera::HistorySamples& test() const { return *test_; }
  const std::string& description() const { return description_; }
  /// Tells data apart.
  std::uint64_t checksum() const { return checksum_; }
  /// What the histories were read from; null: they are made up.
  const tessera::HistoryReader* file() const { return file_ ? &*file_ : nullptr; }
  /// Whether labels tell more than that an event happened.
  bool has_labels() const { return has_labels_; }
  /// How often each item is to be predicted in training.
  std::vector<std::int64_t> item_counts() const;

  /// Of a model that knows the law of made-up histories; no value for those of a file.
  std::optional<tessera::RankingMetrics> best_ranking() const;
  std::optional<double> best_auc() const;

 private:
  void split(const Options& options);

  std::optional<tessera::HistoryReader> file_;
  std::optional<tessera::SyntheticHistories> made_up_;
  tessera::Histories histories_;
  std::optional<tessera::HistorySamples> train_, validation_, test_;
  std::string description_;
  std::uint64_t checksum_ = 0;
  bool has_labels_ = true;
};

}  // namespace sequence
