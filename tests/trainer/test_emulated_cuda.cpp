// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// train_dlrm --backend cuda, its kernels emulated, against --backend host: the same options, the
// same model.
#include <tessera/dense/matmul.hpp>

#include <support/free_port.hpp>
#include <trainer/command.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

const std::string kModel =
                      " --max-rows 40 --batch-size 100 --embedding-width 16 --bottom-mlp 16 "
                      "--top-mlp 32 --dense-learning-rate 0.01 ",
                  kTiny = kModel + "--samples 650 ", kTwelve = kModel + "--samples 1300 ";

/// In fp32 where `arguments` say nothing: the host's products, which tf32's are not.
nlohmann::json results_of(const std::string& arguments) {
  const bool chosen = arguments.find("--dense ") != std::string::npos ||
                      arguments.find("--dense-precision ") != std::string::npos;
  return results(arguments + (chosen ? "" : " --dense fp32"), "train_dlrm_emulated");
}

/// Log losses of the test, after 6 steps. A model that is not trained is at 0.69.
double loss(const std::string& arguments) {
  return results_of(kTiny + arguments).at("logloss").get<double>();
}

}  // namespace

TEST_CASE(
    "every option gives the host's model: optimizers, interactions, plans, codecs, duplicates, "
    "batches routed ahead, buckets") {
  for (const std::string how :
       {"--ranks 1", "--ranks 3 --plan mixed --overlap",
        "--ranks 2 --interaction cross --cross-layers 2 --cross-rank 8 --bucket-kib 1",
        "--ranks 2 --optimizer sgd --interaction cross --cross-layers 1 --dense-optimizer sgd",
        "--ranks 2 --plan row-wise --codec bf16 --deduplicate",
        "--ranks 3 --optimizer adam --plan column-wise --codec int8 --gradient-codec fp16 "
        "--overlap",
        "--ranks 2 --optimizer 'adagrad:C1*,frozen:C3,ftrl(l2=0.1):C2*,"
        "rowwise-adagrad-l2(weight_decay=0.1):C4,rowwise-adagrad-decoupled(weight_decay=1):C5,"
        "rowwise-adagrad-counted(rate=slower,most=1e3):C6,rowwise-adagrad:*' --plan replicated "
        "--dense-optimizer adagrad",
        "--ranks 4 --plan grid --loader first-rank",
        "--ranks 2 --plan table-wise --weight-decay 0.001 --clip-norm 0.5", "--ranks 2 --plan auto",
        "--ranks 3 --accumulate 3 --epochs 3 --overlap",
        "--ranks 2 --vocabulary --min-count 2 --overlap"}) {
    CAPTURE(how);
    const double host = loss(how + " --backend host"), cuda = loss(how + " --backend cuda");
    CHECK(host < 0.68);
    // Kernels add in another order; where that turns the last bit of a code, vectors differ by its
    // step.
    CHECK(std::abs(host - cuda) < (how.find("codec") == std::string::npos ? 1e-5 : 1e-3));
  }
}

TEST_CASE("accumulated batches between which rows change hands give the host's model") {
  const TemporaryFolder folder;
  const std::filesystem::path clicks = folder.path / "a.csv", schema = folder.path / "s.yaml";
  std::ofstream csv(clicks);
  csv << "y,n,c,d\n";
  // a new category every third line; the label follows its parity
  for (unsigned i = 0; i < 750; ++i)
    csv << ((i / 3 + i * i % 7 / 5) % 2) << ',' << i % 13 << ",c" << i / 3 % 2 + i / 30 * 2 << ",d"
        << i / 3 << '\n';
  csv.close();
  std::ofstream(schema) << "label: y\nnumeric: [n]\ncategorical: [c, d]\n";
  const std::string base = "--data " + clicks.string() + " --schema " + schema.string() +
                           " --vocabulary --min-count 1 --max-rows 60 --batch-size 50 --epochs 2 "
                           "--embedding-width 8 --top-mlp 16 --shuffle-window 1 ";
  for (const std::string how :
       {"--bottom-mlp 8 --ranks 2 --accumulate 3 ",
        "--model wide-deep --ranks 3 --plan row-wise --accumulate 2 --clip-norm 0.5 "
        "--optimizer adam --overlap "}) {
    CAPTURE(how);
    const auto loss_of = [&](const std::string& rest) {
      return results_of(base + how + rest).at("logloss").get<double>();
    };
    const double host = loss_of("--eviction oldest --backend host"),
                 cuda = loss_of("--eviction oldest --backend cuda");
    CHECK(std::abs(host - cuda) < 1e-5);
    CHECK(host != loss_of("--eviction none --backend host"));  // rows do change hands
  }
}

