// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// train_dlrm on MPI processes: what thread ranks give, bit for bit.
#include <trainer/command.hpp>

#include <algorithm>
#include <string>

namespace {

const std::string kOptions =
    " --samples 2050 --max-rows 40 --batch-size 250 --embedding-width 8 --bottom-mlp 16 --top-mlp "
    "32 ";

std::string mpirun(int ranks) {
  return "OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout 120 "
         "mpirun --oversubscribe --bind-to none "
         "-np " +
         std::to_string(ranks);
}

/// The results without what differs from run to run.
nlohmann::json kept(nlohmann::json results) {
  for (const char* key : {"seconds", "samples_per_second", "communicator"}) results.erase(key);
  return results;
}

void skip_without_mpi() {
  const Outcome probe = train_dlrm(
      "--communicator mpi --samples 40 --max-rows 10 --embedding-width 8 --bottom-mlp 8 --top-mlp "
      "8");
  if (probe.status == 0) return;
  REQUIRE(probe.err ==
          "train_dlrm: --communicator mpi: this program was built without it; install its library "
          "(docs/clusters.md) and "
          "configure and build again\n");
  std::exit(77);
}

}  // namespace

TEST_CASE("4 processes and 4 threads: one result, and only rank 0 speaks") {
  skip_without_mpi();
  for (const std::string plan : {"mixed", "replicated"}) {
    CAPTURE(plan);
    const nlohmann::json threads = results(kOptions + "--ranks 4 --plan " + plan);
    const Outcome processes =
        train_dlrm(kOptions + "--communicator mpi --plan " + plan, true, mpirun(4));
    INFO(processes.err);
    REQUIRE(processes.status == 0);
    CHECK(kept(processes.json) == kept(threads));
    CHECK(processes.json.at("communicator") == "mpi");
    CHECK(processes.json.at("ranks") == 4);
    std::size_t reports = 0;
    for (std::size_t at = 0; (at = processes.out.find("test AUC", at)) != std::string::npos; ++at)
      ++reports;
    CHECK(reports == 2);  // of the model, and the best possible
  }
}

TEST_CASE("buckets, one reader and routing ahead change nothing, on threads and on processes") {
  skip_without_mpi();
  const auto without_options = [](nlohmann::json results) {
    for (const char* key : {"bucket_kib", "loader", "overlap"}) results.erase(key);
    return kept(results);
  };
  const nlohmann::json plain = without_options(results(kOptions + "--ranks 3 --epochs 2"));
  const std::string all = "--epochs 2 --bucket-kib 1 --loader first-rank --overlap";
  CHECK(without_options(results(kOptions + "--ranks 3 --bucket-kib 1000 --epochs 2")) == plain);
  CHECK(without_options(results(kOptions + "--ranks 3 --epochs 2 --loader first-rank")) == plain);
  CHECK(without_options(results(kOptions + "--ranks 3 " + all)) == plain);
  const Outcome processes = train_dlrm(kOptions + "--communicator mpi " + all, true, mpirun(3));
  INFO(processes.err);
  REQUIRE(processes.status == 0);
  CHECK(without_options(processes.json) == plain);
}

TEST_CASE("--virtual-ranks: 4 processes give the model of one thread, to the bit") {
  skip_without_mpi();
  const std::string options = kOptions + "--virtual-ranks 8 --accumulate 2 --clip-norm 0.5 ";
  const nlohmann::json one = results(options + "--ranks 1 --plan table-wise");
  const Outcome processes =
      train_dlrm(options + "--communicator mpi --plan column-wise", true, mpirun(4));
  INFO(processes.err);
  REQUIRE(processes.status == 0);
  CHECK(processes.json.at("ranks") == 4);
  for (const char* number : {"auc", "logloss"}) CHECK(processes.json.at(number) == one.at(number));
}

TEST_CASE("one process without mpirun is one rank") {
  skip_without_mpi();
  const nlohmann::json process = results(kOptions + "--communicator mpi");
  CHECK(process.at("ranks") == 1);
  CHECK(kept(process) == kept(results(kOptions + "--ranks 1")));
}

TEST_CASE("a fault of all ranks and a wrong number of ranks end the job") {
  skip_without_mpi();
  const Outcome file = train_dlrm("--communicator mpi --data /no/such/file", false, mpirun(2));
  CHECK(file.status != 0);
  // Both have it, one says it.
  CHECK(file.err.find("rank 0: cannot open '/no/such/file'") != std::string::npos);
  CHECK(file.err.find("rank 1: ") == std::string::npos);
  const Outcome options = train_dlrm("--communicator mpi --plan diagonal", false, mpirun(3));
  CHECK(options.status == 2);
  const std::size_t said = options.err.find("train_dlrm: --plan");
  CHECK(said != std::string::npos);
  CHECK(options.err.find("train_dlrm: --plan", said + 1) == std::string::npos);
  const Outcome ranks = train_dlrm("--communicator mpi --ranks 3", false, mpirun(2));
  CHECK(ranks.status != 0);
  CHECK(ranks.err.find("--ranks 3: mpirun started 2; leave --ranks out") != std::string::npos);
}

TEST_CASE("ranks with different options say which ones, and both values, before they begin") {
  skip_without_mpi();
  const auto differing = [](const std::string& of_rank_1) {
    const std::string launcher = mpirun(2) +
                                 R"( sh -c 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then exec "$@" )" +
                                 of_rank_1 + R"(; fi; exec "$@"' sh)";
    const Outcome outcome = train_dlrm(kOptions + "--communicator mpi", false, launcher);
    CHECK(outcome.status != 0);
    CHECK(outcome.err.find("rank 1: ") == std::string::npos);
    return outcome.err;
  };
  const std::string rule = "rank 0: all ranks must have the same options and data; ";
  const std::string three = differing("--weight-decay 0.5 --overlap --dense-optimizer sgd");
  INFO(three);
  CHECK(three.find(rule) != std::string::npos);
  CHECK(three.find("; --weight-decay is 0 on rank 0 and 0.5 on rank 1") != std::string::npos);
  CHECK(three.find("; --overlap is not given on rank 0 and given on rank 1") != std::string::npos);
  CHECK(three.find("; --dense-optimizer is adam on rank 0 and sgd on rank 1") != std::string::npos);
  for (const std::string option : {"--loader first-rank", "--bucket-kib 8", "--constant-rates",
                                   "--learning-rate 0.5", "--power 1.1"}) {
    const std::string err = differing(option);
    INFO(err);
    CHECK(err.find(rule + option.substr(0, option.find(' ')) + " is ") != std::string::npos);
  }
}

TEST_CASE("--timeout: a process that stands still is named after so many seconds") {
  skip_without_mpi();
  const std::string launcher =
      mpirun(2) +
      R"( sh -c 'if [ "$OMPI_COMM_WORLD_RANK" = 1 ]; then "$@" & sleep 4; kill -STOP $!; sleep 20; )"
      R"(kill -KILL $!; exit 1; fi; exec "$@"' sh)";
  const Outcome outcome = train_dlrm(
      "--communicator mpi --samples 3000000 --epochs 1000 --max-rows 10 --embedding-width 8 "
      "--timeout 3",
      false, launcher);
  INFO(outcome.err);
  CHECK(outcome.status != 0);
  CHECK(outcome.err.find("waited 3000 ms") != std::string::npos);
  CHECK(outcome.err.find("for rank(s) 1") != std::string::npos);
}
