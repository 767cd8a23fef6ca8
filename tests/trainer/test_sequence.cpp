// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// train_sequence from the outside: what it learns of the planted law, that runs repeat bit by bit
// and go on after an interruption, what it reads, how it fails.
#include <trainer/command.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace {

const std::string kTiny =
    " --users 60 --items 100 --width 16 --heads 1 --blocks 1 --max-length 12 --batch-size 32 "
    "--negatives 40 ";

Outcome train_sequence(const std::string& arguments, bool with_json = true) {
  return train_dlrm(arguments, with_json, "", "train_sequence");
}
nlohmann::json trained(const std::string& arguments) {
  return results(arguments, "train_sequence");
}
double number(const nlohmann::json& json, const char* key) { return json.at(key).get<double>(); }

void refuses(const std::string& arguments, const std::string& what, int status = 2) {
  check_fails(arguments, what, status, "", "train_sequence");
}

const char* const kScores[] = {"hr10", "ndcg10", "mrr", "hr10_sampled", "ndcg10_sampled", "loss"};

/// Users who go round a ring of items, each from a place of his own.
void write_ring(const std::filesystem::path& path, int users, int items) {
  std::ofstream file(path);
  file << "who\twhat\twhen\tstars\n";
  for (int e = 19; e >= 0; --e)  // the last event first
    for (int u = 0; u < users; ++u)
      file << "u" << u << '\t' << "item " << (7 * u + e) % items << '\t' << 100 * e + u << '\t'
           << (u + e) % 2 + 3 << '\n';
}

}  // namespace