TEST_CASE("virtual ranks: accumulated batches give one model on any ranks, to the bit") {
  const std::string how = "--virtual-ranks 4 --accumulate 2 ";
  const double one = loss(how + "--backend cuda");
  CHECK(loss(how + "--backend cuda --ranks 4 --plan replicated") == one);
  CHECK(std::abs(loss(how + "--backend host --ranks 2") - one) < 1e-5);
}

TEST_CASE(
    "dense layers in bf16: nearly the model of fp32, on the host, too, where its processor can") {
  const double fp32 = loss("--backend cuda"), bf16 = loss("--backend cuda --dense-precision bf16");
  CHECK(bf16 != fp32);
  CHECK(std::abs(bf16 - fp32) < 2e-3);  // 8 bits: about 1e-3 of a loss of 0.6
  if (tessera::detail::supported(tessera::DensePrecision::bfloat16))
    CHECK(std::abs(bf16 - loss("--backend host --dense-precision bf16")) < 1e-3);
}

TEST_CASE("dense layers in tf32, what auto means on a GPU: nearly the model of fp32") {
  for (const std::string how : {"--backend cuda ", "--backend cuda --interaction cross "}) {
    const double fp32 = loss(how), tf32 = loss(how + "--dense tf32");
    // the emulated cuBLASLt has no tf32: what cross layers multiply by it is fp32
    CHECK((tf32 != fp32) == (how.find("cross") == std::string::npos));
    CHECK(std::abs(tf32 - fp32) < 5e-4);  // 11 bits
    CHECK(loss(how + "--dense auto") == tf32);
  }
  const nlohmann::json results = results_of(kTiny + "--backend cuda --dense auto");
  CHECK(results.at("dense_precision") == "tf32");
  const Outcome host =
      train_dlrm(kTiny + "--backend host --dense tf32", true, "", "train_dlrm_emulated");
  CHECK(host.status == 2);
  CHECK(host.err.find("--backend host takes no --dense tf32") != std::string::npos);
}

TEST_CASE("--virtual-ranks: the same bits on any number of ranks, on the GPU, too") {
  const double one = loss("--backend cuda --virtual-ranks 4 --ranks 1 --plan table-wise");
  for (const std::string how : {"--ranks 2 --plan mixed", "--ranks 4 --plan row-wise"}) {
    CAPTURE(how);
    CHECK(loss("--backend cuda --virtual-ranks 4 " + how) == one);
  }
  CHECK(std::abs(one - loss("--backend host --ranks 1 --virtual-ranks 4")) < 1e-5);
  // a wide part; lists of ten ids, averages, widths that have no kernels of their own
  for (const std::string model :
       {"--model wide-deep --embedding-width 4 --samples 500 --max-rows 30 --batch-size 100 ",
        "--synthetic-model tiny --scale 1/100000 --samples 200 --batch-size 40 --max-steps 3 "}) {
    CAPTURE(model);
    const std::string how = model + "--top-mlp 16 --backend cuda --virtual-ranks 2 ";
    CHECK(results_of(how + "--ranks 1 --plan table-wise").at("logloss") ==
          results_of(how + "--ranks 2 --plan row-wise").at("logloss"));
  }
}

TEST_CASE("--trace: what the GPU did, dense layers too, and beside it what the host did") {
  const TemporaryFolder folder;
  const std::string file = (folder.path / "run.json").string();
  results_of(kTiny + "--backend cuda --ranks 2 --trace-steps 3 --trace " + file);
  const nlohmann::json trace = nlohmann::json::parse(text_of(file));
  std::map<std::string, int> names;
  std::map<std::pair<int, int>, double> ends;  // by rank and thread
  std::vector<nlohmann::json> events;
  for (const nlohmann::json& event : trace.at("traceEvents"))
    if (event.at("ph") == "X") events.push_back(event);
  std::sort(events.begin(), events.end(), [](const auto& a, const auto& b) {
    return a.at("ts").template get<double>() < b.at("ts").template get<double>();
  });
  for (const nlohmann::json& event : events) {
    const double begin = event.at("ts").get<double>(), length = event.at("dur").get<double>();
    const int thread = event.at("tid").get<int>();
    double& end = ends[{event.at("pid").get<int>(), thread}];
    CHECK(length >= 0);
    CHECK(begin >= end - 2);  // in an event's time there are 3 digits of a millisecond
    end = begin + length;
    const std::string name = event.at("name").get<std::string>();
    ++names[name];
    CHECK((thread == 2) == (name == "read batch"));
  }
  for (const char* name :
       {"route", "lookup", "update", "bottom MLP", "interaction", "top MLP", "top MLP, backward",
        "bottom MLP, backward", "all-reduce", "dense optimizer", "read batch"}) {
    CAPTURE(name);
    CHECK(names[name] == 2 * 3);
  }
}

