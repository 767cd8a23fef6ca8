// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Models of the trainer: tables of any widths, projections, what a checkpoint of them holds.
#include <trainer/command.hpp>

#include <cmath>
#include <cstdint>
#include <fstream>
#include <string>
#include <utility>

namespace {

const std::string kShort =
    " --max-rows 20 --batch-size 128 --bottom-mlp 16 --top-mlp 32 "
    "--dense-learning-rate 0.01 ";
const std::string kTiny = kShort + "--samples 16000 ";

double number(const nlohmann::json& json, const char* key) { return json.at(key).get<double>(); }

void check_close(const nlohmann::json& a, const nlohmann::json& b) {
  CHECK(std::abs(number(a, "auc") - number(b, "auc")) < 5e-4);
  CHECK(std::abs(number(a, "logloss") - number(b, "logloss")) < 5e-4);
}

/// A width for each of Criteo's 26 tables, with every kind of width among them.
const std::string kWidths = "24,8,1,16,3,8,8,8,8,40,8,17,8,8,8,8,8,8,8,1024,8,16,8,8,2,8";
constexpr std::int64_t kOtherWidths = 24 + 1 + 16 + 3 + 40 + 17 + 1024 + 2;  // than 8, each once
constexpr std::int64_t kSumOfWidths = kOtherWidths + 16 + 17 * 8;

}  // namespace

TEST_CASE("a width for each table: the same learning under every plan and number of ranks") {
  const std::string options = kTiny + "--embedding-width " + kWidths + " ";
  const nlohmann::json one = results(options + "--interaction-width 8 --ranks 1");
  CHECK(number(one, "auc") > 0.74);
  CHECK(one.at("embedding_width") == kWidths);
  // each of the other widths has a matrix to 8 columns, tables of one width the same
  const std::int64_t top = (8 + 27 * 26 / 2 + 15) / 16 * 16 * 32 + 32 + 32 + 1;
  CHECK(one.at("dense_parameters") == 13 * 16 + 16 + 16 * 8 + 8 + 8 * kOtherWidths + top);
  for (const char* plan : {"table-wise", "column-wise", "row-wise", "grid", "replicated", "auto"})
    check_close(one, results(options + "--interaction-width 8 --ranks 3 --plan " + plan));
  check_close(one, results(options + "--interaction-width 8 --ranks 2 --threads-per-rank 2 "
                                     "--overlap --bucket-kib 1"));
}

TEST_CASE("cross and concat take tables of any widths as they are") {
  const std::string options = kTiny + "--embedding-width " + kWidths + " --ranks 2 ";
  const nlohmann::json cross = results(options +
                                       "--interaction cross --cross-layers 1 "
                                       "--cross-rank 4");
  CHECK(number(cross, "auc") > 0.74);
  const std::int64_t columns = 1024 + kSumOfWidths, bottom = 13 * 16 + 16 + 16 * 1024 + 1024,
                     top = columns * 32 + 32 + 32 + 1;
  CHECK(cross.at("dense_parameters") == bottom + 2 * columns * 4 + columns + top);
  const nlohmann::json concat = results(options + "--interaction concat");
  CHECK(number(concat, "auc") > 0.7);
  CHECK(concat.at("dense_parameters") == bottom + top);
}

TEST_CASE("one width of any number, and widths from the rows") {
  for (const char* width : {"1", "17", "100"}) {
    const nlohmann::json json = results(kTiny + "--ranks 2 --embedding-width " + width);
    CHECK(number(json, "auc") > 0.7);
    CHECK(json.at("embedding_parameters").get<std::int64_t>() % std::stoi(width) == 0);
  }
  // 3 to 20 rows: 6 * 3^(1/4) = 7.9, 6 * 20^(1/4) = 12.7; the next powers of two by ratio are 8, 16
  const Outcome outcome = train_dlrm(kShort + "--ranks 2 --embedding-width auto --samples 2000");
  REQUIRE(outcome.status == 0);
  CHECK(outcome.json.at("embedding_width") == "auto");
  CHECK(outcome.out.find("\nC20            20     16") != std::string::npos);
  CHECK(outcome.out.find("\nC6              4      8") != std::string::npos);
}

