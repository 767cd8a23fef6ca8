// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
#include <tessera/comm/job.hpp>

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>

namespace ts = tessera;

namespace {

using Variables = std::map<std::string, std::string>;

/// What a process with these variables says.
ts::RankOfJob job_of(const Variables& variables) {
  const auto get = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  return ts::detail::RankOfVariables(get).find();
}

void refuses(const Variables& variables, const std::string& text) {
  CAPTURE(text);
  try {
    static_cast<void>(job_of(variables));
    FAIL_CHECK("nothing was thrown");
  } catch (const ts::InvalidArgument& error) {
    CHECK_MESSAGE(std::string(error.what()).find(text) != std::string::npos, error.what());
  }
}

void check(const ts::RankOfJob& job, int rank, int size, int local_rank, int local_size,
           const std::string& address, int port, const std::string& token,
           const std::string& launcher) {
  CHECK(job.rank == rank);
  CHECK(job.size == size);
  CHECK(job.local_rank == local_rank);
  CHECK(job.local_size == local_size);
  CHECK(job.address == address);
  CHECK(job.port == port);
  CHECK(job.token == token);
  CHECK(job.launcher == launcher);
}

// As the launchers set them, by their documentation, for the sixth of eight ranks on two machines.
const Variables kTorchrun{{"RANK", "5"},
                          {"WORLD_SIZE", "8"},
                          {"LOCAL_RANK", "1"},
                          {"LOCAL_WORLD_SIZE", "4"},
                          {"MASTER_ADDR", "node0"},
                          {"MASTER_PORT", "4711"},
                          {"TORCHELASTIC_RUN_ID", "run7"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "5"},
                         {"OMPI_COMM_WORLD_SIZE", "8"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                         {"PMIX_NAMESPACE", "prterun-3"}};
const Variables kMpich{
    {"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "4"}};
const Variables kSlurm{{"SLURM_PROCID", "5"},
                       {"SLURM_STEP_NUM_TASKS", "8"},
                       {"SLURM_NTASKS", "16"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_NODEID", "1"},
                       {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
                       {"SLURM_STEP_NODELIST", "gpu[012-013]"},
                       {"SLURM_JOB_ID", "200505"},
                       {"SLURM_STEP_ID", "2"}};

Variables operator+(Variables a, const Variables& b) {
  for (const auto& [name, value] : b) a.insert_or_assign(name, value);
  return a;
}

}  // namespace

TEST_CASE("without a launcher there is one rank") {
  check(job_of({}), 0, 1, 0, 1, "", 29500, "", "");
}

TEST_CASE("each launcher's variables tell rank, machine and where rank 0 is") {
  check(job_of(kTorchrun), 5, 8, 1, 4, "node0", 4712, "run7", "torchrun");
  check(job_of(kOpenMpi), 5, 8, 1, 4, "", 29500, "prterun-3", "mpirun (Open MPI)");
  check(job_of(kMpich), 5, 8, 1, 4, "", 29500, "", "mpirun (MPICH)");
  check(job_of(kSlurm), 5, 8, 1, 4, "gpu012", 61440 + 200505 % 4096, "200505.2", "srun");
  SUBCASE("what a person sets counts before a launcher's own choice") {
    const Variables own{
        {"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "5000"}, {"TESSERA_JOB_TOKEN", "secret"}};
    for (const Variables& launcher : {kOpenMpi, kMpich, kSlurm})
      check(job_of(launcher + own), 5, 8, 1, 4, "10.0.0.7", 5000, "secret",
            job_of(launcher).launcher);
    CHECK(job_of(kTorchrun + Variables{{"TESSERA_JOB_TOKEN", "secret"}}).token == "secret");
  }
  SUBCASE("RANK and WORLD_SIZE by hand do, too") {
    check(job_of({{"RANK", "1"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "a"}}), 1, 3, -1, -1, "a",
          29500, "", "torchrun");
  }
  SUBCASE("ranks of one machine meet there") {
    const Variables one{{"OMPI_COMM_WORLD_LOCAL_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "5"}};
    CHECK(job_of(kOpenMpi + one).address == "127.0.0.1");
    CHECK(job_of(kSlurm + Variables{{"SLURM_NODEID", "0"},
                                    {"SLURM_STEP_TASKS_PER_NODE", "8"},
                                    {"SLURM_LOCALID", "5"}})
              .address == "127.0.0.1");
  }
}

TEST_CASE("of launchers that start each other the inner one counts") {
  const Variables outer = kSlurm + Variables{{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}};
  for (const Variables& inner : {kTorchrun, kOpenMpi, kMpich}) {
    const ts::RankOfJob job = job_of(outer + inner);
    CHECK(job.rank == 5);
    CHECK(job.size == 8);
    CHECK(job.launcher == job_of(inner).launcher);
  }
  // srun --mpi=pmi2 sets MPICH's variables, too: they say the same, and no local rank
  const Variables pmi2 = kSlurm + Variables{{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}};
  CHECK(job_of(pmi2).launcher == "srun");
  CHECK(job_of(pmi2).address == job_of(kSlurm).address);
  CHECK(job_of(pmi2).local_rank == job_of(kSlurm).local_rank);
  // a batch script's own process is no task of srun's
  CHECK(job_of({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}).size == 1);
}

TEST_CASE("launchers that contradict each other are both shown") {
  const Variables by_hand{{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  refuses(kSlurm + by_hand, "srun says rank 5 of 8, RANK=0 and WORLD_SIZE=1 say rank 0 of 1");
  refuses(kOpenMpi + by_hand, "mpirun (Open MPI) says rank 5 of 8, RANK=0");
  refuses(kOpenMpi + kMpich + Variables{{"PMI_RANK", "4"}},
          "mpirun (Open MPI) says rank 5 of 8, PMI_RANK=4");
  const Variables same{{"RANK", "5"}, {"WORLD_SIZE", "8"}};
  CHECK(job_of(kSlurm + same).rank == 5);
}

TEST_CASE("variables that are no rank's are named") {
  const auto with = [](const char* name, const char* value) {
    return kTorchrun + Variables{{name, value}};
  };
  refuses(with("RANK", "five"), "RANK='five': it must be a number in 0..7");
  refuses(with("RANK", ""), "RANK=''");
  refuses(with("RANK", "8"), "RANK='8': it must be a number in 0..7");
  refuses(with("RANK", "-1"), "RANK='-1'");
  refuses(with("RANK", "5 "), "RANK='5 '");
  refuses(with("WORLD_SIZE", "0"), "WORLD_SIZE=0");
  refuses(with("WORLD_SIZE", "99999999999999999999"), "WORLD_SIZE='99999999999999999999'");
  refuses(with("MASTER_PORT", "65536"), "MASTER_PORT='65536': it must be a number in 0..65535");
  refuses(with("LOCAL_RANK", "8"), "LOCAL_RANK='8'");
  refuses({{"RANK", "0"}}, "RANK is set, and WORLD_SIZE is not");
  refuses({{"PMI_RANK", "0"}}, "PMI_RANK is set, and PMI_SIZE is not");
}

TEST_CASE("Slurm's lists of hosts and tasks") {
  CHECK(ts::detail::first_host("node7") == "node7");
  CHECK(ts::detail::first_host("node7,node8") == "node7");
  CHECK(ts::detail::first_host("node[007-009,012],login1") == "node007");
  CHECK(ts::detail::first_host("rack[1-2]n[04,06]-ib") == "rack1n04-ib");
  CHECK(ts::detail::first_host("node[3") == "node3");
  CHECK(ts::detail::first_host("") == "");
  const std::string tasks = "4,2(x3),1";
  const int expected[] = {4, 2, 2, 2, 1, -1};
  for (unsigned machine = 0; machine < 6; ++machine)
    CHECK(ts::detail::tasks_of(tasks, machine) == expected[machine]);
  for (const char* bad : {"", "x", "(x3)", "4,", "4(x", "4(x2", "1(x-2147483648)"})
    CHECK(ts::detail::tasks_of(bad, 5) == -1);
}

TEST_CASE("a process reads its own variables") {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    for (const auto& [name, value] : kMpich) setenv(name.c_str(), value.c_str(), 1);
    const ts::RankOfJob job = ts::rank_from_environment();
    _exit(job.rank == 5 && job.size == 8 && job.local_rank == 1 ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}
