// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// MPI ranks: the all-to-all as a share of memcpy (see exchange.hpp). Start it with mpirun; rank 0
// reports.
#include "exchange.hpp"

#include <tessera/comm/mpi_communicator.hpp>

namespace ts = tessera;

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  return ts::run_mpi_rank([](ts::MpiCommunicator& c) { ts::bench::run_on_processes(c, "mpi"); });
}
