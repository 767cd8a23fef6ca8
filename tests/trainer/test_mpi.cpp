// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// train_dlrm on processes, of MPI and over Gloo: what thread ranks give, bit for bit.
#include <support/free_port.hpp>
#include <trainer/command.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

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

/// Starts ranks as torchrun does, by its variables. The exit code is rank 0's.
std::string torchrun(int ranks) {
  std::string size = std::to_string(ranks);
  return "sh -c 'export OMP_NUM_THREADS=1 WORLD_SIZE=" + size + " LOCAL_WORLD_SIZE=" + size +
         " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(free_port()) +
         "; for rank in $(seq 1 " + std::to_string(ranks - 1) +
         "); do RANK=$rank LOCAL_RANK=$rank timeout 120 \"$@\" & done; "
         "RANK=0 LOCAL_RANK=0 timeout 120 \"$@\"; code=$?; wait; exit $code' sh";
}

/// An engine of processes, and what starts them.
struct Engine {
  std::string name;
  std::string (*start)(int ranks);
  std::string rank_variable, launcher;
};

bool is_built(const std::string& engine) {
  const Outcome probe =
      train_dlrm("--communicator " + engine +
                 " --samples 40 --max-rows 10 --embedding-width 8 --bottom-mlp 8 --top-mlp 8");
  if (probe.status == 0) return true;
  REQUIRE(probe.err == "train_dlrm: --communicator " + engine +
                           ": this program was built without it; install its library "
                           "(docs/clusters.md) and configure and build again\n");
  return false;
}

/// Those that the program was built with. Without any the test ends as skipped.
const std::vector<Engine>& engines() {
  static const std::vector<Engine> built = [] {
    std::vector<Engine> all{{"mpi", &mpirun, "OMPI_COMM_WORLD_RANK", "mpirun"},
                            {"gloo", &torchrun, "RANK", "torchrun"}};
    std::erase_if(all, [](const Engine& engine) {
      if (is_built(engine.name)) return false;
      std::printf("left out: train_dlrm has no --communicator %s\n", engine.name.c_str());
      return true;
    });
    if (all.empty()) std::exit(77);
    return all;
  }();
  return built;
}

/// What is in the files of tensors below a folder.
std::map<std::string, std::string> files_in(const std::filesystem::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().extension() == ".safetensors")
      files[entry.path().lexically_relative(folder).string()] = text_of(entry.path());
  return files;
}

}  // namespace

TEST_CASE("4 processes and 4 threads: one result, and only rank 0 speaks") {
  for (const std::string plan : {"mixed", "replicated"}) {
    CAPTURE(plan);
    const nlohmann::json threads = results(kOptions + "--ranks 4 --plan " + plan);
    for (const Engine& engine : engines()) {
      const Outcome processes = train_dlrm(
          kOptions + "--communicator " + engine.name + " --plan " + plan, true, engine.start(4));
      INFO(processes.err);
      REQUIRE(processes.status == 0);
      CHECK(kept(processes.json) == kept(threads));
      CHECK(processes.json.at("communicator") == engine.name);
      CHECK(processes.json.at("ranks") == 4);
      std::size_t reports = 0;
      for (std::size_t at = 0; (at = processes.out.find("test AUC", at)) != std::string::npos; ++at)
        ++reports;
      CHECK(reports == 2);  // of the model, and the best possible
    }
  }
}

TEST_CASE("--check-links over each engine") {
  const TemporaryFolder folder;
  const std::string file = (folder.path / "machine.json").string();
  ::setenv("TESSERA_MACHINE", file.c_str(), 1);
  for (const Engine& engine : engines()) {
    const Outcome outcome = train_dlrm(
        kOptions + "--max-steps 1 --plan table-wise --check-links --communicator " + engine.name,
        true, engine.start(2));
    INFO(outcome.out, outcome.err);
    CHECK(outcome.status == 0);
    CHECK(outcome.out.find("links: --communicator " + engine.name + ", 2 ranks on one machine") !=
          std::string::npos);
    CHECK(outcome.out.find("\ndense sums ") != std::string::npos);
  }
  ::unsetenv("TESSERA_MACHINE");
}

