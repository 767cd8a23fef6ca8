// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What other programs see: Python's standard library reads a checkpoint as
// examples/read_checkpoint.py shows; .npy files go out and come back under another layout.
#include <checkpoint/models.hpp>

#include <tessera/checkpoint/non_finite.hpp>
#include <tessera/checkpoint/npy.hpp>

#include <doctest/doctest.h>
#include <support/text_of.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

using namespace models;

namespace {

/// The example, found from this program upwards; empty if it or Python is not there.
std::string python_reader() {
  if (std::system("python3 -c '' 2>/dev/null") != 0) return {};
  for (std::filesystem::path at = std::filesystem::read_symlink("/proc/self/exe");
       at.has_relative_path(); at = at.parent_path())
    if (const auto script = at / "examples" / "read_checkpoint.py"; std::filesystem::exists(script))
      return "python3 '" + script.string() + "' ";
  return {};
}

Layout layout(int ranks) {
  return make_layout({ranks}, {{"t", 700, 12}, {"a/b", 9, 3}}, {},
                     {{0, {0, 300, 0, 12}, 0},
                      {0, {300, 700, 0, 5}, ranks - 1},
                      {0, {300, 700, 5, 12}, 0},
                      {1, {0, 9, 0, 3}, every_rank}});
}

template <Element T>
void save(const std::filesystem::path& folder, std::uint64_t max_file_bytes) {
  run_ranks(2, [&](ThreadCommunicator& c) {
    Trained<RowWiseAdagrad, T, ThreadCommunicator> model(c, layout(2), 5);
    save_checkpoint(c, folder, model.contents, 3, {.max_file_bytes = max_file_bytes});
  });
}

}  // namespace