TEST_CASE("a checkpoint of several widths: other plans go on with it, and test it alike") {
  const TemporaryFolder folder;
  const std::string options = kShort + "--interaction-width 8 --samples 4000 --embedding-width " +
                              kWidths + " --save '" + folder.path.string() + "' ";
  const nlohmann::json trained = results(options + "--ranks 2 --plan row-wise");
  const std::string manifest = text_of(folder.path / "step-000000000029" / "manifest.json");
  for (const char* name : {"\"projection.1.weight\"", "\"projection.1024.weight\""})
    CHECK(manifest.find(name) != std::string::npos);
  CHECK(manifest.find("\"projection.8.weight\"") == std::string::npos);
  const nlohmann::json tested =
      results(options + "--ranks 3 --plan column-wise --resume --mode eval");
  check_close(trained, tested);
}

TEST_CASE("widths in a schema, and widths that cannot be") {
  const TemporaryFolder folder;
  std::ofstream csv(folder.path / "a.csv");
  csv << "y,c,tags\n";
  for (int i = 0; i < 3000; ++i)
    csv << (i % 20 < 7) << ",c" << i % 20 << ",t" << i % 9 << "|t" << i % 4 << '\n';
  csv.close();
  const auto schema = [&](const char* width) {
    std::ofstream(folder.path / "s.yaml")
        << "label: y\ncategorical: [{name: c, width: " << width << "}, {name: tags, list: '|'}]\n";
    return "--data '" + (folder.path / "a.csv").string() + "' --schema '" +
           (folder.path / "s.yaml").string() + "' --bottom-mlp 8 --top-mlp 16 --ranks 2 ";
  };
  const Outcome outcome = train_dlrm(schema("20") + "--embedding-width 4");
  INFO(outcome.err);
  REQUIRE(outcome.status == 0);
  CHECK(outcome.json.at("auc").get<double>() > 0.9);
  CHECK(outcome.out.find("[0, 20)") != std::string::npos);
  check_fails(schema("1025"), "line 2", 1);
  check_fails(schema("4") + "--embedding-width 4,8,8", "3 widths, and these data 2 tables", 1);
  for (const char* widths : {"0", "1025", "8,,8", "8,", "-4", "8.5", "wide"})
    check_fails("--embedding-width " + std::string(widths), "is not a width from 1 to 1024");
  check_fails("--embedding-width 8,8", "2 widths, and these data 26 tables ('C1' to 'C26')", 1);
  check_fails("--interaction-width 0", "--interaction-width");
}

