// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// The binary layout against bytes written out by hand, in both directions, and everything that can
// be wrong with such a folder.
#include <tessera_data/binary_dataset.hpp>

#include <doctest/doctest.h>
#include <support/message_of.hpp>
#include <support/replaced.hpp>
#include <support/temporary_folder.hpp>
#include <support/text_of.hpp>

#include <filesystem>
#include <limits>
#include <string>
#include <vector>

using namespace tessera;

namespace {

struct Folder : TemporaryFolder {
  Folder() { std::filesystem::create_directories(path / "p"); }
  void write(const std::string& name, const std::string& bytes) const {
    write_text(path / name, bytes);
  }
  std::string read(const std::string& name) const { return text_of(path / name); }
};

const std::string kSpec =
    "channel_spec:\n  categorical: [c, a, l]\n  label: [y]\n  numerical: [n0, n1]\nfeature_spec:\n "
    " a: {cardinality: 300, dtype: int16}\n"
    "  c: {cardinality: 5, dtype: int8}\n  l: {cardinality: 3000000000, dtype: int64}\n  y: "
    "{dtype: bool}\n  n0: {dtype: float16}\n"
    "  n1: {dtype: float16}\nsource_spec:\n  p:\n  - {features: [n0, n1], files: [p/n], type: "
    "split_binary}\n"
    "  - {features: [y], files: [p/y], type: split_binary}\n  - {features: [a], files: [p/a], "
    "type: split_binary}\n"
    "  - {features: [c], files: [p/c], type: split_binary}\n  - {features: [l], files: [p/l], "
    "type: split_binary}\n";

/// Three samples.
void write_files(const Folder& folder) {
  using namespace std::string_literals;
  folder.write("p/y", "\1\0\1"s);
  // 1, -2; 2^-24, 65504; 0, 0.5
  folder.write("p/n", "\x00\x3c\x00\xc0\x01\x00\xff\x7b\x00\x00\x00\x38"s);
  folder.write("p/c", "\4\0\2"s);
  folder.write("p/a", "\x2b\1\0\0\1\0"s);  // 299, 0, 1
  folder.write("p/l", "\0\0\0\0\0\0\0\0\xff\x5d\xd0\xb2\0\0\0\0\7\0\0\0\0\0\0\0"s);
}

}  // namespace