TEST_CASE("Python's standard library reads and checks a checkpoint") {
  const std::string reader = python_reader();
  if (reader.empty()) {
    MESSAGE("no python3, or no examples folder above this program: left out");
    return;
  }
  const TemporaryFolder folder;
  const auto run = [&](const std::string& arguments) {
    const int status = std::system((reader + arguments + " >'" + (folder.path / "out").string() +
                                    "' 2>'" + (folder.path / "err").string() + "'")
                                       .c_str());
    return status == 0;
  };
  const auto check_table = [&](const std::filesystem::path& checkpoint, auto expected) {
    REQUIRE(run("'" + checkpoint.string() + "' --tensor t.weight"));
    std::ifstream out(folder.path / "out");
    std::int64_t wrong = 0;
    for (int row = 0; row < 700; ++row)
      for (int column = 0; column < 12; ++column) {
        float x = 0;
        out >> x;
        wrong += x != expected(row, column);
      }
    CHECK(out.good());
    CHECK(wrong == 0);
  };
  save<float>(folder.path / "f", 10'000);
  save<BFloat16>(folder.path / "b", 1 << 30);
  save<Half>(folder.path / "h", 1 << 30);
  check_table(folder.path / "f" / detail::checkpoint_name(3),
              [](int row, int column) { return value<float>(5, "t", 0, row, column); });
  check_table(folder.path / "b" / detail::checkpoint_name(3), [](int row, int column) {
    return to_float(value<BFloat16>(5, "t", 0, row, column));
  });
  check_table(folder.path / "h" / detail::checkpoint_name(3),
              [](int row, int column) { return to_float(value<Half>(5, "t", 0, row, column)); });
  const std::filesystem::path checkpoint = folder.path / "f" / detail::checkpoint_name(3);
  CHECK(run("'" + checkpoint.string() + "'"));
  const std::string listing = text_of(folder.path / "out");
  for (const std::string part : {"step 3, 7 files, all checksums right", "t.weight ", "t.sum ",
                                 "a/b.weight ", "mlp.weight ", "[700, 12]"})
    CHECK(listing.find(part) != std::string::npos);
  if (std::system("python3 -c 'import torch' 2>/dev/null") == 0) {
    CHECK(run("'" + checkpoint.string() + "' --torch '" + (folder.path / "state").string() + "'"));
    CHECK(std::filesystem::file_size(folder.path / "state") > 700 * 12 * 4);
  } else {
    MESSAGE("no PyTorch: its part is left out");
  }
  // Of an increment it shows what is there, and makes no tensor of it; names that leave the folder
  // are refused.
  const std::filesystem::path other = folder.path / "other";
  std::filesystem::copy(checkpoint, other);
  const auto write = [&](const detail::Manifest& manifest) {
    std::ofstream(other / "manifest.json", std::ios::binary) << detail::format_manifest(manifest);
  };
  const auto refused = [&](const std::string& arguments, const std::string& what) {
    CHECK(!run("'" + other.string() + "'" + arguments));
    CHECK(text_of(folder.path / "err").find(what) != std::string::npos);
    CHECK(text_of(folder.path / "out") == "");
  };
  detail::Manifest manifest = detail::read_manifest(checkpoint).first;
  manifest.base = detail::checkpoint_name(1);
  write(manifest);
  CHECK(run("'" + other.string() + "'"));
  CHECK(text_of(folder.path / "out")
            .find("an increment: rows that are not listed here are those of step-000000000001") !=
        std::string::npos);
  refused(" --tensor t.weight", "only the rows that changed since step-000000000001");
  refused(" --torch '" + (folder.path / "no").string() + "'",
          "only the rows that changed since step-000000000001");
  manifest.base.clear();
  manifest.files[0].name = "../f/" + detail::checkpoint_name(3) + "/" + manifest.files[0].name;
  write(manifest);
  refused("", "is no plain file name");
  // It finds damage, too.
  std::fstream file(checkpoint / "0000-t-00002-of-00004.safetensors",
                    std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(3000);
  const char old = static_cast<char>(file.peek());
  file.put(static_cast<char>(old ^ 16));
  file.close();
  CHECK(!run("'" + checkpoint.string() + "'"));
  CHECK(
      text_of(folder.path / "err").find("0000-t-00002-of-00004.safetensors: chunk 0 is damaged") !=
      std::string::npos);
}

TEST_CASE("npy files hold whole tables, and come back under another layout and precision") {
  const TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path / "npy";
  run_ranks(2, [&](ThreadCommunicator& c) {
    Trained<RowWiseAdagrad, float, ThreadCommunicator> model(c, layout(2), 5);
    export_npy(c, folder, model.contents);
    CHECK_THROWS_WITH_AS(export_npy(c, folder, model.contents),
                         doctest::Contains("is there already"), DataError);
  });
  const std::string bytes = text_of(folder / "t.weight.npy");
  REQUIRE(bytes.size() == 128 + 700 * 12 * 4);
  CHECK(bytes.substr(0, 8) == std::string("\x93NUMPY\x01\x00", 8));
  CHECK(bytes.substr(8, 2) == std::string("\x76\x00", 2));
  CHECK(bytes.substr(10, 62) == "{'descr': '<f4', 'fortran_order': False, 'shape': (700, 12), }");
  CHECK(bytes[127] == '\n');
  float x = 0;
  std::memcpy(&x, bytes.data() + 128 + (599 * 12 + 7) * 4, 4);
  CHECK(x == value<float>(5, "t", 0, 599, 7));
  CHECK(text_of(folder / "a_b.sum.npy").find("'shape': (9, 1), }") != std::string::npos);

  run_ranks(3, [&](ThreadCommunicator& c) {
    Trained<RowWiseAdagrad, BFloat16, ThreadCommunicator> model(c, layout(3), 99);
    CHECK(import_npy(c, folder, model.contents) == 5);
    CHECK(differences<float>(model.tables, 5) == 0);
    CHECK(model.dense[17] == 22.0f);
    CHECK_THROWS_WITH_AS(import_npy(c, temporary.path, model.contents),
                         doctest::Contains("has no file"), DataError);
  });
  std::filesystem::resize_file(folder / "a_b.sum.npy", 150);
  run_ranks(2, [&](ThreadCommunicator& c) {
    Trained<RowWiseAdagrad, float, ThreadCommunicator> model(c, layout(2), 99);
    CHECK_THROWS_WITH_AS(import_npy(c, folder, model.contents), doctest::Contains("a_b.sum.npy"),
                         DataError);
    CHECK(model.is<float>(99));
  });
}

namespace {

/// Memory whose tensors are copied while files are written: then a folder appears.
struct Late {
  static constexpr bool host_readable = false;
  std::filesystem::path made;
  void copy(void* to, const void* from, std::size_t bytes) const {
    std::filesystem::create_directory(made);
    std::memcpy(to, from, bytes);
  }
  void synchronize() const {}
};

}  // namespace

TEST_CASE("an export of npy files disturbs no other, and replaces nothing that came meanwhile") {
  const TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path / "npy",
                              partial = temporary.path / "npy.partial";
  SelfCommunicator self;
  Trained<RowWiseAdagrad, float, SelfCommunicator> model(self, layout(1), 5);
  std::filesystem::create_directory(partial);
  std::ofstream(partial / "theirs") << "x";
  {
    const FolderLock theirs(partial);
    CHECK_THROWS_WITH_AS(export_npy(self, folder, model.contents),
                         doctest::Contains("another program or save writes to"), DataError);
    CHECK(text_of(partial / "theirs") == "x");
  }
  float one = 1;
  CheckpointContents late;
  late.add(Late{folder}, "one", {1}, std::span(&one, 1));
  CHECK_THROWS_WITH_AS(export_npy(self, folder, late), doctest::Contains("is there already"),
                       DataError);
  CHECK(std::filesystem::is_empty(folder));
  std::filesystem::remove(folder);
  export_npy(self, folder, model.contents);
  CHECK(!std::filesystem::exists(folder / "theirs"));
  CHECK(import_npy(self, folder, model.contents) == 5);
}

TEST_CASE("two tables are not one npy file") {
  const TemporaryFolder folder;
  SelfCommunicator self;
  std::vector<float> values(4, 1.0f), others(4, 2.0f);
  CheckpointContents one, two;
  one.add("a_b", {4}, std::span(values));
  two.add("a_b", {4}, std::span(values));
  two.add("a/b", {4}, std::span(others));
  export_npy(self, folder.path / "npy", one);
  CHECK_THROWS_WITH_AS(import_npy(self, folder.path / "npy", two),
                       doctest::Contains("two tensors of the model would be the file"), DataError);
  CHECK(others == std::vector<float>(4, 2.0f));
}

TEST_CASE("npy files and checks of weights see rows that are behind a cache") {
  using OnDisk = Plan<Cached<30, OnFile<TableWise<Table<"a", 100, 4>>>>>;
  const TemporaryFolder folder;
  SelfCommunicator self;
  EmbeddingCollection<OnDisk, Sgd, Host, SelfCommunicator> embeddings(
      self, Host(),
      {.learning_rate = 1.0f, .files = {.folder = (folder.path / "tables").string()}});
  CheckpointContents contents;  // once, before rows are in the cache
  contents.add(embeddings);
  const std::vector<std::int32_t> ids{3, 5, 7, 9};
  std::vector<float> gradient(16, 1.0f), trained(400), later(400);
  const auto step = [&] {
    const auto pooled = embeddings.forward(KeyedJagged<std::int32_t>{1, 4, ids, {}, {}});
    embeddings.backward(pooled, MatrixView<const float>(gradient.data(), 4, 4));
  };
  step();
  // with a slash at the end
  export_npy(self, folder.path / "npy" / "", contents);
  embeddings.tables().get("a", {trained.data(), 100, 4});
  const std::string bytes = text_of(folder.path / "npy" / "a.weight.npy");
  REQUIRE(bytes.size() == 128 + 1600);
  CHECK(std::memcmp(bytes.data() + 128, trained.data(), 1600) == 0);
  step();
  import_npy(self, folder.path / "npy", contents);
  const auto pooled = embeddings.forward(KeyedJagged<std::int32_t>{1, 4, ids, {}, {}});
  for (std::int64_t i = 0; i < 4; ++i)
    for (std::int64_t c = 0; c < 4; ++c)
      CHECK(pooled.values(i, c) ==
            trained[static_cast<std::size_t>(ids[static_cast<std::size_t>(i)] * 4 + c)]);
  gradient.assign(16, std::numeric_limits<float>::quiet_NaN());
  step();
  CHECK(detail::non_finite_tensors(contents).size() == 1);
}
