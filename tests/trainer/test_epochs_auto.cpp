// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// --epochs auto: training ends when models no longer become better on samples held out for that, and
// the model that is tested and kept is the best of them.
#include "command.hpp"

#include <tessera/checkpoint.hpp>
#include <tessera/core/random.hpp>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

using namespace tessera;

TEST_CASE("the best model by validation, whose epochs need not be known") {
  const TemporaryFolder folder;
  const auto path = [&](const std::string& name) { return (folder.path / name).string(); };
  std::ofstream csv(path("a.csv"));
  csv << "y,n,user,item\n";
  for (int i = 0; i < 4000; ++i) {
    const auto random = [&](int what) {
      return random_word(3, static_cast<std::uint64_t>(i), what);
    };
    const std::uint64_t user = random(0) % 300, item = random(1) % 200;
    // labels are noisy, so that rows learn them by heart
    const bool y = random(2) % 10 < (user % 3 == 0 ? 7u : 3u) + (item % 4 == 0 ? 2u : 0u);
    csv << y << ',' << random(3) % 9 << ",u" << user << ",i" << item << '\n';
  }
  csv.close();
  std::ofstream(path("s.yaml")) << "label: y\nnumeric: [n]\ncategorical: [user, item]\n";
  const std::string data = "--data " + path("a.csv") + " --schema " + path("s.yaml") +
                           " --validation-fraction 0.2 --min-count 1 --embedding-width 8 "
                           "--bottom-mlp 8 --top-mlp 16 --ranks 2 --learning-rate 0.02 ";
  const nlohmann::json found = results(data + "--save " + path("run"));  // auto is the default
  CHECK(found.at("epochs") == "auto");
  CHECK(found.at("train_samples") == 2880);
  const auto& tests = found.at("evaluations");
  REQUIRE(tests.size() >= 3);
  std::size_t best = 0;
  for (std::size_t i = 0; i < tests.size(); ++i)
    if (tests[i].at("auc") > tests[best].at("auc")) best = i;
  CHECK(best + 1 + 2 == tests.size());  // --patience 2
  const auto step = tests[best].at("step").get<std::int64_t>();
  CHECK(std::filesystem::exists(folder.path / "run" / "best" / fmt::format("step-{:012}", step)));

  // as if the number of epochs had been known
  const nlohmann::json known =
      results(data + fmt::format("--constant-rates --epochs {}", best + 1));
  CHECK(known.at("auc") == found.at("auc"));
  CHECK(known.at("logloss") == found.at("logloss"));
  // the model that is kept
  const nlohmann::json kept = results("--data " + path("a.csv") + " --schema " + path("s.yaml") +
                                      " --mode eval --resume --save " + path("run/best"));
  CHECK(kept.at("auc").get<double>() ==
        doctest::Approx(found.at("auc").get<double>()).epsilon(1e-6));

  // ended is ended; stopped between goes on
  const Outcome again = train_dlrm(data + "--resume --save " + path("run"));
  CHECK(again.out.find("the training has ended") != std::string::npos);
  CHECK(again.json.at("auc") == found.at("auc"));
  const std::string parts = data + "--save-every 5 --save " + path("parts");
  static_cast<void>(results(parts + fmt::format(" --max-steps {}", step - 3)));
  const nlohmann::json resumed = results(parts + " --resume");
  CHECK(resumed.at("auc") == found.at("auc"));

  // reports come as in a run whose end is known, and each is a line of the log
  std::ofstream(path("same.csv")) << "y,n,user,item\n";
  {
    std::ofstream same(path("same.csv"), std::ios::app);
    for (int i = 0; i < 400; ++i)  // no AUC where all labels are alike
      same << (i >= 200 || i % 2 == 0) << ',' << i % 9 << ",u" << i % 30 << ",i" << i % 20 << '\n';
  }
  const nlohmann::json none =
      results("--data " + path("same.csv") + " --schema " + path("s.yaml") +
              " --validation-fraction 0.2 --min-count 1 --embedding-width 8 --bottom-mlp 8 "
              "--top-mlp 16 --ranks 2 --batch-size 8 --log " +
              path("log") + " --save " + path("same"));
  CHECK(none.at("evaluations").size() == 2);  // --patience
  std::istringstream log(text_of(path("log")));
  int reports = 0;
  for (std::string line; std::getline(log, line);)
    reports += nlohmann::json::parse(line).at("event") == "report";
  CHECK(reports > 20);

  const auto refused = [&](const std::string& arguments, const std::string& part) {
    const Outcome outcome = train_dlrm(arguments, false);
    CHECK(outcome.status == 2);
    CHECK_MESSAGE(outcome.err.find(part) != std::string::npos, outcome.err);
  };
  refused("--epochs auto --save " + path("x"), "add --validation-fraction 0.1");
  refused("--epochs auto --validation-fraction 0.1", "add --save DIR");
  refused("--epochs some", "--epochs: some is not a number from 1 to 1000000, or auto");
  refused("--epochs 0", "--epochs: 0 is not");
  refused("--validation-fraction 1", "--validation-fraction");
  refused("--patience 0", "--patience");
}

TEST_CASE("the best model has other rows in the colder tier than the last") {
  const TemporaryFolder folder;
  const std::string columns = "abcdef", file = (folder.path / "a.csv").string(),
                    schema = (folder.path / "s.yaml").string();
  std::ofstream csv(file);
  csv << "y,n,a,b,c,d,e,f\n";
  for (int i = 0; i < 2000; ++i) {
    const auto random = [&](int what, std::uint64_t below) {
      return random_word(5, static_cast<std::uint64_t>(i), what) % below;
    };
    std::string row;
    for (int c = 0; c < 6; ++c)  // rarely more categories than rows
      row += fmt::format(",{}", random(c, 200) > 0 ? random(6 + c, 12) : 12 + random(6 + c, 400));
    csv << (random(20, 10) < (random(6, 12) < 6 ? 8u : 2u)) << ',' << random(21, 9) << row << '\n';
  }
  csv.close();
  std::ofstream(schema) << "label: y\nnumeric: [n]\ncategorical: [a, b, c, d, e, f]\n";
  int differ = 0;
  for (int seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    const std::filesystem::path save = folder.path / fmt::format("{}", seed);
    const std::string how = fmt::format(
        "--data {} --schema {} --vocabulary --max-rows 20 --min-count 1 --eviction oldest "
        "--batch-size 50 --bottom-mlp 8 --top-mlp 8 --embedding-width 8 --ranks 2 "
        "--validation-fraction 0.2 --learning-rate 0.1 --cold-keys 1 --seed {} --save ",
        file, schema, seed);
    const nlohmann::json found = results(how + save.string());
    const nlohmann::json best = results(how + (save / "best").string() + " --mode eval --resume");
    CHECK(best.at("logloss") == doctest::Approx(found.at("logloss").get<double>()).epsilon(1e-6));
    const auto cold_table = [](const std::filesystem::path& directory) {
      const CheckpointReader reader(*latest_checkpoint(directory));
      const auto& tensors = reader.manifest().tensors;
      const auto cold = std::ranges::find_if(
          tensors, [](const auto& tensor) { return tensor.name.starts_with("cold_rows."); });
      return cold == tensors.end() ? std::string() : cold->name;
    };
    differ += cold_table(save) != cold_table(save / "best");
  }
  CHECK(differ > 0);  // or this tests nothing
}