TEST_CASE("the next item's law is found, far above chance; results are complete") {
  const nlohmann::json json = trained(
      "--users 500 --items 100 --width 32 --heads 2 --blocks 2 --epochs 12 --negatives 100 "
      "--dropout 0.1 --learning-rate 0.004 --batch-size 32 --ranks 2 --plan grid --validate");
  CHECK(number(json, "hr10") > 0.3);  // by chance 0.13
  CHECK(number(json, "hr10") < number(json, "best_hr10") + 0.03);
  CHECK(number(json, "ndcg10") < number(json, "hr10"));
  CHECK(number(json, "hr10_sampled") > number(json, "hr10") - 0.1);
  CHECK(number(json, "best_ndcg10") < number(json, "best_hr10"));
  for (const char* key : {"mrr", "best_mrr", "samples_per_second", "tokens_per_second"})
    CHECK(number(json, key) > 0);
  CHECK(!json.contains("auc"));
  CHECK(json.at("validations").size() == 12);
  CHECK(json.at("steps") == 12 * 16);
  CHECK(json.at("test_samples") == 500);
  CHECK(json.at("embedding_parameters") == 3'200);
}

TEST_CASE("the ranking model tells events that follow the law from others") {
  const nlohmann::json json = trained(
      "--model ranking --users 600 --items 100 --width 16 --heads 1 --blocks 2 --epochs 40 "
      "--dropout 0 --learning-rate 0.006 --batch-size 64 --ranks 2");
  CHECK(number(json, "auc") > 0.6);
  CHECK(number(json, "auc") < number(json, "best_auc") + 0.02);
  CHECK(!json.contains("hr10"));
}

TEST_CASE("the same bits again; nearly the same under other plans, ranks and threads") {
  const std::string options = kTiny + "--epochs 2 --popularity 0.5 --log-q ";
  const nlohmann::json one = trained(options + "--ranks 1"),
                       again = trained(options + "--ranks 3 --plan row-wise"),
                       same = trained(options + "--ranks 3 --plan row-wise");
  for (const char* key : kScores) CHECK(again.at(key) == same.at(key));
  CHECK(one.at("loss") != trained(options + "--ranks 1 --seed 2").at("loss"));
  CHECK(one.at("loss") != trained(options + "--ranks 1 --dropout 0").at("loss"));
  for (const char* other :
       {"--ranks 3 --plan row-wise", "--ranks 2 --plan table-wise", "--ranks 2 --plan column-wise",
        "--ranks 4 --plan grid", "--ranks 2 --plan replicated", "--ranks 3 --plan interleaved",
        "--ranks 3 --plan hot-rows --hot-rows 7", "--ranks 1 --threads-per-rank 2", "--ranks 5"}) {
    CAPTURE(other);
    const nlohmann::json json = trained(options + other);
    CHECK(std::abs(number(json, "loss") - number(one, "loss")) < 1e-4);
  }
  // no order of sums differs
  CHECK(trained(options + "--ranks 1 --threads-per-rank 2").at("loss") == one.at("loss"));
}

TEST_CASE("--virtual-ranks: the same bits on 1, 2 and 4 ranks, under any plan") {
  // the last batch has fewer histories than there are parts
  const std::string options =
      "--users 41 --items 100 --width 16 --heads 1 --blocks 1 --batch-size 19 --negatives 40 "
      "--virtual-ranks 4 --epochs 2 ";
  for (const std::string model : {"next-item --popularity 0.5 --log-q", "ranking"}) {
    const nlohmann::json one = trained(options + "--ranks 1 --model " + model);
    for (const char* other :
         {"--ranks 2 --plan row-wise", "--ranks 4 --plan grid", "--ranks 4 --plan interleaved"}) {
      CAPTURE(other);
      const nlohmann::json json = trained(options + other + " --model " + model);
      for (const char* key : kScores)
        if (one.contains(key)) CHECK(json.at(key) == one.at(key));
      if (model == "ranking") CHECK(json.at("auc") == one.at("auc"));
    }
  }
  refuses("--virtual-ranks 6", "both must be powers of two");
  refuses("--virtual-ranks 2 --ranks 4", "the ranks at most as many");
  refuses("--virtual-ranks 4 --plan replicated", "summed rank by rank");
  refuses("--virtual-ranks 4 --plan hot-rows", "summed rank by rank");
}

TEST_CASE("--resume: the bits of a run that was not interrupted, under any plan") {
  for (const std::string model : {"next-item", "ranking"}) {
    const TemporaryFolder folder;
    const std::string options = kTiny + "--epochs 3 --ranks 2 --model " + model + " ",
                      save = "--save " + folder.path.string();
    const nlohmann::json whole = trained(options + save + " --save-every 7 --keep 9");
    REQUIRE(whole.at("steps") == 18);
    // as if it had ended within the third epoch
    std::filesystem::path last;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path))
      if (entry.is_directory() && entry.path().filename() > last.filename()) last = entry.path();
    std::filesystem::remove_all(last);
    const Outcome resumed = train_sequence(options + save + " --resume --plan table-wise");
    REQUIRE(resumed.status == 0);
    CHECK(resumed.out.find("resumed from ") != std::string::npos);
    for (const char* key : kScores)
      if (whole.contains(key) && std::string(key) != "loss")
        CHECK(resumed.json.at(key) == whole.at(key));
    if (model == "ranking") CHECK(resumed.json.at("auc") == whole.at("auc"));
    refuses(options + save, "--save: '" + folder.path.string() + "' holds checkpoints", 1);
    refuses(options + save + " --resume --seed 5", "--resume: '", 1);
    refuses(options + save + " --resume --test-window 3", "--test-window 0; now there are", 1);
    std::string other = options;
    other.replace(other.find("--heads 1"), 9, "--heads 2");
    refuses(other + save + " --resume", "--heads 1, --log-q", 1);
    refuses(other + " --start-from " + folder.path.string(),
            "was trained with --heads 1, which its blocks need", 1);
  }
}

