// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tessera/comm/mpi_communicator.hpp>

#include <processes/outcome.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>

/// What the bodies of tests/processes use: ranks of MPI. Every rank runs the whole program.
namespace engine {

using Comm = tessera::MpiCommunicator;
using Options = tessera::MpiOptions;
inline constexpr bool skips_ranks = false;
inline constexpr std::uint32_t law_seeds = 3;
inline constexpr std::size_t piece_bytes = 13;
inline constexpr const char* options_name = "MpiOptions";

inline const tessera::MpiEnvironment& environment() {
  static const tessera::MpiEnvironment instance;
  return instance;
}

inline Comm world(Options options = {.timeout = std::chrono::seconds(60)}) {
  environment();
  return Comm(MPI_COMM_WORLD, options);
}

/// mpirun ends all ranks once one has exited with an error: all get the time to say what they know.
template <class Run>
int run_rank(Run run, Options options) {
  const int code = tessera::run_mpi_rank(run, options);
  if (code != 0) std::this_thread::sleep_for(std::chrono::milliseconds(500));
  return code;
}

/// Runs a skipped case of this program on three ranks.
inline processes::Outcome run_job(const std::string& test_case, const std::string& options = "") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string command = "timeout 200 mpirun -np 3 --oversubscribe --allow-run-as-root " +
                              options + " '" + self + "' --no-skip -nc -tc='" + test_case +
                              "' 2>&1";
  processes::Outcome outcome;
  std::FILE* const pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  char line[4096];
  while (std::fgets(line, sizeof(line), pipe) != nullptr) outcome.output += line;
  outcome.status = WEXITSTATUS(pclose(pipe));
  INFO(outcome.output);
  CHECK(outcome.status != 124);  // a hang
  return outcome;
}

}  // namespace engine
