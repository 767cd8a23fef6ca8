// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs on any number of ranks under mpirun; every rank runs every case.
#include <fmt/format.h>
#include <mpi/engine.hpp>

#include <processes/communicator_cases.hpp>

TEST_CASE("a communicator of the user's, split by node") {
  engine::environment();
  MPI_Comm users = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &users);
  ts::MpiCommunicator all(users);
  MPI_Comm_free(&users);  // the duplicate lives on
  ts::MpiCommunicator node = all.split_by_node();
  CHECK(node.size() >= 1);
  CHECK(node.size() <= all.size());
  std::int64_t sum = 1;
  node.all_reduce(std::span(&sum, 1));
  CHECK(sum == node.size());
  all.barrier();
}

TEST_CASE("colors are any numbers") {
  auto c = world();
  ts::MpiCommunicator part = c.split(c.rank() == 0 ? -3 : -1);
  CHECK(part.size() == (c.rank() == 0 ? 1 : c.size() - 1));
  CHECK(part.rank() == (c.rank() == 0 ? 0 : c.rank() - 1));
  std::int64_t sum = c.rank();
  part.all_reduce(std::span(&sum, 1));
  CHECK(sum == (c.rank() == 0 ? 0 : c.size() * (c.size() - 1) / 2));
}

TEST_CASE("bad input") {
  auto c = world();
  CHECK_THROWS_AS(ts::MpiCommunicator(MPI_COMM_WORLD, {.max_message_bytes = 0}),
                  ts::InvalidArgument);
  // No library offers more than several threads at once.
  const std::string text = text_of([] { const ts::MpiEnvironment more(MPI_THREAD_MULTIPLE + 1); });
  CHECK(has(text, fmt::format("but level {} is asked for; ask MpiEnvironment for less",
                              MPI_THREAD_MULTIPLE + 1)));
  float value = 0;
  CHECK_THROWS_AS(c.broadcast(std::span(&value, 1), c.size()), ts::InvalidArgument);
  const std::vector<std::size_t> counts(static_cast<std::size_t>(c.size()), 3);
  CHECK_THROWS_AS(c.all_gather(std::span<const float>(&value, 1), std::span(&value, 1), counts),
                  ts::InvalidArgument);
}