TEST_CASE("--epochs auto: the best model by validation is kept and tested") {
  for (const std::string model : {"next-item --negatives 40", "ranking"}) {
    CAPTURE(model);
    const TemporaryFolder folder;
    const std::string how =
                          "--users 120 --items 100 --width 16 --heads 1 --blocks 1 --max-length 12 "
                          "--batch-size 32 --learning-rate 0.002 --dropout 0 --ranks 2 --model " +
                          model,
                      save = " --save '" + (folder.path / "run").string() + "'",
                      automatic = how + " --epochs auto --patience 2";
    const nlohmann::json found = trained(automatic + save), without = trained(automatic);
    const auto& validations = found.at("validations");
    const char* const score = model == "ranking" ? "auc" : "ndcg10";
    std::size_t best = 0;
    for (std::size_t i = 0; i < validations.size(); ++i)
      if (validations[i].at(score) > validations[best].at(score)) best = i;
    CHECK(found.at("epochs") == "auto");
    CHECK(found.at("best_epoch") == best + 1);
    CHECK(validations.size() == best + 3);
    for (const char* key : kScores)
      if (found.contains(key)) CHECK(without.at(key) == found.at(key));
    // stopped after the first epoch it ends in the same way; ended, it stays so
    REQUIRE(best > 0);
    std::vector<std::filesystem::path> saved;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path / "run"))
      if (entry.is_directory()) saved.push_back(entry.path());
    std::sort(saved.begin(), saved.end());  // `best` is before the steps
    REQUIRE(saved.size() == validations.size() + 1);
    for (const auto& path : saved)
      if (path != saved[1]) std::filesystem::remove_all(path);
    static_cast<void>(trained(automatic + save + " --resume"));
    const nlohmann::json again = trained(automatic + save + " --resume");
    for (const char* key : {"hr10", "ndcg10", "auc"})
      if (found.contains(key)) CHECK(again.at(key) == found.at(key));
    // the best model of another training is not this one's
    for (const auto& entry : std::filesystem::directory_iterator(folder.path / "run"))
      if (entry.path().filename() != "best") std::filesystem::remove_all(entry.path());
    refuses(automatic + save, "holds checkpoints of an earlier training", 1);
    refuses(automatic + save + " --resume --seed 9", "was saved with", 1);
  }
  const TemporaryFolder folder;
  write_ring(folder.path / "ring", 40, 30);
  refuses("--data '" + (folder.path / "ring").string() +
              "' --user-column who --item-column what --time-column when --label-column stars "
              "--label-threshold 1 --model ranking --width 16 --heads 1",
          "--epochs auto: all events to validate on have the same label", 1);
  refuses("--epochs soon", "--epochs: soon is not a number from 1 to 1000000, or auto");
  refuses("--epochs 0", "--epochs: 0 is not");
}

TEST_CASE("--start-from: rows of the same items, in files that name them in another order") {
  const TemporaryFolder folder;
  // the same events, and those of one user more, whose items come first
  write_ring(folder.path / "a", 40, 30);
  std::string text = text_of(folder.path / "a");
  const std::size_t header = text.find('\n') + 1;
  std::string more;
  for (int e = 0; e < 6; ++e) more += fmt::format("new\titem {}\t{}\t3\n", e == 0 ? 99 : 29 - e, e);
  std::ofstream(folder.path / "b") << text.substr(0, header) << more << text.substr(header);
  for (const std::string model : {"next-item --negatives 99", "ranking"}) {
    CAPTURE(model);
    const std::string saved = folder.quoted("saved-" + model.substr(0, 4)),
                      how =
                          " --user-column who --item-column what --time-column when --width 16 "
                          "--heads 1 --blocks 1 --max-length 20 --batch-size 16 --dropout 0 "
                          "--model " +
                          model;
    const nlohmann::json before =
        trained("--data " + folder.quoted("a") + how + " --epochs 20 --ranks 2 --save " + saved);
    // a rate of nothing: what the earlier model knew, and no more
    const std::string again = " --epochs 1 --learning-rate 0 --ranks 3 --plan grid ";
    const Outcome warm =
        train_sequence("--data " + folder.quoted("b") + how + again + "--start-from " + saved);
    INFO(warm.err);
    REQUIRE(warm.status == 0);
    CHECK(warm.out.find("table item: 30 of its 31 rows come from the checkpoint's 30") !=
          std::string::npos);
    const nlohmann::json cold = trained("--data " + folder.quoted("b") + how + again);
    const char* const score = model[0] == 'r' ? "auc" : "hr10";
    CHECK(number(before, score) > 0.8);
    CHECK(number(warm.json, score) > number(before, score) - 0.06);
    CHECK(number(cold, score) < number(before, score) - 0.2);
  }
  refuses("--users 40 --start-from " + folder.quoted("none"), "holds no checkpoint", 1);
  refuses("--users 40 --start-from " + folder.quoted("saved-rank"), "names its items", 1);
}

