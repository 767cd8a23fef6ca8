// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What is saved under one random layout and loaded under another, on another number of ranks, is
// the same to the bit; what is damaged, missing or different is refused, with a model as it was.
#include <fmt/format.h>
#include <checkpoint/models.hpp>

#include <tessera/io/safetensors.hpp>

#include <doctest/doctest.h>
#include <support/message_of.hpp>
#include <support/text_of.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

using namespace models;
using namespace random_layouts;

namespace {

template <Optimizer O, Element T>
void save(const std::filesystem::path& folder, const Layout& layout, std::uint64_t salt,
          std::int64_t step, SaveOptions options = {}) {
  run_ranks(layout.ranks(), [&](ThreadCommunicator& c) {
    Trained<O, T, ThreadCommunicator> model(c, layout, salt);
    save_checkpoint(c, folder, model.contents, step, options);
  });
}

/// Whether loading gives back `salt` on every rank.
template <Optimizer O, Element T, Element Stored>
bool loads(const std::filesystem::path& checkpoint, const Layout& layout, std::uint64_t salt) {
  std::atomic<int> good = 0;
  run_ranks(layout.ranks(), [&](ThreadCommunicator& c) {
    Trained<O, T, ThreadCommunicator> model(c, layout, 99);
    load_checkpoint(c, checkpoint, model.contents);
    good += model.template is<Stored>(salt);
  });
  return good == layout.ranks();
}

/// What every rank of three says when it loads; each must have left its model alone.
std::string refusal(const std::filesystem::path& checkpoint, const Layout& layout,
                    const LoadOptions& options = {}) {
  std::vector<std::string> texts(static_cast<std::size_t>(layout.ranks()));
  run_ranks(layout.ranks(), [&](ThreadCommunicator& c) {
    Trained<RowWiseAdagrad, float, ThreadCommunicator> model(c, layout, 99);
    try {
      load_checkpoint(c, checkpoint, model.contents, options);
    } catch (const DataError& error) {
      texts[static_cast<std::size_t>(c.rank())] = error.what();
    }
    CHECK(model.is<float>(99));
  });
  for (const std::string& text : texts) CHECK(text == texts[0]);
  return texts[0];
}

template <Optimizer O, Element T, Element Other>
void check(unsigned seed) {
  Random random(seed);
  const Model model = random_model(random, false);
  const TemporaryFolder folder;
  for (const Shape shape : {Shape::whole, Shape::columns, Shape::any, Shape::replicated}) {
    const SaveOptions options{
        .max_file_bytes = pick(random, 0, 1) ? std::uint64_t{1} << 30
                                             : static_cast<std::uint64_t>(pick(random, 300, 3000))};
    save<O, T>(folder.path, random_layout(random, model, pick(random, 1, 5), shape), seed, 3,
               options);
    const Layout other =
        random_layout(random, model, pick(random, 1, 5), static_cast<Shape>(pick(random, 0, 3)));
    INFO("seed " << seed << ", shape " << static_cast<int>(shape));
    CHECK(loads<O, T, T>(folder.path / "step-000000000003", other, seed));
    if (shape == Shape::any)
      CHECK(loads<O, Other, T>(folder.path / "step-000000000003", other, seed));
  }
}

/// One table of 3 MB in column and row parts, two small ones.
Layout three_ranks(std::int64_t rows = 60'000) {
  return make_layout({3}, {{"big", rows, 13}, {"a/b", 10, 4}, {"one", 1, 1}}, {},
                     {{0, {0, 31'111, 0, 5}, 0},
                      {0, {0, 31'111, 5, 13}, 1},
                      {0, {31'111, rows, 0, 13}, 2},
                      {1, {0, 10, 0, 4}, every_rank},
                      {2, {0, 1, 0, 1}, 1}});
}
Layout one_rank() {
  return make_layout({1}, {{"big", 60'000, 13}, {"a/b", 10, 4}, {"one", 1, 1}}, {},
                     {{0, {0, 60'000, 0, 13}, 0}, {1, {0, 10, 0, 4}, 0}, {2, {0, 1, 0, 1}, 0}});
}

/// A tensor of four numbers, saved by one rank.
struct Small {
  SelfCommunicator c;
  std::vector<float> values{1, 2, 3, 4};
  CheckpointContents contents;
  Small() { contents.add("a", {4}, std::span(values)); }
  CheckpointBase save(const std::filesystem::path& folder, std::int64_t step,
                      const SaveOptions& options = {}) {
    return save_checkpoint(c, folder, contents, step, options);
  }
  std::string refusal(const std::filesystem::path& checkpoint) {
    return message_of<DataError>([&] { load_checkpoint(c, checkpoint, contents); });
  }
};

}  // namespace

TEST_CASE("row-wise Adagrad, float, and bfloat16 from float") {
  for (unsigned seed = 1; seed < 15; ++seed) check<RowWiseAdagrad, float, BFloat16>(seed);
}
TEST_CASE("Adam, bfloat16, and half from bfloat16") {
  for (unsigned seed = 30; seed < 40; ++seed) check<Adam, BFloat16, Half>(seed);
}
TEST_CASE("SGD and Adagrad, half and float") {
  for (unsigned seed = 50; seed < 60; ++seed) check<Sgd, Half, float>(seed);
  for (unsigned seed = 60; seed < 65; ++seed) check<Adagrad, float, float>(seed);
}

TEST_CASE("files are plain safetensors of whole tables, cut by rows where they are large") {
  const TemporaryFolder folder;
  save<RowWiseAdagrad, float>(folder.path, three_ranks(), 5, 12, {.max_file_bytes = 1'500'000});
  const std::filesystem::path checkpoint = folder.path / "step-000000000012";
  std::int64_t row = 0;
  for (const std::string name :
       {"0000-big-00001-of-00003", "0000-big-00002-of-00003", "0000-big-00003-of-00003"}) {
    const SafetensorsReader reader(checkpoint / (name + ".safetensors"));
    const std::vector<float> weights = reader.read<float>("big.weight"),
                             sums = reader.read<float>("big.sum");
    REQUIRE(weights.size() == sums.size() * 13);
    CHECK(reader.metadata().at("rows") ==
          fmt::format("{}:{}", row, row + static_cast<std::int64_t>(sums.size())));
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < sums.size(); ++i, ++row) {
      wrong += sums[i] != value<float>(5, "big", 1, row, 0);
      for (int c = 0; c < 13; ++c)
        wrong += weights[i * 13 + static_cast<std::size_t>(c)] != value<float>(5, "big", 0, row, c);
    }
    CHECK(wrong == 0);
  }
  CHECK(row == 60'000);
  CHECK(SafetensorsReader(checkpoint / "0001-a_b.safetensors").read<float>("a/b.weight").at(6) ==
        value<float>(5, "a/b", 0, 1, 2));
  const SafetensorsReader dense(checkpoint / "0003-dense.safetensors");
  CHECK(dense.info("mlp.weight").shape == std::vector<std::int64_t>{30, 100});
  CHECK(dense.read<float>("mlp.weight").at(2'999) == 3'004.0f);
  const detail::Manifest manifest = detail::read_manifest(checkpoint).first;
  CHECK(manifest.step == 12);
  CHECK(manifest.numbers ==
        std::map<std::string, std::uint64_t>{{"epoch", 13}, {"seed", 5}, {"step", 12}});
  for (const detail::StoredFile& file : manifest.files) {
    const std::string bytes = text_of(checkpoint / file.name);
    REQUIRE(bytes.size() == file.bytes);
    for (std::size_t c = 0; c < file.crcs.size(); ++c)
      CHECK(detail::crc32(std::string_view(bytes).substr(c << 20, 1 << 20)) == file.crcs[c]);
  }
}

TEST_CASE("the same files under every layout") {
  const TemporaryFolder folder;
  save<RowWiseAdagrad, float>(folder.path / "a", three_ranks(), 5, 1);
  save<RowWiseAdagrad, float>(folder.path / "b", one_rank(), 5, 1);
  for (const auto& entry :
       std::filesystem::directory_iterator(folder.path / "a" / "step-000000000001"))
    CHECK(text_of(entry.path()) ==
          text_of(folder.path / "b" / "step-000000000001" / entry.path().filename()));
}

TEST_CASE("damage is found before the model is touched") {
  const TemporaryFolder folder;
  save<RowWiseAdagrad, float>(folder.path, three_ranks(), 5, 1);
  const std::filesystem::path checkpoint = folder.path / "step-000000000001";
  CHECK(loads<RowWiseAdagrad, float, float>(checkpoint, one_rank(), 5));
  std::mt19937 random(1);
  int refused = 0;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(checkpoint))
    files.push_back(entry.path());
  CHECK(files.size() == 5);
  for (const std::filesystem::path& path : files) {
    const std::string good = text_of(path);
    for (int i = 0; i < 6; ++i) {
      std::string bad = good;
      const std::size_t at = i == 0 ? 0 : i == 1 ? good.size() - 1 : random() % good.size();
      if (i < 4) bad[at] = static_cast<char>(bad[at] ^ (1 << (random() % 8)));
      if (i == 4) bad.resize(at);
      if (i == 5) bad += "x";
      write_text(path, bad);
      INFO(path.string() << " damaged at " << at << ", way " << i);
      const std::string text = refusal(checkpoint, i % 2 == 0 ? three_ranks() : one_rank());
      CHECK(text.find(path.filename().string()) != std::string::npos);
      refused += !text.empty();
    }
    std::filesystem::remove(path);
    CHECK(refusal(checkpoint, three_ranks())
              .find("cannot open '" + path.string() + "': No such file") != std::string::npos);
    write_text(path, good);
  }
  CHECK(refused == 30);
  CHECK(loads<RowWiseAdagrad, float, float>(checkpoint, three_ranks(), 5));
  CHECK(refusal(folder.path / "nothing", three_ranks()).find("cannot open") != std::string::npos);
}

TEST_CASE("all differences in one message; explicit options accept them") {
  const TemporaryFolder folder;
  const auto layout = [](std::vector<TableSpec> tables) {
    std::vector<Shard> shards;
    for (int t = 0; t < static_cast<int>(tables.size()); ++t)
      shards.push_back({t, {0, tables[t].rows, 0, tables[t].width}, t % 2});
    return make_layout({2}, tables, {}, shards);
  };
  save<RowWiseAdagrad, float>(
      folder.path, layout({{"same", 10, 4}, {"old", 5, 4}, {"gone", 3, 2}, {"grown", 6, 3}}), 5, 1);
  const std::filesystem::path checkpoint = folder.path / "step-000000000001";
  const Layout next = layout({{"same", 10, 4}, {"new", 5, 4}, {"fresh", 2, 2}, {"grown", 8, 2}});
  const std::string all = refusal(checkpoint, next);
  for (const std::string line :
       {"the checkpoint has no 'new.weight'", "the checkpoint has no 'new.sum'",
        "the checkpoint has no 'fresh.weight'", "the model has no 'old.weight'",
        "the model has no 'gone.sum'",
        "'grown.weight' is [6,3] in the checkpoint, [8,2] in the model"})
    CHECK(all.find(line) != std::string::npos);
  CHECK(all.find("same") == std::string::npos);
  const std::string some = refusal(
      checkpoint, next, {.rename = {{"new", "old"}}, .allow_extra = true, .allow_shapes = true});
  CHECK(some.find("'fresh.weight'") != std::string::npos);
  CHECK(some.find("new") == std::string::npos);
  CHECK(some.find("grown") == std::string::npos);

  run_ranks(2, [&](ThreadCommunicator& c) {
    Trained<RowWiseAdagrad, float, ThreadCommunicator> model(c, next, 99);
    load_checkpoint(c, checkpoint, model.contents,
                    {.rename = {{"new", "old"}},
                     .allow_missing = true,
                     .allow_extra = true,
                     .allow_shapes = true});
    std::int64_t wrong = 0;
    visit(model.tables, [&](std::string_view table, int array, std::int64_t row,
                            std::int64_t column, float& x) {
      const bool kept = table == "fresh" || (table == "grown" && row >= 6);
      wrong += x != value<float>(kept ? 99 : 5, table == "new" ? "old" : table, array, row, column);
    });
    CHECK(wrong == 0);
  });

  // Another optimizer: its state is missing, the old one's is left over.
  run_ranks(2, [&](ThreadCommunicator& c) {
    Trained<Adam, float, ThreadCommunicator> model(
        c, layout({{"same", 10, 4}, {"old", 5, 4}, {"gone", 3, 2}, {"grown", 6, 3}}), 99);
    CHECK_THROWS_WITH_AS(load_checkpoint(c, checkpoint, model.contents),
                         doctest::Contains("the checkpoint has no 'same.m'"), DataError);
    load_checkpoint(c, checkpoint, model.contents, {.allow_missing = true, .allow_extra = true});
    std::int64_t wrong = 0;
    visit(model.tables,
          [&](std::string_view table, int array, std::int64_t row, std::int64_t column, float& x) {
            wrong += x != value<float>(array == 0 ? 5 : 99, table, array, row, column);
          });
    CHECK(wrong == 0);
  });
}

TEST_CASE("dealt and hot rows are saved and loaded into any other plan, and back") {
  const auto layout = []<class Query, class Item>(std::type_identity<Plan<Query, Item>>,
                                                  int ranks) {
    return Plan<Query, Item>::layout({ranks});
  };
  using Query = Table<"query", 5'003, 12>;
  using Item = Table<"item", 41, 8>;
  const auto dealt = [&](int ranks) {
    return layout(
        std::type_identity<Plan<RowWise<Interleaved, Query>, RowWise<Interleaved, Item>>>{}, ranks);
  };
  const auto hot = [&](int ranks) {
    return layout(
        std::type_identity<
            Plan<HotRows<1'000, RowWise<Interleaved, Query>>, HotRows<3, RowWise<Item>>>>{},
        ranks);
  };
  const std::vector<Layout> others{
      dealt(1),
      dealt(3),
      dealt(5),
      hot(1),
      hot(2),
      hot(5),
      layout(std::type_identity<Plan<RowWise<Query>, TableWise<Item>>>{}, 2),
      layout(std::type_identity<Plan<ColumnWise<4, Query>, Replicated<Item>>>{}, 3)};
  REQUIRE(dealt(4).shards.size() == 11 * 4 + 4 * 4);
  for (const Layout& other : others) {
    const TemporaryFolder folder;
    save<RowWiseAdagrad, float>(folder.path, dealt(4), 7, 1);
    save<RowWiseAdagrad, float>(folder.path, other, 8, 2, {.max_file_bytes = 3000});
    CAPTURE(other.shards.size());
    CHECK(loads<RowWiseAdagrad, float, float>(folder.path / "step-000000000001", other, 7));
    CHECK(loads<RowWiseAdagrad, float, float>(folder.path / "step-000000000002", dealt(4), 8));
  }
}

TEST_CASE("dense tensors whose shape is not that of their values") {
  CheckpointContents contents;
  std::vector<float> values(10);
  CHECK_THROWS_WITH_AS(contents.add("w", {3, 3}, std::span(values)),
                       "checkpoint: tensor 'w' of shape [3,3] has 9 elements, got 10",
                       InvalidArgument);
  CHECK_THROWS_WITH_AS(contents.add("v", {-2, -5}, std::span(values)),
                       "checkpoint: tensor 'v' of shape [-2,-5] has a negative extent",
                       InvalidArgument);
}

TEST_CASE("extras: rows of all ranks in rank order, read whole by anyone") {
  const TemporaryFolder folder;
  run_ranks(3, [&](ThreadCommunicator& c) {
    std::vector<std::int64_t> keys;
    for (int i = 0; i < 5 * c.rank(); ++i) keys.push_back(100 * c.rank() + i);
    const std::vector<std::uint8_t> bytes(static_cast<std::size_t>(c.rank() == 1 ? 6 : 0), 7);
    CheckpointContents contents;
    contents.add_rows<std::int64_t>("vocabulary.keys", 0, keys, "vocabulary");
    contents.add_rows<std::uint8_t>("blob", 2, bytes);
    contents.set_text("note", "a \"quoted\" text\n");
    CHECK_THROWS_AS(contents.add_rows<std::uint8_t>("blob", 2, bytes), InvalidArgument);
    CHECK_THROWS_AS(contents.add_rows<std::uint8_t>(
                        "odd", 4, bytes.size() == 6 ? bytes : std::vector<std::uint8_t>(3)),
                    InvalidArgument);
    save_checkpoint(c, folder.path, contents, 1);
    CheckpointReader reader(folder.path / "step-000000000001");
    CHECK(reader.tensor("vocabulary.keys").shape == std::vector<std::int64_t>{15});
    CHECK(reader.read<std::int64_t>("vocabulary.keys") ==
          std::vector<std::int64_t>{100, 101, 102, 103, 104, 200, 201, 202, 203, 204, 205, 206, 207,
                                    208, 209});
    CHECK(reader.tensor("blob").shape == std::vector<std::int64_t>{3, 2});
    CHECK(reader.read<std::uint8_t>("blob") == std::vector<std::uint8_t>(6, 7));
    CHECK(reader.manifest().texts.at("note") == "a \"quoted\" text\n");
    CHECK_THROWS_WITH_AS(reader.read<float>("blob"), doctest::Contains("holds U8, asked for F32"),
                         DataError);
    // rows of ranks are the caller's
    load_checkpoint(c, folder.path / "step-000000000001", contents);
  });
}

TEST_CASE("ranks that describe different models are told so, and nothing is left behind") {
  const TemporaryFolder folder;
  run_ranks(2, [&](ThreadCommunicator& c) {
    std::vector<float> values(4);
    CheckpointContents contents;
    contents.add(c.rank() == 0 ? "a" : "b", {4}, std::span(values));
    CHECK_THROWS_WITH_AS(save_checkpoint(c, folder.path, contents, 1),
                         doctest::Contains("ranks 0 and 1 do not give the same tensors"),
                         DataError);
    CHECK_THROWS_WITH_AS(save_checkpoint(c, folder.path, contents, 1 + c.rank()),
                         doctest::Contains("ranks 0 and 1 do not give the same step: 1 and 2"),
                         DataError);
    if (c.rank() == 1) contents.add("c", {4}, std::span(values));
    CHECK_THROWS_WITH_AS(save_checkpoint(c, folder.path, contents, 1),
                         doctest::Contains("do not give the same number of tensors: 1 and 2"),
                         DataError);
  });
  CHECK(std::filesystem::is_empty(folder.path));
}

TEST_CASE(
    "keep the last checkpoints; the latest is the highest step; saving a step again replaces it") {
  const TemporaryFolder folder;
  CHECK(!latest_checkpoint(folder.path / "none"));
  std::filesystem::create_directory(folder.path / ".partial-step-000000000001");
  SelfCommunicator c;
  std::vector<float> values(4);
  CheckpointContents contents;
  contents.add("a", {4}, std::span(values));
  for (const std::int64_t step : {5, 30, 200, 1000, 1000}) {
    values[0] += static_cast<float>(step);
    save_checkpoint(c, folder.path, contents, step, {.keep = 2});
  }
  CHECK(detail::checkpoint_steps(folder.path) == std::vector<std::int64_t>{200, 1000});
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path),
                      std::filesystem::directory_iterator()) == 2);
  CHECK(CheckpointReader(*latest_checkpoint(folder.path)).read<float>("a").at(0) == 2235.0f);
  CHECK_THROWS_WITH_AS(save_checkpoint(c, folder.path, contents, 1001, {.keep = -1}),
                       doctest::Contains("keep is -1"), InvalidArgument);
  CHECK_THROWS_WITH_AS(save_checkpoint(c, folder.path, contents, 1001, {.max_file_bytes = 0}),
                       doctest::Contains("max_file_bytes is 0"), InvalidArgument);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path),
                      std::filesystem::directory_iterator()) == 2);
}

TEST_CASE("what was just saved stays, and so do later steps of another training") {
  const TemporaryFolder folder;
  Small model;
  for (const std::int64_t step : {5, 100, 200}) model.save(folder.path, step);
  CHECK(model.save(folder.path, 10, {.keep = 1}).warning == "");
  CHECK(detail::checkpoint_steps(folder.path) == std::vector<std::int64_t>{10, 100, 200});
  model.save(folder.path, 20, {.keep = 2});
  model.save(folder.path, 30, {.keep = 2});
  CHECK(detail::checkpoint_steps(folder.path) == std::vector<std::int64_t>{20, 30, 100, 200});
}

TEST_CASE("an older checkpoint that is damaged does not end a save; nothing is removed meanwhile") {
  const TemporaryFolder folder;
  Small model;
  for (const std::int64_t step : {1, 2, 3}) model.save(folder.path, step);
  const auto manifest = folder.path / detail::checkpoint_name(2) / "manifest.json";
  write_text(manifest, text_of(manifest).replace(40, 1, "?"));
  CHECK(model.save(folder.path, 4, {.keep = 3})
            .warning.find("not removed: file '" + manifest.string()) != std::string::npos);
  CHECK(detail::checkpoint_steps(folder.path) == std::vector<std::int64_t>{1, 2, 3, 4});
  CHECK(model.save(folder.path, 5, {.keep = 3}).warning == "");
  CHECK(detail::checkpoint_steps(folder.path) == std::vector<std::int64_t>{3, 4, 5});
}

TEST_CASE("names that saves do not make are left alone") {
  const TemporaryFolder folder;
  Small model;
  for (const char* name : {".partial-notes", "step--00000000099", "step-7",
                           ".partial-step-000000000003", ".partial-removed-step-000000000002"})
    std::filesystem::create_directories(folder.path / name / "x");
  model.save(folder.path, 4, {.keep = 1});
  CHECK(detail::checkpoint_steps(folder.path) == std::vector<std::int64_t>{4});
  for (const char* name : {".partial-notes", "step--00000000099", "step-7"})
    CHECK(std::filesystem::exists(folder.path / name / "x"));
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path),
                      std::filesystem::directory_iterator()) == 4);
}

TEST_CASE("one saver at a time: others are told, and what the first writes stays") {
  const TemporaryFolder folder;
  Small model;
  {
    const FolderLock lock(folder.path);
    std::filesystem::create_directory(folder.path / detail::partial_checkpoint_name(1));
    run_ranks(2, [&](ThreadCommunicator& c) {
      std::vector<float> values(4);
      CheckpointContents contents;
      contents.add("a", {4}, std::span(values));
      CHECK_THROWS_WITH_AS(save_checkpoint(c, folder.path, contents, 1),
                           doctest::Contains("another program or save writes"), DataError);
    });
    CHECK(std::filesystem::exists(folder.path / detail::partial_checkpoint_name(1)));
    model.save(folder.path, 1, {.locked = true});
  }
  model.save(folder.path, 2);
  const FolderLock free(folder.path);  // the save took its own along
}

TEST_CASE("FIFOs, devices and manifests without end are refused at once") {
  const TemporaryFolder folder;
  Small model;
  model.save(folder.path, 1);
  const std::filesystem::path checkpoint = folder.path / detail::checkpoint_name(1);
  for (const std::filesystem::path& file :
       {checkpoint / "manifest.json", checkpoint / "0000-dense.safetensors"}) {
    const std::string good = text_of(file);
    std::filesystem::remove(file);
    REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
    CHECK(model.refusal(checkpoint) ==
          "cannot read '" + file.string() + "': it is not a regular file");
    std::filesystem::remove(file);
    std::filesystem::create_symlink("/dev/zero", file);
    CHECK(model.refusal(checkpoint) ==
          "cannot read '" + file.string() + "': it is not a regular file");
    std::filesystem::remove(file);
    write_text(file, good);
  }
  CHECK(model.refusal(checkpoint) == "");
  std::filesystem::resize_file(checkpoint / "manifest.json", std::uintmax_t{1} << 40);
  CHECK(model.refusal(checkpoint)
            .find("manifest.json' has 1099511627776 bytes: a manifest has at most") !=
        std::string::npos);
}

TEST_CASE("a checkpoint of another step than its folder says, and a folder of checkpoints") {
  const TemporaryFolder folder;
  Small model;
  model.save(folder.path, 3);
  model.save(folder.path, 5);
  CHECK(model.refusal(folder.path) ==
        "'" + folder.path.string() + "' holds checkpoints and is none itself: load one of them; " +
            "latest_checkpoint gives '" + (folder.path / detail::checkpoint_name(5)).string() +
            "'");
  std::filesystem::rename(folder.path / detail::checkpoint_name(5),
                          folder.path / detail::checkpoint_name(6));
  CHECK(model.refusal(folder.path / detail::checkpoint_name(6) / "")
            .find("is of step 5, which is not that of its folder") != std::string::npos);
  std::filesystem::rename(folder.path / detail::checkpoint_name(6), folder.path / "best");
  CHECK(model.refusal(folder.path / "best") == "");
}

TEST_CASE("a long list of differences is shown in part") {
  const TemporaryFolder folder;
  Small model, other;
  for (int i = 0; i < 1000; ++i)
    model.contents.add_number(
        fmt::format("n{}", i), [] { return std::uint64_t{0}; }, [](std::uint64_t) {});
  model.save(folder.path, 1);
  const std::string text = other.refusal(folder.path / detail::checkpoint_name(1));
  CHECK(std::count(text.begin(), text.end(), '\n') == 21);
  CHECK(text.ends_with("\n  and 980 more"));
}

TEST_CASE("a number that the model refuses leaves its rows as they were") {
  const TemporaryFolder folder;
  Small model, other;
  model.contents.add_number("n", [] { return std::uint64_t{1}; }, [](std::uint64_t) {});
  model.save(folder.path, 1);
  other.values.assign(4, 9.0f);
  other.contents.add_number(
      "n", [] { return std::uint64_t{0}; },
      [](std::uint64_t number) { throw DataError(fmt::format("n is {}", number)); });
  CHECK(other.refusal(folder.path / detail::checkpoint_name(1)).ends_with("n is 1"));
  CHECK(other.values == std::vector<float>(4, 9.0f));
}

TEST_CASE("only what is named may be missing or left over") {
  const TemporaryFolder folder;
  SelfCommunicator c;
  const Layout two = make_layout({1}, {{"user", 5, 4}, {"shop", 3, 4}}, {},
                                 {{0, {0, 5, 0, 4}, 0}, {1, {0, 3, 0, 4}, 0}});
  const Layout one = make_layout({1}, {{"user", 5, 4}}, {}, {{0, {0, 5, 0, 4}, 0}});
  {
    Trained<RowWiseAdagrad, float, SelfCommunicator> model(c, two, 5);
    std::vector<float> state(2);
    model.contents.add("dense.m", {2}, std::span(state));
    save_checkpoint(c, folder.path, model.contents, 1);
  }
  const auto checkpoint = folder.path / detail::checkpoint_name(1);
  // To score: no optimizer's state.
  Trained<Sgd, float, SelfCommunicator> scoring(c, two, 99);
  load_checkpoint(c, checkpoint, scoring.contents, {.extra = {"*.sum", "dense.*"}});
  CHECK(scoring.is<float>(5));
  // A table that the program forgot is still an error.
  Trained<Sgd, float, SelfCommunicator> forgot(c, one, 99);
  CHECK_THROWS_WITH_AS(
      load_checkpoint(c, checkpoint, forgot.contents, {.extra = {"*.sum", "dense.*"}}),
      doctest::Contains("the model has no 'shop.weight'"), DataError);
  CHECK(forgot.is<float>(99));
  // What begins anew: a head; the number 'late' is not named.
  std::vector<float> head(3, 7.0f);
  scoring.contents.add("head.weight", {3}, std::span(head));
  scoring.contents.add_number("late", scoring.epoch);
  CHECK_THROWS_WITH_AS(load_checkpoint(c, checkpoint, scoring.contents,
                                       {.missing = {"head.*"}, .extra = {"*.sum", "dense.*"}}),
                       doctest::Contains("the checkpoint has no number 'late'"), DataError);
  load_checkpoint(c, checkpoint, scoring.contents,
                  {.missing = {"head.*", "late"}, .extra = {"*.sum", "dense.*"}});
  CHECK(head == std::vector<float>(3, 7.0f));
}

TEST_CASE("values that are no numbers are refused where that is asked for, in every precision") {
  const auto refused = [](auto x) {
    using X = decltype(x);
    const TemporaryFolder folder;
    const std::vector<TableSpec> tables{{"t", 40, 6}};
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()})
      run_ranks(2, [&](ThreadCommunicator& c) {
        Trained<Sgd, X, ThreadCommunicator> model(
            c, make_layout({2}, tables, {}, {{0, {0, 40, 0, 4}, 0}, {0, {0, 40, 4, 6}, 1}}), 5);
        save_checkpoint(c, folder.path, model.contents, 1, {.finite = true});
        visit(model.tables,
              [&](std::string_view, int, std::int64_t row, std::int64_t column, auto& y) {
                if (row == 33 && column == 5)
                  y = from_float<std::remove_reference_t<decltype(y)>>(bad);
              });
        CHECK_THROWS_WITH_AS(
            save_checkpoint(c, folder.path, model.contents, 2, {.finite = true}),
            "rank 1: checkpoint: 't.weight' holds values that are NaN or infinite: it is not saved",
            DataError);
      });
    CHECK(detail::checkpoint_steps(folder.path) == std::vector<std::int64_t>{1});
  };
  refused(float());
  refused(Half());
  refused(BFloat16());
  Small model;
  model.values[2] = std::numeric_limits<float>::infinity();
  const TemporaryFolder folder;
  CHECK_THROWS_AS(model.save(folder.path, 1, {.finite = true}), DataError);
  model.save(folder.path, 1);
}

TEST_CASE("tensors without a name, and those of another type than was compared") {
  const TemporaryFolder folder;
  Small model;
  std::vector<std::uint8_t> bytes(4, 200);
  CheckpointContents crafted;
  CHECK_THROWS_WITH_AS(crafted.add("", {4}, std::span(bytes)), "checkpoint: a tensor has no name",
                       InvalidArgument);
  CHECK_THROWS_WITH_AS(crafted.add("\xb3\xc7", {4}, std::span(bytes)),
                       "the name of a checkpoint's tensor '\\xb3\\xc7' is not UTF-8; rename it",
                       InvalidArgument);
  crafted.add("a", {4}, std::span(bytes));
  model.save(folder.path, 1);
  save_checkpoint(model.c, folder.path, crafted, 2);
  // Step 2 becomes an increment of step 1, in which a tensor without a name once stood for all that
  // are no row numbers.
  const auto write = [&](std::int64_t step, const detail::Manifest& manifest) {
    const std::string text = detail::format_manifest(manifest);
    write_text(folder.path / detail::checkpoint_name(step) / "manifest.json", text);
    return detail::crc32(text);
  };
  detail::Manifest base = detail::read_manifest(folder.path / detail::checkpoint_name(1)).first,
                   top = detail::read_manifest(folder.path / detail::checkpoint_name(2)).first;
  top.base = detail::checkpoint_name(1);
  top.base_crc = write(1, base);
  write(2, top);
  const std::string type = "'a' is U8 in the checkpoint, F32 in the model";
  CHECK(model.refusal(folder.path / detail::checkpoint_name(2)).find(type) != std::string::npos);
  base.tensors.push_back({"", detail::TensorType::f32, {0}, {}});
  top.base_crc = write(1, base);
  write(2, top);
  CHECK(model.refusal(folder.path / detail::checkpoint_name(2)).find("a tensor without a name") !=
        std::string::npos);
  CHECK(model.values == std::vector<float>{1, 2, 3, 4});
}