TEST_CASE("Wide & Deep: both parts learn, on any ranks and plan; its wide tables have one column") {
  check_fails("--model wide-deep --interaction-width 8",
              "--interaction-width is for models with a bottom MLP");
  check_fails("--model wide-deep --interaction dot", "--model wide-deep has --interaction concat");
  check_fails("--model dcnv2 --interaction dot", "--model dcnv2 has --interaction cross");
  check_fails("--model wide-deep --bottom-mlp 8", "--bottom-mlp is for models with a bottom MLP");
  check_fails("--wide-optimizer ftrl", "--wide-optimizer is for --model wide-deep");
  check_fails("--model wide-deep --optimizer ftrl --wide-learning-rate 1",
              "--wide-learning-rate: deep tables have --wide-optimizer ftrl, too");
  check_fails("--model wide-deep --learning-rate 0", "--learning-rate 0 stops the wide part");
  check_fails("--model wide-deep --wide-optimizer frozen", "--wide-optimizer");
  check_fails("--model wide-deep --wide-optimizer ftrl:C1", "give one optimizer");
  check_fails("--model wide-deep --wide-optimizer 'ftrl(l1=1)' --optimizer ftrl",
              "--wide-optimizer and --optimizer: optimizer ftrl has two sets of constants");

  const std::string data =
      " --samples 16000 --max-rows 20 --batch-size 128 --top-mlp 32 --model wide-deep "
      "--embedding-width 8 ";
  const std::string tiny = data + "--dense-learning-rate 0.01 ";
  const nlohmann::json one = results(tiny + "--ranks 1");
  CHECK(number(one, "auc") > 0.74);
  CHECK(one.at("model") == "wide-deep");
  CHECK(one.at("optimizer") == "ftrl:wide.*,rowwise-adagrad");
  CHECK(one.at("dense_parameters") == (13 + 26 * 8) * 32 + 32 + 32 + 1);
  CHECK(one.at("embedding_parameters").get<std::int64_t>() % 9 == 0);  // 8 columns and 1 of a row
  for (const char* plan : {"table-wise", "row-wise", "column-wise", "grid", "mixed", "replicated"})
    check_close(one, results(tiny + "--ranks 3 --plan " + plan));
  check_close(one, results(tiny + "--ranks 2 --overlap --loader first-rank"));
  // an l1 that no sum of gradients exceeds: all wide weights stay 0
  const nlohmann::json none = results(tiny + "--ranks 1 --wide-optimizer 'ftrl(l1=1e6)'");
  CHECK(none.at("optimizer") == "ftrl(l1=1e6):wide.*,rowwise-adagrad");
  CHECK(none.at("logloss") != one.at("logloss"));
  // the deep part stands still: the wide part alone learns, and less
  const nlohmann::json wide = results(data +
                                      "--ranks 2 --learning-rate 1e-20 --wide-learning-rate "
                                      "0.1 --dense-learning-rate 0");
  CHECK(number(wide, "auc") > 0.6);
  CHECK(number(wide, "auc") < number(one, "auc"));
  const TemporaryFolder folder;
  const std::string save = "--save '" + folder.path.string() + "' ";
  const nlohmann::json saved = results(tiny + "--ranks 2 " + save);
  check_close(saved, results(tiny + "--ranks 3 --plan row-wise --mode eval --resume " + save));
  CHECK(number(results(" --samples 16000 --batch-size 128 --top-mlp 32 --model wide-deep "
                       "--embedding-width 8 --ranks 2 --vocabulary --max-rows 64 --min-count 1"),
               "auc") > 0.7);
}

TEST_CASE("recipes; the configuration is a file that gives the same training again") {
  const auto print = [](const std::string& arguments) {
    const Outcome outcome = train_dlrm(arguments + " --print-config", false);
    INFO(outcome.err);
    REQUIRE(outcome.status == 0);
    return outcome.out;
  };
  const auto check_holds = [](const std::string& text, const char* line) {
    CAPTURE(line);
    CHECK(text.find("\n" + std::string(line) + "\n") != std::string::npos);
  };
  const std::string dlrm = print("--recipe dlrm");
  for (const char* line :
       {"embedding-width=\"128\"", "top-mlp=\"1024,1024,512,256\"", "optimizer=\"sgd\"",
        "learning-rate=\"24\"", "batch-size=\"65536\"", "initial-bound=\"rows\"",
        "schedule=\"warmup:8000,hold:40000,poly:24000:2\"", "seed=\"1\""})
    check_holds(dlrm, line);
  check_holds(print("--recipe dcnv2"), "cross-rank=\"512\"");
  check_holds(print("--recipe=wide-deep"), "model=\"wide-deep\"");
  const std::string changed = print(
      "--recipe dlrm --embedding-width 16 --optimizer adam "
      "--constant-rates --interaction cross");
  for (const char* line : {"embedding-width=\"16\"", "optimizer=\"adam\"", "constant-rates=true"})
    check_holds(changed, line);
  CHECK(changed.find("\nschedule=") == std::string::npos);
  CHECK(changed.find("\nlearning-rate=") == std::string::npos);

  const TemporaryFolder folder;
  const std::string file = "'" + (folder.path / "config").string() + "'";
  const std::string tiny = "--samples 3000 --max-rows 20 --batch-size 128 --ranks 2 ";
  for (const std::string options :
       {"--bottom-mlp 16,8 --embedding-width 8 --optimizer 'adam:C1*,rowwise-adagrad:*' --overlap",
        "--recipe wide-deep --top-mlp 16 --schedule warmup:9,poly:90 --seed 7",
        "--recipe dcnv2 --embedding-width 8 --bottom-mlp 8 --top-mlp 8 --cross-rank 4 --codec "
        "bf16"}) {
    const std::string config = print(tiny + options);
    std::ofstream(folder.path / "config") << config;
    const std::string again = print("--config " + file);
    CHECK(print("--config " + file) == again);
    nlohmann::json a = results(tiny + options), b = results("--config " + file);
    for (const char* key : {"seconds", "samples_per_second"}) a[key] = b[key] = 0;
    CHECK(a == b);
    CHECK(results("--config " + file + " --seed 99").at("seed") == 99);
  }
  check_fails("--recipe bert", "--recipe");
  check_fails("--recipe", "--recipe");
  check_fails("--recipe dlrm --config " + file, "--config");
  check_fails("--config /no/such/file", "/no/such/file");
  std::ofstream(folder.path / "config") << "embeding-width=8\n";
  check_fails("--config " + file, "embeding-width");
  std::ofstream(folder.path / "config") << "embedding-width=0\n";
  check_fails("--config " + file, "is not a width from 1 to 1024");
}

