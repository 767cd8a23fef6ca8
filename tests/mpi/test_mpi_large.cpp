// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// A block of more than 2^31 bytes, which MPI's int counts cannot name. Needs 5 GiB and some
// seconds: runs where TESSERA_LARGE_TESTS is set.
#include <tessera/comm/mpi_communicator.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <vector>

namespace ts = tessera;

TEST_CASE("a block above 2 GiB arrives whole") {
  if (std::getenv("TESSERA_LARGE_TESTS") == nullptr) std::exit(77);
  const ts::MpiEnvironment environment;
  ts::MpiCommunicator c;
  const auto ranks = static_cast<std::size_t>(c.size()), mine = static_cast<std::size_t>(c.rank());
  REQUIRE(ranks >= 2);
  constexpr std::size_t kSize = (std::size_t{1} << 31) + 12'345;
  const auto value = [](std::size_t i) {
    return static_cast<unsigned char>(i * 2654435761u >> 13);
  };
  std::vector<std::size_t> to(ranks), from(ranks);
  if (mine == 0) to[1] = kSize;
  if (mine == 1) from[0] = kSize;
  std::vector<unsigned char> send(mine == 0 ? kSize : 0), receive(mine == 1 ? kSize : 0);
  for (std::size_t i = 0; i < send.size(); ++i) send[i] = value(i);
  c.all_to_all(send, to, std::span(receive), from);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < receive.size(); ++i) wrong += receive[i] != value(i);
  CHECK(wrong == 0);
  c.finish();
}