TEST_CASE("bytes written by hand") {
  const Folder folder;
  write_files(folder);
  const BinaryDataset data(folder.path, parse_feature_spec(kSpec, "spec"), "p");
  CHECK(data.size() == 3);
  CHECK(data.dense_columns() == 2);
  CHECK(data.rows() == std::vector<std::int64_t>{5, 300, 3'000'000'000});
  ClickBatch<std::int64_t> batch;
  data.read(0, 3, batch);
  CHECK(batch.size == 3);
  CHECK(batch.labels == std::vector<float>{1, 0, 1});
  CHECK(batch.dense == std::vector<float>{1, -2, 0x1p-24f, 65504, 0, 0.5f});
  CHECK(batch.ids == std::vector<std::int64_t>{4, 0, 2, 299, 0, 1, 0, 2'999'999'999, 7});
  CHECK_NOTHROW(batch.keyed().validate());
  data.read(1, 1, batch);
  CHECK(batch.ids == std::vector<std::int64_t>{0, 0, 2'999'999'999});
  data.gather(std::vector<std::int64_t>{2, 0, 2}, batch);
  CHECK(batch.ids == std::vector<std::int64_t>{2, 4, 2, 1, 299, 1, 7, 0, 7});
  CHECK(batch.dense == std::vector<float>{0, 0.5f, 1, -2, 0, 0.5f});
  data.read(3, 0, batch);
  CHECK(batch.size == 0);
  CHECK_THROWS_AS(data.read(2, 2, batch), InvalidArgument);
  CHECK_THROWS_AS(data.read(-1, 1, batch), InvalidArgument);
  CHECK_THROWS_AS(data.read(1, std::numeric_limits<std::int64_t>::max(), batch), InvalidArgument);
  CHECK_THROWS_AS(data.gather(std::vector<std::int64_t>{3}, batch), InvalidArgument);
  ClickBatch<std::int32_t> narrow;
  CHECK_THROWS_WITH_AS(data.read(0, 1, narrow),
                       "BinaryDataset: feature 'l': 3000000000 rows need 64-bit ids",
                       InvalidArgument);
}

TEST_CASE("folders that cannot be read") {
  using namespace std::string_literals;
  const Folder folder;
  const auto fault = [&](const std::string& spec) {
    return message_of<DataError>([&] {
      const BinaryDataset data(folder.path, parse_feature_spec(spec, "spec"), "p");
      ClickBatch<std::int64_t> batch;
      data.read(0, data.size(), batch);
    });
  };
  const auto check = [&](const std::string& spec, const std::string& part) {
    const std::string found = fault(spec);
    CAPTURE(found);
    CHECK(found.find(part) != std::string::npos);
  };
  const auto check_file = [&](const std::string& name, const std::string& bytes,
                              const std::string& part) {
    write_files(folder);
    folder.write(name, bytes);
    check(kSpec, part);
    write_files(folder);
  };
  write_files(folder);
  CHECK(fault(kSpec) == "");
  check(replaced(kSpec, "p:\n", "q:\n"), "there is no source 'p'");
  check(replaced(kSpec, "  label: [y]\n", "  label: []\n"), "must hold one feature, a bool");
  check(replaced(kSpec, "y: {dtype: bool}", "y: {dtype: int8}"), "must hold one feature, a bool");
  check(replaced(kSpec, "n1: {dtype: float16}", "n1: {dtype: float32}"),
        "'n1' must be float16 or float32");
  check(replaced(kSpec, "numerical: [n0, n1]", "numerical: [n1, n0]"),
        "must hold all numerical features");
  check(replaced(kSpec, "[p/a]", "[p/a, p/c]"), "one file");
  check(replaced(kSpec, "[p/a], type: split_binary", "[p/a], type: csv"), "is 'csv'");
  check(replaced(kSpec, "  - {features: [a], files: [p/a], type: split_binary}\n", ""),
        "source 'p' lacks the feature 'a'");
  check(replaced(kSpec, "p/a", "p/none"), "cannot open");
  check(replaced(kSpec, "p/a", "p"), "not a regular file");
  check_file("p/y", "\1\0"s, "/p/n' holds 3 samples");
  check_file("p/n", std::string(13, '\0'), "no multiple of 4");
  check_file("p/a", std::string(4, '\0'), "/p/a' holds 2 samples");
  check_file("p/l", "", "/p/l' holds 0 samples");
  check_file("p/y", "\1\2\0"s, "/p/y', sample 1: the label 2 is neither");
  check_file("p/c", "\4\0\5"s, "/p/c', sample 2: id 5 of feature 'c' is not in [0, 5)");
  check_file("p/c", "\4\xff\0"s, "sample 1: id -1 of feature 'c'");
  check_file("p/n", "\0\0\0\0\0\0\0\x7c\0\0\0\0"s, "/p/n', sample 1: number 1 is inf");
  check_file("p/n", "\0\0\0\0\0\0\0\0\1\xfe\0\0"s, "sample 2: number 0 is ");
}

TEST_CASE("what is written is the layout, and is read again") {
  const Folder folder;
  ClickBatch<std::int32_t> batch{.size = 2,
                                 .features = 3,
                                 .dense_columns = 1,
                                 .labels = {0, 1},
                                 .dense = {-2, 0.5f},
                                 .ids = {},
                                 .offsets = {}};
  batch.ids = {125, 0, 30000, 1, 99'999, 65'536};
  BinaryDatasetWriter writer(folder.path, 1, {126, 30'001, 100'000});
  writer.add("train", batch);
  writer.add("train", batch);
  CHECK_FALSE(std::filesystem::exists(folder.path / "feature_spec.yaml"));
  writer.finish();
  using namespace std::string_literals;
  CHECK(folder.read("train/label.bin") == "\0\1\0\1"s);
  CHECK(folder.read("train/numerical.bin") == "\x00\xc0\x00\x38\x00\xc0\x00\x38"s);
  CHECK(folder.read("train/cat_0.bin") == "\x7d\0\x7d\0"s);
  CHECK(folder.read("train/cat_1.bin") == "\x30\x75\1\0\x30\x75\1\0"s);
  CHECK(folder.read("train/cat_2.bin") == "\x9f\x86\1\0\0\0\1\0\x9f\x86\1\0\0\0\1\0"s);
  CHECK(folder.read("test/cat_2.bin") == "");
  const DatasetSpec spec = read_feature_spec(folder.path);
  CHECK(BinaryDataset(folder.path, spec, "test").size() == 0);
  const BinaryDataset data(folder.path, spec, "train");
  ClickBatch<std::int32_t> again;
  data.read(2, 2, again);
  CHECK(again.ids == batch.ids);
  CHECK(again.dense == batch.dense);
  CHECK(again.labels == batch.labels);

  BinaryDatasetWriter strict(folder.path, 1, {126, 30'001, 100'000});
  for (const float label : {0.25f, -1.0f, 2.0f, std::numeric_limits<float>::quiet_NaN()}) {
    batch.labels[1] = label;
    CHECK_THROWS_WITH_AS(strict.add("train", batch),
                         doctest::Contains("a binary dataset holds 0 and 1 only"), InvalidArgument);
  }
  batch.labels[1] = 1;
  batch.ids[0] = 126;
  CHECK_THROWS_AS(strict.add("train", batch), InvalidArgument);
  batch.ids[0] = 0;
  batch.dense[0] = 1e6f;
  CHECK_THROWS_AS(strict.add("train", batch), InvalidArgument);
  CHECK_THROWS_AS(BinaryDatasetWriter("/proc/none", 1, {3}), DataError);
}

TEST_CASE("several threads read what one reads, and find the same fault") {
  constexpr std::int64_t kSamples = 5000;
  const Folder folder;
  ClickBatch<std::int32_t> whole;
  whole.size = kSamples;
  whole.features = 3;
  whole.dense_columns = 2;
  const std::vector<std::int64_t> rows{100, 30'001, 3};
  for (std::int64_t f = 0; f < 3; ++f)
    for (std::int64_t s = 0; s < kSamples; ++s)
      whole.ids.push_back(
          static_cast<std::int32_t>((7 * s + f) % rows[static_cast<std::size_t>(f)]));
  for (std::int64_t s = 0; s < kSamples; ++s) {
    whole.labels.push_back(static_cast<float>(s % 3 == 0));
    for (const std::int64_t x : {s % 64, -s % 128}) whole.dense.push_back(static_cast<float>(x));
  }
  BinaryDatasetWriter writer(folder.path, 2, rows);
  writer.add("train", whole);
  writer.finish();
  const DatasetSpec spec = read_feature_spec(folder.path);
  std::vector<std::int64_t> order(kSamples);
  for (std::int64_t i = 0; i < kSamples; ++i)
    order[static_cast<std::size_t>(i)] = (2011 * i + 3) % kSamples;
  ClickBatch<std::int32_t> read;
  for (const int threads : {1, 4}) {
    CAPTURE(threads);
    const BinaryDataset data(folder.path, spec, "train", threads);
    data.read(0, kSamples, read);
    CHECK(read.ids == whole.ids);
    CHECK(read.dense == whole.dense);
    CHECK(read.labels == whole.labels);
    CHECK(read.offsets.empty());
    data.gather(order, read);
    bool equal = true;
    for (std::int64_t i = 0; i < kSamples; ++i) {
      const auto at = static_cast<std::size_t>(i), from = static_cast<std::size_t>(order[at]);
      equal &= read.labels[at] == whole.labels[from];
      equal &= read.dense[2 * at + 1] == whole.dense[2 * from + 1];
      for (std::size_t f = 0; f < 3; ++f)
        equal &= read.ids[f * kSamples + at] == whole.ids[f * kSamples + from];
    }
    CHECK(equal);
  }
  CHECK_THROWS_AS(BinaryDataset(folder.path, spec, "train", 0), InvalidArgument);

  std::string bytes = folder.read("train/cat_2.bin");
  bytes[2500] = bytes[4900] = 3;
  folder.write("train/cat_2.bin", bytes);
  for (const int threads : {1, 4}) {
    const BinaryDataset data(folder.path, spec, "train", threads);
    std::string fault;
    try {
      data.read(0, kSamples, read);
    } catch (const DataError& error) {
      fault = error.what();
    }
    CAPTURE(fault);
    CHECK(fault.find("cat_2.bin', sample 2500: id 3 of feature 'cat_2.bin' is not in [0, 3)") !=
          std::string::npos);
  }
}
