// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The commands of docs/your_own_data.md as they are; data of other shapes than Criteo's.
#include <trainer/command.hpp>

#include <tessera/checkpoint/folder.hpp>
#include <tessera/core/random.hpp>
#include <tessera_data/binary_dataset.hpp>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

using namespace tessera;

namespace {

const std::string kSmall = " --ranks 1 --bottom-mlp 8 --top-mlp 8 --embedding-width 8";

/// The blocks of commands, one after the other.
std::string commands() {
  const std::string text = text_of(source_folder() / "docs" / "your_own_data.md"),
                    begin = "```bash\n";
  std::string all = "set -e\n";
  for (std::size_t at = 0; (at = text.find(begin, at)) != std::string::npos;) {
    at += begin.size();
    const std::size_t end = text.find("```", at);
    all += text.substr(at, end - at);
    at = end;
  }
  return all;
}

/// Clicks that depend on a category of 20 and on one of the tags.
void write_clicks(const std::filesystem::path& path, int lines) {
  std::ofstream file(path);
  file << "y,c,tags\n";
  std::uint64_t random = 1;
  for (int i = 0; i < lines; ++i) {
    random = mix64(random);
    const auto c = random % 20, a = random / 20 % 9, b = random / 200 % 9;
    const int percent = 10 + 50 * (c % 4 == 0) + 30 * (a == 0 || b == 0);
    const bool y = static_cast<int>(random / 4000 % 100) < percent;
    file << y << ",c" << c << ",t" << a << "|t" << b << '\n';
  }
}
const std::string kSchema = "label: y\ncategorical: [c, {name: tags, list: '|'}]\n";

}  // namespace

