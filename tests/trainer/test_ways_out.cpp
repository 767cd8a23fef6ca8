// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What export_onnx and examples/load_in_torch.py make of checkpoints gives the trainer's scores:
// where onnxruntime and PyTorch are installed for the interpreter that TESSERA_PYTHON names.
#include "command.hpp"

#include <tessera/checkpoint/folder.hpp>
#include <tessera/core/random.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

using namespace tessera;

namespace {

/// The repository's folder, above the test.
std::filesystem::path root() {
  for (std::filesystem::path at = std::filesystem::read_symlink("/proc/self/exe");
       at.has_relative_path(); at = at.parent_path())
    if (std::filesystem::exists(at / "examples/load_in_torch.py")) return at;
  std::printf("skipped: there is no examples/load_in_torch.py above the test\n");
  std::exit(77);
}

void write_clicks(const std::filesystem::path& path, int lines) {
  std::ofstream file(path);
  file << "y,x,z,second,c,d,tags,words\n";
  std::uint64_t random = 1;
  const auto draw = [&](std::uint64_t n) { return (random = mix64(random)) % n; };
  for (int i = 0; i < lines; ++i) {
    file << draw(2) << ',';
    draw(9) == 0 ? file << ',' : file << draw(1000) << ',';
    draw(9) == 0 ? file << ',' : file << static_cast<double>(draw(1000)) / 100 - 5 << ',';
    draw(9) == 0 ? file << ',' : file << 1517356800 + draw(60) << ',';  // of one minute
    draw(9) == 0 ? file << ',' : file << "c" << draw(30) << ',';
    file << "d" << draw(90);
    for (const int most : {4, 3}) {
      file << ',';
      for (std::uint64_t n = draw(static_cast<std::uint64_t>(most)); n > 0; --n)
        file << "t" << draw(40) << (n > 1 ? "|" : "");
    }
    file << '\n';
  }
}

Outcome export_onnx(const std::string& arguments) {
  return train_dlrm(arguments, false, "", "export_onnx");
}

/// Exports the last checkpoint of `run` and compares scores. `of`: what has the samples, and their
/// predictions.
void check_exports(const std::filesystem::path& folder, const std::string& of,
                   const std::string& what) {
  const auto path = [&](const char* name) { return "'" + (folder / name).string() + "'"; };
  const Outcome outcome =
      export_onnx("--checkpoint " + path("run") + " --output " + path("model.onnx"));
  INFO(outcome.err);
  REQUIRE(outcome.status == 0);
  CHECK(std::filesystem::exists(folder / "model.onnx.data"));
  const char* const python = std::getenv("TESSERA_PYTHON");
  const int status =
      std::system(((python == nullptr ? "python3" : python) + std::string(" '") +
                   (root() / "tests/trainer/check_exports.py").string() + "' '" +
                   latest_checkpoint(folder / "run")->string() + "' " + path("model.onnx") + " " +
                   of + " '" + (root() / "examples").string() + "' >" + path("out") + " 2>&1")
                      .c_str());
  MESSAGE(what << ": " << text_of(folder / "out"));
  CHECK(status == 0);
}

}  // namespace

