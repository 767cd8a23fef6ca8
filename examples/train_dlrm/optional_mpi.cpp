// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include "process_rank.hpp"

#include <tessera/comm/mpi_communicator.hpp>

namespace dlrm { namespace {

int launch_mpi(const Options& options, const std::function<void(Ranks&)>& job) {
  const auto run = [&](tessera::MpiCommunicator& mpi) {
    run_process(mpi, options, "mpirun", nullptr, job);
  };
  return tessera::run_mpi_rank(run, {.timeout = timeout_of(options)});
}

[[maybe_unused]] const bool added_mpi = launchers().emplace("mpi", &launch_mpi).second;

}  // namespace
}  // namespace dlrm
