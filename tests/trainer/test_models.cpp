// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Models of the trainer: tables of any widths, projections, what a checkpoint of them holds.
#include <trainer/command.hpp>

#include <cmath>
#include <cstdint>
#include <string>

namespace {

const std::string kShort = " --max-rows 20 --batch-size 128 --bottom-mlp 16 --top-mlp 32 "
    "--dense-learning-rate 0.01 ";
const std::string kTiny = kShort + "--samples 16000 ";

double number(const nlohmann::json& json, const char* key) { return json.at(key).get<double>(); }

void check_close(const nlohmann::json& a, const nlohmann::json& b) {
  CHECK(std::abs(number(a, "auc") - number(b, "auc")) < 5e-4);
  CHECK(std::abs(number(a, "logloss") - number(b, "logloss")) < 5e-4);
}

/// A width for each of Criteo's 26 tables, with every kind of width among them.
const std::string kWidths = "24,8,1,16,3,8,8,8,8,40,8,17,8,8,8,8,8,8,8,130,8,16,8,8,2,8";
constexpr std::int64_t kOtherWidths = 24 + 1 + 16 + 3 + 40 + 17 + 130 + 2;  // than 8, each once
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
  const nlohmann::json cross = results(options + "--interaction cross --cross-layers 1 "
                                                 "--cross-rank 4");
  CHECK(number(cross, "auc") > 0.74);
  const std::int64_t columns = 130 + kSumOfWidths, bottom = 13 * 16 + 16 + 16 * 130 + 130,
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
  for (const char* name : {"\"projection.1.weight\"", "\"projection.130.weight\""})
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
    std::ofstream(folder.path / "s.yaml") << "label: y\ncategorical: [{name: c, width: " << width
                                          << "}, {name: tags, list: '|'}]\n";
    return "--data '" + (folder.path / "a.csv").string() + "' --schema '" +
           (folder.path / "s.yaml").string() + "' --bottom-mlp 8 --top-mlp 16 --ranks 2 ";
  };
  const Outcome outcome = train_dlrm(schema("20") + "--embedding-width 4");
  INFO(outcome.err);
  REQUIRE(outcome.status == 0);
  CHECK(outcome.json.at("auc").get<double>() > 0.9);
  CHECK(outcome.out.find("[0, 20)") != std::string::npos);
  const auto check_fails = [](const std::string& arguments, const std::string& what, int status) {
    const Outcome bad = train_dlrm(arguments, false);
    CAPTURE(arguments);
    CAPTURE(bad.err);
    CHECK(bad.status == status);
    CHECK(std::count(bad.err.begin(), bad.err.end(), '\n') == 1);
    CHECK(bad.err.find(what) != std::string::npos);
  };
  check_fails(schema("1025"), "line 2", 1);
  check_fails(schema("4") + "--embedding-width 4,8,8", "3 widths, and these data 2 tables", 1);
  for (const char* widths : {"0", "1025", "8,,8", "8,", "-4", "8.5", "wide"})
    check_fails("--embedding-width " + std::string(widths), "is not a width from 1 to 1024", 2);
  check_fails("--embedding-width 8,8", "2 widths, and these data 26 tables ('C1' to 'C26')", 1);
  check_fails("--interaction-width 0", "--interaction-width", 2);
}