TEST_CASE("sums in buckets give the bits of sums at once") {
  const std::string how = "--backend cuda --ranks 3 --interaction cross --cross-rank 4 ";
  const double at_once = loss(how);
  CHECK(loss(how + "--bucket-kib 1") == at_once);
  CHECK(loss(how + "--bucket-kib 1000") == at_once);
}

TEST_CASE(
    "increments: resumed from one on the GPU, or on the host under another plan, as if nothing had "
    "happened") {
  const TemporaryFolder folder;
  const std::string how = "--interaction cross --cross-rank 4 ",
                    save = " --save '" + (folder.path / "a").string() + "'";
  const double whole =
      loss(how + "--backend cuda --ranks 2" + save + " --save-every 2 --save-increments 1");
  CHECK(std::filesystem::exists(folder.path / "a" / "step-000000000006"));
  for (const std::string other :
       {"--backend cuda --ranks 2", "--backend host --ranks 3 --plan row-wise"}) {
    CAPTURE(other);
    // an increment of step 2 is left, step 4
    std::filesystem::remove_all(folder.path / "a" / "step-000000000006");
    CHECK(text_of(folder.path / "a" / "step-000000000004" / "manifest.json")
              .find("\"base\":\"step-000000000002\"") != std::string::npos);
    CHECK(std::abs(loss(how + other + save + " --resume") - whole) < 1e-5);
  }
}

TEST_CASE("tables that do not fit the device stay in the host's memory: the same model") {
  // 26 tables of up to 40 rows of 16 floats and one state: 2,720 bytes each at most
  for (const std::string plan : {"mixed", "row-wise", "auto"}) {
    CAPTURE(plan);
    const std::string how = "--backend cuda --ranks 2 --plan " + plan;
    const double with = loss(how + " --device-memory 8KiB"), without = loss(how);
    // under auto the cuts differ, and with them the order of sums
    CHECK(std::abs(with - without) <= (plan == "auto" ? 1e-5 : 0.0));
  }
  CHECK(loss("--backend cuda --ranks 2 --plan mixed --device-memory 1 --host-memory 100KiB") ==
        loss("--backend cuda --ranks 2 --plan mixed"));
  const TemporaryFolder rows, saves;
  const std::string in_files = " --device-memory 200KiB --table-files " + rows.path.string(),
                    large =
                        "--samples 450 --max-rows 900 --batch-size 20 --embedding-width 16 "
                        "--bottom-mlp 16 --top-mlp 32 --backend cuda ";
  for (const std::string how : {"--ranks 2 --plan mixed --overlap", "--ranks 1 --plan auto"}) {
    CAPTURE(how);
    const std::string save = " --save " + (saves.path / how.substr(8, 1)).string();
    const nlohmann::json files = results_of(large + how + save + in_files);
    CHECK(files.at("logloss") == results_of(large + how).at("logloss"));
    CHECK(files.at("table_files").at("fetched_rows") > 500);
    CHECK(files.at("table_files").at("written_rows") > 100);
    CHECK(std::filesystem::is_empty(rows.path));
    const nlohmann::json resumed = results_of(large + how + save + " --resume --mode eval");
    CHECK(resumed.at("logloss") == files.at("logloss"));
  }
  // as many transfers under way as was measured to be best
  const std::string machine = (saves.path / "machine.json").string();
  std::ofstream(machine) << R"({"file_queue_depth": 7})";
  const Outcome measured = train_dlrm(large + "--dense fp32 --ranks 1" + in_files, true,
                                      "TESSERA_MACHINE=" + machine, "train_dlrm_emulated");
  INFO(measured.err);
  REQUIRE(measured.status == 0);
  CHECK(measured.json.at("table_files").at("queue_depth") == 7);
  const Outcome full =
      train_dlrm(kTiny + "--backend cuda --ranks 2 --device-memory 8KiB --host-memory 4KiB", true,
                 "", "train_dlrm_emulated");
  CHECK(full.status == 1);
  CHECK(full.err.find("bytes of host memory, but has 4096") != std::string::npos);
  const Outcome host =
      train_dlrm(kTiny + "--backend host --device-memory 8KiB", true, "", "train_dlrm_emulated");
  CHECK(host.status == 2);
  CHECK(host.err.find("--backend host takes no --device-memory") != std::string::npos);
}

