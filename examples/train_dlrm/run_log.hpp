// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../support/event_file.hpp"
#include "metrics.hpp"
#include "options.hpp"

#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dlrm {

/// What happens in a run, one JSON object per event, each with the members `event` and `step`. With
/// --log it is written as a line when it happens, so that a run that is killed leaves what it knew.
class RunLog {
 public:
  using Event = nlohmann::ordered_json;

  /// Opens --log; with --resume it keeps what an earlier run wrote. Throws tessera::DataError for a
  /// file that cannot be written, or that is no log.
  explicit RunLog(const Options& options);
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;
  ~RunLog();

  /// Training goes on after `step` steps: what was written of later ones is dropped. A log that has
  /// the end of a training that has `ended` stays as it is.
  void go_on(std::int64_t step, bool ended);
  /// Adds an event; a test that is there, of the same step, is not added again. If the file cannot be
  /// written, warns once and throws DataError with the end; throws it with the begin at once.
  void add(Event event);
  const std::vector<Event>& events() const { return events_; }

  std::string plan_picture;  ///< SVG, for --report

 private:
  void read(const std::string& path);
  /// Drops from the file what is behind its events' lines.
  void shorten();

  /// Tells TensorBoard and Prometheus the numbers of a report or a test.
  void publish(const Event& event);

  std::optional<support::EventFile> tensorboard_;
  std::unique_ptr<MetricsServer> metrics_;
  std::map<std::string, double> latest_;  ///< of metrics_, by its name
  std::string path_;                      ///< empty: events are kept for --report alone
  std::string fault_;                     ///< why nothing is written to the file any more
  int file_ = -1;
  bool regular_ = false, goes_on_ = false;
  bool replaces_ = false;  ///< what is in the file, at the first event
  bool whole_ = false;     ///< nothing is to be added
  std::vector<Event> events_;
  std::vector<std::size_t> ends_;  ///< of each event's line in the file
};

/// --report: a page that needs nothing else, with loss, AUC and rates over steps, the time of each
/// stage, the plan and the options.
std::string run_page(const RunLog& log);

}  // namespace dlrm
