// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// train_dlrm from the outside: what it learns under every plan and optimizer, what it says, how it
// fails.
#include <tessera/dense/matmul.hpp>

#include <trainer/command.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

// Few ids, so that a small number of samples teaches them; the bottom of AUC is 0.5, the best that
// is possible is about 0.85.
const std::string kTiny =
    " --samples 16000 --max-rows 20 --batch-size 128 --embedding-width 8 --bottom-mlp 16 --top-mlp "
    "32 --dense-learning-rate 0.01 ";

const std::vector<std::string> kPlans{"table-wise",  "column-wise", "row-wise",
                                      "interleaved", "hot-rows",    "grid",
                                      "replicated",  "mixed",       "auto"};

double number(const nlohmann::json& json, const char* key) { return json.at(key).get<double>(); }

void check_close(const nlohmann::json& a, const nlohmann::json& b) {
  CHECK(std::abs(number(a, "auc") - number(b, "auc")) < 5e-4);
  CHECK(std::abs(number(a, "logloss") - number(b, "logloss")) < 5e-4);
}

}  // namespace

TEST_CASE("every plan and optimizer learns, and results are complete") {
  for (const std::string optimizer :
       {"sgd", "adagrad", "rowwise-adagrad", "adam", "'adagrad:C1*,adam:C2,rowwise-adagrad:*'",
        "'lamb:C1*,momentum:C20,adamw:C2*,partial-rowwise-adam:C3,"
        "rowwise-adagrad-l2(weight_decay=1e-5):C4,"
        "rowwise-adagrad-decoupled(weight_decay=1e-3,epsilon=1e-7):C5,"
        "rowwise-adagrad-counted(rate=faster,power=0.5,most=100):C6,adam-counted:C7,lion:*'"}) {
    nlohmann::json first;
    for (const std::string& plan : kPlans) {
      CAPTURE(plan);
      CAPTURE(optimizer);
      const nlohmann::json json =
          results(kTiny + "--ranks 3 --plan " + plan + (plan == "hot-rows" ? " --hot-rows 3" : "") +
                  " --optimizer " + optimizer);
      CHECK(json.at("plan") == plan);
      CHECK(json.at("ranks") == 3);
      CHECK(json.at("steps") == 113);  // 14,400 / 128, rounded up
      CHECK(json.at("train_samples") == 14400);
      CHECK(json.at("test_samples") == 1600);
      CHECK(number(json, "samples_per_second") > 0);
      CHECK(number(json, "auc") > 0.74);
      CHECK(number(json, "auc") < number(json, "best_auc") + 0.01);
      CHECK(number(json, "logloss") < 0.59);
      if (first.is_null()) first = json;
      check_close(first, json);
    }
  }
}

TEST_CASE("constants of optimizers: those that change nothing, and those that do") {
  const auto loss = [](const std::string& optimizer) {
    return number(results(kTiny + "--ranks 2 --max-steps 40 --optimizer '" + optimizer + "'"),
                  "logloss");
  };
  const double adagrad = loss("rowwise-adagrad");
  CHECK(loss("rowwise-adagrad(initial_accumulator=0)") == adagrad);
  CHECK(loss("rowwise-adagrad(initial_accumulator=1)") != adagrad);
  CHECK(loss("rowwise-adagrad-l2(weight_decay=0)") == adagrad);
  CHECK(loss("rowwise-adagrad-l2(weight_decay=0.1)") != adagrad);
  CHECK(loss("rowwise-adagrad-decoupled") == adagrad);
  CHECK(loss("rowwise-adagrad-decoupled(weight_decay=1)") != adagrad);
  CHECK(loss("rowwise-adagrad-counted(rate=slower,threshold=1e9)") == adagrad);
  CHECK(loss("rowwise-adagrad-counted(rate=slower,most=1e3):C1,rowwise-adagrad:*") != adagrad);
  const double adam = loss("adam");
  CHECK(loss("adam(beta2=0.999,beta1=0.9):C1,adam(beta1=0.9,beta2=0.999):*") == adam);
  CHECK(loss("adam(beta1=0.5)") != adam);
  CHECK(loss("momentum(nesterov=true)") != loss("momentum"));
}

TEST_CASE("--clip-norm: a bound that no step reaches changes nothing, a small one holds it back") {
  const nlohmann::json free = results(kTiny + "--ranks 2"),
                       wide = results(kTiny + "--ranks 2 --clip-norm 1e9"),
                       narrow = results(kTiny + "--ranks 2 --optimizer sgd --clip-norm 1e-6");
  CHECK(free.at("auc") == wide.at("auc"));
  CHECK(free.at("logloss") == wide.at("logloss"));
  CHECK(number(narrow, "logloss") > number(free, "logloss") + 0.01);
}