TEST_CASE("over NCCL, a GPU for each rank: in rank order the bits of thread ranks") {
  const TemporaryFolder folder;
  const std::string file = (folder.path / "p.npy").string();
  const auto predictions = [&](const std::string& arguments) {
    // NCCL's double adds up backwards: in no order of the ranks
    const Outcome outcome =
        train_dlrm(kTwelve + "--backend cuda --dense fp32 " + arguments + " --predictions " + file,
                   true, "TESSERA_NCCL_DOUBLE_REVERSE=1", "train_dlrm_emulated");
    INFO(arguments, "\n", outcome.err);
    REQUIRE(outcome.status == 0);
    CHECK(outcome.err == "");
    return predictions_in(file);
  };
  for (const std::string how :
       {"--ranks 4 --plan mixed --overlap --deduplicate",
        "--ranks 3 --plan column-wise --interaction cross --cross-layers 1 --cross-rank 4 "
        "--accumulate 2 --clip-norm 0.5"}) {
    CAPTURE(how);
    const std::vector<float> threads = predictions(how),
                             ordered =
                                 predictions(how + " --communicator nccl --dense-sums ordered"),
                             nccl = predictions(how + " --communicator nccl");
    CHECK((ordered == threads));
    CHECK((nccl != threads));
    double worst = 0;
    for (std::size_t i = 0; i < threads.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(nccl[i]) - threads[i]));
    CHECK(worst < 1e-5);
  }
  const Outcome links = train_dlrm(
      kTiny + "--backend cuda --communicator nccl --ranks 2 --check-links --max-steps 1", true,
      "TESSERA_MACHINE='" + (folder.path / "m.json").string() + "'", "train_dlrm_emulated");
  CHECK_MESSAGE(
      links.out.find("links: --communicator nccl, 2 ranks on one machine") != std::string::npos,
      links.err);
  const auto fails = [&](int code, const std::string& arguments, const std::string& text) {
    const Outcome outcome = train_dlrm(kTiny + arguments, true, "", "train_dlrm_emulated");
    CHECK(outcome.status == code);
    CHECK_MESSAGE(outcome.err.find(text) != std::string::npos, outcome.err);
  };
  fails(1, "--backend cuda --communicator nccl --ranks 5",
        "with --communicator nccl each has a GPU of its own, and CUDA sees 4 here");
  fails(2, "--communicator nccl", "--backend host takes no --communicator nccl");
  fails(2, "--backend cuda --bind off", "--bind off is for --communicator nccl");
  fails(2, "--backend cuda --dense-sums ordered",
        "--dense-sums ordered is for --communicator nccl");
  fails(1, "--backend cuda --communicator nccl --ranks 3 --learning-rate 1e30 --optimizer sgd",
        "the training diverged before step");
}

