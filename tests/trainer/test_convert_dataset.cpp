// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// convert_dataset and train_dlrm --data DIR: Python's standard library reads the same clicks from
// the binary files as from the text, a model learns from them what it learns from the text, and
// they come back as text.
#include <trainer/command.hpp>

#include <tessera/core/random.hpp>
#include <tessera_data/criteo.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

using namespace tessera;

namespace {

/// Text with categories of different sizes, so that ids of one, two and four bytes occur, and what
/// the label depends on.
std::vector<CriteoRecord> records(int lines) {
  std::vector<CriteoRecord> made(static_cast<std::size_t>(lines));
  for (int i = 0; i < lines; ++i) {
    CriteoRecord& record = made[static_cast<std::size_t>(i)];
    for (int k = 0; k < kCriteoIntegers; ++k) {
      const std::uint64_t word = random_word(1, i, k);
      record.integers[k] = word % 7 == 0
                               ? CriteoRecord::kMissing
                               : static_cast<std::int32_t>((word >> 8) % (k < 6 ? 40 : 100'000));
    }
    for (int f = 0; f < kCriteoCategories; ++f) {
      const std::uint64_t word = random_word(2, i, f);
      if (word % 9 == 0 && f != 3) {
        record.missing_categories |= 1u << f;
      } else {
        record.categories[f] = static_cast<std::uint32_t>(mix64((word >> 8) % (f == 0   ? 50'000
                                                                               : f == 1 ? 500
                                                                                        : 12)) >>
                                                          32);
      }
    }
    record.label = static_cast<std::uint8_t>(record.categories[3] % 2);
  }
  return made;
}

Outcome convert(const std::string& arguments, const std::string& before = "") {
  const TemporaryFolder folder;
  const std::string program =
      (std::filesystem::path(train_dlrm_path()).parent_path() / "convert_dataset").string();
  const int status =
      std::system((before + "'" + program + "' " + arguments + " >'" +
                   (folder.path / "out").string() + "' 2>'" + (folder.path / "err").string() + "'")
                      .c_str());
  Outcome outcome;
  outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = text_of(folder.path / "out");
  outcome.err = text_of(folder.path / "err");
  return outcome;
}

// Reads both forms with nothing but the standard library. Rows must be a renaming of the text's
// values, numbers log(1 + x) shifted and scaled, both the same for all samples.
const char* const kPython = R"(
import json, math, struct, sys
tsv, folder = sys.argv[1:]
lines = [line.rstrip("\n").split("\t") for line in open(tsv)]
train = len(lines) - round(len(lines) * 0.1)
def load(name, code, width=1):
    data = b"".join(open(f"{folder}/{part}/{name}", "rb").read() for part in ("train", "test"))
    return [v for (v,) in struct.iter_unpack("<" + code, data)]
assert len(open(folder + "/test/label.bin", "rb").read()) == len(lines) - train
assert load("label.bin", "B") == [int(l[0]) for l in lines]
text = open(folder + "/feature_spec.yaml").read()
codes = {"int8": "b", "int16": "h", "int32": "i"}
for f in range(26):
    part = text.split(f"\n  cat_{f}.bin:\n    cardinality: ")[1].split("\n")
    rows, code = int(part[0]), codes[part[1].split("dtype: ")[1]]
    assert code == ("b" if rows < 127 else "h" if rows < 32767 else "i"), (f, rows, code)
    ids = load(f"cat_{f}.bin", code)
    assert len(ids) == len(lines) and min(ids) >= 0 and max(ids) < rows
    value_of, row_of = {}, {}
    for i, (row, line) in enumerate(zip(ids, lines)):
        value = line[14 + f]
        assert (row == 0) == (value == "")
        if row > 1:
            assert value_of.setdefault(row, value) == value and row_of.setdefault(value, row) == row
        elif row == 1:
            assert all(l[14 + f] != value for l in lines[:train]), "a value of the training samples has no row of its own"
numbers = load("numerical.bin", "e")
assert len(numbers) == 13 * len(lines)
for k in range(13):
    column = numbers[k::13]
    logs = [math.log1p(int(l[1 + k])) if l[1 + k] else -1.0 for l in lines]
    mean = sum(logs[:train]) / train
    deviation = math.sqrt(sum((x - mean) ** 2 for x in logs[:train]) / train)
    for x, log in zip(column, logs):
        assert abs(x - (log - mean) / deviation) < 4e-3
header = open(folder + "/criteo.safetensors", "rb").read()
size = struct.unpack("<Q", header[:8])[0]
assert set(json.loads(header[8:8 + size])) == {"shift", "scale"} | {f"cat_{f}" for f in range(26)}
print("same")
)";

}  // namespace

TEST_CASE("to binary files and back") {
  const TemporaryFolder folder;
  const std::string tsv = (folder.path / "clicks.tsv").string(),
                    dir = (folder.path / "dir").string(),
                    back = (folder.path / "back.tsv").string();
  const std::vector<CriteoRecord> original = records(4001);
  std::string text;
  for (const CriteoRecord& record : original) append_criteo_line(text, record);
  std::ofstream(tsv) << text;
  const Outcome there = convert("to-binary '" + tsv + "' '" + dir + "' --min-count 1");
  INFO(there.err);
  REQUIRE(there.status == 0);
  CHECK(there.out.find("3601 training and 400 test samples") != std::string::npos);

  std::ofstream(folder.path / "check.py") << kPython;
  const std::string check = "python3 '" + (folder.path / "check.py").string() + "' '" + tsv +
                            "' '" + dir + "' > '" + (folder.path / "answer").string() + "'";
  CHECK(std::system(check.c_str()) == 0);
  CHECK(text_of(folder.path / "answer") == "same\n");

  const Outcome again = convert("to-tsv '" + dir + "' '" + back + "'");
  INFO(again.err);
  REQUIRE(again.status == 0);
  const std::vector<CriteoRecord> returned = read_criteo(back);
  REQUIRE(returned.size() == original.size());
  std::int64_t rare = 0;
  for (std::size_t i = 0; i < original.size(); ++i) {
    CHECK(returned[i].label == original[i].label);
    CHECK(returned[i].missing_categories == original[i].missing_categories);
    for (int f = 0; f < kCriteoCategories; ++f) {
      if (returned[i].categories[f] == original[i].categories[f]) continue;
      CHECK(returned[i].categories[f] == 1);  // a value that only test samples hold
      CHECK(i >= 3601);
      ++rare;
    }
    for (int k = 0; k < kCriteoIntegers; ++k) {
      const double x = original[i].integers[k], y = returned[i].integers[k];
      CHECK((x == y || std::abs(x - y) < 0.5 + 0.01 * x));
    }
  }
  CHECK(rare > 0);
  CHECK(rare < 400);

  // The model learns the same, but for what float16 rounds.
  const std::string options =
      " --batch-size 64 --embedding-width 8 --bottom-mlp 8 --top-mlp 16 --epochs 2 --learning-rate "
      "0.05";
  const nlohmann::json from_text = results("--data '" + tsv + "' --min-count 1" + options),
                       from_binary = results("--data '" + dir + "'" + options);
  CHECK(from_binary.at("train_samples") == 3601);
  CHECK(from_binary.at("embedding_parameters") == from_text.at("embedding_parameters"));
  CHECK(from_binary.at("auc").get<double>() > 0.99);
  CHECK(std::abs(from_binary.at("logloss").get<double>() - from_text.at("logloss").get<double>()) <
        2e-3);

  // With rows given out while it trains, on any number of ranks, also where there are too few and
  // keys must be evicted.
  for (const std::string& source : {tsv, dir}) {
    const std::string vocabulary =
        "--data '" + source + "' --vocabulary --min-count 2 --max-rows 200" + options;
    const nlohmann::json two = results(vocabulary + " --ranks 2"),
                         one = results(vocabulary + " --ranks 1");
    CHECK(two.at("auc").get<double>() > 0.98);
    CHECK(std::abs(two.at("logloss").get<double>() - one.at("logloss").get<double>()) < 2e-3);
  }

  SUBCASE("damaged folders are one clear line") {
    const auto fails = [&](const std::string& part) {
      const Outcome outcome = train_dlrm("--data '" + dir + "'", false);
      CHECK(outcome.status == 1);
      CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
      INFO(outcome.err);
      CHECK(outcome.err.find(part) != std::string::npos);
    };
    std::string ids = text_of(dir + "/train/cat_3.bin");
    ids[17] = 126;
    std::ofstream(dir + "/train/cat_3.bin") << ids;
    fails("sample 17: id 126 of feature 'cat_3.bin'");
    std::ofstream(dir + "/train/cat_3.bin") << ids.substr(1);
    fails("holds 3600 samples");
    std::filesystem::remove(dir + "/train/cat_3.bin");
    fails("cannot open");
    std::ofstream(dir + "/feature_spec.yaml") << "channel_spec: [\n";
    fails("line 2, column 1: end of sequence");
    std::filesystem::remove(dir + "/feature_spec.yaml");
    fails("has no feature_spec.yaml");
  }
}

TEST_CASE("what was there stays until the new files are complete") {
  const TemporaryFolder folder;
  const auto path = [&](const char* name) { return (folder.path / name).string(); };
  const auto content = [&](const std::string& of) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(of))
      if (entry.is_regular_file()) files[entry.path().string()] = text_of(entry.path());
    return files;
  };
  std::string text;
  for (const CriteoRecord& record : records(300)) append_criteo_line(text, record);
  std::ofstream(path("clicks.tsv")) << text;
  std::ofstream(path("bad.tsv")) << text << "no click\n";
  std::ofstream(path("own.csv")) << "y,c\n1,a\n0,b\n1,a\n0,b\n1,late\n";
  std::ofstream(path("own.yaml")) << "label: y\ncategorical: [{name: c, unknown: error}]\n";
  const std::string dir = path("dir");
  REQUIRE(convert("to-binary '" + path("clicks.tsv") + "' '" + dir + "'").status == 0);
  const auto good = content(dir);
  CHECK(good.size() == 2 + 2 * 28);
  // a bad line behind 300 good ones; a text that the test part alone holds, seen while files are written
  CHECK(convert("to-binary '" + path("bad.tsv") + "' '" + dir + "'").status == 1);
  CHECK(content(dir) == good);
  const Outcome late = convert("to-binary '" + path("own.csv") + "' '" + dir + "' --schema '" +
                               path("own.yaml") + "' --test-fraction 0.2 --min-count 1");
  INFO(late.err);
  CHECK(late.status == 1);
  CHECK(late.err.find("the text is not in the training data") != std::string::npos);
  CHECK(content(dir) == good);
  for (const auto& entry : std::filesystem::directory_iterator(dir))
    CHECK(entry.path().filename() != ".unfinished");
  // another process writes there
  const int held = ::open(dir.c_str(), O_RDONLY | O_DIRECTORY);
  REQUIRE(::flock(held, LOCK_EX) == 0);
  const Outcome second = convert("to-binary '" + path("clicks.tsv") + "' '" + dir + "'");
  CHECK(second.status == 1);
  CHECK(second.err.find("another program or save writes to") != std::string::npos);
  ::close(held);
  CHECK(content(dir) == good);
  // nothing tells of another dataset that was there
  REQUIRE(convert("to-binary '" + path("own.csv") + "' '" + path("both") + "' --schema '" +
                  path("own.yaml") + "' --test-fraction 0 --min-count 1")
              .status == 0);
  REQUIRE(convert("to-binary '" + path("clicks.tsv") + "' '" + path("both") + "'").status == 0);
  CHECK(std::filesystem::exists(path("both") + "/criteo.safetensors"));
  for (const char* name : {"schema.yaml", "texts.csv", "numbers.csv"})
    CHECK(!std::filesystem::exists(path("both") + "/" + name));
  // a folder that was made for what failed goes, too
  CHECK(convert("to-binary '" + path("bad.tsv") + "' '" + path("new") + "'").status == 1);
  CHECK(!std::filesystem::exists(path("new")));

  std::ofstream(path("out")) << "earlier";
  const auto refused = [&](const std::string& arguments, int status, const char* what) {
    const Outcome outcome = convert(arguments);
    INFO(outcome.err);
    CHECK(outcome.status == status);
    CHECK(outcome.err.find(what) != std::string::npos);
  };
  for (const char* const form : {"to-tsv", "to-csv"})
    refused(form + (" '" + dir + "' '" + dir + "/train/label.bin'"), 2,
            "is in the folder that DIR reads");
  CHECK(content(dir) == good);
  REQUIRE(convert("to-binary '" + path("own.csv") + "' '" + path("csv") + "' --schema '" +
                  path("own.yaml") + "' --test-fraction 0 --min-count 1")
              .status == 0);
  std::ofstream(path("large.csv")) << "y,n,c\n1,1,a\n0,70000,b\n";
  std::ofstream(path("large.yaml")) << "label: y\nnumeric: [n]\ncategorical: [c]\n";
  refused("to-binary '" + path("large.csv") + "' '" + path("large") + "' --schema '" +
              path("large.yaml") + "' --test-fraction 0.5",
          1, "large.csv', after line 2, sample 1, column 'n': the number becomes 70000");
  const std::string texts = text_of(path("csv") + "/texts.csv");
  std::ofstream(path("csv") + "/texts.csv") << texts.substr(0, texts.find('\n') + 1);
  refused("to-csv '" + path("csv") + "' '" + path("out") + "'", 1,
          "texts.csv': it has no text of row");
  std::ofstream(path("csv") + "/texts.csv") << texts;
  for (const std::string& damaged : {dir, path("csv")}) {
    std::filesystem::resize_file(damaged + "/train/cat_0.bin", 1);
    refused((damaged == dir ? "to-tsv '" : "to-csv '") + damaged + "' '" + path("out") + "'", 1,
            "cat_0.bin");
    CHECK(text_of(path("out")) == "earlier");
  }
}

