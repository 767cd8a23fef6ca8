// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Runs on any number of ranks under mpirun; every rank runs every case.
#include <tessera/comm/mpi_communicator.hpp>

#include <doctest/doctest.h>

#include <tessera/laws/communicator_laws.hpp>

#include <string>
#include <vector>

namespace ts = tessera;
using namespace std::chrono_literals;
using Faults = std::vector<std::string>;

namespace {

const ts::MpiEnvironment& environment() {
  static const ts::MpiEnvironment instance;
  return instance;
}

ts::MpiCommunicator world(ts::MpiOptions options = {.timeout = 60s}) {
  environment();
  return ts::MpiCommunicator(MPI_COMM_WORLD, options);
}

std::string text_of(const auto& function) {
  try {
    function();
  } catch (const ts::CommunicatorError& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("MPI ranks obey the laws") {
  auto c = world();
  for (std::uint32_t seed = 1; seed <= 3; ++seed)
    CHECK(ts::laws::communicator_laws(c, {.seed = seed}) == Faults{});
  c.finish();
}

TEST_CASE("messages in pieces: what blocks above 2 GiB go through") {
  auto c = world({.timeout = 60s, .max_message_bytes = 13});
  CHECK(ts::laws::communicator_laws(c, {.seed = 4, .large = 300}) == Faults{});
}

TEST_CASE("a communicator of the user's, split") {
  environment();
  MPI_Comm users = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &users);
  ts::MpiCommunicator all(users);
  MPI_Comm_free(&users);  // the duplicate lives on
  ts::MpiCommunicator pair = all.split(all.rank() / 2);
  CHECK(pair.rank() == all.rank() % 2);
  CHECK(pair.size() == std::min(2, all.size() - all.rank() / 2 * 2));
  CHECK(ts::laws::communicator_laws(pair, {.seed = 5, .large = 1000}) == Faults{});
  ts::MpiCommunicator node = all.split_by_node();
  CHECK(node.size() >= 1);
  CHECK(node.size() <= all.size());
  std::int64_t sum = 1;
  node.all_reduce(std::span(&sum, 1));
  CHECK(sum == node.size());
  all.barrier();
}

TEST_CASE("ranks that disagree all throw, and the communicator is dead") {
  environment();
  if (world().size() == 1) return;
  {
    auto c = world();
    float value = 0;
    const auto call = [&] { c.rank() == 1 ? c.barrier() : c.all_reduce(std::span(&value, 1)); };
    CHECK(has(text_of(call), "rank 0 calls all_reduce, but rank 1 calls barrier"));
    CHECK(has(text_of([&] { c.barrier(); }), "rank 0 calls all_reduce, but rank 1 calls barrier"));
  }
  {
    auto c = world();
    std::vector<float> values(c.rank() == 1 ? 9 : 8);
    // Found by a rank itself, or heard from one that was faster.
    CHECK(has(text_of([&] { c.all_reduce(std::span(values)); }),
              "all_reduce (call 1): rank 0 has 8 elements, but rank 1 has 9 elements; all ranks "
              "must make the same calls in the same order"));
  }
  {
    auto c = world();
    const auto ranks = static_cast<std::size_t>(c.size());
    std::vector<std::size_t> send_counts(ranks, 2), receive_counts(ranks, 2);
    if (c.rank() == 0) receive_counts[1] = 5;
    std::vector<double> send(2 * ranks), receive(c.rank() == 0 ? 2 * ranks + 3 : 2 * ranks);
    // Who has no part in it may finish this call, and hears at the next.
    const std::string text = text_of([&] {
      c.all_to_all(send, send_counts, std::span(receive), receive_counts);
      c.barrier();
    });
    CHECK(has(text, "all_to_all (call 1): rank 1 sends 2 elements to rank 0, which expects 5"));
  }
  {
    auto c = world();
    float value = 0;
    CHECK(has(text_of([&] { c.rank() == 0 ? c.finish() : c.broadcast(std::span(&value, 1), 0); }),
              "rank 0 calls nothing more, but rank 1 calls broadcast"));
  }
}

TEST_CASE("a rank that fails ends the wait of all") {
  auto c = world();
  if (c.size() == 1) return;
  c.barrier();
  if (c.rank() == 1) {
    c.fail("the disk is full");
  } else {
    std::vector<float> values(100);
    CHECK(has(
        text_of([&] { c.all_reduce(std::span(values)); }),
        fmt::format("all_reduce (call 2) on rank {} cannot finish: rank 1 failed: the disk is full",
                    c.rank())));
  }
  CHECK(has(text_of([&] { c.barrier(); }), "rank 1 failed: the disk is full"));
}

TEST_CASE("a late rank is named") {
  auto c = world({.timeout = 1500ms});
  if (c.size() == 1) return;
  c.barrier();
  if (c.rank() == 1) std::this_thread::sleep_for(4000ms);
  const std::string text = text_of([&] { c.barrier(); });
  CHECK(has(text, "rank 1 failed: late: rank"));
  CHECK(has(text, "waited 1500 ms in barrier (call 2) for rank(s) 1;"));
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
