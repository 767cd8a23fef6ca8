// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "run_log.hpp"

#include <tessera/comm/any_communicator.hpp>

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>

namespace dlrm {

/// What the parts of training took on one rank since the last report.
class StageTimes {
 public:
  enum Stage : std::size_t { read, step, test, save };

  /// Counts the time of a scope.
  class Timed {
   public:
    Timed(StageTimes& times, Stage stage) : seconds_(times.seconds_[stage]) {}
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;
    ~Timed() { seconds_ += std::chrono::duration<double>(Clock::now() - begin_).count(); }

   private:
    using Clock = std::chrono::steady_clock;
    double& seconds_;
    Clock::time_point begin_ = Clock::now();
  };

  /// Seconds of each stage per step, the mean over the ranks, by name; begins anew. Collective.
  RunLog::Event take(tessera::AnyCommunicator& communicator, std::int64_t steps) {
    communicator.all_reduce(std::span<double>(seconds_));
    RunLog::Event event = RunLog::Event::object();
    for (std::size_t s = 0; s < seconds_.size(); ++s)
      event[kNames[s]] = seconds_[s] / static_cast<double>(communicator.size() * steps);
    seconds_ = {};
    return event;
  }

 private:
  static constexpr std::array<const char*, 4> kNames{"read", "step", "test", "save"};
  std::array<double, kNames.size()> seconds_{};
};

/// Memory of this process that is in use, in bytes.
inline std::int64_t resident_bytes() {
  std::int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace dlrm
