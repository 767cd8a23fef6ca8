// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Two-stage exchanges of MPI ranks: on three nodes of one rank, on one of three, and on the nodes
// that MPI sees. Runs under mpirun.
#include <tessera/comm/hierarchical_communicator.hpp>
#include <tessera/comm/mpi_communicator.hpp>

#include <doctest/doctest.h>

#include <tessera/laws/communicator_laws.hpp>

#include <string>
#include <vector>

namespace ts = tessera;

TEST_CASE("hierarchical MPI ranks obey the laws") {
  const ts::MpiEnvironment environment;
  ts::MpiCommunicator c;
  for (const int per_node : {1, c.size(), c.split_by_node().size()}) {
    if (c.size() % per_node != 0) continue;
    auto h = ts::make_hierarchical(c, per_node);
    CHECK(h.rank() == c.rank());
    CHECK(ts::laws::communicator_laws(h, {.seed = 3, .large = 20'000}) ==
          std::vector<std::string>{});
  }
  c.finish();
}
