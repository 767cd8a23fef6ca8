// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cases.hpp"
#include "settings.hpp"
#include "turns.hpp"

#include <nlohmann/json.hpp>

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lab {

inline constexpr std::size_t kStages = 6;
inline constexpr std::array<const char*, kStages> kStageNames{
    "route", "lookup", "exchange", "assemble", "exchange_gradients", "update"};

/// Milliseconds.
struct Percentiles {
  double best = 0, p10 = 0, p50 = 0, p90 = 0;
  /// (P90 - P10) / P50
  double spread() const { return p50 > 0 ? (p90 - p10) / p50 : 0; }
};
Percentiles percentiles_of(std::vector<double> values);

/// One rank of a case.
struct RankResult {
  std::array<double, kStages> stage_ms{}, wait_ms{};  ///< medians
  std::array<double, kStages> bytes{}, messages{};    ///< that it sends in a step, the mean
  std::array<double, 8> rows{};                       ///< of a step, by ReportedStage
  double predicted_bytes = 0;                         ///< of tables and optimizer state
  double link_ms = 0;                                 ///< of a step on a ghost's links, modelled
  double cache_rows = 0, fetched_rows = 0;            ///< of a step, asked for in caches; 0: none
  bool measured() const { return waited() > 0 || stage_ms[0] > 0; }
  double sent() const;
  double sent_messages() const;
  double waited() const;
};

/// Where a step that was predicted is expected, in milliseconds.
struct Interval {
  enum class From { nothing, run, documented };
  double low = 0, high = 0;
  From from = From::nothing;  ///< nothing: the run cannot tell
  std::size_t others = 0;     ///< cases of the run whose spread it is
};

/// One case, over all of its rounds.
struct Result {
  const Case* of = nullptr;
  std::string error;
  Percentiles step;                         ///< whole steps, without a barrier between stages
  std::array<Percentiles, kStages> stages;  ///< the slowest rank's
  std::vector<double> rounds;               ///< each one's median step
  std::vector<RankResult> ranks;
  double tables_bytes = 0, peak_bytes = 0;  ///< measured, of all ranks together
  double predicted_tables = 0;              ///< the same
  double predicted_ms = 0;                  ///< 0: the model does not know
  Interval interval;                        ///< of whole_ms, without a look at it
  double link_ms = 0;  ///< modelled, of the ghost that has most; no part of what is measured
  std::array<double, kStages> predicted_stage_ms{};

  /// Measured, and what links are modelled to take.
  double whole_ms() const { return step.p50 + link_ms; }
  double most_sent() const;
  double most_messages() const;
  double hit_rate() const;   ///< of rows behind caches, those that were there; below 0: no cache
  double fullest() const;    ///< predicted bytes of the fullest rank
  double imbalance() const;  ///< slowest rank over mean, in lookup and update
  bool wide() const;         ///< its spread hides what a prediction could be blamed for
};

/// Cases that differ in their plans alone, and what they say.
struct Group {
  std::string name;
  std::vector<const Result*> results;  ///< fastest first
  std::string answer;                  ///< a sentence
  double regret = 0;                   ///< the planner's plan over the fastest; 0: not known
};

struct Report {
  std::vector<Result> results;
  std::vector<Group> groups;
  Percentiles fixed_work;                      ///< the machine's own noise
  std::map<std::string, std::string> changes;  ///< by case: what --compare found
  std::string missing;                         ///< names the cases of the earlier run alone
};

/// Case rounds of an earlier results.json: each one's median step. Throws tessera::DataError.
std::map<std::string, std::vector<double>> read_old_rounds(const std::string& path,
                                                           const Batches& batches);

Report report_of(const Settings& settings, const std::vector<Case>& cases, const Rounds& rounds,
                 const std::map<std::string, std::vector<double>>& old);

/// Gives every prediction an interval: by how far the run's other cases are off, threads and ghosts
/// apart, without those of the same rectangles; where these are fewer than nine, by what is known of
/// constants that were measured on this machine (`own_constants`), if that is quiet.
void add_intervals(Report& report, bool own_constants);
/// What an interval holds, and where it is from.
std::string describe(const Interval& interval, bool ghosts);
/// The same of all intervals of a run, and why predictions have none: lines for a reader.
std::string interval_note(const Report& report);

/// The spread from which on a case cannot be told from one that is a quarter faster.
inline constexpr double kWide = 0.25;

/// For a terminal: at most 100 columns.
std::string text_of(const Report& report, const Settings& settings, const Batches& batches);
nlohmann::ordered_json json_of(const Report& report, const Settings& settings,
                               const Batches& batches);
std::string csv_of(const Report& report);
std::string page_of(const Report& report, const Settings& settings, const Batches& batches);

}  // namespace lab
