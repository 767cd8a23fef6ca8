// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What is left of an MPI job when one of its processes fails. Each case starts this program again
// under mpirun.
#include <fmt/format.h>
#include <mpi/engine.hpp>

#include <processes/faults_cases.hpp>

TEST_CASE(
    "a killed process: mpirun ends the job, or, told to keep the others, these end by the "
    "timeout") {
  const processes::Outcome ended = engine::run_job("job: killed");
  CHECK(ended.status != 0);
  CHECK(ended.has("exited on signal 9"));
  // mpirun then reports success whatever the survivors return: they speak for themselves.
  const processes::Outcome kept = engine::run_job("job: killed", "--enable-recovery");
  for (const int rank : {0, 2}) {
    CHECK(kept.has(fmt::format(
        "rank {}: all_reduce (call 15) on rank {} cannot finish: rank 1 failed: late: rank", rank,
        rank)));
    CHECK_FALSE(kept.has(fmt::format("rank {} is done", rank)));
  }
  CHECK(kept.has("waited 1000 ms in all_reduce (call 15) for rank(s) 1; it may be dead"));
}

TEST_CASE("ranks wait in a split no longer than in other calls, and name the late one") {
  const processes::Outcome late = engine::run_job("job: late at a split");
  CHECK(late.status != 0);
  // Ranks 0 and 2 give up at about one time; who is first tells the other.
  CHECK(late.has("all_gather (call 1) on rank 0 cannot finish: rank 1 failed: late: rank"));
  CHECK(late.has("waited 1500 ms in all_gather (call 1) for rank(s) 1; it may be dead"));
}

TEST_CASE("a process that is killed ends waits in parts, too") {
  const processes::Outcome killed =
      engine::run_job("job: killed beside a part", "--enable-recovery");
  CHECK(
      killed.has("rank 2: all_reduce (call 1) on rank 1 cannot finish: rank 0 failed: late: rank 1 "
                 "waited 1000 ms"));
  CHECK(killed.has("rank 0: barrier (call 1) on rank 0 cannot finish: rank"));
}
