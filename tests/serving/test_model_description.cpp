// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// What a checkpoint says of its model: written and read again, through a checkpoint's folder, and
// texts that are no description.
#include <tessera/checkpoint/folder.hpp>
#include <tessera/checkpoint/load.hpp>
#include <tessera/checkpoint/save.hpp>
#include <tessera/comm/self_communicator.hpp>
#include <tessera/host/backend.hpp>
#include <tessera_serving/key_lists.hpp>
#include <tessera_serving/model_description.hpp>

#include <support/message_of.hpp>
#include <support/replaced.hpp>
#include <support/temporary_folder.hpp>
#include <support/text_of.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace tessera;

namespace {

ModelDescription example() {
  return {.interaction = "cross",
          .vector_width = 4,
          .bottom_mlp = {2, 8, 4},
          .top_mlp = {12, 5, 1},
          .cross_layers = 2,
          .cross_rank = 3,
          .dense_precision = "bf16",
          .numeric = {{"I1", NumberTransform::log, 1.2345678, 0x1.fffffep-10f, true, -1.0f},
                      {"a \"quoted\"", NumberTransform::none, 0, 1, false, {}}},
          .tables = {{"C1", 100, 4, CategoryKey::hex, KeyRows::list, 0, 1, 0, {}},
                     {"city", 7, 4, CategoryKey::text, KeyRows::hash, ~std::uint64_t{0}, {}, 0, {}},
                     {"user", 9, 4, CategoryKey::text, KeyRows::vocabulary, 0, {}, {}, -1}},
          .features = {{"C1", "C1", Pooling::sum, false}, {"cities", "city", Pooling::mean, true}}};
}

std::string fault_of(const std::string& text) {
  return message_of<DataError>([&] { parse_model_description(text, "model.json"); });
}

/// The folder of a checkpoint with one tensor of the model, and these files.
template <class Add>
std::filesystem::path saved(const TemporaryFolder& folder, std::vector<float>& values,
                            const Add& add) {
  SelfCommunicator self;
  CheckpointContents contents;
  contents.add(Host(), "w", {2, 2}, std::span(values));
  add(contents);
  save_checkpoint(self, folder.path, contents, 3);
  return *latest_checkpoint(folder.path);
}

}  // namespace

TEST_CASE("a description comes back as it was written") {
  const ModelDescription model = example();
  const std::string text = format_model_description(model);
  const ModelDescription again = parse_model_description(text, "model.json");
  CHECK(format_model_description(again) == text);
  CHECK(again.numeric[0].shift == model.numeric[0].shift);
  CHECK(again.numeric[0].scale == model.numeric[0].scale);
  ModelDescription seconds = model;
  seconds.numeric[0].shift = 1517356834.5, seconds.numeric[0].scale = 1 / 2.8722813232690143;
  const ModelDescription exact =
      parse_model_description(format_model_description(seconds), "model.json");
  CHECK(exact.numeric[0].shift == seconds.numeric[0].shift);
  CHECK(exact.numeric[0].scale == seconds.numeric[0].scale);
  CHECK(exact.numeric[0].needs_double());
  CHECK(again.numeric[0].empty == -1.0f);
  CHECK_FALSE(again.numeric[1].may_be_empty);
  CHECK(again.numeric[1].name == "a \"quoted\"");
  CHECK(again.table("city").hash_seed == ~std::uint64_t{0});
  CHECK(again.table("user").empty_key == -1);
  CHECK(again.features[1].list);
  CHECK(again.features[1].separator == '|');
  ModelDescription other = model;
  other.features[1].separator = '"';
  CHECK(parse_model_description(format_model_description(other), "x").features[1].separator == '"');
  CHECK_THROWS_AS(again.table("none"), InvalidArgument);

  ModelDescription wide = example();
  wide.interaction = "concat";
  wide.bottom_mlp.clear();
  wide.cross_layers = wide.cross_rank = 0;
  wide.wide = true;
  wide.tables[1].width = 7;
  wide.top_mlp[0] = wide.columns();
  CHECK(wide.columns() == 2 + 4 + 7);
  const ModelDescription deep = parse_model_description(format_model_description(wide), "x");
  CHECK(format_model_description(deep) == format_model_description(wide));
  CHECK(deep.wide);
  CHECK(deep.bottom_mlp.empty());
  CHECK(deep.projected_widths().empty());
  wide.interaction = "dot";
  CHECK(wide.projected_widths() == std::set<std::int64_t>{7});
}

