// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// train_sequence --backend cuda, its kernels emulated, against --backend host: the same options, the
// same model.
#include <trainer/command.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

const std::string kSmall = " --items 100 --width 16 --max-length 12 ",
                  kOne = "--heads 1 --blocks 1 ", kUsers = "--users 60 --batch-size 32 ",
                  kTiny = kSmall + kOne + kUsers + "--epochs 2 ";

nlohmann::json trained(const std::string& arguments) {
  return results(arguments, "train_sequence_emulated");
}

const char* const kScores[] = {"hr10", "ndcg10", "mrr", "hr10_sampled", "ndcg10_sampled", "auc"};

/// Kernels add in another order: losses differ by 1e-6 of themselves at most, scores by what one
/// test history of 60, whose item changes places with another, makes at most.
void check_alike(const nlohmann::json& host, const nlohmann::json& cuda) {
  const auto number = [](const nlohmann::json& json, const char* key) {
    return json.at(key).get<double>();
  };
  CHECK(std::abs(number(host, "loss") - number(cuda, "loss")) < 1e-6 * number(host, "loss"));
  int scores = 0;
  for (const char* key : kScores) {
    if (!host.contains(key)) continue;
    CAPTURE(key);
    CHECK(std::abs(number(host, key) - number(cuda, key)) < 1.0 / 60);
    ++scores;
  }
  CHECK(scores > 0);
  REQUIRE(host.at("validations").size() == cuda.at("validations").size());
  for (std::size_t i = 0; i < host.at("validations").size(); ++i)
    for (const auto& [key, value] : host.at("validations")[i].items())
      CHECK(std::abs(value.get<double>() - number(cuda.at("validations")[i], key.c_str())) <
            1.0 / 60);
}

/// The lines of --predictions but their last fields, and these, which are logits.
struct Predictions {
  std::vector<std::string> samples;
  std::vector<double> logits;

  explicit Predictions(const std::filesystem::path& file) {
    std::istringstream lines(text_of(file));
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
      const std::size_t tab = line.rfind('\t');
      samples.push_back(line.substr(0, tab));
      logits.push_back(std::stod(line.substr(tab + 1)));
    }
  }
};

}  // namespace