TEST_CASE("--accumulate: nearly a batch of so many times the size, whatever else is asked for") {
  std::string base = kTiny;
  base.replace(base.find("--batch-size 128"), 16, "--batch-size 32");
  for (const std::string how : {"--ranks 1", "--ranks 3 --plan mixed --clip-norm 0.5"}) {
    CAPTURE(how);
    const nlohmann::json whole = results(kTiny + how),
                         cut = results(base + how + " --accumulate 4");
    CHECK(cut.at("steps") == 113);  // of 450 batches, the last step of two
    check_close(whole, cut);
    CHECK(cut.at("logloss") != results(base + how).at("logloss"));
    for (const std::string other : {" --overlap", " --loader first-rank", " --evals-per-epoch 7"}) {
      CAPTURE(other);
      CHECK(cut.at("logloss") == results(base + how + " --accumulate 4" + other).at("logloss"));
    }
  }
  CHECK(results(base + "--ranks 2 --accumulate 4 --clip-norm 1e9").at("logloss") ==
        results(base + "--ranks 2 --accumulate 4").at("logloss"));
}

TEST_CASE("--trace: events that Perfetto opens, of every rank's first steps") {
  const TemporaryFolder folder;
  const std::string file = (folder.path / "run.json").string();
  for (const bool overlap : {false, true}) {
    const nlohmann::json with = results(kTiny + "--ranks 3 --plan mixed --trace-steps 4 --trace " +
                                        file + (overlap ? " --overlap" : ""));
    // the trace event format: docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
    const nlohmann::json trace = nlohmann::json::parse(text_of(file));
    CHECK(trace.at("displayTimeUnit") == "ms");
    std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> spans;  // by rank, thread
    std::map<std::string, int> names;
    for (const nlohmann::json& event : trace.at("traceEvents")) {
      REQUIRE(event.at("name").is_string());
      const int pid = event.at("pid").get<int>(), tid = event.at("tid").get<int>();
      CHECK((pid >= 0 && pid < 3));
      if (event.at("ph") == "M") {
        CHECK((event.at("name") == "process_name" || event.at("name") == "thread_name"));
        CHECK(event.at("args").at("name").is_string());
        continue;
      }
      REQUIRE(event.at("ph") == "X");
      const double begin = number(event, "ts"), length = number(event, "dur");
      CHECK(length >= 0);
      spans[{pid, tid}].emplace_back(begin, begin + length);
      ++names[event.at("name").get<std::string>()];
    }
    CHECK(spans.size() == (overlap ? 6 : 3));
    for (auto& [thread, of_thread] : spans) {
      std::sort(of_thread.begin(), of_thread.end());
      // events of a thread must nest: here none begins before the one before has ended
      for (std::size_t i = 1; i < of_thread.size(); ++i)
        CHECK(of_thread[i].first >= of_thread[i - 1].second - 0.002);
    }
    for (const char* name :
         {"route", "lookup", "exchange", "assemble", "split", "exchange_gradients", "update",
          "bottom MLP", "interaction", "top MLP", "all-reduce", "dense optimizer", "read batch"}) {
      CAPTURE(name);
      CHECK(names[name] == 3 * 4);
    }
    if (!overlap)
      CHECK(with.at("logloss") == results(kTiny + "--ranks 3 --plan mixed").at("logloss"));
  }
  const Outcome outcome = train_dlrm(kTiny + "--trace /no/such/folder/run.json");
  CHECK(outcome.status != 0);
  CHECK(outcome.err.find("--trace") != std::string::npos);
}

TEST_CASE("every width") {
  for (const int width : {8, 16, 32, 64, 128}) {
    CAPTURE(width);
    const nlohmann::json json = results(
        "--samples 4000 --max-rows 20 --batch-size 256 --bottom-mlp 16 --top-mlp 32 --ranks 2 "
        "--embedding-width " +
        std::to_string(width));
    CHECK(number(json, "auc") > 0.6);
    CHECK(json.at("embedding_width") == width);
  }
}

TEST_CASE("one answer for any number of ranks and threads, the same bits for the same options") {
  // 100 samples are not divided by 3 or 7 ranks; the last batch of 1,442 has 42.
  const std::string options =
      " --samples 1602 --test-fraction 0.1 --max-rows 20 --batch-size 100 --embedding-width 8 "
      "--bottom-mlp 16 --top-mlp 32 ";
  const nlohmann::json one = results(options + "--ranks 1");
  CHECK(one.at("steps") == 15);
  for (const std::string other :
       {"--ranks 2", "--ranks 3", "--ranks 4", "--ranks 7", "--ranks 1 --threads-per-rank 2",
        "--ranks 2 --threads-per-rank 2"}) {
    CAPTURE(other);
    check_close(one, results(options + other));
  }
  const nlohmann::json a = results(options + "--ranks 4"), b = results(options + "--ranks 4");
  CHECK(a.at("auc") == b.at("auc"));
  CHECK(a.at("logloss") == b.at("logloss"));
  CHECK(a.at("logloss") != results(options + "--ranks 4 --seed 9").at("logloss"));
}