TEST_CASE("--graph: steps that are captured and replayed give the bits of steps that are called") {
  const TemporaryFolder folder;
  // lists of none to four, the longest of which come late: bounds grow
  std::ofstream csv(folder.path / "a.csv");
  csv << "y,n,c,tags,likes\n";
  for (int i = 0; i < 640; ++i) {
    csv << (i % 20 < 7) << ',' << i % 13 << ",c" << i % 20 << ','
        << (i % 3 == 0 ? "" : "t" + std::to_string(i % 9) + "|t" + std::to_string(i % 4)) << ",t"
        << i % 7;
    for (int more = 0; i > 400 && more < 12; ++more) csv << "|t" << (i + more) % 8;
    csv << '\n';
  }
  csv.close();
  std::ofstream(folder.path / "s.yaml")
      << "label: y\nnumeric: [n]\ncategorical: [c, {name: tags, list: '|', pooling: mean, table: "
         "t}, {name: likes, list: '|', pooling: max, table: t}]\n";
  const std::string
      clicks = kTwelve + "--ranks 1 ",
      own = " --data " + folder.quoted("a.csv") + " --schema " + folder.quoted("s.yaml") +
            " --embedding-width 16 --bottom-mlp 8 --top-mlp 8 --min-count 1 --batch-size 40 "
            "--epochs 2 ";
  struct Case {
    std::string how;
    int captured = 1;
  };
  for (const Case& one :
       {Case{clicks},
        // a test whose batches are larger takes the buffers from under the graph
        {clicks + "--optimizer adam --evals-per-epoch 3 --eval-batch-size 300", 2},
        {clicks + "--interaction cross --cross-layers 2 --cross-rank 8 --schedule "
                  "warmup:3,hold:4,poly:9 --table-precision bf16"},
        {clicks + "--virtual-ranks 4 --dense-optimizer sgd --optimizer sgd"},
        {clicks + "--bucket-kib 1 --epochs 2 --optimizer 'adagrad:C1*,ftrl(l2=0.1):C2*,frozen:C3,"
                  "rowwise-adagrad-counted(rate=slower,most=1e3):*'"},
        {clicks + "--vocabulary --min-count 2 --save-every 5 --save-increments 1 --save ", 0},
        {"--model wide-deep --embedding-width 16 --samples 900 --max-rows 30 --batch-size 100 "
         "--top-mlp 16 --ranks 1 "},
        {"--synthetic-model tiny --scale 1/100000 --samples 200 --batch-size 20 --max-steps 7 "
         "--top-mlp 16 --ranks 1 "},
        {own + "--ranks 1 ", 2}}) {
    CAPTURE(one.how);
    const bool saves = one.how.ends_with("--save ");
    std::vector<float> predictions[2];
    for (const bool graph : {false, true}) {
      const std::string flag = graph ? "--graph" : "";
      const nlohmann::json results =
          results_of(one.how + (saves ? folder.quoted("save" + flag) : "") + " --backend cuda " +
                     flag + " --predictions " + folder.quoted("p.npy"));
      predictions[graph] = predictions_in(folder.path / "p.npy");
      CHECK(results.contains("graph") == graph);
      if (!graph) continue;
      const int captured = results.at("graph").at("captured").get<int>();
      CHECK(captured >= 1);
      if (one.captured > 0) CHECK(captured == one.captured);
      CHECK(results.at("graph").at("replayed").get<int>() >= 5);
    }
    CHECK((predictions[0] == predictions[1]));
    const auto [low, high] = std::ranges::minmax(predictions[0]);
    CHECK(high - low > 1e-4);
  }
  // over NCCL, whose exchanges are captured, too; the last batch of an epoch differs between ranks
  for (const Case& one :
       {Case{"--samples 1300 --max-rows 40 --embedding-width 16 --bottom-mlp 16 --top-mlp 32 "
             "--plan mixed --ranks 3 --batch-size 99 --eval-batch-size 301 --optimizer adam "
             "--evals-per-epoch 3 --bucket-kib 1",
             2},
        {"--synthetic-model tiny --scale 1/100000 --samples 200 --batch-size 20 --max-steps 7 "
         "--top-mlp 16 --ranks 2 --dense-sums ordered --plan row-wise "},
        {own + "--ranks 2 --plan row-wise --seed 2", 2}}) {
    CAPTURE(one.how);
    std::vector<float> predictions[2];
    for (const bool graph : {false, true}) {
      const nlohmann::json results =
          results_of(one.how + " --backend cuda --communicator nccl --predictions " +
                     folder.quoted("p.npy") + (graph ? " --graph" : ""));
      predictions[graph] = predictions_in(folder.path / "p.npy");
      if (!graph) continue;
      CHECK(results.at("graph").at("captured") == one.captured);
      CHECK(results.at("graph").at("replayed") >= 5);
    }
    CHECK((predictions[0] == predictions[1]));
  }
  // saved between replays: the GPU alone knows the number of steps
  for (const std::string ranks : {"--ranks 1", "--ranks 2 --communicator nccl"}) {
    CAPTURE(ranks);
    const std::string saved = kTiny + ranks +
                              " --optimizer adam --epochs 2 --backend cuda --save-every 4 "
                              "--save-async --save " +
                              folder.quoted("resumed" + ranks.substr(8, 1));
    const nlohmann::json whole = results_of(saved + " --graph");
    for (const std::string flag : {" --graph", ""}) {
      CAPTURE(flag);
      std::filesystem::remove_all(folder.path / ("resumed" + ranks.substr(8, 1)) /
                                  "step-000000000012");
      CHECK(results_of(saved + " --resume" + flag).at("logloss") == whole.at("logloss"));
    }
  }
  // what is not captured is called, and said
  for (const std::string how :
       {"--ranks 2", "--communicator nccl --ranks 2 --loader first-rank", "--ranks 1 --overlap",
        "--ranks 1 --accumulate 2", "--ranks 1 --clip-norm 1", "--ranks 1 --deduplicate",
        "--ranks 1 --device-memory 8KiB", "--ranks 1 --log '/dev/null'"}) {
    CAPTURE(how);
    const Outcome outcome =
        train_dlrm(kTiny + "--max-steps 2 --backend cuda --graph --dense fp32 " + how, true, "",
                   "train_dlrm_emulated");
    INFO(outcome.err);
    REQUIRE(outcome.status == 0);
    CHECK(outcome.out.find("--graph: steps are called, none is captured, with --") !=
          std::string::npos);
    CHECK(!outcome.json.contains("graph"));
  }
  const Outcome host = train_dlrm(kTiny + "--graph", true, "", "train_dlrm_emulated");
  CHECK(host.status == 2);
  CHECK(host.err.find("--backend host takes no --graph: graphs are CUDA's") != std::string::npos);
}

