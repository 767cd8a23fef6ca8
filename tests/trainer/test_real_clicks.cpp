// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Real clicks, with the default options but for the plan: the quality that other models reach on
// the last tenth, under every plan.
#include <trainer/command.hpp>

#include <data/shared_folder.hpp>

#include <algorithm>
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

}  // namespace

TEST_CASE("criteo_kaggle_12k5.tsv") { check("criteo_kaggle_12k5.tsv", 0.740, 0.540); }
TEST_CASE("criteo_kaggle_45k_7cat.tsv") { check("criteo_kaggle_45k_7cat.tsv", 0.730, 0.505); }