TEST_CASE("a model of histories comes back, and one that is none is refused") {
  const ModelDescription model{
      .interaction = "hstu",
      .vector_width = 4,
      .top_mlp = {4, 1},
      .history = HistoryLayers{2, 2, 50, 102},
      .numeric = {{"stars", NumberTransform::at_least, 3.5f, 1, false, {}, true}},
      .tables = {{"item", 7, 4, CategoryKey::integer, KeyRows::key, 0, {}, {}, {}}},
      .features = {{"history", "item", Pooling::none, true},
                   {"candidate", "item", Pooling::none, false}}};
  const std::string text = format_model_description(model);
  const ModelDescription again = parse_model_description(text, "model.json");
  CHECK(format_model_description(again) == text);
  CHECK(again.history->attention_length == 102);
  CHECK(again.numeric[0].list);
  CHECK(again.numeric[0].transform == NumberTransform::at_least);
  const auto check = [&](std::string_view from, std::string_view to, std::string_view said) {
    const std::string fault = fault_of(replaced(text, from, to));
    INFO(to, "\n", fault);
    CHECK(fault.find(said) != std::string::npos);
  };
  check("\"hstu\"", "\"concat\"", "hstu has a 'history'");
  check("\"history\":{\"blocks\"", "\"history\":{\"layers\"", "no key 'layers'");
  check("\"heads\":2", "\"heads\":3", "heads that divide");
  check("\"blocks\":2", "\"blocks\":2000", "at most 1,024 blocks");
  check("\"list\":true}", "\"list\":false}", "lists of numbers");
  check("\"none\"", "\"sum\"", "pools none");
  check("\"none\",\"list\":false", "\"none\",\"list\":true", "hstu takes the list of items");
  check("\"width\":4", "\"width\":8", "hstu takes the list of items");
  check("[4,1]", "[4,4,1]", "one top layer");
}

TEST_CASE("what is no description is refused with the file and the place") {
  const std::string text = format_model_description(example());
  const auto check = [&](std::string_view from, std::string_view to, std::string_view said) {
    const std::string fault = fault_of(replaced(text, from, to));
    INFO(to, "\n", fault);
    CHECK(fault.find("model.json") != std::string::npos);
    CHECK(fault.find(said) != std::string::npos);
  };
  check("\"version\":1", "\"version\":2", "newer release");
  check("tessera model", "other model", "no description");
  check("\"cross\"", "\"sum\"", "dot, cross, concat or hstu");
  check("\"bottom_mlp\":[2,8,4]", "\"bottom_mlp\":[]", "only concat");
  check("[2,8,4]", "[3,8,4]", "bottom_mlp");
  check("\"cross_rank\"", "\"cross_ranks\"", "'cross_ranks' is not known");
  check("\"cross_rank\"", '"' + std::string(9999, 'x') + '"',
        '\'' + std::string(80, 'x') + "...' is not known");
  check("\"shift\":", "\"scale\":", "twice");
  check("\"list\":true", "\"list\":1", "true or false");
  check("\"list\":true", "\"list\":\"||\"", "a list is true or its separator");
  check("\"table\":\"city\"", "\"table\":\"town\"", "no table 'town'");
  check("\"unknown_row\":1", "\"unknown_row\":100", "outside its 100 rows");
  check("1.2345678", "1.2.3", "a number");
  check("1.2345678", "1e999", "the number is too large");
  check("1.2345678", "01.5", "a number begins with 0");
  for (const char* number : {".5", "-.5", "1.", "1.e2", "+1", "-", "1e"})
    check("1.2345678", number, "a number is expected here");
  CHECK(fault_of(text.substr(0, text.size() / 2)).find("model.json") != std::string::npos);
}