TEST_CASE("fewer samples than ranks") {
  const nlohmann::json json = results(
      "--samples 40 --test-fraction 0.25 --batch-size 3 --ranks 5 --max-rows 10 --embedding-width "
      "8 --bottom-mlp 8 --top-mlp 8");
  CHECK(json.at("steps") == 10);
  CHECK(json.at("test_samples") == 10);
  check_close(json, results("--samples 40 --test-fraction 0.25 --batch-size 3 --ranks 1 --max-rows "
                            "10 --embedding-width 8 --bottom-mlp 8 --top-mlp 8"));
}

TEST_CASE("the plan is shown: every table, every rank, rows and columns of each rectangle") {
  const Outcome outcome = train_dlrm(
      "--samples 600 --max-rows 20 --embedding-width 16 --bottom-mlp 8 --top-mlp 8 --ranks 4");
  REQUIRE(outcome.status == 0);
  for (int f = 1; f <= 26; ++f)
    CHECK(outcome.out.find("\nC" + std::to_string(f) + " ") != std::string::npos);
  for (const char* piece : {"every", "[0, 5)", "[15, 20)", "[8, 16)", "rank 3 ", "KiB", "test AUC",
                            "log loss", "samples/s", "best possible"}) {
    CAPTURE(piece);
    CHECK(outcome.out.find(piece) != std::string::npos);
  }
  CHECK(outcome.out.find('\r') == std::string::npos);  // no bar where there is no terminal
}

TEST_CASE(
    "plan auto says what it expects, what came next, why each table is cut so, and whose constants "
    "these are") {
  const std::string tiny =
      "--samples 600 --max-rows 20 --embedding-width 16 --bottom-mlp 8 --top-mlp 8 --ranks 4 "
      "--plan ";
  const Outcome outcome = train_dlrm(tiny + "auto");
  REQUIRE(outcome.status == 0);
  for (const char* piece : {"predicted step of the embeddings: ", " ms = route ", " + update ",
                            "\nrunner-up: ", "\nconstants: "}) {
    CAPTURE(piece);
    CHECK(outcome.out.find(piece) != std::string::npos);
  }
  const std::size_t reasons = outcome.out.find("why each table is cut so");
  REQUIRE(reasons != std::string::npos);
  for (int f = 1; f <= 26; ++f)
    CHECK(outcome.out.find("\nC" + std::to_string(f) + " ", reasons) != std::string::npos);
  CHECK(train_dlrm(tiny + "row-wise").out.find("predicted step") == std::string::npos);
}

TEST_CASE("what a backend does not take: the same on the page, in the help and in errors") {
  const std::string page = text_of(source_folder() / "docs" / "trainer.md"),
                    help = train_dlrm("--help", false).out;
  std::size_t at = help.find("What a backend does not take:\n");
  REQUIRE(at != std::string::npos);
  std::string told = help.substr(help.find('\n', at) + 1), listed;
  const std::regex row(R"(\| `(host|cuda)` \| (.*) \| (.*) \|\n)");
  for (std::sregex_iterator r(page.begin(), page.end(), row), end; r != end; ++r) {
    std::string what = (*r)[2].str();
    std::erase(what, '`');
    listed += "  " + (*r)[1].str() + ": no " + what + ": " + (*r)[3].str() + "\n";
  }
  std::erase(listed, '`');
  CHECK(listed != "");
  CHECK(told.substr(0, listed.size()) == listed);
  CHECK(told.find(": no ", listed.size()) == std::string::npos);

  // what a graph does not capture
  const std::string title = "When --graph captures no step, and all are called:\n";
  at = help.find(title);
  REQUIRE(at != std::string::npos);
  std::string of_help = help.substr(at + title.size()), of_page;
  std::istringstream lines(page.substr(page.find("| with | because |\n|---|---|\n")));
  std::string text;
  std::getline(lines, text), std::getline(lines, text);
  while (std::getline(lines, text) && text.starts_with("| ")) {
    std::erase(text, '`');
    const std::size_t bar = text.find(" | ");
    of_page += "  with " + text.substr(2, bar - 2) + ": " +
               text.substr(bar + 3, text.size() - bar - 5) + "\n";
  }
  CHECK(of_page != "");
  CHECK(of_help.substr(0, of_page.size()) == of_page);
  CHECK(of_help.find("with", of_page.size()) == std::string::npos);
}