TEST_CASE(
    "to-csv writes by the schema, its columns, separator and quote: the folder made of that is the "
    "same") {
  const TemporaryFolder folder;
  const auto path = [&](const char* name) { return "'" + (folder.path / name).string() + "'"; };
  // converts `in` there and back with a schema; the outcome of the way back
  const auto there_and_back = [&](const std::string& in, const std::string& schema) {
    std::ofstream(folder.path / "in.csv") << in;
    std::ofstream(folder.path / "s.yaml") << schema;
    for (const char* old : {"set", "set2", "out.csv"})
      std::filesystem::remove_all(folder.path / old);
    const std::string how = " --schema " + path("s.yaml") + " --min-count 1 --test-fraction 0";
    const Outcome there = convert("to-binary " + path("in.csv") + " " + path("set") + how);
    INFO(there.err);
    REQUIRE(there.status == 0);
    const Outcome back = convert("to-csv " + path("set") + " " + path("out.csv"));
    if (back.status != 0) return back;
    const Outcome again = convert("to-binary " + path("out.csv") + " " + path("set2") + how);
    INFO(again.err);
    CHECK(again.status == 0);
    CHECK(std::system(("diff -r " + path("set") + " " + path("set2")).c_str()) == 0);
    return back;
  };
  const auto out = [&] { return text_of(folder.path / "out.csv"); };

  const std::string no_header =
      "label: y\nnumeric: [x]\ncategorical: [a, b]\ncolumns: [b, unused, x, y, a]\n";
  CHECK(there_and_back("b1,z,2.5,1,a1\nb2,z,3,0,\nb1,z,4,1,a2\nb2,z,4,1,a1\n", no_header).status ==
        0);
  CHECK(out() == R"("b1",,2.5,1,"a1"
"b2",,3,0,
"b1",,4,1,"a2"
"b2",,4,1,"a1"
)");
  CHECK(there_and_back("b1::z::2.5::1::a1\nb2::z::3::0::a:2\n",
                       no_header + "separator: '::'\nquote: none\n")
            .status == 0);
  CHECK(out() == "b1::::2.5::1::a1\nb2::::3::0::a:2\n");
  CHECK(there_and_back("b1 z 2.5 1 'a ''1'''\n b2\tz 3  0 a2\n",
                       no_header + "separator: blanks\nquote: \"'\"\n")
            .status == 0);
  CHECK(out() == "'b1' '' 2.5 1 'a ''1'''\n'b2' '' 3 0 'a2'\n");
  CHECK(there_and_back("y,a\n1,'NA'\n0,NA\n1,it's\n",
                       "label: y\ncategorical: [a]\nquote: \"'\"\nempty_words: [NA]\n")
            .status == 0);
  CHECK(out() == "'y','a'\n1,'NA'\n0,\n1,'it''s'\n");

  // without quotes, blanks cannot say that a column is empty
  const Outcome refused = there_and_back("b1 z 2.5 1 a1\nb2 z 3 0 a2\n",
                                         no_header + "separator: blanks\nquote: none\n");
  CHECK(refused.status == 1);
  CHECK(refused.err == "convert_dataset: file '" + (folder.path / "set/schema.yaml").string() +
                           "': an empty field of column 'unused' can only be written in quotes, "
                           "and there is 'quote: none'; take that out of this file, or give "
                           "another 'separator'\n");
  CHECK(!std::filesystem::exists(folder.path / "out.csv"));
}