TEST_CASE("every option of --help, on both backends: the same losses, scores and predictions") {
  const TemporaryFolder folder;
  // users who go round a ring of items, and a line that is no event
  std::ofstream file(folder.path / "events");
  for (int u = 0; u < 60; ++u)
    for (int e = 0; e < 16; ++e)
      file << "u" << u << "::i" << (7 * u + e) % 50 << "::" << 100 * e + u
           << "::" << (u + e * e) % 3 + 3 << '\n';
  file << "NA::i1::1::4\n";
  file.close();
  const std::string own = "--data " + folder.quoted("events") +
                          " --separator :: --quote none --empty-words NA --columns "
                          "who,what,when,stars --user-column who --item-column what --time-column "
                          "when --skip-bad-lines --sort-memory 1 --temporary-folder " +
                          folder.quoted("") +
                          " --width 16 --heads 2 --blocks 1 --max-length 9 --batch-size 16 ";
  const std::string two = kSmall + kUsers + "--epochs 2 --heads 2 --blocks 2 ";
  const std::string cases[] = {
      kTiny + "--ranks 1 --negatives 100 --dropout 0.3 --validate",  // the whole softmax
      kTiny + "--ranks 3 --plan row-wise --negatives 40 --popularity 0.5 --log-q --seed 7",
      two + "--ranks 2 --plan column-wise --negatives 40 --dropout 0",
      kSmall + kUsers +
          "--epochs 2 --blocks 0 --ranks 4 --plan grid --negatives 30 "
          "--threads-per-rank 2 --heads 1",
      kTiny + "--ranks 2 --plan replicated --negatives 40 --learning-rate 0.006",
      kTiny + "--ranks 2 --plan table-wise --virtual-ranks 4 --negatives 40",
      kTiny + "--ranks 2 --model ranking --validate --dropout 0.1 --predictions ",
      two + "--ranks 3 --model ranking --plan grid --predictions ",
      kTiny + "--ranks 2 --model ranking --virtual-ranks 2 --predictions ",
      own + "--ranks 2 --epochs 2 --negatives 50 --test-window 300 --save-every 3 --keep 1 --save ",
      own + "--ranks 3 --epochs 3 --patience 9 --negatives 50 --start-from " +
          folder.quoted("save-host"),
      own +
          "--ranks 2 --epochs 3 --model ranking --label-column stars --label-threshold 4 "
          "--plan hot-rows --hot-rows 7 --predictions "};
  std::string all;
  for (const std::string& how : cases) {
    CAPTURE(how);
    all += how + ' ';
    const bool predicts = how.ends_with("--predictions "), saves = how.ends_with("--save ");
    const auto on = [&](const std::string& backend) {
      return trained(how +
                     (predicts ? folder.quoted(backend)
                      : saves  ? folder.quoted("save-" + backend)
                               : "") +
                     " --backend " + backend);
    };
    const nlohmann::json host = on("host"), cuda = on("cuda");
    CHECK(cuda.at("backend") == "cuda");
    check_alike(host, cuda);
    if (!predicts) continue;
    const Predictions expected(folder.path / "host"), found(folder.path / "cuda");
    REQUIRE(expected.logits.size() >= 60);
    CHECK((found.samples == expected.samples));
    REQUIRE(found.logits.size() == expected.logits.size());
    constexpr double most = 2e-5;  // of logits; lines have six digits
    double worst = 0;
    for (std::size_t i = 0; i < found.logits.size(); ++i)
      worst = std::max(worst, std::abs(found.logits[i] - expected.logits[i]));
    CHECK(worst < most);
    const auto [low, high] = std::ranges::minmax(expected.logits);
    CHECK(high - low > 1000 * most);
  }
  // those of the other tests of this file, and those that say something and end
  all += " --backend --graph --json --resume --users --items --help --version ";
  CHECK(options_among(all, "train_sequence_emulated") > 35);
}

TEST_CASE("on the GPU: the same bits again, and with --virtual-ranks on any number of ranks") {
  for (const std::string model : {"next-item --negatives 40 --popularity 0.5 --log-q", "ranking"}) {
    const std::string how = kTiny + "--backend cuda --model " + model;
    const auto same = [&](const nlohmann::json& a, const nlohmann::json& b) {
      CHECK(a.at("loss") == b.at("loss"));
      for (const char* key : kScores)
        if (a.contains(key)) CHECK(a.at(key) == b.at(key));
    };
    same(trained(how + " --ranks 3"), trained(how + " --ranks 3"));
    // the last batch has fewer histories than there are parts
    const std::string parts = kSmall + kOne +
                              "--epochs 2 --users 41 --batch-size 19 --virtual-ranks 4 --backend "
                              "cuda --model " +
                              model;
    const nlohmann::json one = trained(parts + " --ranks 1");
    same(one, trained(parts + " --ranks 2 --plan row-wise"));
    same(one, trained(parts + " --ranks 4 --plan grid"));
    CHECK(one.at("loss") != trained(how + " --ranks 3").at("loss"));
  }
}

