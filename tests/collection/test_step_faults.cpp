// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Whole steps that go wrong: at every collective of a step a rank throws, drops out or is late; a
// trainer throws between the passes; a batch does not fit. Every rank ends with an error that names
// the fault, and finds its tables as they were before the step.
#include <collection/step_fault_bodies.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <string>

using namespace tessera;
using namespace std::chrono_literals;

TEST_CASE(
    "a rank that throws at any collective of a step: all ranks end, named, with the tables of the "
    "step before") {
  faulty::a_rank_throws_at_any_collective<Host>();
}

TEST_CASE("a rank that drops out of a collective, or is late beyond the timeout, is named") {
  const std::uint64_t first = faulty::seen_on_three_ranks<Host>({})[0].first_call;
  for (const std::uint64_t call : {first + 1, first + 8}) {
    const auto late = faulty::seen_on_three_ranks<Host>(
        {{.kind = Fault::Kind::delays, .rank = 2, .call = call, .delay = 3s}}, {.timeout = 1500ms});
    faulty::expect_all(late, "rank 2 failed: late: rank");
  }
  // Who drops a call makes the next one while the others are at this: they disagree, or wait for
  // it.
  const auto dropped = faulty::seen_on_three_ranks<Host>(
      {{.kind = Fault::Kind::drops, .rank = 1, .call = first + 2}}, {.timeout = 1500ms});
  for (const faulty::Seen& rank : dropped) {
    CAPTURE(rank.text);
    CHECK(rank.text.find("rank 1") != std::string::npos);
    CHECK(rank.unchanged);
  }
}

TEST_CASE("a trainer that throws between forward and backward") {
  faulty::a_trainer_throws_between_the_passes<Host>();
}
TEST_CASE("batches that do not fit end the step on all ranks, and say why") {
  faulty::batches_do_not_fit<Host>();
}
TEST_CASE(
    "ranks run out of data at different steps: empty batches go on, and the tables are those of "
    "one rank") {
  faulty::ranks_run_out_of_data<Host>();
}
