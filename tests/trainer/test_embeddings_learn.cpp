// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Each of the 26 categories in turn is all that the label depends on: an embedding that is dead,
// swapped with another, or trained with a wrong gradient leaves an AUC of a half.
#include <trainer/command.hpp>

#include <tessera/core/random.hpp>
#include <tessera_data/criteo.hpp>

#include <cmath>
#include <string>

using namespace tessera;

namespace {

/// 26 random categories of 12 values each, no numbers; category `telling` says the label, with 5 %
/// noise.
std::string clicks(int telling, int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) {
    CriteoRecord record;
    record.integers.fill(CriteoRecord::kMissing);
    for (int f = 0; f < kCriteoCategories; ++f)
      record.categories[f] = static_cast<std::uint32_t>(100 * f + random_word(telling, i, f) % 12);
    const bool noise = random_word(telling, i, 99) % 20 == 0;
    // Neighbouring values disagree, so that what is learned must be learned value by value.
    record.label = static_cast<std::uint8_t>((record.categories[telling] % 2 == 0) != noise);
    append_criteo_line(text, record);
  }
  return text;
}

}  // namespace

TEST_CASE("each category alone decides the label") {
  const TemporaryFolder folder;
  const std::string path = (folder.path / "clicks.tsv").string();
  for (const std::string plan : {"mixed", "column-wise"})
    for (int f = 0; f < kCriteoCategories; ++f) {
      CAPTURE(plan);
      CAPTURE(f);
      std::ofstream(path) << clicks(f, 2500);
      const nlohmann::json json = results(
          "--data '" + path +
          "' --test-fraction 0.2 --ranks 3 --batch-size 100 --embedding-width 8 --bottom-mlp 8 " +
          "--top-mlp 16 --epochs 6 --learning-rate 0.05 --dense-learning-rate 0.01 --feature-check "
          "--plan " +
          plan);
      const double auc = json.at("auc").get<double>();
      CHECK(auc > 0.88);
      const auto& without = json.at("auc_without");
      REQUIRE(without.size() == 27);
      for (int g = 0; g < kCriteoCategories; ++g) {
        CAPTURE(g);
        const double exchanged = without.at(g).get<double>();
        if (g == f) {
          CHECK(std::abs(exchanged - 0.5) < 0.12);  // 500 samples: a deviation of 0.026
        } else {
          CHECK(exchanged > auc - 0.05);
        }
      }
      CHECK(std::abs(without.at(26).get<double>() - 0.5) < 0.12);
    }
}