TEST_CASE("help names every option, and the default of each that has one") {
  const Outcome outcome = train_dlrm("--help", false);
  CHECK(outcome.status == 0);
  std::set<std::string> shown;
  const std::regex line("\n  --([a-z0-9-]+)( [^ \n]+)?( \\[[^\n]*\\])?");
  for (std::sregex_iterator at(outcome.out.begin(), outcome.out.end(), line), end; at != end;
       ++at) {
    const std::string value = (*at)[2].str();
    shown.insert((*at)[1].str());
    INFO(at->str());
    CHECK((value.empty() || value.starts_with(" FILE") || value == " DIR" || value == " Needs:" ||
           value == " Excludes:" || (*at)[3].matched));
  }
  // what the source declares, options and flags
  const std::string source = text_of(source_folder() / "examples" / "train_dlrm" / "options.cpp");
  const std::regex declared(
      "\\b(?:add|flag|add_option|add_flag|set_config)\\(\\s*\"--([a-z0-9-]+)\"");
  std::set<std::string> names;
  for (std::sregex_iterator at(source.begin(), source.end(), declared), end; at != end; ++at)
    names.insert((*at)[1].str());
  CHECK(names.size() > 65);  // not all: some stand in loops
  for (const std::string& name : names) {
    CAPTURE(name);
    CHECK(shown.contains(name));
  }
  for (const std::string& plan : kPlans) CHECK(outcome.out.find(plan) != std::string::npos);
}