TEST_CASE("over NCCL a step of several ranks makes so many collectives") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path / "groups";
  // of both ranks, in so many steps
  const auto groups = [&](const std::string& how, int steps) {
    const Outcome outcome = train_dlrm(
        kTwelve + "--backend cuda --dense fp32 --communicator nccl --ranks 2 --print-every 1000 " +
            how + " --max-steps " + std::to_string(steps),
        true, "TESSERA_NCCL_DOUBLE_COUNT='" + file.string() + "'", "train_dlrm_emulated");
    REQUIRE_MESSAGE(outcome.status == 0, outcome.err);
    return std::stoll(text_of(file));
  };
  // ids, vectors, gradients, dense sums; copies' rows and gradients, and where columns are cut mean
  // squares of rows, start as one. Without a graph sizes go first.
  for (const auto& [how, most] : std::vector<std::pair<std::string, int>>{
           {"--plan table-wise --graph", 4},
           {"--plan row-wise --graph", 4},
           {"--plan column-wise --graph", 5},
           {"--plan replicated --graph", 2},
           {"--plan mixed --optimizer rowwise-adagrad-l2 --graph", 5},
           {"--plan mixed --graph", 5},
           {"--plan mixed", 7},
           {"--plan table-wise", 5}}) {
    CAPTURE(how);
    CHECK((groups(how, 10) - groups(how, 5)) / 2 == 5 * most);
  }
}

TEST_CASE("every option of --help, on both backends: the same predictions") {
  const TemporaryFolder folder;
  // two tables and two numbers, lists of none to four; a line that is no sample
  std::ofstream csv(folder.path / "a.csv");
  csv << "y,n,m,c,tags,likes\n";
  for (int i = 0; i < 420; ++i)
    csv << (i % 20 < 7) << ',' << i % 13 << ',' << i % 5 << ",c" << i % 20 << ','
        << (i % 3 == 0 ? "" : "t" + std::to_string(i % 9) + "|t" + std::to_string(i % 4)) << ",t"
        << i % 7 << "|t0|t" << i % 2 << "|t3\n";
  csv << "no sample\n";
  csv.close();
  std::ofstream(folder.path / "s.yaml")
      << "label: y\nnumeric: [n, {name: m, transform: standardize}]\ncategorical: [{name: c, "
         "width: 20}, {name: tags, list: '|', pooling: mean, table: t}, {name: likes, list: '|', "
         "pooling: max, table: t}]\n";
  std::ofstream(folder.path / "plan.json")
      << R"({"tessera_plan": 1, "ranks": 2, "ranks_per_node": 2, "tables": [
  {"name": "c", "rows": 22, "width": 20, "shards": [
    {"rows": [0, 22], "columns": [0, 16], "rank": 1, "memory": "device"},
    {"rows": [0, 22], "columns": [16, 20], "rank": 0, "memory": "device"}]},
  {"name": "t", "rows": 11, "width": 3, "shards": [
    {"rows": [0, 11], "columns": [0, 3], "rank": "every", "memory": "device"}]}]})";
  std::ofstream(folder.path / "shared.ini") << "samples=\"700\"\nmax-rows=\"30\"\n";
  const std::string clicks = " --samples 700 --max-rows 30 --batch-size 100 --top-mlp 16 ",
                    layers = "--bottom-mlp 16 --dense-learning-rate 0.01 ",
                    own = " --data " + folder.quoted("a.csv") + " --schema " +
                          folder.quoted("s.yaml") +
                          " --batch-size 70 --epochs 2 --top-mlp 8 "
                          "--embedding-width 3 --min-count 2 --skip-bad-lines --ranks 2 ";
  struct Case {
    std::string how;
    double most = 1e-6;  ///< difference of a probability
  };
  const Case cases[] = {
      {clicks +
       "--model wide-deep --wide-optimizer 'ftrl(l1=0.01)' --wide-learning-rate 0.2 --ranks 2 "
       "--plan hot-rows --hot-rows 5 --overlap --constant-rates --feature-check --seed 7 --power "
       "0.9 "
       "--threads-per-rank 2 --timeout 99 --print-every 3 --embedding-width 4 --log " +
       folder.quoted("log") + " --report " + folder.quoted("page")},
      {"--synthetic-model tiny --scale 1/100000 --samples 200 --test-fraction 0.2 --batch-size 40 "
       "--top-mlp 16 --ranks 2 --learning-rate 0.05 --max-steps 3 --loader first-rank"},
      {own + "--bottom-mlp 8 --interaction-width 5 --shuffle-window 99 --parser-threads 2 --codec "
             "fp16 "
             "--gradient-codec bf16 --plan grid",
       1e-5},
      {own + "--bottom-mlp 8 --interaction concat --deduplicate --plan-file " +
       folder.quoted("plan.json")},
      {own + "--vocabulary --eviction oldest --admit-probability 0.8 --time-to-live 3 --max-rows 9 "
             "--overlap --model wide-deep"},
      {" --config " + folder.quoted("shared.ini") +
       " --batch-size 100 --top-mlp 16 --embedding-width 20 --optimizer sgd --learning-rate 1 "
       "--schedule warmup:3,hold:9 --dense-schedule hold:9 --ranks 1 " +
       layers},
      {clicks + layers +
           "--table-precision bf16 --accumulate 2 --clip-norm 0.5 --initial-bound rows --ranks 2 "
           "--optimizer adam --weight-decay 0.001 --dense-optimizer sgd",
       1e-5},
      {clicks + layers +
           "--table-precision fp16 --embedding-width "
           "4,8,4,16,4,4,4,8,4,4,4,4,4,4,4,4,4,4,4,4,8,4,4,4,"
           "4,4 --virtual-ranks 2 --ranks 2 --evals-per-epoch 2 --stop-at-auc 0.9 --auc binned "
           "--eval-batch-size 64",
       1e-5},
      {clicks + layers +
       "--ranks 2 --recipe dcnv2 --cross-layers 1 --cross-rank 4 --embedding-width 8 "
       "--bucket-kib 1 --save-every 3 --keep 1 --save-async --save-increments 1 --save "},
      {own + "--bottom-mlp 8 --validation-fraction 0.2 --patience 1 --save "},
      // rows of the same keys, in tables of another length
      {own +
       "--bottom-mlp 8 --max-rows 15 --plan row-wise --freeze t --max-steps 4 "
       "--start-from " +
       folder.quoted("host9")}};
  std::string all;
  for (const Case& one : cases) {
    CAPTURE(one.how);
    all += one.how + ' ';
    std::vector<float> predictions[2];
    for (const std::string backend : {"host", "cuda"}) {
      const bool saves = one.how.ends_with("--save ");
      const std::string number = std::to_string(&one - cases),
                        how = one.how + (saves ? folder.quoted(backend + number) : "") +
                              " --backend " + backend + " --predictions ";
      results_of(how + folder.quoted("p.npy"));
      std::vector<float>& values = predictions[backend == "cuda"];
      values = predictions_in(folder.path / "p.npy");
      if (!saves) continue;
      for (const std::string mode : {"eval", "inference"}) {
        results_of(how + folder.quoted("q.npy") + " --resume --mode " + mode);
        CHECK(predictions_in(folder.path / "q.npy") == values);
      }
    }
    REQUIRE(predictions[0].size() == predictions[1].size());
    double worst = 0;
    for (std::size_t i = 0; i < predictions[0].size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(predictions[0][i]) - predictions[1][i]));
    CHECK(worst < one.most);
    const auto [low, high] = std::ranges::minmax(predictions[0]);
    CHECK(high - low > 1000 * one.most);  // a model that learned little differs by more than that
  }
  // those of the other tests of this file, and those that say something and end
  all +=
      " --backend --graph --dense --predictions --resume --mode --json --trace --trace-steps "
      "--tensorboard --metrics-port --device-memory --host-memory --table-files --communicator "
      "--check-links "
      "--bind --dense-sums --cold-keys --help "
      "--version --print-config ";
  const Outcome cold =
      train_dlrm("--vocabulary --cold-keys 5 --backend cuda", false, "", "train_dlrm_emulated");
  CHECK(cold.err.find("--backend cuda takes no --cold-keys") != std::string::npos);
  CHECK(options_among(all, "train_dlrm_emulated") > 70);
}

