// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// --start-from and --freeze: a new training begins with what an earlier one learned, by the keys of its
// tables' rows. Days of made-up clicks whose items come and go; TESSERA_DAYS=30 is a month of them.
#include "command.hpp"

#include <tessera/core/random.hpp>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

using namespace tessera;

namespace {

double uniform(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  return unit_float(random_word(a, b, c));
}
/// What an item or a user has to do with a click: the same on every day.
double taste(std::uint64_t kind, std::int64_t id) {
  return 5 * (uniform(kind, static_cast<std::uint64_t>(id), 0) - 0.5);
}

/// A day's clicks: of 400 items 10 are new and 10 are gone each day, users stay.
std::string day(int number, int samples) {
  std::string text = "clicked,item,user,hour\n";
  for (int i = 0; i < samples; ++i) {
    const auto random = [&](std::uint64_t what) {
      return uniform(static_cast<std::uint64_t>(number) + 100, static_cast<std::uint64_t>(i), what);
    };
    const auto item = static_cast<std::int64_t>(400 * random(0) * random(1)) + 10 * number;
    const auto user = static_cast<std::int64_t>(800 * random(2));
    const bool clicked = random(3) < 1 / (1 + std::exp(-(taste(1, item) + taste(2, user) - 0.5)));
    text += fmt::format("{},i{},u{},{}\n", clicked ? 1 : 0, item, user,
                        static_cast<int>(24 * random(4)));
  }
  return text;
}

constexpr const char* kSchema =
    "label: clicked\nnumeric: [hour]\ncategorical: [{name: item}, {name: user}]\n";
const std::string kModel =
    "--embedding-width 8 --bottom-mlp 8 --top-mlp 16 --min-count 1 --batch-size 64 ";

struct Folder {
  TemporaryFolder folder;
  std::string operator()(const std::string& name) const { return (folder.path / name).string(); }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder.path / name) << text;
  }
};

}  // namespace

TEST_CASE("each day begins with the day before, and beats a cold start") {
  const char* const days_text = std::getenv("TESSERA_DAYS");
  const int days = days_text == nullptr ? 6 : std::atoi(days_text);
  const Folder path;
  path.write("schema.yaml", kSchema);
  double gain = 0;
  for (const std::string vocabulary : {"", " --vocabulary --max-rows 900"})
    for (int d = 0; d < days; ++d) {
      CAPTURE(vocabulary);
      CAPTURE(d);
      const std::string name = fmt::format("{}{}", vocabulary.empty() ? "list" : "keys", d);
      path.write("day.csv", day(d, 6000));
      const std::string data = "--data " + path("day.csv") + " --schema " + path("schema.yaml") +
                               " " + kModel + "--ranks 2 --epochs 2" + vocabulary;
      const auto before = path(fmt::format("{}{}", vocabulary.empty() ? "list" : "keys", d - 1));
      const double cold = results(data + (d == 0 ? " --save " + path(name) : "")).at("auc");
      if (d == 0) continue;
      const double warm =
          results(data + " --start-from " + before + " --save " + path(name)).at("auc");
      CHECK(warm > cold);
      gain += (warm - cold) / days;
      std::filesystem::remove_all(before);
    }
  MESSAGE("AUC gained in the mean, twice: ", gain);
  CHECK(gain > 0.02);
}

TEST_CASE("rows follow their keys, on other ranks, under another plan") {
  const Folder path;
  path.write("schema.yaml", kSchema);
  const std::string first = day(0, 3000);
  // the same test lines and keys, in tables of another order
  std::string second, items;
  const std::size_t test = first.find('\n', first.size() * 9 / 10 - 50) + 1,
                    head = first.find('\n') + 1;
  for (std::size_t at = head; at < test; at = first.find('\n', at) + 1) {
    const std::string line = first.substr(at, first.find('\n', at) + 1 - at);
    const bool often = random_word(line.size(), line.find("7,")) % 3 == 0;
    for (int times = 0; times < (often ? 4 : 1); ++times) items += line;
  }
  path.write("first.csv", first);
  const std::string tests = first.substr(test);
  const auto lines = static_cast<double>(std::count(tests.begin(), tests.end(), '\n'));
  second = first.substr(0, head) + items + tests;
  const auto all = static_cast<double>(std::count(second.begin(), second.end(), '\n') - 1);
  path.write("second.csv", second);
  for (const std::string model : {"dlrm", "dcnv2", "wide-deep"}) {
    CAPTURE(model);
    const std::string saved = path("saved-" + model);
    const std::string base =
        "--data " + path("first.csv") + " --schema " + path("schema.yaml") +
        fmt::format(" --test-fraction {}", lines / 3000) +
        " --embedding-width 8 --top-mlp 16 --min-count 1 --batch-size 64 --ranks 2 --model " +
        model;
    static_cast<void>(
        results(base + " --epochs 1 --save " + saved + " --predictions " + path("before.npy")));
    const auto before = predictions_in(path("before.npy"));
    // options of the model come from the checkpoint
    const Outcome warm =
        train_dlrm("--data " + path("second.csv") + " --schema " + path("schema.yaml") +
                   fmt::format(" --test-fraction {}", lines / all) + " --start-from " + saved +
                   " --ranks 3 --plan row-wise --max-steps 1 --freeze '*' --dense-learning-rate 0 "
                   "--seed 5 --predictions " +
                   path("after.npy"));
    INFO(warm.err, warm.out);
    REQUIRE(warm.status == 0);
    CHECK(warm.out.find("started from " + saved) != std::string::npos);
    const auto after = predictions_in(path("after.npy"));
    REQUIRE(after.size() == before.size());
    REQUIRE(after.size() == static_cast<std::size_t>(lines));
    for (std::size_t i = 0; i < after.size(); ++i)
      CHECK(after[i] == doctest::Approx(before[i]).epsilon(1e-5));
  }
}

