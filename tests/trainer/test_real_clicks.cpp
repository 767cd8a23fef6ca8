// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Real clicks, with the default options but for the plan: the quality that other models reach on
// the last tenth, under every plan.
#include <trainer/command.hpp>

#include <data/shared_folder.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <vector>

namespace {

// Instrumented builds train ten times slower: one plan tells them enough.
#if defined(__SANITIZE_ADDRESS__) || !defined(__OPTIMIZE__)
const std::vector<std::string> kPlans{"mixed"};
#else
const std::vector<std::string> kPlans{"table-wise", "column-wise", "row-wise",
                                      "grid",       "replicated",  "mixed"};
#endif

void check(const char* name, double least_auc, double most_logloss) {
  const std::string path = (shared_folder("data") / name).string();
  double low = 1, high = 0;
  for (const std::string& plan : kPlans) {
    CAPTURE(plan);
    const nlohmann::json json = results("--data '" + path + "' --plan " + plan);
    const double auc = json.at("auc").get<double>(), logloss = json.at("logloss").get<double>();
    MESSAGE(std::string(name) << ", " << plan << ": AUC " << auc << ", log loss " << logloss);
    CHECK(auc >= least_auc);
    CHECK(logloss <= most_logloss);
    low = std::min(low, auc);
    high = std::max(high, auc);
  }
  CHECK(high - low < 0.005);
}

/// The columns of Criteo's files as a schema, with numbers as the reader of such files takes them.
std::string criteo_schema() {
  std::string numeric = "label: y\nnumeric:\n", categorical = "categorical: [",
              columns = "columns: [y";
  for (int i = 1; i <= 13; ++i) {
    numeric += "- {name: I" + std::to_string(i) + ", transform: [log1p, standardize], empty: -1}\n";
    columns += ", I" + std::to_string(i);
  }
  for (int i = 1; i <= 26; ++i) {
    categorical += (i > 1 ? ", C" : "C") + std::to_string(i);
    columns += ", C" + std::to_string(i);
  }
  return numeric + categorical + "]\n" + columns + "]\n";
}

}  // namespace

TEST_CASE("the same files through a schema reach the same") {
  const TemporaryFolder folder;
  const std::string schema = (folder.path / "criteo.yaml").string();
  std::ofstream(schema) << criteo_schema();
  const std::string data = (shared_folder("data") / "criteo_kaggle_12k5.tsv").string();
  const nlohmann::json direct = results("--data '" + data + "'"),
                       described = results("--data '" + data + "' --schema '" + schema + "'");
  const auto of = [](const nlohmann::json& json, const char* key) {
    return json.at(key).get<double>();
  };
  MESSAGE("AUC " << of(direct, "auc") << ", through a schema " << of(described, "auc"));
  CHECK(of(described, "train_samples") == of(direct, "train_samples"));
  CHECK(of(described, "embedding_parameters") == of(direct, "embedding_parameters"));
  CHECK(std::abs(of(described, "auc") - of(direct, "auc")) < 0.004);
  CHECK(std::abs(of(described, "logloss") - of(direct, "logloss")) < 0.004);
  // In small windows, whatever the number of ranks.
  const std::string windows = "--data '" + data + "' --schema '" + schema +
                              "' --shuffle-window 2048 --epochs 1 --max-rows 50 --plan row-wise";
  CHECK(std::abs(of(results(windows + " --ranks 1"), "auc") -
                 of(results(windows + " --ranks 3 --parser-threads 2"), "auc")) < 1e-3);
}

TEST_CASE("criteo_kaggle_12k5.tsv") { check("criteo_kaggle_12k5.tsv", 0.740, 0.540); }
TEST_CASE("criteo_kaggle_45k_7cat.tsv") { check("criteo_kaggle_45k_7cat.tsv", 0.730, 0.505); }