namespace {

/// Processes of train_dlrm --communicator nccl.
struct Processes {
  std::vector<int> status;
  std::vector<std::string> err;
  double seconds = 0;
};

/// Starts a rank for each of `variables`, with these besides its launcher's. If `killed` is a rank,
/// it ends when the shell command `until` has.
Processes run_processes(const std::filesystem::path& folder,
                        const std::vector<std::string>& variables, const std::string& arguments,
                        int killed = -1, const std::string& until = "") {
  std::string script = fmt::format(
      "export WORLD_SIZE={0} LOCAL_WORLD_SIZE={0} MASTER_ADDR=127.0.0.1 MASTER_PORT={1}; cd '{2}'; "
      "rm -f out* err* s*; ",
      variables.size(), free_port(), folder.string());
  for (std::size_t rank = 0; rank < variables.size(); ++rank)
    script += fmt::format(
        "RANK={0} LOCAL_RANK={0} {1} '{2}' {3} --backend cuda --communicator nccl >out{0} 2>err{0} "
        "& p{0}=$!; ",
        rank, variables[rank], train_dlrm_path("train_dlrm_emulated"), arguments);
  if (killed >= 0) script += fmt::format("{}; kill -9 $p{}; date +%s.%N >killed; ", until, killed);
  for (std::size_t rank = 0; rank < variables.size(); ++rank)
    script += fmt::format("wait $p{0}; echo $? >s{0}; ", rank);
  std::ofstream(folder / "script") << script << (killed >= 0 ? "date +%s.%N >ended" : "");
  const auto began = std::chrono::steady_clock::now();
  static_cast<void>(
      std::system(("timeout 120 bash '" + (folder / "script").string() + "' 2>/dev/null").c_str()));
  Processes all;
  all.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  if (killed >= 0)
    all.seconds = std::atof(text_of(folder / "ended").c_str()) -
                  std::atof(text_of(folder / "killed").c_str());
  for (std::size_t rank = 0; rank < variables.size(); ++rank) {
    all.status.push_back(std::atoi(text_of(folder / ("s" + std::to_string(rank))).c_str()));
    all.err.push_back(text_of(folder / ("err" + std::to_string(rank))));
  }
  return all;
}

bool has_gloo() {
  return train_dlrm("--help", false, "", "train_dlrm_emulated").out.find("gloo") !=
         std::string::npos;
}

}  // namespace

