// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// train_dlrm and its files: what cannot be read twice or never ends, faults that must show before
// the training, results that must not destroy anything, other data than a checkpoint's.
#include <trainer/command.hpp>

#include <tessera/core/random.hpp>
#include <tessera_data/binary_dataset.hpp>
#include <tessera_data/criteo.hpp>

#include <fmt/format.h>
#include <sys/stat.h>

#include <regex>
#include <string>
#include <vector>

using namespace tessera;

namespace {

const std::string kSmall =
    " --ranks 2 --batch-size 50 --embedding-width 8 --bottom-mlp 8 --top-mlp 8 --epochs 1 "
    "--min-count 1 ";

/// `salt`: other categories, nothing else.
std::string clicks(int lines, std::uint32_t salt = 0) {
  std::string text;
  for (int i = 0; i < lines; ++i) {
    CriteoRecord record;
    record.label = static_cast<std::uint8_t>(random_word(3, i) % 2);
    for (int f = 0; f < kCriteoCategories; ++f)
      record.categories[f] = static_cast<std::uint32_t>(random_word(4, i, f) % 9) ^ salt;
    append_criteo_line(text, record);
  }
  return text;
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// One line on stderr that holds `what`. A run that hangs ends as status 124.
Outcome fails(const std::string& arguments, const std::string& what, int status = 1,
              const std::string& before = "") {
  return check_fails(arguments, what, status, before + "timeout 60");
}

}  // namespace

TEST_CASE("pipes and devices are refused, at once") {
  const TemporaryFolder folder;
  const std::string pipe = (folder.path / "pipe").string();
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  write(folder.path / "clicks", clicks(200));
  fails("--data '" + pipe + "'" + kSmall, "it is a pipe, which can be read only once");
  fails("--data /dev/stdin" + kSmall, "it is a pipe, which can be read only once", 1,
        "cat '" + (folder.path / "clicks").string() + "' | ");
  fails("--data /dev/zero" + kSmall, "it is not a regular file");
  std::filesystem::create_directory(folder.path / "set");
  REQUIRE(::mkfifo((folder.path / "set" / "feature_spec.yaml").c_str(), 0600) == 0);
  fails("--data '" + (folder.path / "set").string() + "'" + kSmall,
        "feature_spec.yaml': it is a pipe");
}

TEST_CASE("no option waits for a pipe, and a file of options that cannot be read is an error") {
  const TemporaryFolder folder;
  const std::string pipe = (folder.path / "pipe").string(), config = (folder.path / "c").string();
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  fails("--config '" + pipe + "'", "it is a pipe", 2);
  fails("--config /dev/zero", "it is not a regular file", 2);
  fails("--config /proc/self/mem", "cannot read '/proc/self/mem'", 2);
  write(config, std::string((1 << 20) + 1, '#'));
  fails("--config '" + config + "'", "such a file has at most 1048576", 2);
  write(config, "plan=\"" + std::string(200'000, 'x') + "\"\n");
  CHECK(fails("--config '" + config + "'", "more bytes)", 2).err.size() < 2'200);
  write(config, "ranks=\"1\"\nfoo=\"3\"\n");
  fails("--config '" + config + "'", "--config: there is no option 'foo'", 2);
  write(config, "ranks=\"1\"  # one\nsave='runs/exp#1'\n");
  fails("--config '" + config + "'", "save='runs/exp#1'': a value there cannot hold a '#'", 2);
  for (const char* option : {"--log", "--json", "--report", "--predictions", "--trace"})
    fails("--samples 200 --max-rows 10 " + (option + (" '" + pipe + "'")) + kSmall,
          option + (": cannot write '" + pipe) + "': no process reads this pipe");
  for (const std::string name : {"a\nb", "a\rb", "a'\"b", "a#b"}) {
    write(folder.path / name, clicks(200));
    // in the shell's quotes
    std::string quoted = (folder.path / name).string();
    if (const std::size_t at = quoted.find('\''); at != std::string::npos)
      quoted.replace(at, 1, "'\\''");
    fails("--print-config --data '" + quoted + "'", "--print-config: the value of --data", 2);
  }
}

TEST_CASE("results never take the place of a checkpoint's files or of data in a folder") {
  const TemporaryFolder folder;
  const std::string save = (folder.path / "save").string();
  REQUIRE(train_dlrm("--samples 400 --max-rows 10 --save '" + save + "'" + kSmall, false).status ==
          0);
  const std::filesystem::path checkpoint = std::filesystem::directory_iterator(save)->path();
  REQUIRE(std::filesystem::exists(checkpoint / "model.json"));
  const std::string before = text_of(checkpoint / "model.json");
  for (const char* option : {"--log", "--json", "--report", "--predictions", "--trace"})
    fails("--samples 200 --max-rows 10 " +
              (option + (" '" + (checkpoint / "model.json").string() + "'")) + kSmall,
          "is in a checkpoint");
  CHECK(text_of(checkpoint / "model.json") == before);
  std::filesystem::create_directory(folder.path / "set");
  fails("--data '" + (folder.path / "set").string() + "' --json '" +
            (folder.path / "set" / "label.bin").string() + "'" + kSmall,
        "is in the folder that --data reads", 2);
}

TEST_CASE("a file of another kind: columns that there are and that there should be") {
  const TemporaryFolder folder;
  const std::string file = (folder.path / "file").string(), data = "--data '" + file + "'" + kSmall;
  write(file, "label,price\n1,2\n");
  fails(data,
        "1 tab-separated field and 1 commas; a Criteo line has 40: a label, 13 integers, 26 "
        "categories; a CSV or TSV file needs a schema that says what its columns mean: --schema");
  write(file, "1\t2\t3\n");
  fails(data, "line 1: the line has 3 tab-separated fields; a Criteo line has 40");
  write(file, "\x1f\x8b\x08rest");
  fails(data, "looks compressed (gzip)");
}

TEST_CASE("a fault in the test part of a folder shows before the training") {
  const TemporaryFolder folder;
  const std::vector<std::int64_t> rows(kCriteoCategories, 9);
  const std::string set = (folder.path / "set").string();
  BinaryDatasetWriter writer(set, kCriteoIntegers, rows);
  ClickBatch<std::int32_t> batch{.size = 300,
                                 .features = kCriteoCategories,
                                 .dense_columns = kCriteoIntegers,
                                 .labels = {},
                                 .dense = {},
                                 .ids = {},
                                 .offsets = {}};
  batch.labels.assign(300, 1.0f);
  batch.dense.assign(300 * kCriteoIntegers, 0.5f);
  batch.ids.assign(300 * kCriteoCategories, 3);
  for (const char* part : {"train", "test"}) writer.add(part, batch);
  writer.finish();
  const std::string data = "--data '" + set + "'" + kSmall;
  CHECK(train_dlrm(data).status == 0);
  std::string ids = text_of(set + "/test/cat_5.bin");
  ids[290] = 100;
  write(set + "/test/cat_5.bin", ids);
  const Outcome outcome =
      fails(data, "test/cat_5.bin', sample 290: id 100 of feature 'cat_5.bin' is not in [0, 9)");
  CHECK(outcome.out.find("step") == std::string::npos);
}

TEST_CASE("--json: nothing is written before the end, nothing else is lost, any name can be told") {
  const TemporaryFolder folder;
  const std::string data = (folder.path / "data").string(),
                    results_file = (folder.path / "results").string();
  const std::string json = " --json '" + results_file + "'";
  write(data, clicks(200));
  fails("--data '" + data + "' --json '" + data + "'" + kSmall, "--json", 2);
  std::filesystem::create_symlink("data", folder.path / "link");
  fails("--data '" + data + "' --json '" + (folder.path / "link").string() + "'" + kSmall, "--json",
        2);
  CHECK(text_of(data) == clicks(200));

  write(results_file, "earlier results");
  fails("--data /no/such/file" + json + kSmall, "/no/such/file");
  fails("--data '" + data + "' --dense-optimizer sgd --dense-learning-rate 1e30" + json + kSmall,
        "diverged");
  CHECK(text_of(results_file) == "earlier results");

  const std::string latin = (folder.path / "caf\xe9").string();
  write(latin, clicks(200));
  const Outcome outcome = train_dlrm("--data '" + latin + "'" + json + kSmall, false);
  CHECK(outcome.status == 0);
  CHECK(nlohmann::json::parse(text_of(results_file))
            .at("data")
            .get<std::string>()
            .ends_with("caf\xef\xbf\xbd"));
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path))
    files += entry.exists();
  CHECK(files == 4);  // nothing partial is left
  CHECK(train_dlrm("--data '" + data + "' --json /dev/null" + kSmall, false).status == 0);
  CHECK(std::filesystem::is_character_file("/dev/null"));
}

TEST_CASE("a result that cannot be written takes no other with it") {
  const TemporaryFolder folder;
  const auto file = [&](const char* name) { return (folder.path / name).string(); };
  const std::string data = "--samples 400 --max-rows 10" + kSmall;
  const Outcome outcome = check_fails(
      data + " --report /dev/full --predictions /dev/full --json '" + file("json") + "'",
      "--report: cannot write '/dev/full': No space left on device; --predictions: ", 1);
  CHECK(outcome.out.find("test AUC") != std::string::npos);
  CHECK(nlohmann::json::parse(text_of(file("json"))).contains("auc"));

  // nor do the last checkpoint, the trace and the log: files of 8 KiB at most are a full disk
  const Outcome full = train_dlrm(
      "--samples 2000 --max-rows 100 --print-every 1 --trace /dev/full --save '" + file("run") +
          "' --log '" + file("log") + "' --json '" + file("full") + "'" + kSmall,
      false, "trap '' XFSZ; ulimit -f 16;");
  CAPTURE(full.err);
  CHECK(full.status == 1);
  CHECK(full.out.find("test AUC") != std::string::npos);
  CHECK(nlohmann::json::parse(text_of(file("full"))).contains("auc"));
  CHECK(std::regex_search(
      full.err,
      std::regex("^train_dlrm: warning: --log: .*; the training goes on "
                 "without it\ntrain_dlrm: --trace: .*; --save, step 36: .*; --log: .*\n$")));

  const std::string sequences =
      "--users 60 --items 100 --epochs 1 --width 16 --blocks 1 --model ranking";
  check_fails(sequences + " --predictions /dev/full --json '" + file("json2") + "'",
              "--predictions: cannot write '/dev/full'", 1, "", "train_sequence");
  CHECK(nlohmann::json::parse(text_of(file("json2"))).contains("auc"));
}

TEST_CASE("train_sequence --start-from says that a model is train_dlrm's") {
  const TemporaryFolder folder;
  const auto file = [&](const char* name) { return "'" + (folder.path / name).string() + "'"; };
  write(folder.path / "data", clicks(200));
  REQUIRE(train_dlrm("--data " + file("data") + " --save " + file("saved") + kSmall).status == 0);
  std::string events = "user,item,timestamp\n";
  for (int i = 0; i < 200; ++i) events += fmt::format("u{},i{},{}\n", i / 10, i * 7 % 30, i);
  write(folder.path / "events.csv", events);
  check_fails("--data " + file("events.csv") + " --epochs 1 --start-from " + file("saved"),
              "is of another program's model, without a table 'item'; give a folder of "
              "train_sequence --save",
              1, "", "train_sequence");
}

TEST_CASE("results that cannot be printed are a failure") {
  const std::string synthetic = "--samples 400 --max-rows 10" + kSmall;
  const auto status_of = [&](const std::string& arguments, const std::string& output) {
    const std::string command =
        "'" + train_dlrm_path() + "' " + arguments + " 2>/dev/null " + output;
    return WEXITSTATUS(std::system(command.c_str()));
  };
  CHECK(status_of(synthetic, ">/dev/null") == 0);
  CHECK(status_of(synthetic, ">/dev/full") == 1);
  CHECK(status_of(synthetic, ">&-") == 1);
  CHECK(status_of("--help", ">/dev/full") == 1);
  // A file that is opened must not get the number of the closed output.
  const TemporaryFolder folder;
  write(folder.path / "data", clicks(200));
  CHECK(status_of("--data '" + (folder.path / "data").string() + "' --json '" +
                      (folder.path / "json").string() + "'" + kSmall,
                  ">&-") == 1);
  CHECK(text_of(folder.path / "data") == clicks(200));
}

TEST_CASE("--resume knows the data, and goes on under another name of it") {
  const TemporaryFolder folder;
  const std::string file = (folder.path / "data").string(),
                    save = " --save '" + (folder.path / "save").string() + "'" + kSmall;
  write(file, clicks(200));
  write(file + "2", clicks(200, 0x1234));
  REQUIRE(train_dlrm("--data '" + file + "'" + save, false).status == 0);
  fails("--data '" + file + "2' --resume" + save,
        "was saved while training on other data (checksum ");
  std::filesystem::rename(file, file + "3");
  CHECK(train_dlrm("--data '" + file + "3' --resume" + save, false).status == 0);
  const std::string vocabulary =
      " --vocabulary --max-rows 20 --save '" + (folder.path / "other").string() + "'" + kSmall;
  REQUIRE(train_dlrm("--data '" + file + "3'" + vocabulary, false).status == 0);
  fails("--data '" + file + "2' --resume" + vocabulary,
        "was saved while training on other data (checksum ");
}

TEST_CASE("ranks that wait too long, and threads that the system does not give") {
  fails("--samples 40000 --ranks 4 --max-rows 20 --timeout 0.000001", "late: rank ");
#if !defined(__SANITIZE_ADDRESS__)
  fails("--samples 4000 --ranks 64 --threads-per-rank 16",
        "but --ranks and --threads-per-rank need 1024", 1, "ulimit -v 3000000; ");
#endif
}