TEST_CASE("without --epochs and --negatives: as the data ask for") {
  const std::string small = "--users 60 --width 16 --heads 1 --blocks 1 --max-length 12 ";
  const nlohmann::json few = trained(small + "--items 100 --patience 1");
  CHECK(few.at("epochs") == "auto");
  CHECK(few.at("negatives") == 100);
  CHECK(few.at("best_epoch") >= 1);
  CHECK(few.at("validations").size() == few.at("best_epoch").get<std::size_t>() + 1);
  // the same as if it had been said
  CHECK(trained(small + "--items 100 --patience 1 --epochs auto --negatives 100").at("hr10") ==
        few.at("hr10"));
  CHECK(trained(small + "--items 1200 --epochs 1").at("negatives") == 1000);
  // no event is in the window before the test's
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path / "events.csv";
  std::ofstream file(path);
  file << "user,item,timestamp\n";
  for (int u = 0; u < 30; ++u)
    for (int e = 0; e < 8; ++e)
      file << u << ',' << (u + e) % 20 << ',' << (e == 7 ? 10'000 : 10 * e) << '\n';
  file.close();
  const std::string window = "--data " + path.string() + " --test-window 100 " +
                             "--width 16 --heads 1 --blocks 1 --max-length 12 ";
  const nlohmann::json known = trained(window);
  CHECK(known.at("epochs") == 10);
  CHECK(known.at("negatives") == 20);
  refuses(window + "--epochs auto", "--epochs auto: no history has an event to validate on", 1);
}

TEST_CASE("a file of events: columns by name, labels from a threshold, windows of time") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path / "events.tsv";
  write_ring(path, 60, 50);
  const std::string options = "--data " + path.string() +
                              " --user-column who --item-column what --time-column when --width 16 "
                              "--heads 1 --blocks 1 --batch-size 16 --ranks 2 ";
  const nlohmann::json json = trained(
      options + "--epochs 30 --dropout 0 --negatives 50 --learning-rate 0.005 --max-length 8");
  CHECK(json.at("users") == 60);
  CHECK(json.at("items") == 50);
  CHECK(json.at("events") == 1'200);
  CHECK(json.at("train_samples") == 180);  // 17 targets of a user: 8, 8, 1
  CHECK(number(json, "hr10") > 0.9);
  CHECK(!json.contains("best_hr10"));
  const nlohmann::json window = trained(options + "--epochs 1 --test-window 300");
  CHECK(window.at("test_samples") == 60);
  const nlohmann::json labels =
      trained(options + "--epochs 1 --model ranking --label-column stars --label-threshold 4");
  CHECK(number(labels, "auc") >= 0);
  CHECK(number(trained(options + "--epochs 1 --model ranking"), "auc") >= 0);

  refuses("--data " + path.string(), "there is no column 'user'", 1);
  refuses(options + "--label-column likes", "there is no column 'likes'", 1);
  refuses(options + "--test-window 1000", "no event is before the two windows", 1);
  refuses("--data " + (folder.path / "none").string(), "cannot open", 1);
  refuses(options + "--json " + path.string(), "--json: '");
  refuses(options + "--model ranking --predictions " + path.string(), "--predictions: '");
  refuses(options + "--items 100", "--items");
  const auto one = folder.path / "one.csv";
  std::ofstream(one) << "user,item,timestamp\na,x,1\nb,y,2\n";
  refuses("--data " + one.string(), "no user has the four events", 1);
  std::ofstream(one) << "user,item,timestamp\na,x,soon\n";
  refuses("--data " + one.string(), "line 2, column 'timestamp': 'soon'", 1);
}

TEST_CASE("files of MovieLens' and RecBole's forms, by options; texts that name options") {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.path / "events";
  const auto write = [&](const std::string& header, const std::string& separator) {
    std::ofstream file(path);
    file << header;
    for (int u = 0; u < 60; ++u)
      for (int e = 0; e < 20; ++e)
        file << "u" << u << separator << "item-" << (7 * u + e) % 50 << separator << 100 * e + u
             << '\n';
  };
  const std::string options =
      "--data " + path.string() + " --width 16 --heads 1 --blocks 1 --epochs 1 ";
  const auto bits = [&](const std::string& more) { return trained(options + more).at("loss"); };
  write("user,item,timestamp\n", ",");
  const nlohmann::json plain = bits("");
  write("", "::");
  CHECK(bits("--separator :: --columns user,item,timestamp") == plain);
  refuses(options,
          "there is no column 'user', which --user-column names; there is one column, "
          "'u0::item-0::0'; if something else separates the fields, give 'separator' (an option: "
          "--separator); if this is no line of names, give 'columns' (--columns)",
          1);
  write("user_id:token item_id:token timestamp:float\n", "   ");
  CHECK(bits("--separator blanks --user-column user_id --item-column item_id") == plain);
  write("user|item|timestamp\nNA|x|1\n\"|x|1\n", "|");
  CHECK(trained(options + "--separator '|' --quote none --empty-words NA,- --skip-bad-lines")
            .at("events") == 1'201);
  refuses(options + "--separator '\"'", "--separator");
  refuses(options + "--quote ''", "the value is empty");
  refuses(options + "--quote abc", "--quote: ");
  refuses("--separator ,", "--separator");

  // times at both ends of 64 bits
  std::ofstream(path)
      << "user,item,timestamp\na,x,-9223372036854775808\na,y,9223372036854775806\nb,x,1\n";
  refuses(options + "--test-window 2305843009213693951", "0 histories to train on and 1 to test on",
          1);
  std::ofstream(path)
      << "user,item,timestamp\na,x,-9223372036854775808\na,y,-9223372036854775800\n";
  refuses(options + "--test-window 7",
          "times go from -9223372036854775808 to -9223372036854775800; no event is before the "
          "two windows of 7",
          1);
  std::ofstream(path) << "user,item,timestamp\na,x,-9223372036854775808\na,y,9223372036854775807\n";
  refuses(options + "--test-window 7", "the time 9223372036854775807 is the largest of 64 bits", 1);
}

TEST_CASE("bad options are one clear line") {
  refuses("--no-such-option", "--no-such-option");
  refuses("--plan diagonal", "--plan");
  refuses("--model autoencoder", "--model");
  refuses("--width 24", "--width");
  refuses("--heads 3", "--heads");
  refuses("--width 16 --heads 4", "a head then has 4 columns");
  refuses("--blocks -1", "--blocks");
  refuses("--max-length 0", "--max-length");
  refuses("--dropout 1", "--dropout");
  refuses("--negatives 0", "--negatives");
  refuses("--hot-rows 5", "--hot-rows is for --plan hot-rows");
  refuses("--predictions /tmp/x.tsv", "--predictions are of --model ranking");
  refuses("--log-q", "--log-q corrects for --popularity, which is 0");
  refuses("--popularity -1", "--popularity");
  refuses("--popularity 1 --model ranking", "--popularity is of --model next-item");
  refuses("--popularity 1 --items 100 --epochs 1", "--popularity: all 100 items are negatives", 1);
  refuses("--ranks 0", "--ranks");
  refuses("--ranks 65", "--ranks");
  refuses("--threads-per-rank 0", "--threads-per-rank");
  refuses("--epochs 0", "--epochs");
  refuses("--batch-size 0", "--batch-size");
  refuses("--learning-rate -1", "--learning-rate");
  refuses("--learning-rate nan", "--learning-rate");
  refuses("--seed -1", "--seed");
  refuses("--items 20", "--items 20: made-up histories need at least 100");
  refuses("--users 0", "--users");
  refuses("--user-column u", "--user-column");
  refuses("--resume", "--resume");
  refuses("--save-every 2", "--save-every");
  refuses("--save ''", "the value is empty");
  refuses("--label-threshold 2", "--label-threshold");
  refuses("--json /nowhere/x.json", "--json: cannot write", 1);
  refuses(kTiny + "--epochs 1 --save /dev/null", "--save", 1);
  refuses(kTiny + "--epochs 2 --learning-rate 1e30", "the training diverged", 1);
  const Outcome help = train_sequence("--help", false);
  CHECK(help.status == 0);
  for (const char* option : {"--data", "--plan", "--negatives", "--max-length", "--resume"})
    CHECK(help.out.find(option) != std::string::npos);
}