TEST_CASE("bad options are one clear line") {
  check_fails("--no-such-option", "--no-such-option");
  check_fails("stray", "stray");
  check_fails("--plan diagonal", "--plan");
  check_fails("--plan hot-rows --hot-rows 0", "--hot-rows");
  check_fails("--plan row-wise --hot-rows 5", "--hot-rows is for --plan hot-rows");
  check_fails("--backend tpu", "--backend");
  check_fails("--backend cuda --communicator mpi",
              "--backend cuda takes no --communicator but threads and nccl: its ranks are threads");
  check_fails("--device-memory 1MiB", "--backend host takes no --device-memory");
  check_fails("--dense tf32", "--backend host takes no --dense tf32: ");
  check_fails("--host-memory 1MiB", "--host-memory needs --table-files");
  check_fails("--samples 9 --data x", "--samples is for synthetic clicks");
  check_fails("--power 0 --data x", "--power is for synthetic clicks");
  check_fails("--data / --test-fraction 0.2", "--test-fraction is for files and synthetic clicks");
  check_fails("--data / --skip-bad-lines", "--skip-bad-lines is for files");
  check_fails("--samples 300 --max-rows 5 --epochs 1 --validation-fraction 0.0001",
              "--validation-fraction 0.0001 holds out no sample of 300", 1);
  check_fails("--table-files x", "--table-files needs --host-memory");
  check_fails("--table-files x --host-memory 0", "--host-memory");
  check_fails("--table-files x --host-memory lots", "--host-memory");
  check_fails("--table-files x --backend cuda", "--table-files needs --device-memory");
  check_fails("--table-files x --device-memory 1MiB --host-memory 1MiB --backend cuda",
              "--backend cuda takes no --table-files with --host-memory");
  check_fails("--interaction sum", "--interaction");
  check_fails("--cross-rank 4", "--cross-rank is for --interaction cross");
  check_fails("--interaction dot --cross-layers 2", "--cross-layers is for --interaction cross");
  check_fails("--interaction cross --cross-layers 0", "--cross-layers");
  check_fails("--table-precision fp8", "--table-precision");
  check_fails("--codec fp8", "--codec");
  check_fails("--gradient-codec 8", "--gradient-codec");
  check_fails("--dense fp16", "--dense");
  check_fails("--optimizer lars", "there is no optimizer 'lars'");
  check_fails("--optimizer adam,", "there is no optimizer ''");
  check_fails("--optimizer ftrl:,adam", "'ftrl:' has no pattern");
  check_fails("--optimizer frozen", "all tables are frozen");
  check_fails("--optimizer 'adam(beta3=1)'",
              "optimizer adam has no constant 'beta3'; it has beta1, beta2, epsilon");
  check_fails("--optimizer 'sgd(momentum=0.9)'", "optimizer sgd has no constants");
  check_fails("--optimizer 'adam(beta1=1)'",
              "optimizer adam: beta1 is '1'; give a number from 0 to below 1");
  check_fails("--optimizer 'adam(epsilon=1e-8x)'", "epsilon is '1e-8x'; give a number from 0 on");
  check_fails("--optimizer 'adam(epsilon)'", "epsilon is ''");
  check_fails("--optimizer 'adam()'", "optimizer adam has no constant ''");
  check_fails("--optimizer 'ftrl(l1=nan)'", "l1 is 'nan'");
  check_fails("--optimizer 'momentum(nesterov=1)'", "nesterov is '1'; give true or false");
  check_fails("--optimizer 'rowwise-adagrad-counted(rate=fast)'",
              "rate is 'fast'; give faster, slower or by-count");
  check_fails("--optimizer 'rowwise-adagrad-counted(first_step=1.5)'", "first_step is '1.5'");
  check_fails("--optimizer 'rowwise-adagrad-counted(half_life=-2)'", "half_life is '-2'");
  check_fails("--optimizer 'adam(beta1=0.5,beta1=0.6)'", "beta1 is given twice");
  check_fails("--optimizer 'adam(beta1=0.5:C1,adam'", "has no ')'");
  check_fails("--optimizer 'adam(beta1=0.5)C1'", "goes on behind its constants");
  check_fails("--optimizer 'adam(beta1=0.5):C1,adam:*'", "adam has two sets of constants");
  check_fails("--clip-norm 0", "--clip-norm");
  check_fails("--accumulate 0", "--accumulate");
  check_fails("--virtual-ranks 6 --ranks 2", "powers of two");
  check_fails("--virtual-ranks 2 --ranks 4", "powers of two");
  check_fails("--virtual-ranks 8 --ranks 2 --codec bf16", "--codec");
  check_fails("--virtual-ranks 8 --ranks 2 --loader first-rank", "--loader");
  check_fails("--virtual-ranks 8 --deduplicate", "--deduplicate");
  check_fails("--virtual-ranks 8 --bucket-kib 4", "--bucket-kib");
  check_fails("--trace-steps 4", "--trace");
  check_fails("--accumulate 2 --bucket-kib 4", "--accumulate");
  check_fails("--ranks 0", "--ranks");
  check_fails("--ranks many", "--ranks");
  check_fails("--threads-per-rank 0", "--threads-per-rank");
  check_fails("--test-fraction 1.5", "--test-fraction");
  check_fails("--max-rows 2", "--max-rows");
  check_fails("--batch-size -5", "--batch-size");
  check_fails("--epochs -1", "--epochs");
  check_fails("--learning-rate -1", "--learning-rate");
  check_fails("--learning-rate nan --samples 1000 --max-rows 10", "--learning-rate");
  check_fails("--bottom-mlp 512,0", "--bottom-mlp");
  check_fails("--top-mlp 512,x", "--top-mlp");
  for (const char* sizes : {"4,,4", "4,", ",4"})
    check_fails(std::string("--bottom-mlp ") + sizes, "'' in '" + std::string(sizes) + "'");
  check_fails("--seed", "--seed");
  for (const char* seed : {"-1", "18446744073709551616", "1.5", "x"})
    check_fails(std::string("--seed ") + seed, "--seed");
  for (const char* option : {"--data", "--save", "--json", "--plan", "--codec", "--bottom-mlp",
                             "--seed", "--learning-rate", "--ranks"})
    check_fails(std::string(option) + " ''", option);
  for (const char* option :
       {"--learning-rate", "--dense-learning-rate", "--weight-decay", "--initial-bound"})
    check_fails(std::string(option) + " 1e-60", option);
  check_fails("--ranks 256 --threads-per-rank 256",
              "--ranks 256 with --threads-per-rank 256 needs 65536 threads");
  check_fails("--timeout -1", "--timeout");
  check_fails("--schedule hold:3,ramp:4", "schedule 'hold:3,ramp:4', stage 'ramp:4'");
  check_fails("--dense-schedule warmup:0", "stage 'warmup:0'");
  check_fails("--schedule hold:3 --constant-rates", "--constant-rates");
  check_fails("--mode eval", "--mode eval: add --save DIR --resume");
  check_fails("--stop-at-auc 2", "--stop-at-auc");
  check_fails("--auc rough", "--auc");
  check_fails("--predictions x --json x", "--json: 'x' is the file of --predictions");
  check_fails("--predictions /no/such/folder/file", "--predictions: cannot write", 1);
  check_fails("--samples 1", "--samples");
  check_fails("--eviction oldest", "--eviction requires --vocabulary");
  check_fails("--time-to-live 5", "--time-to-live requires --vocabulary");
  check_fails("--vocabulary --time-to-live -1", "--time-to-live");
  check_fails("--cold-keys 5", "--cold-keys requires --vocabulary");
  check_fails("--vocabulary --cold-keys -1", "--cold-keys");
  check_fails("--vocabulary --cold-keys 5 --model wide-deep", "--model wide-deep has two");
  check_fails("--vocabulary --cold-keys 5 --overlap --host-memory 1MiB --table-files /tmp",
              "rows in --table-files that --overlap has fetched");
  check_fails("--admit-probability 0.5", "--admit-probability requires --vocabulary");
  check_fails("--vocabulary --admit-probability 0", "--admit-probability");
  check_fails("--vocabulary --admit-probability 1.5", "--admit-probability");
  check_fails("--json /no/such/folder/file", "/no/such/folder/file", 1);
  const Outcome unwritable = train_dlrm(kTiny + "--save /proc/no/such/folder", false);
  CHECK(unwritable.err.find("--save: cannot write to the folder '/proc/no/such/folder'") !=
        std::string::npos);
  CHECK(unwritable.out.find("loss") == std::string::npos);  // said before the training
}