TEST_CASE("2 processes save the files that 2 threads save, to the bit") {
  const TemporaryFolder folder;
  const auto save = [&](const std::string& name) {
    return " --save '" + (folder.path / name).string() + "'";
  };
  results(kOptions + "--ranks 2" + save("threads"));
  const auto threads = files_in(folder.path / "threads");
  REQUIRE(threads.size() >= 2);
  for (const Engine& engine : engines()) {
    const Outcome processes = train_dlrm(
        kOptions + "--communicator " + engine.name + save(engine.name), true, engine.start(2));
    INFO(processes.err);
    REQUIRE(processes.status == 0);
    CHECK(files_in(folder.path / engine.name) == threads);
  }
}

TEST_CASE("buckets, one reader and routing ahead change nothing, on threads and on processes") {
  const auto without_options = [](nlohmann::json results) {
    for (const char* key : {"bucket_kib", "loader", "overlap"}) results.erase(key);
    return kept(results);
  };
  const nlohmann::json plain = without_options(results(kOptions + "--ranks 3 --epochs 2"));
  const std::string all = "--epochs 2 --bucket-kib 1 --loader first-rank --overlap";
  CHECK(without_options(results(kOptions + "--ranks 3 --bucket-kib 1000 --epochs 2")) == plain);
  CHECK(without_options(results(kOptions + "--ranks 3 --epochs 2 --loader first-rank")) == plain);
  CHECK(without_options(results(kOptions + "--ranks 3 " + all)) == plain);
  for (const Engine& engine : engines()) {
    const Outcome processes =
        train_dlrm(kOptions + "--communicator " + engine.name + " " + all, true, engine.start(3));
    INFO(processes.err);
    REQUIRE(processes.status == 0);
    CHECK(without_options(processes.json) == plain);
  }
}

TEST_CASE("--virtual-ranks: 4 processes give the model of one thread, to the bit") {
  const std::string options = kOptions + "--virtual-ranks 8 --accumulate 2 --clip-norm 0.5 ";
  const nlohmann::json one = results(options + "--ranks 1 --plan table-wise");
  for (const Engine& engine : engines()) {
    const Outcome processes = train_dlrm(
        options + "--communicator " + engine.name + " --plan column-wise", true, engine.start(4));
    INFO(processes.err);
    REQUIRE(processes.status == 0);
    CHECK(processes.json.at("ranks") == 4);
    for (const char* number : {"auc", "logloss"})
      CHECK(processes.json.at(number) == one.at(number));
  }
}

TEST_CASE("one process without a launcher is one rank") {
  const nlohmann::json one = kept(results(kOptions + "--ranks 1"));
  for (const Engine& engine : engines()) {
    const nlohmann::json process = results(kOptions + "--communicator " + engine.name);
    CHECK(process.at("ranks") == 1);
    CHECK(kept(process) == one);
  }
}

TEST_CASE("a fault of all ranks and a wrong number of ranks end the job") {
  for (const Engine& engine : engines()) {
    const std::string communicator = "--communicator " + engine.name + " ";
    const Outcome file = train_dlrm(communicator + "--data /no/such/file", false, engine.start(2));
    CHECK(file.status != 0);
    // Both have it, one says it.
    INFO(file.err);
    CHECK(file.err.find("rank 0: cannot open '/no/such/file'") != std::string::npos);
    CHECK(file.err.find("rank 1: ") == std::string::npos);
    const Outcome ranks = train_dlrm(communicator + "--ranks 3", false, engine.start(2));
    CHECK(ranks.status != 0);
    CHECK(ranks.err.find("--ranks 3: " + engine.launcher + " started 2; leave --ranks out") !=
          std::string::npos);
    if (engine.name != "mpi") continue;  // its launcher ends the others when one has said so
    const Outcome options = train_dlrm(communicator + "--plan diagonal", false, engine.start(3));
    CHECK(options.status == 2);
    const std::size_t said = options.err.find("train_dlrm: --plan");
    CHECK(said != std::string::npos);
    CHECK(options.err.find("train_dlrm: --plan", said + 1) == std::string::npos);
  }
}

