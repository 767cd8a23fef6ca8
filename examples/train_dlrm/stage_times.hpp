// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "../support/files.hpp"
#include "run_log.hpp"
#include "spans.hpp"

#include <tessera/comm/any_communicator.hpp>
#include <tessera/step/step_report.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <sstream>
#include <string_view>

namespace dlrm {

/// What the parts of training took on one rank since the last report.
class StageTimes {
 public:
  enum Pause : std::size_t { test, save };

  /// Counts the time of a scope between steps.
  class Timed {
   public:
    Timed(StageTimes& times, Pause pause) : seconds_(times.sums_[of(kPauses[pause])]) {}
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;
    ~Timed() { seconds_ += Spans::now() - begin_; }

   private:
    double& seconds_;
    double begin_ = Spans::now();
  };

  /// A step that began at `began`: what ran before it, in a test, is not counted.
  void add(const tessera::StepReport& report, std::span<const Span> spans, double began) {
    for (const Span& span : spans)
      if (span.begin >= began) sums_[of(span.name)] += span.end - span.begin;
    for (std::size_t s = 0; s < tessera::detail::reported_stages.size(); ++s)
      sums_[of(tessera::detail::reported_stages[s])] += report.stages[s].seconds;
    sums_.back() += static_cast<double>(report.bytes());
  }

  struct Means {
    RunLog::Event seconds;  ///< of each stage per step, the mean over the ranks, by name
    double bytes_sent = 0;  ///< per step, of ids, vectors and gradients of tables, by all ranks
  };
  /// Since the last call. Collective.
  Means take(tessera::AnyCommunicator& communicator, std::int64_t steps) {
    communicator.all_reduce(std::span<double>(sums_));
    Means means{RunLog::Event::object(), sums_.back() / static_cast<double>(steps)};
    for (std::size_t s = 0; s < kNames.size(); ++s)
      if (sums_[s] > 0)
        means.seconds[kNames[s]] = sums_[s] / static_cast<double>(communicator.size() * steps);
    sums_ = {};
    return means;
  }

 private:
  static constexpr std::array<const char*, 2> kPauses{"test", "save"};
  /// In the order of a step. Ranks add them up, so that all must have the same.
  static constexpr std::array<std::string_view, 20> kNames{"read batch",
                                                           "route",
                                                           "bottom MLP",
                                                           "lookup",
                                                           "exchange",
                                                           "assemble",
                                                           "interaction",
                                                           "top MLP",
                                                           "top MLP, backward",
                                                           "interaction, backward",
                                                           "bottom MLP, backward",
                                                           "all-reduce",
                                                           "split",
                                                           "exchange_gradients",
                                                           "weight_gradients",
                                                           "update",
                                                           "dense optimizer",
                                                           "test",
                                                           "save",
                                                           "other"};
  static std::size_t of(std::string_view name) {
    const auto found = std::find(kNames.begin(), kNames.end() - 1, name);
    return static_cast<std::size_t>(found - kNames.begin());
  }

  std::array<double, kNames.size() + 1> sums_{};  ///< the last: bytes
};

/// Memory of this process that is in use, in bytes; 0 if the system does not tell.
inline std::int64_t resident_bytes() {
  std::int64_t all = 0, resident = 0;
  try {
    std::istringstream(support::read_file("/proc/self/statm")) >> all >> resident;
  } catch (const tessera::Error&) {  // as if no files are left: no reason to end a training
  }
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace dlrm