TEST_CASE("unreadable and malformed files are one clear line") {
  const TemporaryFolder folder;
  const auto file = [&](const char* name, const std::string& text) {
    std::ofstream(folder.path / name) << text;
    return "--data '" + (folder.path / name).string() + "' ";
  };
  check_fails("--data /no/such/file", "cannot open '/no/such/file'", 1);
  check_fails("--data /", "folder '/' has no feature_spec.yaml", 1);
  check_fails(file("empty", ""), "holds no clicks", 1);
  std::string good;
  for (int i = 0; i < 40; ++i)
    good += std::string(i % 2 == 0 ? "1" : "0") + "\t1\t\t3" + std::string(10, '\t') +
            (i % 2 == 0 ? "\tab" : "\tcd") + std::string(25, '\t') + "\n";
  check_fails(file("bad", good + "1\t2\tthree\n" + good), "line 41", 1);
  check_fails(file("binary", std::string(5000, '\1')), "line 1", 1);
  const std::string small =
      " --batch-size 8 --embedding-width 8 --bottom-mlp 8 --top-mlp 8 --ranks 2";
  CHECK(results(file("good", good) + small).at("train_samples") == 36);
  const Outcome skipped =
      train_dlrm(file("skipped", good + "1\t2\tthree\n" + good) + small + " --skip-bad-lines");
  CHECK(skipped.status == 0);
  CHECK(skipped.json.at("train_samples") == 72);
  CHECK(skipped.out.find("1 bad line") != std::string::npos);
}

TEST_CASE(
    "cross layers learn, low rank and full, the same on any number of ranks; they are in "
    "checkpoints") {
  const std::string cross = kTiny + "--interaction cross --cross-layers 2 ";
  for (const std::string rank : {"", "--cross-rank 8 "}) {
    CAPTURE(rank);
    const TemporaryFolder folder;
    const nlohmann::json json =
        results(cross + rank + "--ranks 3 --save '" + folder.path.string() + "'");
    CHECK(json.at("interaction") == "cross");
    CHECK(number(json, "auc") > 0.74);
    CHECK(number(json, "auc") < number(json, "best_auc") + 0.01);
    check_close(json, results(cross + rank + "--ranks 1"));
    check_close(json, results(cross + rank + "--ranks 3 --bucket-kib 1"));
    // 27 vectors of 8 columns; hidden layers of 16 and 32.
    constexpr std::int64_t width = 27 * 8;
    const std::int64_t layer = rank.empty() ? width * width + width : 2 * width * 8 + width;
    const std::int64_t bottom = 13 * 16 + 16 + 16 * 8 + 8, top = width * 32 + 32 + 32 + 1;
    CHECK(json.at("dense_parameters") == bottom + 2 * layer + top);
    const std::string manifest = text_of(folder.path / "step-000000000113" / "manifest.json");
    for (const char* name : {"\"cross.0.u\"", "\"cross.0.bias\"", "\"cross.1.u\""})
      CHECK(manifest.find(name) != std::string::npos);
    CHECK((manifest.find("\"cross.1.v\"") != std::string::npos) == !rank.empty());
    // Nothing is left to train: the test alone, with what was loaded.
    CHECK(results(cross + rank + "--ranks 2 --resume --save '" + folder.path.string() + "'")
              .at("auc")
              .get<double>() == doctest::Approx(number(json, "auc")).epsilon(1e-4));
  }
}