TEST_CASE("the commands of the page") {
  const TemporaryFolder folder;
  const std::string script = (folder.path / "commands.sh").string();
  const std::filesystem::path bin = std::filesystem::path(train_dlrm_path()).parent_path();
  std::ofstream(script) << commands();
  const std::string command = "cd '" + folder.path.string() + "' && PATH='" + bin.string() +
                              "':\"$PATH\" bash commands.sh >out 2>err";
  const int status = std::system(command.c_str());
  INFO(text_of(folder.path / "err"));
  REQUIRE(status == 0);
  const auto json = nlohmann::json::parse(text_of(folder.path / "result.json"));
  CHECK(json.at("train_samples") == 18'000);
  CHECK(json.at("auc").get<double>() > 0.68);  // the truth itself reaches about 0.73
}

TEST_CASE("no numbers, lists, few categories: the same learning on any ranks and plan") {
  const TemporaryFolder folder;
  write_clicks(folder.path / "a.csv", 6000);
  std::ofstream(folder.path / "s.yaml") << kSchema;
  const std::string data =
      "--data '" + (folder.path / "a.csv").string() + "' --schema '" +
      (folder.path / "s.yaml").string() +
      "' --bottom-mlp 8 --top-mlp 32 --embedding-width 8 --shuffle-window 3000";
  const double one = results(data + " --ranks 1").at("auc").get<double>();
  CHECK(one > 0.7);
  for (const char* plan : {"table-wise", "row-wise", "grid", "auto"})
    CHECK(std::abs(results(data + " --ranks 3 --plan " + plan).at("auc").get<double>() - one) <
          2e-3);
  CHECK(results(data + " --interaction cross --ranks 2").at("auc").get<double>() > 0.7);
  CHECK(results(data + " --loader first-rank --overlap --ranks 2").at("auc").get<double>() > 0.7);
  CHECK(results(data + " --vocabulary --max-rows 64 --min-count 1 --ranks 2")
            .at("auc")
            .get<double>() > 0.7);
  const auto check_fails = [&](const std::string& more, const char* part) {
    const Outcome outcome = train_dlrm(data + more, false);
    CHECK(outcome.status != 0);
    CHECK(outcome.err.find(part) != std::string::npos);
    CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
  };
  check_fails(" --feature-check", "these data have lists");
  std::ofstream(folder.path / "s.yaml") << "label: z\ncategorical: [c]\n";
  check_fails("", "a.csv', line 1: there is no column 'z'");
}

TEST_CASE("dates and seconds since 1970 are learned from, and stand in the checkpoint") {
  const TemporaryFolder folder;
  std::ofstream csv(folder.path / "a.csv");
  csv << "y,second,date,c\n";
  std::uint64_t random = 1;
  for (int i = 0; i < 4000; ++i) {
    random = mix64(random);
    const auto second = random % 60, day = random / 60 % 28;
    csv << (second < 30) << ',' << 1517356800 + second << ',' << 20180201 + day << ",c\n";
  }
  csv.close();
  std::ofstream(folder.path / "s.yaml")
      << "label: y\nnumeric: [{name: second, transform: standardize}, {name: date, transform: "
         "standardize}]\ncategorical: [c]\n";
  const std::string path = folder.path.string();
  const nlohmann::json found = results("--data '" + path + "/a.csv' --schema '" + path +
                                       "/s.yaml' --epochs 8 --batch-size 100 " +
                                       "--learning-rate 0.1 --save '" + path + "/run'" + kSmall);
  CHECK(found.at("auc").get<double>() > 0.99);
  const auto model =
      nlohmann::json::parse(text_of(*latest_checkpoint(folder.path / "run") / "model.json"));
  const auto& second = model.at("numeric").at(0);
  CHECK(std::abs(second.at("shift").get<double>() - 1517356829.5) < 2);
  CHECK(second.at("scale").get<double>() ==
        doctest::Approx(1 / std::sqrt(3599.0 / 12)).epsilon(0.05));
}

TEST_CASE("a list of ten million entries, and a file that changes under the training") {
  const TemporaryFolder folder;
  const std::string csv = (folder.path / "a.csv").string();
  std::ofstream(folder.path / "s.yaml") << kSchema;
  const std::string data = "--data '" + csv + "' --schema '" + (folder.path / "s.yaml").string() +
                           "' --min-count 1 --shuffle-window 2048" + kSmall;
  std::string text = "y,c,tags\n1,c1,t1";
  for (int i = 1; i < 10'000'000; ++i) text += i % 2 == 0 ? "|t1" : "|t2";
  for (int i = 0; i < 99; ++i) text += "\n0,c2,t2";
  std::ofstream(csv) << text << '\n';
  CHECK(results(data + " --epochs 1").at("train_samples") == 90);

  write_clicks(csv, 6000);
  const std::string out = (folder.path / "out").string(), err = (folder.path / "err").string();
  const std::string command = "timeout 120 '" + train_dlrm_path() + "' " + data +
                              " --epochs 1000000 --print-every 1 >'" + out + "' 2>'" + err +
                              "' & until grep -q 'step' '" + out +
                              "' || ! kill -0 $!; do sleep 0.05; "
                              "done; printf 7 | dd of='" +
                              csv + "' bs=1 seek=40000 conv=notrunc 2>&-; wait $!";
  CHECK(WEXITSTATUS(std::system(command.c_str())) == 1);
  const std::string said = text_of(err);
  CAPTURE(said);
  CHECK(std::count(said.begin(), said.end(), '\n') == 1);
  CHECK(said.find("a.csv' changed while it was read") != std::string::npos);
}

TEST_CASE(
    "convert_dataset: to a folder and back, what training may hold, and what a folder may not") {
  const TemporaryFolder folder;
  const auto path = [&](const char* name) { return "'" + (folder.path / name).string() + "'"; };
  const auto run = [&](const std::string& arguments) {
    return train_dlrm(arguments, false, "", "convert_dataset");
  };
  const auto write = [&](const char* name, const std::string& text) {
    std::ofstream(folder.path / name) << text;
  };
  write("s.yaml",
        "label: y\nnumeric: [{name: x, transform: [log1p, standardize]}]\n"
        "categorical: [c, {name: tags, list: '|'}, {name: d, table: c}, "
        "{name: r, list: ';', pooling: mean, width: 3}]\n");
  std::string in = "c,more,y,x,tags,d,r\n", expected = "\"y\",\"x\",\"c\",\"tags\",\"d\",\"r\"\n";
  for (int i = 0; i < 4000; ++i) {
    const std::string c = "\"a, \"\"" + std::to_string(i % 9) + "\"\"\"",
                      tags = "t" + std::to_string(i % 5) + "|t" + std::to_string(i % 4);
    std::string ragged;  // of 0 to 3 entries
    for (int k = 0; k < i % 4; ++k) ragged += (k == 0 ? "r" : ";r") + std::to_string((i + k) % 7);
    in += c + ",z," + std::to_string(i % 2) + ",3," + tags + "," + (i % 3 == 0 ? "" : c) + "," +
          ragged + "\n";
    expected += std::to_string(i % 2) + ",3," + c + ",\"" + tags + "\"," + (i % 3 == 0 ? "" : c) +
                (ragged.empty() ? "," : ",\"" + ragged + "\"") + "\n";
  }
  write("in.csv", in);
  Outcome outcome =
      run("to-binary " + path("in.csv") + " " + path("set") + " --schema " + path("s.yaml"));
  INFO(outcome.err);
  REQUIRE(outcome.status == 0);
  REQUIRE(run("to-csv " + path("set") + " " + path("out.csv")).status == 0);
  CHECK(text_of(folder.path / "out.csv") == expected);
  // the folder says 2 ids for each sample of 'tags', at most 3 of 'r'; training has the schema's
  // tables: 'c' and 'd' share one, that of 'r' has 3 columns
  const std::string spec = text_of(folder.path / "set" / "feature_spec.yaml");
  CHECK(spec.find("hotness: 2\n  cat_2.bin") != std::string::npos);
  CHECK(spec.find("hotness: 3\n    padding: -1\n") != std::string::npos);
  const nlohmann::json folder_run = results("--data " + path("set") + " --epochs 1" + kSmall),
                       file_run = results("--data " + path("in.csv") + " --schema " +
                                          path("s.yaml") + " --epochs 1 --min-count 10" + kSmall);
  CHECK(folder_run.at("train_samples") == 3600);
  for (const char* key : {"train_samples", "embedding_parameters", "dense_parameters"})
    CHECK(folder_run.at(key) == file_run.at(key));
  CHECK(folder_run.at("embedding_parameters") == (9 + 2) * 8 + (5 + 2) * 8 + (7 + 2) * 3);
  // as many threads as one likes, compressed or not: the same files
  CHECK(std::system(("gzip -c " + path("in.csv") + " >" + path("in.csv.gz")).c_str()) == 0);
  for (const char* other :
       {"in.csv' --threads 1", "in.csv' --threads 5", "in.csv.gz' --threads 3"}) {
    const std::string input = "'" + (folder.path / "").string() + other;
    REQUIRE(
        run("to-binary " + input + " " + path("again") + " --schema " + path("s.yaml")).status ==
        0);
    CHECK(std::system(("diff -r " + path("set") + " " + path("again")).c_str()) == 0);
    std::filesystem::remove_all(folder.path / "again");
  }
  CHECK(run("to-binary " + path("in.csv") + " " + path("x") + " --schema " + path("s.yaml") +
            " --threads 0")
            .status != 0);

  // in the memory of some blocks: a file of 60 MB within 24 MB of data
  std::ofstream large(folder.path / "large.csv");
  large << "c,tags,d,r,x,y\n";
  const std::string padding(120, 'x');
  for (int i = 0; i < 160'000; ++i)
    large << 'a' << i % 9 << padding << ",t1|t2," << i % 5 << padding << padding << ",r1;r2,4,"
          << i % 2 << '\n';
  large.close();
  CHECK(std::filesystem::file_size(folder.path / "large.csv") > 60'000'000);
  outcome = train_dlrm("to-binary " + path("large.csv") + " " + path("large") + " --threads 1" +
                           " --schema " + path("s.yaml"),
                       false, "ulimit -d 24000;", "convert_dataset");
  INFO(outcome.err);
  CHECK(outcome.out == "144000 training and 16000 test samples in " + path("large") + "\n");

  const auto check_fails = [&](const char* schema, const char* text, const char* part) {
    write("s.yaml", schema);
    write("in.csv", text);
    outcome =
        run("to-binary " + path("in.csv") + " " + path("bad") + " --schema " + path("s.yaml"));
    INFO(outcome.err);
    CHECK(outcome.status == 1);
    CHECK(outcome.err.find(part) != std::string::npos);
    CHECK(!std::filesystem::exists(folder.path / "bad" / "feature_spec.yaml"));
  };
  check_fails("label: y\ncategorical: [t]", "y,t\n0.5,a\n", "the label 0.5 is neither 0 nor 1");
  check_fails("label: y\ncategorical: [{name: t, rows: 9, vocabulary: true}]", "y,t\n0,a\n",
              "remove 'vocabulary'");
}

TEST_CASE("a folder whose features have 1 and 3 ids per sample") {
  const TemporaryFolder folder;
  const std::string set = (folder.path / "set").string();
  BinaryDatasetWriter writer(set, 0, {9, 200}, {1, 3});
  ClickBatch<std::int32_t> batch;
  batch.size = 512, batch.features = 2;
  for (int i = 0; i < 512; ++i) batch.labels.push_back(static_cast<float>(i % 5 == 0));
  for (int i = 0; i < 512; ++i) batch.ids.push_back(i % 9);
  for (int i = 0; i < 512; ++i)
    for (const int id : {i * 7 % 100, 150 + i % 5, i % 50}) batch.ids.push_back(id);
  batch.offsets.push_back(0);
  for (int bag = 0; bag < 1024; ++bag)
    batch.offsets.push_back(batch.offsets.back() + (bag < 512 ? 1 : 3));
  for (const char* part : {"train", "test"}) writer.add(part, batch);
  writer.finish();
  const BinaryDataset data(set, read_feature_spec(set), "test");
  ClickBatch<std::int32_t> read;
  data.read(0, 512, read);
  CHECK(read.ids == batch.ids);
  CHECK(read.offsets == batch.offsets);
  const std::vector<std::int64_t> some{511, 3};
  data.gather(some, read);
  CHECK(read.ids == std::vector<std::int32_t>{511 % 9, 3, 511 * 7 % 100, 151, 11, 21, 153, 3});
  CHECK(
      results("--data '" + set + "' --epochs 40 --batch-size 64" + kSmall).at("auc").get<double>() >
      0.95);
  // what stands behind padding, or where none may stand, is no list
  const auto with_padding = [&](bool padded, const std::string& ids) {
    const std::filesystem::path bad = folder.path / "bad";
    BinaryDatasetWriter made(bad, 0, {9}, {3}, {padded});
    made.finish();
    for (const char* part : {"train", "test"}) {
      std::ofstream(bad / part / "label.bin") << std::string(1, '\0');
      std::ofstream(bad / part / "cat_0.bin") << ids;
    }
    BinaryDataset(bad, read_feature_spec(bad), "train").read(0, 1, read);
    return read.ids;
  };
  CHECK(with_padding(true, "\7\2\377") == std::vector<std::int32_t>{7, 2});
  CHECK(with_padding(true, "\377\377\377").empty());
  CHECK_THROWS_WITH_AS(with_padding(true, "\7\377\2"),
                       doctest::Contains("id 2 of feature 'cat_0.bin' is behind padding"),
                       DataError);
  CHECK_THROWS_WITH_AS(with_padding(true, "\7\376\377"), doctest::Contains("id -2 of feature"),
                       DataError);
  CHECK_THROWS_WITH_AS(with_padding(false, "\7\2\377"), doctest::Contains("id -1 of feature"),
                       DataError);
  batch.offsets[1] = 0;
  BinaryDatasetWriter other((folder.path / "other").string(), 0, {9, 200}, {1, 3});
  CHECK_THROWS_WITH_AS(other.add("train", batch), doctest::Contains("whose hotness is 1"),
                       InvalidArgument);
}

TEST_CASE("folders of other shapes: 4 and 31 categories, 0 and 20 numbers") {
  for (const auto& [categories, numbers] : {std::pair(4, 0), std::pair(31, 20), std::pair(10, 2)}) {
    const TemporaryFolder folder;
    const std::string set = (folder.path / "set").string();
    BinaryDatasetWriter writer(set, numbers, std::vector<std::int64_t>(categories, 9));
    ClickBatch<std::int32_t> batch;
    batch.size = 512, batch.features = categories, batch.dense_columns = numbers;
    for (int i = 0; i < 512; ++i) batch.labels.push_back(static_cast<float>(i % 9 < 3));
    batch.dense.assign(static_cast<std::size_t>(512 * numbers), 0.5f);
    for (int f = 0; f < categories; ++f)
      for (int i = 0; i < 512; ++i) batch.ids.push_back((i + f) % 9);
    for (const char* part : {"train", "test"}) writer.add(part, batch);
    writer.finish();
    CHECK(results("--data '" + set + "' --epochs 40 --batch-size 64 --feature-check" + kSmall)
              .at("auc")
              .get<double>() > 0.95);
  }
}
