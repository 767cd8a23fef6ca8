// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// evaluate_model predict: files without labels get the probabilities that the trainer gave the same
// samples.
#include "command.hpp"

#include <tessera/core/random.hpp>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

using namespace tessera;

namespace {

Outcome evaluate_model(const std::string& arguments) {
  return train_dlrm(arguments, false, "timeout 60", "evaluate_model");
}
Outcome predict(const std::string& arguments) { return evaluate_model("predict " + arguments); }

}  // namespace

TEST_CASE("the trainer's probabilities, of a file without labels") {
  const TemporaryFolder folder;
  const auto path = [&](const std::string& name) { return (folder.path / name).string(); };
  constexpr int samples = 2000, tests = 200;
  std::ofstream train(path("train.csv")), today(path("today.tsv"));
  train << "clicked,price,city,tags\n";
  today << "note\ttags\tcity\tprice\n";  // other columns, another order, no label
  std::vector<std::string> notes;
  for (int i = 0; i < samples; ++i) {
    const auto random = [&](int what) {
      return random_word(1, static_cast<std::uint64_t>(i), what);
    };
    const std::string price = random(0) % 9 == 0 ? "" : fmt::format("{}", random(1) % 50),
                      city = fmt::format("c{}", random(2) % 12),
                      tags = random(3) % 5 == 0
                                 ? ""
                                 : fmt::format("t{}|t{}", random(4) % 6, random(5) % 6);
    const bool clicked = (random(2) % 12 < 5) != (random(6) % 4 == 0);
    train << clicked << ',' << price << ',' << city << ',' << tags << '\n';
    if (i < samples - tests) continue;
    notes.push_back(i % 3 == 0 ? fmt::format("a \"note\", of {}", i) : fmt::format("n{}", i));
    std::string quoted = notes.back();
    for (std::size_t at = 0; (at = quoted.find('"', at)) != std::string::npos; at += 2)
      quoted.insert(at, 1, '"');
    today << '"' << quoted << "\"\t" << tags << '\t' << city << '\t' << price << '\n';
  }
  train.close();
  today.close();
  std::ofstream(path("s.yaml")) << "label: clicked\nnumeric: [{name: price, transform: [log1p, "
                                   "standardize]}]\ncategorical: [city, {name: tags, list: '|', "
                                   "pooling: mean}]\n";
  static_cast<void>(
      results("--data " + path("train.csv") + " --schema " + path("s.yaml") +
              " --min-count 1 --bottom-mlp 8 --top-mlp 8 --embedding-width 4 --ranks 2 "
              "--save " +
              path("run") + " --predictions " + path("trainer.npy")));
  const std::vector<float> expected = predictions_in(path("trainer.npy"));
  REQUIRE(expected.size() == tests);

  const std::string data =
      "--checkpoint " + path("run") + " --data " + path("today.tsv") + " --separator tab ";
  const Outcome npy = predict(data + "--out " + path("scores.npy"));
  INFO(npy.err);
  REQUIRE(npy.status == 0);
  CHECK(npy.out == "200 samples\n");
  const std::vector<float> scores = predictions_in(path("scores.npy"));
  REQUIRE(scores.size() == expected.size());
  for (std::size_t i = 0; i < scores.size(); ++i)
    CHECK(scores[i] == doctest::Approx(expected[i]).epsilon(1e-5));

  REQUIRE(predict(data + "--keep note,city --format int8 --out " + path("scores.csv")).status == 0);
  std::istringstream text(text_of(path("scores.csv")));
  std::string line;
  std::getline(text, line);
  CHECK(line == "note,city,prediction");
  for (std::size_t i = 0; i < expected.size(); ++i) {
    REQUIRE(std::getline(text, line));
    const std::size_t last = line.rfind(',');
    CHECK(std::stof(line.substr(last + 1)) == doctest::Approx(expected[i]).epsilon(0.05));
    const std::size_t note = line.rfind(',', last - 1);
    CHECK(line[note + 1] == 'c');
    const std::string kept = line.substr(0, note);
    const bool quotes = notes[i].starts_with("a ");
    CHECK(kept == (quotes
                       ? "\"a \"\"note\"\", of " + notes[i].substr(notes[i].rfind(' ') + 1) + "\""
                       : notes[i]));
  }
  CHECK_FALSE(std::getline(text, line));

  const auto refused = [&](const std::string& arguments, const std::string& part) {
    const Outcome outcome = predict(arguments);
    CHECK(outcome.status != 0);
    CHECK_MESSAGE(outcome.err.find(part) != std::string::npos, outcome.err);
  };
  refused(data + "--out " + path("scores.txt"), "must end in .npy, .csv or .parquet");
  refused(data + "--keep note --out " + path("scores.npy"), "holds probabilities alone");
  refused(data + "--keep nota --out " + path("x.csv"), "nota");
  refused(data + "--out " + path("run") + "/x.csv", "--out");
  refused(
      "--checkpoint " + path("run") + " --data " + path("today.tsv") + " --out " + path("x.csv"),
      "the model");
  refused(
      "--checkpoint " + path("none") + " --data " + path("today.tsv") + " --out " + path("x.npy"),
      "is no checkpoint, and holds none");
  std::ofstream(path("bad.tsv")) << "tags\tcity\tprice\n\tc1\t3\n\tc1\tthree\n";
  refused("--checkpoint " + path("run") + " --separator tab --data " + path("bad.tsv") + " --out " +
              path("x.npy"),
          "line 3: column 'price': 'three'");
  std::ofstream(path("empty.tsv")) << "tags\tcity\tprice\n";
  refused("--checkpoint " + path("run") + " --separator tab --data " + path("empty.tsv") +
              " --out " + path("x.npy"),
          "holds no samples");
  CHECK_FALSE(std::filesystem::exists(path("x.npy")));
  CHECK_FALSE(std::filesystem::exists(path("x.csv")));

  // a format beside itself
  const Outcome twice = evaluate_model("accuracy --checkpoint " + path("run") + " --data " +
                                       path("train.csv") + " --label clicked --formats fp32,fp32");
  CHECK(twice.status == 0);
  CHECK_MESSAGE(twice.out.find("0.00e+00\n", twice.out.find("0.00e+00\n") + 1) != std::string::npos,
                twice.out);
  // as many samples with other labels take the data's place between formats
  std::string other = text_of(path("train.csv"));
  for (std::size_t at = other.find('\n') + 1; at < other.size(); at = other.find('\n', at) + 1)
    if (other[at] == '0' || other[at] == '1') other[at] = other[at] == '0' ? '1' : '0';
  std::ofstream(path("other.csv")) << other;
  std::string formats = "fp32";
  for (int i = 0; i < 300; ++i) formats += ",fp32";
  std::filesystem::create_hard_link(path("train.csv"), path("now.csv"));
  std::atomic<bool> ended = false;
  std::thread replaces([&] {
    for (bool mine = true; !ended; mine = !mine) {
      std::filesystem::create_hard_link(path(mine ? "other.csv" : "train.csv"), path("next"));
      std::filesystem::rename(path("next"), path("now.csv"));
    }
  });
  const Outcome replaced =
      evaluate_model("accuracy --checkpoint " + path("run") + " --data " + path("now.csv") +
                     " --label clicked --formats " + formats);
  ended = true;
  replaces.join();
  CHECK(replaced.status == 1);
  CHECK_MESSAGE(replaced.err.find("now.csv' changed while it was read, once for each format") !=
                    std::string::npos,
                replaced.err);
}
