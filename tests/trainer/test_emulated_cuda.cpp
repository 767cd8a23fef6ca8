// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// train_dlrm --backend cuda, its kernels emulated, against --backend host: the same options, the
// same model.
#include <tessera/dense/matmul.hpp>

#include <trainer/command.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

const std::string kTiny =
    " --samples 1300 --max-rows 40 --batch-size 100 --embedding-width 16 --bottom-mlp 16 --top-mlp "
    "32 --dense-learning-rate 0.01 ";

/// In fp32 where `arguments` say nothing: the host's products, which tf32's are not.
nlohmann::json results_of(const std::string& arguments) {
  const bool chosen = arguments.find("--dense ") != std::string::npos ||
                      arguments.find("--dense-precision ") != std::string::npos;
  const Outcome outcome =
      train_dlrm(arguments + (chosen ? "" : " --dense fp32"), true, "", "train_dlrm_emulated");
  INFO(arguments, "\n", outcome.err);
  REQUIRE(outcome.status == 0);
  CHECK(outcome.err == "");
  return outcome.json;
}

/// Log losses of the test, after 12 steps. A model that is not trained is at 0.69.
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
        "--ranks 3 --accumulate 3 --epochs 3 --overlap", "--ranks 2 --vocabulary --min-count 2"}) {
    CAPTURE(how);
    const double host = loss(how + " --backend host"), cuda = loss(how + " --backend cuda");
    CHECK(host < 0.68);
    // Kernels add in another order; where that turns the last bit of a code, vectors differ by its
    // step.
    CHECK(std::abs(host - cuda) < (how.find("codec") == std::string::npos ? 1e-5 : 1e-3));
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
  CHECK(host.err.find("--dense tf32 is for --backend cuda") != std::string::npos);
}

TEST_CASE("--virtual-ranks: the same bits on any number of ranks, on the GPU, too") {
  const double one = loss("--backend cuda --virtual-ranks 4 --ranks 1 --plan table-wise");
  for (const std::string how : {"--ranks 2 --plan mixed", "--ranks 4 --plan row-wise"}) {
    CAPTURE(how);
    CHECK(loss("--backend cuda --virtual-ranks 4 " + how) == one);
  }
  CHECK(std::abs(one - loss("--backend host --ranks 1 --virtual-ranks 4")) < 1e-5);
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
      loss(how + "--backend cuda --ranks 2" + save + " --save-every 4 --save-increments 1");
  CHECK(std::filesystem::exists(folder.path / "a" / "step-000000000012"));
  for (const std::string other :
       {"--backend cuda --ranks 2", "--backend host --ranks 3 --plan row-wise"}) {
    CAPTURE(other);
    // an increment of step 4 is left, step 8
    std::filesystem::remove_all(folder.path / "a" / "step-000000000012");
    CHECK(text_of(folder.path / "a" / "step-000000000008" / "manifest.json")
              .find("\"base\":\"step-000000000004\"") != std::string::npos);
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
                        "--samples 900 --max-rows 900 --batch-size 20 --embedding-width 16 "
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
  CHECK(host.err.find("--device-memory is for --backend cuda") != std::string::npos);
}
