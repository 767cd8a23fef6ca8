// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/folder_meeting.hpp>
#include <tessera/comm/gloo_communicator.hpp>

#include <fmt/format.h>
#include <processes/outcome.hpp>
#include <support/temporary_folder.hpp>

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

/// What the bodies of tests/processes use: ranks of Gloo. This program starts itself once for each
/// rank, without a launcher; the ranks run skipped cases.
namespace engine {

using Comm = tessera::GlooCommunicator;
using Options = tessera::GlooOptions;
inline constexpr bool skips_ranks = true;
inline constexpr std::uint32_t law_seeds = 1;
inline constexpr std::size_t piece_bytes = 101;
inline constexpr const char* options_name = "GlooOptions";

/// What this process has been started as.
struct Place {
  int rank = 0, size = 1;
  std::string folder;
};
inline const Place& place() {
  static const Place instance = [] {
    Place here;
    const char* const said = std::getenv("TESSERA_TEST_RANK");
    REQUIRE(said != nullptr);
    std::istringstream(said) >> here.rank >> here.size >> here.folder;
    return here;
  }();
  return instance;
}

/// A meeting of all ranks, each time in another folder.
inline tessera::GlooMeeting meeting(std::chrono::nanoseconds timeout = std::chrono::seconds(30)) {
  static int meetings = 0;
  const std::string folder = place().folder + "/meeting_" + std::to_string(meetings++);
  return tessera::meet_in_folder(folder, place().rank, place().size, timeout);
}

inline Comm world(const Options& options = {.timeout = std::chrono::seconds(60)}) {
  return Comm(options, place().rank, place().size, meeting());
}

template <class Run>
int run_rank(Run run, const Options& options) {
  return tessera::run_gloo_rank(run, options, place().rank, place().size, meeting());
}

/// Processes that each run the cases of a name as a rank. Those that are left are killed.
class Job {
 public:
  Job(const std::string& test_case, int ranks) {
    const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string place = fmt::format("{} {} {}", rank, ranks, folder_.path.string());
      const std::string filter = "-tc=" + test_case;
      const std::string output = output_of(rank);
      const pid_t child = fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        setenv("TESSERA_TEST_RANK", place.c_str(), 1);
        const int file = open(output.c_str(), O_WRONLY | O_CREAT, 0600);
        dup2(file, 1);
        dup2(file, 2);
        execl(self.c_str(), self.c_str(), "--no-skip", "-nc", filter.c_str(), nullptr);
        _exit(126);
      }
      children_.push_back(child);
      statuses_.push_back(-1);
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() {
    for (std::size_t rank = 0; rank < children_.size(); ++rank) {
      if (statuses_[rank] >= 0) continue;
      signal(static_cast<int>(rank), SIGKILL);
      waitpid(children_[rank], nullptr, 0);
    }
  }

  int ranks() const { return static_cast<int>(children_.size()); }
  void signal(int rank, int number) const {
    kill(children_[static_cast<std::size_t>(rank)], number);
  }
  std::filesystem::path folder() const { return folder_.path; }

  /// Returns whether all ranks but one (-1: but none) ended within `time`.
  bool ends(std::chrono::milliseconds time, int but = -1) {
    const auto deadline = std::chrono::steady_clock::now() + time;
    for (;;) {
      bool all = true;
      for (std::size_t rank = 0; rank < children_.size(); ++rank) {
        int status = 0;
        if (statuses_[rank] < 0 && waitpid(children_[rank], &status, WNOHANG) == children_[rank])
          statuses_[rank] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        all = all && (statuses_[rank] >= 0 || static_cast<int>(rank) == but);
      }
      if (all || std::chrono::steady_clock::now() >= deadline) return all;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  /// Of a rank that has ended: its exit code, or 128 and the number of the signal.
  int status(int rank) const { return statuses_[static_cast<std::size_t>(rank)]; }
  /// Returns what a rank has printed.
  processes::Outcome outcome(int rank) const {
    std::ifstream file(output_of(rank));
    return {std::string(std::istreambuf_iterator<char>(file), {}), status(rank)};
  }

 private:
  std::string output_of(int rank) const {
    return (folder_.path / ("output_" + std::to_string(rank))).string();
  }

  TemporaryFolder folder_;
  std::vector<pid_t> children_;
  std::vector<int> statuses_;
};

/// Runs the skipped cases of a name on `ranks` ranks and returns what all print.
inline processes::Outcome run_job(const std::string& test_case, int ranks = 3) {
  Job job(test_case, ranks);
  const bool ended = job.ends(std::chrono::seconds(200));
  processes::Outcome all;
  for (int rank = 0; rank < ranks; ++rank) {
    const processes::Outcome one = job.outcome(rank);
    all.output += one.output;
    if (one.status != 0) all.status = one.status;
  }
  INFO(all.output);
  CHECK(ended);
  return all;
}

}  // namespace engine
