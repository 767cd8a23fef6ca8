// SPDX-FileCopyrightText: 2026 The Tessera authors
// SPDX-License-Identifier: Apache-2.0
//
// Plan files: layouts come back as they were written, and what differs from the tables is named.
#include <support/message_of.hpp>
#include <support/random_layouts.hpp>
#include <support/temporary_folder.hpp>

#include <tessera/planner/plan_file.hpp>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <vector>

using namespace tessera;

namespace {

const std::vector<TableSpec> kTables{{.name = "item", .rows = 100, .width = 8},
                                     {.name = "a \"quoted\"\n name", .rows = 7, .width = 4}};

Layout two_tables() {
  return make_layout({2, 0}, kTables, {},
                     {{0, {0, 40, 0, 8}, 1},
                      {0, {40, 100, 0, 4}, 0, Tier::host},
                      {0, {40, 100, 4, 8}, 1, Tier::file, 50},
                      {1, {0, 7, 0, 4}, every_rank}});
}

std::string error_of(const std::string& text, const std::vector<TableSpec>& tables = kTables,
                     int ranks = 2) {
  return message_of<DataError>(
      [&] { detail::parse_plan_file(text, "p.json", tables, {ranks, 0}); });
}

bool same(const std::vector<Shard>& a, const std::vector<Shard>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Shard& x, const Shard& y) {
    return x.table == y.table && x.rectangle == y.rectangle && x.rank == y.rank &&
           x.tier == y.tier && x.cache_rows == y.cache_rows;
  });
}

}  // namespace

TEST_CASE("a layout comes back from its plan file, in any order of the tables") {
  const Layout layout = two_tables();
  REQUIRE(layout.fault.ok());
  const TemporaryFolder folder;
  std::ofstream(folder.path / "plan.json") << plan_file_text(layout);
  const Layout read = read_plan_file(folder.path / "plan.json", kTables, {}, {2, 0});
  CHECK(same(read.shards, layout.shards));
  const std::vector<TableSpec> turned{kTables[1], kTables[0]};
  const Layout other = read_plan_file(folder.path / "plan.json", turned, {}, {2, 0});
  CHECK(other.shards.front().rank == every_rank);
  CHECK(other.shards.front().rectangle == Rectangle{0, 7, 0, 4});
  // another reader of JSON sees the same numbers
  const nlohmann::json json = nlohmann::json::parse(plan_file_text(layout));
  CHECK(json["ranks"] == 2);
  CHECK(json["tables"][1]["name"] == "a \"quoted\"\n name");
  CHECK(json["tables"][0]["shards"][1]["memory"] == "host");
  CHECK(json["tables"][0]["shards"][2]["memory"] == "file");
  CHECK(json["tables"][0]["shards"][2]["cache_rows"] == 50);
  CHECK(json["tables"][1]["shards"][0]["rank"] == "every");
}

TEST_CASE("random layouts come back") {
  std::mt19937 random(3);
  for (int i = 0; i < 50; ++i) {
    const random_layouts::Model model = random_layouts::random_model(random, false);
    const Layout layout =
        random_layouts::random_layout(random, model, 1 + i % 5, random_layouts::Shape::replicated);
    CHECK(same(detail::parse_plan_file(plan_file_text(layout), "p", layout.tables, layout.topology),
               layout.shards));
  }
}

TEST_CASE("what differs from the tables is named") {
  const std::string text = plan_file_text(two_tables());
  std::vector<TableSpec> tables = kTables;
  tables[0].rows = 120;
  CHECK(error_of(text, tables).find("'item' has 100 rows there, 120 here") != std::string::npos);
  tables = kTables;
  tables[0].width = 16;
  CHECK(error_of(text, tables).find("'item' has width 8 there, 16 here") != std::string::npos);
  tables = kTables;
  tables[0].name = "user";
  const std::string two = error_of(text, tables);
  CHECK(two.find("it has a table 'item', which is not there") != std::string::npos);
  CHECK(two.find("it lacks table 'user'") != std::string::npos);
  CHECK(error_of(text, kTables, 4) ==
        "plan file 'p.json' is for 2 ranks, but there are 4: run as many, or plan again for 4");
}

TEST_CASE("faults of a plan file are named with their place; a changed byte never passes wrongly") {
  const std::string text = plan_file_text(two_tables());
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    other.replace(other.find(from), from.size(), to);
    return other;
  };
  CHECK(error_of("").find("the text ends too early") != std::string::npos);
  CHECK(error_of("[]").find("an object is expected here") != std::string::npos);
  CHECK(error_of("{}").find("this is no plan file") != std::string::npos);
  CHECK(error_of(changed("\"tessera_plan\": 1", "\"tessera_plan\": 2")).find("another version") !=
        std::string::npos);
  CHECK(error_of(changed("\"rank\": 1", "\"rank\": 2")).find("no rank of this number") !=
        std::string::npos);
  CHECK(error_of(changed("\"every\"", "\"all\"")).find("a rank is a number, or \"every\"") !=
        std::string::npos);
  CHECK(error_of(changed("\"host\"", "\"disk\"")).find("memory is") != std::string::npos);
  CHECK(error_of(changed("\"file\"", "\"device\"")).find("cache_rows are of rows in") !=
        std::string::npos);
  CHECK(error_of(changed("50}", "-1}")).find("p.json") != std::string::npos);
  CHECK(error_of(changed("[0, 40]", "[40, 0]")).find("two numbers") != std::string::npos);
  CHECK(error_of(changed("[0, 40]", "[0]")).find("two numbers") != std::string::npos);
  CHECK(error_of(changed("[0, 40]", "[0, 1, 40]")).find("two numbers") != std::string::npos);
  CHECK(error_of(changed("\"columns\"", "\"colums\"")).find("an unknown key") != std::string::npos);
  CHECK(error_of(changed("\"shards\"", "\"parts\"")).find("an unknown key") != std::string::npos);
  CHECK(error_of(text + "x").find("text follows") != std::string::npos);
  const TemporaryFolder folder;
  const auto read = [&](const std::string& content) {
    std::ofstream(folder.path / "plan.json") << content;
    return read_plan_file(folder.path / "plan.json", kTables, {}, {2, 0});
  };
  CHECK_THROWS_WITH_AS(read(changed("[0, 40]", "[0, 39]")),
                       doctest::Contains("cover 792 of its 800 elements"), InvalidArgument);
  CHECK_THROWS_WITH_AS(read(changed("[0, 40]", "[0, 41]")),
                       doctest::Contains("two shards of table 'item' overlap"), InvalidArgument);
  CHECK_THROWS_WITH_AS(read(changed("[4, 8]", "[4, 9]")), doctest::Contains("reaches outside"),
                       InvalidArgument);
  CHECK_THROWS_AS(read_plan_file(folder.path / "none.json", kTables, {}, {2, 0}), DataError);
  CHECK_THROWS_AS(read_plan_file(folder.path, kTables, {}, {2, 0}), DataError);
  // Any byte changed or the end cut off: a named error, or a layout that is sound.
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const char with : {'0', '"', '}', '\x01'}) {
      std::string other = text;
      other[at] = with;
      try {
        const Layout layout = read(other);
        CHECK(detail::check_cover(layout).ok());
      } catch (const Error& error) {
        CHECK(std::string(error.what()).find("plan.json") != std::string::npos);
      }
    }
    CHECK((at + 2 >= text.size() || error_of(text.substr(0, at)) != ""));
  }
}