TEST_CASE("a checkpoint carries its description and lists of keys, which loading passes over") {
  const TemporaryFolder folder;
  std::vector<float> values{1, 2, 3, 4};
  ModelDescription model = example();
  const std::vector<std::int64_t> keys{5, -7, std::int64_t{1} << 60};
  const auto checkpoint = saved(folder, values, [&](CheckpointContents& contents) {
    add_model_description(contents, model, {{"C1", {keys, {2, 99, 2}}}});
  });
  CheckpointReader reader(checkpoint);
  CHECK(format_model_description(read_model_description(reader)) ==
        format_model_description(model));
  const auto lists = detail::read_key_lists(reader, model);
  CHECK(lists.at("C1").keys == keys);
  CHECK(lists.at("C1").rows == std::vector<std::int32_t>{2, 99, 2});

  SelfCommunicator self;
  CheckpointContents alone;
  std::vector<float> loaded(4);
  alone.add(Host(), "w", {2, 2}, std::span(loaded));
  load_checkpoint(self, checkpoint, alone);
  CHECK(loaded == values);

  model.tables[0].rows = 99;  // row 99 is outside
  CHECK_THROWS_WITH_AS(detail::read_key_lists(reader, model),
                       doctest::Contains("table 'C1' of 99 rows"), DataError);
  std::fstream(checkpoint / "model.json", std::ios::in | std::ios::out).seekp(40).put('X');
  CheckpointReader damaged(checkpoint);
  CHECK_THROWS_WITH_AS(read_model_description(damaged), doctest::Contains("model.json"), DataError);
}

TEST_CASE("a checkpoint without a description says what to do") {
  const TemporaryFolder folder;
  std::vector<float> values{1, 2, 3, 4};
  CheckpointReader reader(saved(folder, values, [](CheckpointContents& contents) {
    CHECK_THROWS_AS(contents.set_file("manifest.json", ""), InvalidArgument);
    CHECK_THROWS_AS(contents.set_file("../x", ""), InvalidArgument);
    CHECK_THROWS_AS(contents.set_file("0000-x", ""), InvalidArgument);
  }));
  CHECK_THROWS_WITH_AS(read_model_description(reader), doctest::Contains("--resume"), DataError);
}

TEST_CASE("a checkpoint that is cut off and copied over while it is read is an error, or whole") {
  const TemporaryFolder folder;
  std::vector<float> values{1, 2, 3, 4};
  const std::string last = "tensor 2999";
  const auto checkpoint = saved(folder, values, [&](CheckpointContents& contents) {
    // a header that takes a while to read
    for (int i = 0; i < 3000; ++i)
      contents.add(Host(), "tensor " + std::to_string(i), {2, 2}, std::span(values));
  });
  const auto file = [&] {
    const CheckpointReader reader(checkpoint);
    const auto piece = reader.tensor(last).pieces.at(0);
    return checkpoint / reader.manifest().files.at(static_cast<std::size_t>(piece.file)).name;
  }();
  const std::string bytes = text_of(file);
  REQUIRE(bytes.size() > 200'000);
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over) {
      std::filesystem::resize_file(file, 0);
      std::this_thread::yield();
      std::fstream(file, std::ios::in | std::ios::out | std::ios::binary) << bytes;
      std::this_thread::yield();
    }
  });
  int refused = 0, whole = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while ((refused < 40 || whole < 3) && std::chrono::steady_clock::now() < until) {
    try {
      CheckpointReader reader(checkpoint);
      whole += reader.read<float>(last) == values;
    } catch (const DataError& error) {
      CHECK(std::string(error.what()).find(file.string()) != std::string::npos);
      ++refused;
    }
  }
  over = true;
  other.join();
  CHECK(refused >= 40);
  // a whole copy between two reads
  CheckpointReader between(checkpoint);
  between.verify(0, between.chunks());
  CHECK_NOTHROW(between.check_unchanged());
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary) << bytes;
  CHECK_THROWS_WITH_AS(between.check_unchanged(), doctest::Contains("was changed while"),
                       DataError);
  CHECK(CheckpointReader(checkpoint).read<float>(last) == values);
}