TEST_CASE("ranks with different options say which ones, and both values, before they begin") {
  const auto differing = [](const Engine& engine, const std::string& of_rank_1) {
    const std::string launcher = engine.start(2) + R"( sh -c 'if [ "$)" + engine.rank_variable +
                                 R"(" = 1 ]; then exec "$@" )" + of_rank_1 +
                                 R"(; fi; exec "$@"' sh)";
    const Outcome outcome = train_dlrm(kOptions + "--communicator " + engine.name, false, launcher);
    CHECK(outcome.status != 0);
    CHECK(outcome.err.find("rank 1: ") == std::string::npos);
    return outcome.err;
  };
  const std::string rule = "rank 0: all ranks must have the same options and data; ";
  for (const Engine& engine : engines()) {
    const std::string three =
        differing(engine, "--weight-decay 0.5 --overlap --dense-optimizer sgd");
    INFO(three);
    CHECK(three.find(rule) != std::string::npos);
    CHECK(three.find("; --weight-decay is 0 on rank 0 and 0.5 on rank 1") != std::string::npos);
    CHECK(three.find("; --overlap is not given on rank 0 and given on rank 1") !=
          std::string::npos);
    CHECK(three.find("; --dense-optimizer is adam on rank 0 and sgd on rank 1") !=
          std::string::npos);
    for (const std::string option : {"--loader first-rank", "--bucket-kib 8", "--constant-rates",
                                     "--learning-rate 0.5", "--power 1.1", "--clip-norm 2"}) {
      const std::string err = differing(engine, option);
      INFO(err);
      CHECK(err.find(rule + option.substr(0, option.find(' ')) + " is ") != std::string::npos);
    }
  }
}

TEST_CASE("processes whose --save are two folders say so before they begin") {
  for (const Engine& engine : engines()) {
    const TemporaryFolder folder;
    for (const char* rank : {"0", "1"}) std::filesystem::create_directory(folder.path / rank);
    const std::string launcher = engine.start(2) + " sh -c 'cd \"" + folder.path.string() + "/$" +
                                 engine.rank_variable + "\" && exec \"$@\"' sh";
    const Outcome outcome = train_dlrm(
        kOptions + "--save model --resume --communicator " + engine.name, false, launcher);
    INFO(outcome.err);
    CHECK(outcome.status != 0);
    CHECK(outcome.err.find("rank 0: --save: 'model' is another folder on rank 1 than on rank 0: "
                           "give one that all ranks share") != std::string::npos);
    CHECK(outcome.out.find("samples/s") == std::string::npos);
    CHECK(std::filesystem::is_empty(folder.path / "0" / "model"));
  }
}

namespace {

/// Trains on two ranks. Once rank 0 has reported a step, rank 1 gets what `signals`, shell commands,
/// send to $!.
Outcome disturbed(const Engine& engine, const std::string& signals, const std::string& options) {
  const TemporaryFolder folder;
  const std::string out = (folder.path / "out").string();
  const std::string launcher = engine.start(2) + R"( sh -c 'if [ "$)" + engine.rank_variable +
                               R"(" = 1 ]; then "$@" & until grep -qs "step 2/" ")" + out +
                               R"("; do kill -0 $! || exit 1; sleep 0.1; done; )" + signals +
                               R"(; exit 1; fi; exec "$@" >")" + out + R"("' sh)";
  return train_dlrm("--communicator " + engine.name +
                        " --samples 3000000 --epochs 1000 --max-rows 10 --embedding-width 8 "
                        "--print-every 1 " +
                        options,
                    false, launcher);
}

}  // namespace

TEST_CASE("--timeout: a process that stands still is named after so many seconds") {
  for (const Engine& engine : engines()) {
    const Outcome outcome =
        disturbed(engine, "kill -STOP $!; sleep 8; kill -KILL $!", "--timeout 3");
    INFO(outcome.err);
    CHECK(outcome.status != 0);
    CHECK(outcome.err.find("waited 3000 ms") != std::string::npos);
    CHECK(outcome.err.find("for rank(s) 1") != std::string::npos);
  }
}

TEST_CASE("a killed process ends the others, which name it") {
  for (const Engine& engine : engines()) {
    if (engine.name == "mpi") continue;  // mpirun does it, and says so itself
    const Outcome outcome = disturbed(engine, "kill -KILL $!", "");
    INFO(outcome.err);
    CHECK(outcome.status == 1);
    CHECK(outcome.err.find("rank 1 failed: it closed its connections") != std::string::npos);
  }
}
