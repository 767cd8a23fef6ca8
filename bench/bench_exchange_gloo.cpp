// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Ranks of Gloo: the all-to-all as a share of memcpy (see exchange.hpp). Start it with torchrun,
// srun or mpirun; rank 0 reports.
#include "exchange.hpp"

#include <tessera/comm/gloo_communicator.hpp>
#include <tessera/comm/job.hpp>
#include <tessera/comm/meeting.hpp>

#include <string>
#include <utility>

namespace ts = tessera;

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const ts::RankOfJob job = ts::rank_from_environment();
  return ts::run_gloo_rank(
      [](ts::GlooCommunicator& c) { ts::bench::run_on_processes(c, "gloo"); }, {}, job.rank,
      job.size, [&](std::string mine) { return ts::meet_at_rank_0(job, std::move(mine)); });
}