TEST_CASE("Merlin's synthetic models train, on any ranks and plan") {
  const std::string tiny =
      "--synthetic-model tiny --scale 1/100000 --samples 6000 --batch-size 100 --top-mlp 32 "
      "--dense-learning-rate 0.02 --learning-rate 0.05 ";
  const nlohmann::json one = results(tiny + "--ranks 1");
  CHECK(one.at("model") == "tiny");
  CHECK(one.at("optimizer") == "adagrad");
  CHECK(one.at("dense_parameters") == 682 * 32 + 32 + 32 + 1);
  CHECK(number(one, "auc") > 0.6);
  for (const char* more : {"--ranks 2 --plan auto", "--ranks 4 --plan row-wise", "--ranks 4"})
    check_close(one, results(tiny + more));
  // the inputs of their MLPs, as published
  const std::pair<const char*, std::int64_t> models[] = {
      {"criteo", 3341}, {"small", 2522}, {"medium", 2494}, {"large", 4676}, {"jumbo", 6120}};
  for (const auto& [name, input] : models) {
    CAPTURE(name);
    const nlohmann::json json =
        results(std::string("--synthetic-model ") + name +
                " --scale 0.0000001 --samples 20 --batch-size 6 --ranks 2 --top-mlp 4 --plan "
                "table-wise");
    CHECK(json.at("dense_parameters") == input * 4 + 4 + 4 + 1);
  }
  check_fails("--synthetic-model huge", "--synthetic-model");
  check_fails("--synthetic-model tiny --scale 2", "--scale: 2 is no share of 1");
  check_fails("--synthetic-model tiny --scale 1/0", "--scale: 1/0 is no share of 1");
  check_fails("--scale 1/10", "--synthetic-model");
  check_fails("--synthetic-model tiny --embedding-width 8", "--embedding-width");
}

TEST_CASE("lists of a wide part, tested by ranks of which the last batch has none for one") {
  const TemporaryFolder folder;
  const std::string data = (folder.path / "a.csv").string(),
                    schema = (folder.path / "s.yaml").string();
  {
    std::ofstream csv(data), yaml(schema);
    csv << "y,tags\n";
    for (int i = 0; i < 110; ++i) csv << i % 2 << ",a|b\n";
    yaml << "label: y\nnumeric: []\ncategorical: [{name: tags, list: \"|\", pooling: sum}]\n";
  }
  CHECK(train_dlrm("--data " + data + " --schema " + schema +
                   " --model wide-deep --top-mlp 4 --min-count 1 --batch-size 20 "
                   "--eval-batch-size 10 --ranks 2")
            .status == 0);
}