TEST_CASE("vectors travel encoded, duplicate ids stay at home: nearly the same model") {
  const std::string options = kTiny + "--ranks 3 --plan row-wise ";
  const nlohmann::json plain = results(options);
  CHECK(plain.at("codec") == "fp32");
  CHECK(plain.at("gradient_codec") == "fp32");
  for (const std::string how :
       {"--codec bf16", "--codec fp16 --deduplicate", "--codec int8 --gradient-codec bf16",
        "--deduplicate", "--gradient-codec int8 --overlap"}) {
    CAPTURE(how);
    const nlohmann::json json = results(options + how);
    CHECK(std::abs(number(json, "auc") - number(plain, "auc")) < 5e-3);
    CHECK(std::abs(number(json, "logloss") - number(plain, "logloss")) < 5e-3);
    if (how.find("codec") != std::string::npos)
      CHECK(json.at("logloss") != plain.at("logloss"));  // it was at work
    else
      check_close(json, plain);
    CHECK(json.at("deduplicate") == (how.find("--deduplicate") != std::string::npos));
  }
  CHECK(results(options + "--codec bf16").at("gradient_codec") == "bf16");
}

TEST_CASE("tables in 16 bits: nearly the same model, whose checkpoint is the same in float") {
  const nlohmann::json plain = results(kTiny + "--ranks 2");
  for (const std::string precision : {"bf16", "fp16"}) {
    CAPTURE(precision);
    const TemporaryFolder folder;
    const std::string saved = kTiny +
                              "--ranks 2 --optimizer 'adam:C1*,rowwise-adagrad:*' --save '" +
                              folder.path.string() + "' ";
    const nlohmann::json json = results(saved + "--table-precision " + precision);
    CHECK(json.at("table_precision") == precision);
    CHECK(std::abs(number(json, "logloss") - number(plain, "logloss")) < 2e-2);
    // 16-bit rows are floats: other ranks and another plan score the same
    CHECK(results(saved + "--mode eval --resume --plan row-wise").at("auc") == json.at("auc"));
  }
  CHECK(plain.at("table_precision") == "fp32");
  CHECK(results(kTiny + "--ranks 2 --table-precision bf16").at("logloss") != plain.at("logloss"));
}

TEST_CASE(
    "dense layers in bf16: nearly the same model, or an error that says what the processor lacks") {
  if (!tessera::detail::supported(tessera::DensePrecision::bfloat16)) {
    check_fails(kTiny + "--dense-precision bf16", "needs AVX-512", 1);
    return;
  }
  const nlohmann::json plain = results(kTiny), json = results(kTiny + "--dense-precision bf16");
  CHECK(plain.at("dense_precision") == "fp32");
  CHECK(json.at("dense_precision") == "bf16");
  CHECK(std::abs(number(json, "auc") - number(plain, "auc")) < 5e-3);
  CHECK(std::abs(number(json, "logloss") - number(plain, "logloss")) < 5e-3);
  CHECK(json.at("logloss") != plain.at("logloss"));  // it was at work
}

TEST_CASE("a batch routed ahead gives the same model, to the bit") {
  // 203 training samples, 25 a step: the last step of an epoch leaves two of five ranks without
  // any.
  const std::string options =
      "--samples 226 --test-fraction 0.1 --max-rows 20 --batch-size 25 --epochs 2 "
      "--embedding-width 8 --bottom-mlp 8 --top-mlp 8 ";
  for (const std::string ranks :
       {"--ranks 1", "--ranks 5 --plan mixed", "--ranks 5 --plan row-wise --loader first-rank"}) {
    CAPTURE(ranks);
    const TemporaryFolder in_turn, ahead;
    const nlohmann::json a = results(options + ranks + " --save '" + in_turn.path.string() + "'"),
                         b = results(options + ranks + " --overlap --save '" + ahead.path.string() +
                                     "'");
    CHECK(a.at("overlap") == false);
    CHECK(b.at("overlap") == true);
    CHECK(a.at("logloss") == b.at("logloss"));
    int files = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(in_turn.path)) {
      if (entry.path().extension() != ".safetensors") continue;
      ++files;
      CHECK(text_of(entry.path()) ==
            text_of(ahead.path / std::filesystem::relative(entry.path(), in_turn.path)));
    }
    CHECK(files > 0);
  }
}