TEST_CASE("the trainer's scores in onnxruntime and PyTorch") {
  const TemporaryFolder folder;
  write_clicks(folder.path / "clicks.csv", 2000);
  const auto path = [&](const char* name) { return "'" + (folder.path / name).string() + "'"; };
  const std::string numeric =
      "numeric: [{name: x, transform: [log1p, standardize]}, {name: z, transform: standardize, "
      "empty: 3}, {name: second, transform: standardize}]\n";
  const std::string categorical =
      "categorical: [c, {name: d, rows: 50}, {name: tags, list: '|', pooling: mean}, {name: words, "
      "list: '|', pooling: sqrtn, table: tags}]\n";
  const std::string maxima =
      "categorical: [{name: tags, list: '|', pooling: max}, {name: words, list: '|', pooling: max, "
      "table: tags}]\n";
  for (const auto& [schema, how] :
       {std::pair(numeric + categorical, "--interaction dot"),
        std::pair(numeric + categorical, "--interaction cross --cross-layers 2 --cross-rank 5"),
        std::pair(numeric + categorical, "--interaction cross --cross-layers 3 --cross-rank 0"),
        std::pair(numeric + categorical, "--model wide-deep"),
        // tables of 4 columns, which are projected
        std::pair(numeric + categorical, "--interaction dot --interaction-width 12"),
        // no number, and no column of which every sample has one entry
        std::pair(std::string("categorical: [{name: tags, list: '|'}, {name: words, list: '|', "
                              "pooling: mean}]\n"),
                  "--interaction dot"),
        // rows that a vocabulary gave out
        std::pair(
            std::string("numeric: [x]\ncategorical: [c, {name: tags, list: '|', pooling: mean}]\n"),
            "--vocabulary --max-rows 60 --min-count 1"),
        // the largest of a list's columns, and of its one weight
        std::pair(maxima, "--interaction cross --cross-layers 1 --cross-rank 4"),
        std::pair(numeric + maxima, "--model wide-deep")}) {
    CAPTURE(how);
    std::filesystem::remove_all(folder.path / "run");
    std::ofstream(folder.path / "schema.yaml") << "label: y\n" << schema;
    results("--data " + path("clicks.csv") + " --schema " + path("schema.yaml") + " --save " +
            path("run") + " --predictions " + path("scores.npy") +
            " --ranks 2 --batch-size 50 --top-mlp 16,8 --embedding-width 8 " +
            (std::string_view(how).starts_with("--model wide") ? "" : "--bottom-mlp 12 ") +
            "--learning-rate 0.05 " + how);
    check_exports(folder.path, path("clicks.csv") + " " + path("scores.npy"), how);
  }
  for (const char* const data :
       {"--data events.csv --label-column stars --label-threshold 4", "--data events.csv", ""}) {
    std::filesystem::remove_all(folder.path / "run");
    std::ofstream events(folder.path / "events.csv");
    events << "user,item,timestamp,stars\n";
    std::uint64_t random = 3;
    for (int e = 0; e < 600; ++e) {
      random = mix64(random);
      events << random % 40 << ",i" << (random >> 8) % 50 << ',' << e << ',' << (random >> 16) % 6
             << '\n';
    }
    events.close();
    std::string given = data;
    if (const std::size_t at = given.find("events.csv"); at != std::string::npos)
      given.replace(at, 10, path("events.csv"));
    const Outcome outcome =
        train_dlrm(given + (given.empty() ? "--users 50 --items 100" : "") + " --save " +
                       path("run") + " --predictions " + path("scores.tsv") +
                       " --model ranking --ranks 2 --epochs 2 --width 16 --heads 2 --max-length 8 "
                       "--batch-size 16 --learning-rate 0.01",
                   false, "", "train_sequence");
    INFO(outcome.err);
    REQUIRE(outcome.status == 0);
    check_exports(folder.path, path("scores.tsv") + " none", given);
  }
}