TEST_CASE("what cannot be converted") {
  const TemporaryFolder folder;
  const std::string empty = (folder.path / "empty").string();
  std::ofstream(empty) << "";
  CHECK(convert("").status == 2);
  CHECK(convert("").err == "convert_dataset: A subcommand is required (see --help)\n");
  CHECK(convert("tobinary a b").err ==
        "convert_dataset: there is no 'tobinary': to-binary, to-csv, to-tsv (see --help)\n");
  CHECK(convert("to-binary x").status == 2);
  CHECK(convert("to-binary x y --test-fraction 1").status == 2);
  CHECK(
      convert("to-binary /no/such/file '" + empty + "x'").err.find("cannot open '/no/such/file'") !=
      std::string::npos);
  CHECK(convert("to-binary '" + empty + "' '" + empty + "x'").err.find("holds no clicks") !=
        std::string::npos);
  CHECK(convert("to-tsv '" + folder.path.string() + "' x").err.find("feature_spec.yaml") !=
        std::string::npos);
  for (const char* arguments : {"to-binary '' x", "to-binary x ''", "to-tsv '' x", "to-tsv x ''"})
    CHECK(convert(arguments).status == 2);
  // What can be read only once would give files of no samples.
  std::string line;
  append_criteo_line(line, records(1)[0]);
  std::ofstream(empty) << line << line;
  const Outcome pipe = convert("to-binary /dev/stdin '" + empty + "x'", "cat '" + empty + "' | ");
  CHECK(pipe.status == 1);
  CHECK(pipe.err ==
        "convert_dataset: cannot read '/dev/stdin': it is a pipe, which can be read only once; "
        "write its content to a file first\n");
  CHECK(convert("to-binary '" + empty + "' '" + empty + "x'").status == 0);
  CHECK(std::system(("'" + train_dlrm_path("convert_dataset") + "' to-binary '" + empty + "' '" +
                     empty + "x' 2>/dev/null >/dev/full")
                        .c_str()) != 0);
}