TEST_CASE("--check-links: the plan's messages and their bytes; later plans take what it found") {
  const TemporaryFolder folder;
  const std::string file = (folder.path / "machine.json").string(),
                    machine = "TESSERA_MACHINE=" + file,
                    how =
                        "--samples 20000 --max-rows 50 --batch-size 8192 --bottom-mlp 32 --top-mlp "
                        "16 --max-steps 1 --ranks 2 ";
  const auto bytes_of = [](const std::string& out, const std::string& message) {
    std::smatch found;
    const bool shown = std::regex_search(out, found, std::regex("\n" + message + " +([0-9,]+) "));
    std::string digits = shown ? found[1].str() : "0";
    std::erase(digits, ',');
    return std::stoll(digits);
  };
  const Outcome checked = train_dlrm(how + "--plan table-wise --check-links", true, machine);
  INFO(checked.out, checked.err);
  REQUIRE(checked.status == 0);
  CHECK(checked.out.find("links: --communicator threads, 2 ranks on one machine") !=
        std::string::npos);
  // whole tables of 16 floats: the larger half of 26 goes to the other rank's 4,096 samples
  const std::int64_t vectors = bytes_of(checked.out, "vectors");
  CHECK(vectors % (4096 * 64) == 0);
  CHECK(vectors / (4096 * 64) >= 13);
  CHECK(vectors / (4096 * 64) <= 26);
  // of two ranks, each has as many gradients for the other as that one has vectors
  CHECK(bytes_of(checked.out, "gradients") == vectors);
  CHECK(bytes_of(checked.out, "ids") >= 13 * 4096 * 4);
  // half of the parameters there and back
  CHECK(bytes_of(checked.out, "dense sums") ==
        2 * 4 * checked.json.at("dense_parameters").get<std::int64_t>() / 2);
  const nlohmann::json kept = nlohmann::json::parse(text_of(file));
  CHECK(kept.size() == 1);
  CHECK(kept.at("links").at("threads").at("ranks") == 2);
  CHECK(kept.at("links").at("threads").at("bandwidth") > 1e6);

  const auto planned = [&](const std::string& arguments) {
    return train_dlrm(how + "--plan auto " + arguments, true, machine);
  };
  CHECK(planned("").out.find("links as --check-links found them (threads, 2 ranks, 2") !=
        std::string::npos);
  // copies send nothing but the dense layers' sums
  const Outcome copies = train_dlrm(how + "--plan replicated --check-links", true, machine);
  CHECK(bytes_of(copies.out, "vectors") == 0);
  CHECK(bytes_of(copies.out, "dense sums") > 0);
  CHECK(copies.out.find("nothing is kept") != std::string::npos);
  CHECK(train_dlrm("--samples 2000 --ranks 1 --max-steps 1 --check-links")
            .out.find("--check-links: one rank sends nothing") != std::string::npos);
  for (const auto& [text, error] : std::vector<std::pair<std::string, std::string>>{
           {R"({"links": {"threads": {"ranks": 2}}})", "'threads' of 'links'"},
           {R"({"links": {"threads": {"ranks": 2, "bandwidth": 0, "measured": {"processor": "p",
                "cores": 2, "date": "d"}}}})",
            "'bandwidth' of 'threads' must be bytes in a second"}}) {
    std::ofstream(file) << text;
    const Outcome bad = planned("");
    CHECK(bad.status == 1);
    CHECK_MESSAGE(bad.err.find(error) != std::string::npos, bad.err);
  }
}

TEST_CASE("a training that diverges says so") {
  check_fails(kTiny + "--optimizer adam:C1", "no pattern matches table 'C", 1);
  check_fails(kTiny + "--optimizer adam:D1,ftrl", "no table matches 'D1'", 1);
  check_fails(kTiny + "--optimizer sgd --learning-rate 1e30", "diverged", 1);
  check_fails(kTiny + "--optimizer sgd --learning-rate 1e30 --overlap", "diverged", 1);
  check_fails("--samples 16000 --max-rows 20 --dense-optimizer sgd --dense-learning-rate 1e20",
              "diverged", 1);
  check_fails(kTiny + "--initial-bound 1e30", "lower --initial-bound", 1);
}

TEST_CASE("a rate of 0 freezes its half of the model") {
  const std::string options =
      "--samples 16000 --max-rows 20 --batch-size 128 --embedding-width 8 --bottom-mlp 16 "
      "--top-mlp 32 ";
  const auto of = [&](const std::string& rates) { return results(options + rates); };
  const nlohmann::json whole = of(""), tables = of("--dense-learning-rate 0"),
                       dense = of("--learning-rate 0"),
                       nothing = of("--learning-rate 0 --dense-learning-rate 0");
  CHECK(number(tables, "dense_learning_rate") == 0);
  CHECK(number(dense, "learning_rate") == 0);
  for (const nlohmann::json& json : {tables, dense}) {
    CHECK(json.at("logloss") != whole.at("logloss"));
    CHECK(json.at("logloss") != nothing.at("logloss"));
  }
  CHECK(number(nothing, "auc") < 0.6);
  CHECK(nothing.at("logloss") ==
        of("--learning-rate 0 --dense-learning-rate 0 --epochs 2").at("logloss"));
}