TEST_CASE("--graph: steps that are captured and replayed give the model of steps that are called") {
  const TemporaryFolder folder;
  // the last batch of an epoch has one history, so that some ranks have none
  const std::string how =
      kSmall + kOne + "--users 44 --batch-size 17 --backend cuda --epochs 2 --negatives ";
  const auto same = [](const nlohmann::json& a, const nlohmann::json& b) {
    for (const char* key : kScores)
      if (a.contains(key)) CHECK(a.at(key) == b.at(key));
  };
  struct Case {
    std::string how, ranks;
  };
  for (const Case& one : {Case{"40 --popularity 0.5 --log-q --validate", "1"},
                          {"30 --dropout 0", "3 --plan hot-rows"},
                          {"9 --model ranking --validate --predictions ", "1"},
                          {"9 --model ranking --predictions ", "2 --plan column-wise"}}) {
    CAPTURE(one.how);
    CAPTURE(one.ranks);
    const bool predicts = one.how.ends_with("--predictions ");
    const auto on = [&](const std::string& flag) {
      const std::string file = "'" + (folder.path / ("p" + flag)).string() + "'";
      return trained(how + one.how + (predicts ? file : "") + " --ranks " + one.ranks + flag);
    };
    const nlohmann::json called = on(""), graph = on(" --graph");
    CHECK(graph.at("loss") == called.at("loss"));
    same(graph, called);
    CHECK(!called.contains("graph"));
    CHECK(graph.at("graph").at("captured") >= 1);
    // of 16 whole batches two are called first, and again when there was no room
    CHECK(graph.at("graph").at("replayed") >= 8);
    if (!predicts) continue;
    const Predictions expected(folder.path / "p"), found(folder.path / "p --graph");
    REQUIRE(expected.logits.size() >= 44);
    CHECK((found.samples == expected.samples));
    CHECK((found.logits == expected.logits));
  }
  // saved between replays: the GPU alone knows the number of steps
  const std::string saved =
      how + "40 --ranks 1 --graph --save-every 7 --save '" + folder.path.string() + "'";
  const nlohmann::json whole = trained(saved);
  REQUIRE(whole.at("steps") == 18);
  REQUIRE(std::filesystem::remove_all(folder.path / "step-000000000018") > 0);
  same(trained(saved + " --resume"), whole);
  // what is not captured is called, and said
  for (const auto& [ranks, what] : std::vector<std::pair<std::string, std::string>>{
           {"2", "lookups, exchanges and updates are called, with --ranks above 1: "},
           {"2 --virtual-ranks 2", "all of a step is called, with --virtual-ranks: "}}) {
    const Outcome outcome = train_dlrm(
        kSmall + kOne + "--users 20 --epochs 1 --backend cuda --negatives 9 --graph --ranks " +
            ranks,
        true, "", "train_sequence_emulated");
    REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
    CHECK(outcome.out.find("--graph: " + what) != std::string::npos);
    CHECK(outcome.json.contains("graph") == (ranks == "2"));
  }
}

TEST_CASE("a checkpoint of the GPU goes on there to the bit, and nearly so on the host") {
  for (const std::string model : {"next-item --negatives 40", "ranking"}) {
    const TemporaryFolder folder;
    const std::string how = kSmall + kOne + kUsers + "--epochs 3 --model " + model,
                      save = " --save '" + folder.path.string() + "'";
    const nlohmann::json whole =
        trained(how + " --backend cuda --ranks 2" + save + " --save-every 2");
    REQUIRE(whole.at("steps") == 18);
    for (const std::string other :
         {" --backend cuda --ranks 2 --plan table-wise", " --backend host --ranks 2"}) {
      CAPTURE(other);
      std::filesystem::remove_all(folder.path / "step-000000000018");
      const nlohmann::json resumed = trained(how + other + save + " --resume");
      for (const char* key : kScores)
        if (whole.contains(key)) {
          const double difference =
              std::abs(resumed.at(key).get<double>() - whole.at(key).get<double>());
          CHECK(difference <= (other.find("cuda") != std::string::npos ? 0.0 : 1.0 / 60));
        }
    }
  }
}

TEST_CASE("what a backend cannot do is one line") {
  const auto fails = [](int code, const std::string& arguments, const std::string& text,
                        const std::string& program) {
    const Outcome outcome = train_dlrm(arguments, false, "", program);
    CHECK(outcome.status == code);
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
    CHECK_MESSAGE(outcome.err.find(text) != std::string::npos, outcome.err);
  };
  fails(1, kTiny + "--backend cuda", "--backend cuda: this program was built without it",
        "train_sequence");
  fails(2, "--backend gpu", "--backend", "train_sequence");
  fails(2, kTiny + "--graph", "--backend host takes no --graph: graphs are CUDA's",
        "train_sequence");
  fails(1, kTiny + "--backend cuda --negatives 40 --learning-rate 1e30", "the training diverged",
        "train_sequence_emulated");
}