TEST_CASE("processes with a GPU each: what does not fit is said by all, a death ends all") {
  if (!has_gloo()) return;
  const TemporaryFolder folder;
  const auto refused = [&](const std::vector<std::string>& variables, const std::string& text) {
    const Processes all = run_processes(folder.path, variables, kTiny);
    CHECK_MESSAGE(all.status == std::vector<int>(variables.size(), 1), all.err[0] << all.err[1]);
    std::string said;
    for (const std::string& err : all.err) said += err;
    CHECK_MESSAGE(said.find(text) != std::string::npos, said);
    CHECK(all.seconds < 100);
  };
  refused({"", "LOCAL_RANK=0"}, "ranks 0 and 1 have the same GPU");
  refused({"", "TESSERA_SIMT_GPU=other"}, "the GPU is emulated on rank 0 and other on rank 1");
  refused(std::vector<std::string>(5),
          "rank 4 is number 4 of its machine's processes, and CUDA sees 4 GPUs there; start fewer");
  // without its variable NCCL's double knows one process: both wait in it for the other
  const Processes killed =
      run_processes(folder.path, {"", ""}, kTiny, 1,
                    "until grep -q 'training samples' out0; do sleep 0.1; done; sleep 1");
  CHECK(killed.status == std::vector{1, 137});
  CHECK_MESSAGE(killed.err[0].find("rank 1 failed: it closed its connections") != std::string::npos,
                killed.err[0]);
  CHECK(killed.seconds < 60);
}

TEST_CASE("processes over NCCL train the model of thread ranks to the bit, as graphs, too") {
  if (!has_gloo()) return;
  const TemporaryFolder folder;
  const std::string how = kTwelve + "--dense fp32 --predictions ",
                    threads = (folder.path / "threads.npy").string();
  for (const std::size_t ranks : {2u, 4u}) {
    CAPTURE(ranks);
    const std::string plan = ranks == 2 ? " --plan row-wise" : "";
    results_of(how + threads + plan + " --backend cuda --ranks " + std::to_string(ranks));
    for (const bool graph : {false, true}) {
      CAPTURE(graph);
      const std::vector<std::string> variables(
          ranks, "TESSERA_NCCL_DOUBLE_PROCESSES=1 TESSERA_NCCL_DOUBLE_REVERSE=1");
      const Processes all = run_processes(folder.path, variables,
                                          how + "p.npy --json results" + plan +
                                              " --dense-sums ordered" + (graph ? " --graph" : ""));
      CHECK_MESSAGE(all.status == std::vector<int>(ranks), all.err[0] << all.err[1]);
      CHECK(predictions_in(folder.path / "p.npy") == predictions_in(threads));
      const nlohmann::json results = nlohmann::json::parse(text_of(folder.path / "results"));
      if (graph) CHECK(results.at("graph").at("replayed") >= 8);
    }
  }
}

TEST_CASE("a process that is killed in training over NCCL is named by all others") {
  if (!has_gloo()) return;
  const TemporaryFolder folder;
  for (const int killed : {2, 0}) {  // 0: has the others' hub, too
    CAPTURE(killed);
    const std::size_t ranks = killed == 2 ? 4 : 2;
    const std::vector<std::string> variables(ranks, "TESSERA_NCCL_DOUBLE_PROCESSES=1");
    const Processes all =
        run_processes(folder.path, variables,
                      kTiny + "--epochs 1000 --print-every 1" + (killed == 2 ? " --graph" : ""),
                      killed, "until grep -q 'step 6/' out0; do sleep 0.1; done");
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const bool dead = static_cast<int>(rank) == killed;
      CHECK(all.status[rank] == (dead ? 137 : 1));
      if (!dead)
        CHECK_MESSAGE(
            all.err[rank].find(fmt::format("rank {} failed", killed)) != std::string::npos,
            all.err[rank]);
    }
    CHECK(all.seconds < 60);
  }
}