TEST_CASE("rows of texts in Python are those that convert_dataset writes down") {
  const TemporaryFolder folder;
  write_clicks(folder.path / "clicks.csv", 1000);
  std::ofstream(folder.path / "schema.yaml")
      << "label: y\nnumeric: [x]\ncategorical: [c, {name: d, rows: 50}, {name: tags, list: '|'}]\n";
  const auto path = [&](const char* name) { return "'" + (folder.path / name).string() + "'"; };
  results("--data " + path("clicks.csv") + " --schema " + path("schema.yaml") + " --save " +
          path("run") +
          " --ranks 1 --bottom-mlp 4 --top-mlp 4 --embedding-width 4 --epochs 1 --seed 0");
  const Outcome made = train_dlrm(
      "to-binary " + path("clicks.csv") + " " + path("dir") + " --schema " + path("schema.yaml"),
      false, "", "convert_dataset");
  INFO(made.err);
  REQUIRE(made.status == 0);
  std::ofstream(folder.path / "check.py") << R"(
import csv, sys
sys.path.insert(0, sys.argv[1])
from load_in_torch import Encoder, encode
encoder = Encoder(sys.argv[2])
tables = [table["name"] for table in encoder.model["tables"]]
lines = list(csv.DictReader(open(sys.argv[3])))
assert len(lines) > 100 and {line["table"] for line in lines} == {"0", "1", "2"}
for line in lines:
    assert encoder.row(tables[int(line["table"])], line["text"]) == int(line["row"]), line
numbers, rows = encode(sys.argv[2], {"x": ["7", ""], "c": ["never", ""], "d": ["d1", "d2"], "tags": [["t1", "t2"], []]})
assert numbers[0] == [7.0] and numbers[1][0] != numbers[1][0]
assert rows["c"] == [1, 0] and rows["tags"][1] == [0, 2], rows
try:
    encode(sys.argv[2], {"x": ["7", "x7"], "c": ["", ""], "d": ["", ""], "tags": [[], []]})
except ValueError as error:
    assert "column 'x', sample 1: 'x7'" in str(error)
else:
    assert False
)";
  CHECK(std::system(("python3 " + path("check.py") + " '" + (root() / "examples").string() + "' '" +
                     (*latest_checkpoint(folder.path / "run") / "model.json").string() + "' " +
                     path("dir") + "/texts.csv")
                        .c_str()) == 0);
}

TEST_CASE("what cannot be exported says why, and leaves no file") {
  const TemporaryFolder folder;
  const std::string output = " --output '" + (folder.path / "model.onnx").string() + "'";
  const auto fails = [&](const std::string& arguments, int status, const char* part) {
    const Outcome outcome = export_onnx(arguments);
    INFO(outcome.err);
    CHECK(outcome.status == status);
    CHECK(outcome.err.find(part) != std::string::npos);
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
    CHECK(!std::filesystem::exists(folder.path / "model.onnx"));
    for (const auto& entry : std::filesystem::directory_iterator(folder.path))
      CHECK(entry.path().filename().string().find("partial") == std::string::npos);
  };
  fails("--checkpoint /nowhere" + output, 1, "/nowhere");
  fails("--checkpoint /nowhere", 2, "--output");
  const std::string run = (folder.path / "run").string();
  results("--samples 2000 --max-rows 20 --batch-size 100 --bottom-mlp 8 --top-mlp 8 --save '" +
          run + "'");
  fails("--checkpoint '" + run + "' --output /proc/no/model.onnx", 1, "/proc/no/model.onnx");
  const std::filesystem::path latest = *latest_checkpoint(run);
  for (const char* const file : {"model.json", "new"}) {
    const std::string inside = "'" + (latest / file).string() + "'";
    const bool exists = std::filesystem::exists(latest / file);
    const std::string before = text_of(latest / file);
    fails("--checkpoint '" + run + "' --output " + inside, 1, "is in a checkpoint");
    const Outcome page = train_dlrm(
        "latency --seconds 0.01 --batch-sizes 1 --threads 1 --loads 0.5 "
        "--checkpoint '" +
            run + "' --page " + inside,
        false, "", "evaluate_model");
    CHECK(page.status == 1);
    CHECK(page.err.find("--page: '" + (latest / file).string() + "' is in a checkpoint") !=
          std::string::npos);
    CHECK(std::filesystem::exists(latest / file) == exists);
    CHECK(text_of(latest / file) == before);
  }
  for (const auto& entry : std::filesystem::directory_iterator(latest))
    if (entry.path().filename().string().ends_with("-C4.safetensors"))
      std::filesystem::resize_file(entry.path(), entry.file_size() - 1);
  fails("--checkpoint '" + latest.string() + "'" + output, 1, "it was truncated or changed");
}