TEST_CASE("what begins anew is said, and what cannot be is refused") {
  const Folder path;
  path.write("schema.yaml", kSchema);
  path.write("day.csv", day(0, 2000));
  path.write("more.yaml",
             "label: clicked\nnumeric: []\n"
             "categorical: [{name: item, rows: 300}, {name: user}, {name: hour}]\n");
  const std::string data = "--data " + path("day.csv") + " ";
  static_cast<void>(
      results(data + "--schema " + path("schema.yaml") + " " + kModel + "--save " + path("saved")));
  const Outcome outcome =
      train_dlrm(data + "--schema " + path("more.yaml") + " --start-from " + path("saved") +
                 " --optimizer adam --freeze 'us*' --top-mlp 24");
  INFO(outcome.out, outcome.err);
  REQUIRE(outcome.status == 0);
  for (const char* line :
       {"table item: rows by a list of the training data's keys, keys text in the checkpoint, rows "
        "by a hash, keys text here: begins anew",
        "numbers were hour, and are : bottom.0.* begins anew",
        "categories were item, user, and are item, user, hour: top.0.* begins anew",
        "the dense optimizer's state begins anew, as a layer does", "table hour: is new",
        "top.1.weight: [1,16] in the checkpoint, [1,24] here: begins anew",
        "table user: takes its weights; its optimizer's state begins anew"})
    CHECK_MESSAGE(outcome.out.find(line) != std::string::npos, line);

  // ids of a converted folder stand for its texts
  path.write("late.csv", day(1, 2000));
  const std::string saved = " --save " + path("of_ids");
  for (const char* name : {"day", "late"})
    REQUIRE(std::system(fmt::format("'{}' to-binary {} {} --schema {} --min-count 1 >{}",
                                    train_dlrm_path("convert_dataset"),
                                    path(std::string(name) + ".csv"), path(name),
                                    path("schema.yaml"), path("log"))
                            .c_str()) == 0);
  static_cast<void>(results("--data " + path("day") + " " + kModel + saved));
  const Outcome same =
      train_dlrm("--data " + path("day") + " " + kModel + "--start-from " + path("of_ids"));
  CHECK_MESSAGE(same.out.find("begins anew") == std::string::npos, same.out);
  const Outcome others =
      train_dlrm("--data " + path("late") + " " + kModel + "--start-from " + path("of_ids"));
  for (const char* table : {"table item", "table user"})
    CHECK_MESSAGE(others.out.find(std::string(table) +
                                  ": its ids stood for other texts in the checkpoint: begins "
                                  "anew") != std::string::npos,
                  others.out);

  const auto refused = [&](const std::string& arguments, const std::string& text) {
    const Outcome failed =
        train_dlrm(data + "--schema " + path("schema.yaml") + " " + arguments, false);
    CHECK(failed.status != 0);
    CHECK_MESSAGE(failed.err.find(text) != std::string::npos, failed.err);
  };
  refused("--start-from " + path("none"),
          "--start-from: the folder '" + path("none") + "' holds no checkpoint");
  refused("--start-from ''", "the value is empty");
  refused("--start-from " + path("saved") + " --mode eval --resume --save " + path("saved"),
          "--start-from is for trainings");
  refused("--start-from " + path("saved") + " --save " + path("saved"),
          "holds checkpoints of an earlier training");
  refused("--freeze 'usr'", "'usr'");
  refused("--freeze 'user,,item'", "pattern");
  refused("--freeze ''", "the value is empty");
  // a damaged file of it
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path("saved")))
    if (entry.path().filename().string().starts_with("0000-"))
      std::filesystem::resize_file(entry.path(), entry.file_size() - 1);
  refused("--start-from " + path("saved"), "it was truncated or changed");
}
